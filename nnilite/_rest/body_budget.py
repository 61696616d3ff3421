"""Limits how many bytes of reports may be in memory at a time, for one trial and for all.

A keeper sends one batch after the other. So one that is the trial's own may send some at a time and never end them, or
end them faster than they can be committed, and take the manager's memory with its own token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from nnilite._rest.refusal import HttpRefusal
from nnilite._rest.route_definition import BODY_MAX

JOB_BYTES = 2 * BODY_MAX  # a batch, and the one that its keeper has abandoned meanwhile
ALL_BYTES = 8 * BODY_MAX  # several times what is committed before keepers give up waiting


class BodyBudget:
    """Counts the bytes of bodies that are read or handled."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()  # by job
        self._all = 0

    @contextmanager
    def hold(self) -> Iterator[BodyReservation]:
        """Give back, at the end of the block, what was added in it."""
        hold = BodyReservation(self)
        try:
            yield hold
        finally:
            hold.release()

    def reserve(self, job: str, size: int) -> None:
        """Reserve room for a body. Raises: HttpRefusal if there is no room now."""
        if self._taken[job] + size > JOB_BYTES:
            raise HttpRefusal(503, "this trial has too many reports under way; send them one after the other")
        if self._all + size > ALL_BYTES:
            raise HttpRefusal(503, "too many reports are under way; send this one again in a moment")
        self._taken[job] += size
        self._all += size

    def give_back(self, job: str, size: int) -> None:
        self._all -= size
        self._taken[job] -= size
        if not self._taken[job]:
            del self._taken[job]


class BodyReservation:
    """What one request has of the room."""

    def __init__(self, room: BodyBudget) -> None:
        self.job = ""
        self.size = 0
        self._room = room

    def add(self, job: str, size: int) -> None:
        """Take more. Raises: HttpRefusal if there is no room now."""
        if size:
            self._room.reserve(job, size)
            self.job = job
            self.size += size

    def release(self) -> None:
        """Give back all that was taken."""
        if self.size:
            self._room.give_back(self.job, self.size)
            self.size = 0
