"""What can go wrong on DLTS, for the contract of batch platforms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nnilite.testing import BatchTrouble
from platforms.dlts.bench import DltsBench
from platforms.dlts.dashboard import Dashboard, answer

_ENDED = ("finished", "failed", "killed", "error")


class DltsTrouble(BatchTrouble):
    """On the stand-in."""

    def __init__(self, bench: DltsBench, dashboard: Dashboard) -> None:
        super().__init__(bench)
        self._dashboard = dashboard
        self._cluster = dashboard.cluster

    def _id(self, job: str) -> str:
        return str(self._dashboard.job(job).id)

    @contextmanager
    def away(self) -> Iterator[None]:
        self._dashboard.listener.stop()
        yield
        self._dashboard.listener.start()

    @contextmanager
    def refuse_lists(self, status: int) -> Iterator[None]:
        self._refuse("/teams/", status, 1000)
        yield
        self._dashboard.steps = []

    def refuse_next_job(self, status: int) -> None:
        self._refuse("/api/clusters/.default/jobs", status, 1)

    def _refuse(self, path: str, status: int, times: int) -> None:
        self._dashboard.steps_for = path
        self._dashboard.steps = [answer(status, self.words.encode())] * times

    def lose_next_answer(self) -> None:
        self._dashboard.loses_submissions = 1

    @contextmanager
    def hold(self) -> Iterator[None]:
        quota, self._cluster.quota = self._cluster.quota, -1
        yield
        self._cluster.quota = quota

    def forget(self, job: str) -> None:
        self._cluster.forget(self._id(job))

    def take_away(self, job: str) -> None:
        self._cluster.quota = -1
        self._cluster.requeue(self._id(job))

    def stop(self, job: str) -> None:
        self._cluster.operate(self._id(job), "kill")

    @contextmanager
    def pretend(self, job: str, state: str) -> Iterator[None]:
        found = self._dashboard.job(job)
        before, found.state = found.state, state
        yield
        found.state = before
        self._dashboard.broken.clear()  # the contract has no such state

    def is_over(self, job: str) -> bool:
        return self._dashboard.job(job).state in _ENDED
