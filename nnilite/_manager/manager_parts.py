"""The parts of a running manager, among them the one that publishes what is committed."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import string
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from nnilite._answers.backend import Profile
from nnilite._answers.changes import Changes
from nnilite._checkpoints.checkpoint_tidying import CheckpointTidier
from nnilite._engine import messages
from nnilite._engine.engine import Engine
from nnilite._engine.jobs import JobMaker
from nnilite._engine.rules import Rules
from nnilite._store.async_store import AsyncStore
from nnilite._tuner_host.tuner_client import TunerHost
from nnilite._views.experiment_facts import ExperimentProgress
from nnilite.records import ExperimentState
from nnilite.service import TrainingService

_FIRST, _FURTHER = string.ascii_lowercase, string.ascii_lowercase + string.digits
_NUMBER_FURTHER = 7
_PROFILE_EVERY_S = 0.3
_HOSTS_EVERY_S = 10.0  # how busy hosts are is reported also while nothing else changes


def make_trial_id() -> str:
    """Return 8 characters of [a-z0-9], beginning with a letter. They are unique even where case does not count."""
    # One random number takes one system call, and a choice for each character takes one and more of them.
    number = secrets.randbelow(len(_FIRST) * len(_FURTHER) ** _NUMBER_FURTHER)
    further = ""
    for _ in range(_NUMBER_FURTHER):
        number, place = divmod(number, len(_FURTHER))
        further += _FURTHER[place]
    return _FIRST[number] + further


class Publisher:
    """Publishes committed changes. A change that is not committed has not happened.

    It feeds the live stream, with the profile at most a few times a second.
    """

    def __init__(
        self,
        rules: Rules,
        tidiers: Sequence[CheckpointTidier],
        state_changed: Callable[[ExperimentState, float | None], None],
    ) -> None:
        self.changes = Changes()
        self.progress = _make_progress(rules)
        self._rules = rules
        self._tidiers = tidiers
        self._state_changed = state_changed
        self._dirty = asyncio.Event()

    def committed(self, records: Sequence[messages.Record]) -> None:
        self.progress = _make_progress(self._rules)
        for record in records:
            if isinstance(record, messages.SaveTrial):
                self.changes.publish(record.trial)
            elif isinstance(record, messages.SaveMetric):
                self.changes.publish(record.metric)
            elif isinstance(record, messages.SaveExperiment):
                self._state_changed(record.state, record.ended)
        for tidier in self._tidiers:
            tidier.committed(records)
        self._dirty.set()

    async def run(self, profile: Callable[[], Awaitable[Profile]]) -> None:
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._dirty.wait(), _HOSTS_EVERY_S)
            self._dirty.clear()
            if self.changes.has_readers:  # a new reader asks for the profile itself, after it has subscribed
                self.changes.publish(await profile())
            await asyncio.sleep(_PROFILE_EVERY_S)


@dataclass(frozen=True)
class ManagerParts:
    """The parts that a running manager has and a viewer does not have."""

    engine: Engine
    jobs: JobMaker
    service: TrainingService
    store: AsyncStore
    tuner: TunerHost
    publisher: Publisher


def _make_progress(rules: Rules) -> ExperimentProgress:
    return ExperimentProgress(
        state=rules.state,
        reason=rules.reason,
        duration_s=rules.duration_s,
        ended=rules.ended,
        limits=rules.settings.limits,
        counts=dict(rules.counts),
        best=rules.best,
        next_sequence=rules.next_sequence,
    )
