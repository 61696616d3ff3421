"""What can go wrong on Determined, for the contract of batch platforms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from nnilite.testing import BatchTrouble, eventually
from platforms.determined.bench import DeterminedBench
from platforms.determined.cluster import TERMINAL, DeterminedExperiment
from platforms.determined.master import Master

LIST, SUBMIT = "GET /api/v1/experiments?", "POST /api/v1/experiments"
_BODY = json.dumps({"error": {"code": 3, "reason": "x", "error": BatchTrouble.words}}).encode()


class DeterminedTrouble(BatchTrouble):
    """On the stand-in."""

    odd_state = "STATE_UNSPECIFIED"  # the interface has no other

    def __init__(self, bench: DeterminedBench, master: Master) -> None:
        super().__init__(bench)
        self._master = master
        self._cluster = master.cluster

    def _experiment(self, job: str) -> DeterminedExperiment:
        return self._cluster.named(job)

    @contextmanager
    def away(self) -> Iterator[None]:
        self._master.misbehave("/api/v1", 1000)
        yield
        self._master.misbehavior.clear()

    @contextmanager
    def refuse_lists(self, status: int) -> Iterator[None]:
        self._master.misbehave(LIST, 1000, status=status, body=_BODY)
        yield
        self._master.misbehavior.clear()

    def refuse_next_job(self, status: int) -> None:
        self._master.misbehave(SUBMIT, 1, status=status, body=_BODY)

    def lose_next_answer(self) -> None:
        self._master.misbehave(SUBMIT, 1, after=True)

    @contextmanager
    def hold(self) -> Iterator[None]:
        self._cluster.holds = True
        yield
        self._cluster.holds = False
        self._cluster.schedule()

    def forget(self, job: str) -> None:
        gone = self._experiment(job)
        self._cluster.cancel(gone, kill=True)
        eventually(lambda: gone.container is None)
        self._cluster.delete(gone)

    def take_away(self, job: str) -> None:
        self._cluster.lose(self._experiment(job))

    def stop(self, job: str) -> None:
        self._cluster.cancel(self._experiment(job), kill=True)

    @contextmanager
    def pretend(self, job: str, state: str) -> Iterator[None]:
        found = self._experiment(job)
        before, found.state = found.state, state
        yield
        found.state = before

    def is_over(self, job: str) -> bool:
        return self._experiment(job).state in TERMINAL
