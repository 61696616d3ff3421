"""What can go wrong on PAI-DLC, for the contract of batch platforms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nnilite.testing import BatchTrouble
from platforms.dlc.bench import DlcBench
from platforms.dlc.jobs import ENDED, StandInJob
from platforms.dlc.server import DlcServer, refuse


class DlcTrouble(BatchTrouble):
    """On the stand-in."""

    def __init__(self, bench: DlcBench, server: DlcServer) -> None:
        super().__init__(bench)
        self._server = server

    def _job(self, job: str) -> StandInJob:
        return self._server.dlc.named(job)[0]

    @contextmanager
    def away(self) -> Iterator[None]:
        self._server.listener.stop()
        yield
        self._server.listener.start()

    @contextmanager
    def refuse_lists(self, status: int) -> Iterator[None]:
        self._server.steps_for, self._server.steps = "GET /api/v1/jobs?", [refuse(status, "NoPermission")] * 1000
        yield
        self._server.steps = []

    def refuse_next_job(self, status: int) -> None:
        self._server.steps_for, self._server.steps = "POST /api/v1/jobs", [refuse(status, "InvalidParameter")]

    def lose_next_answer(self) -> None:
        self._server.loses_submissions = 1

    @contextmanager
    def hold(self) -> Iterator[None]:
        room, self._server.dlc.room = self._server.dlc.room, 0
        yield
        self._server.dlc.room = room

    def forget(self, job: str) -> None:
        self._server.dlc.vanish(self._job(job))

    def take_away(self, job: str) -> None:
        self._server.dlc.take_away(self._job(job))

    def stop(self, job: str) -> None:
        self._server.dlc.ask_to_stop(self._job(job))

    @contextmanager
    def pretend(self, job: str, state: str) -> Iterator[None]:
        found = self._job(job)
        before, found.state = found.state, state
        yield
        found.state = before

    def is_over(self, job: str) -> bool:
        return self._job(job).state in ENDED
