"""What can go wrong on OpenPAI, for the contract of batch platforms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nnilite.testing import BatchTrouble, ReadingBench
from platforms.pai.server import FakePai, Fault, refused

_JOBS = "/api/v2/jobs"


class PaiTrouble(BatchTrouble):
    """On the stand-in."""

    odd_state = "UNKNOWN"  # the contract has no other

    def __init__(self, bench: ReadingBench, pai: FakePai) -> None:
        super().__init__(bench)
        self._pai = pai

    @contextmanager
    def away(self) -> Iterator[None]:
        self._pai.listener.stop()
        yield
        self._pai.listener.start()

    @contextmanager
    def refuse_lists(self, status: int) -> Iterator[None]:
        self._pai.faults = [Fault("GET", _JOBS, refused(status, "", self.words), 1000)]
        yield
        self._pai.faults = []

    def refuse_next_job(self, status: int) -> None:
        self._pai.faults = [Fault("POST", _JOBS, refused(status, "", self.words))]

    def lose_next_answer(self) -> None:
        self._pai.loses_submissions = 1

    @contextmanager
    def hold(self) -> Iterator[None]:
        self._pai.holds = True
        yield
        self._pai.holds = False

    def forget(self, job: str) -> None:
        self._pai.forget(job)

    def take_away(self, job: str) -> None:
        self._pai.holds = True
        self._pai.start_again(job)

    def stop(self, job: str) -> None:
        self._pai.stop(job)

    @contextmanager
    def pretend(self, job: str, state: str) -> Iterator[None]:
        found = self._pai.job(job)
        found.pretended = state
        yield
        found.pretended = ""

    def is_over(self, job: str) -> bool:
        return self._pai.job(job).state in ("STOPPED", "SUCCEEDED", "FAILED")
