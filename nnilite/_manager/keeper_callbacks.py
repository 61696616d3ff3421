"""Hands what keepers report by REST to the engine."""

from __future__ import annotations

from collections.abc import Sequence

from nnilite._answers.backend import CallbackAnswer, FencedConflict, GapConflict
from nnilite._engine.dedupe import Fenced, GapFound
from nnilite._engine.engine import Engine
from nnilite._engine.gate import BatchAnswer
from nnilite._engine.jobs import JobMaker
from nnilite.records import KeeperEvent


class KeeperCallbacks:
    """Implements `nnilite._answers.backend.Callbacks`."""

    def __init__(self, engine: Engine, jobs: JobMaker) -> None:
        self._engine = engine
        self._jobs = jobs

    async def events(self, job: str, events: Sequence[KeeperEvent]) -> CallbackAnswer:
        trial, attempt = self._jobs.parse(job)
        try:
            try:
                return _answer(await self._engine.commit_events(trial, attempt, events))
            except GapFound:
                known = await self._engine.commit_events(trial, attempt, ())
        except Fenced:
            raise FencedConflict("a newer attempt of this trial has taken its place") from None
        raise GapConflict(_answer(known))

    def callback_token(self, job: str) -> str:
        return self._jobs.token(job)


def _answer(taken: BatchAnswer) -> CallbackAnswer:
    return CallbackAnswer(taken.cancel, taken.metrics, taken.output)
