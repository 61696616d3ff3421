"""What can go wrong on Azure, for the contract of batch platforms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from nnilite.testing import BatchTrouble
from platforms.aml.bench import AmlBench
from platforms.aml.cloud import StandInCloud
from platforms.aml.workspace import ENDED, WORKSPACE

_BODY = json.dumps({"error": {"code": "x", "message": BatchTrouble.words}}).encode()


class AmlTrouble(BatchTrouble):
    """On the stand-in."""

    odd_state = "Unknown"  # the contract has no other

    def __init__(self, bench: AmlBench, cloud: StandInCloud) -> None:
        super().__init__(bench)
        self._cloud = cloud

    def away(self) -> AbstractContextManager[object]:
        return self._cloud.outage()

    @contextmanager
    def refuse_lists(self, status: int) -> Iterator[None]:
        self._cloud.misbehave("/jobs?", 1000, status=status, body=_BODY)
        yield
        self._cloud.misbehavior.clear()

    def refuse_next_job(self, status: int) -> None:
        self._cloud.misbehave("/jobs/nni-", 1, status=status, body=_BODY)

    def lose_next_answer(self) -> None:
        self._cloud.misbehave("/jobs/nni-", 1, after=True)

    @contextmanager
    def hold(self) -> Iterator[None]:
        self._cloud.workspace.paused = True
        yield
        self._cloud.workspace.paused = False
        self._cloud.workspace.schedule()

    def forget(self, job: str) -> None:
        self._cloud.workspace.forget(self._cloud.workspace.of(job))

    def take_away(self, job: str) -> None:
        self._cloud.workspace.preempt(self._cloud.workspace.of(job))

    def stop(self, job: str) -> None:
        name = self._cloud.workspace.of(job).name
        self._cloud.workspace.answer("POST", f"{WORKSPACE}/jobs/{name}/cancel", {}, None)

    @contextmanager
    def pretend(self, job: str, state: str) -> Iterator[None]:
        found = self._cloud.workspace.of(job)
        before, found.status = found.status, state
        yield
        found.status = before

    def is_over(self, job: str) -> bool:
        return self._cloud.workspace.of(job).status in ENDED
