"""Ends what takes too long. One thread keeps all limits: one for each would cost a tenth of the request it ends."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass(order=True)
class _Deadline:
    due: float
    number: int
    end: Callable[[], object] | None = field(compare=False)  # None: it has ended by itself


class _Deadlines:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._limits: list[_Deadline] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    def add(self, limit_s: float, end: Callable[[], object]) -> _Deadline:
        with self._changed:
            limit = _Deadline(time.monotonic() + limit_s, next(self._numbers), end)
            self._drop_ended()
            heapq.heappush(self._limits, limit)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._keep, name="time limits", daemon=True)
                self._thread.start()
            elif self._limits[0] is limit:
                self._changed.notify()
        return limit

    def _keep(self) -> None:
        while (end := self._take_due()) is not None:
            end()

    def _take_due(self) -> Callable[[], object] | None:
        """Wait for the next limit that is passed; None if there are no more."""
        with self._changed:
            while True:
                self._drop_ended()
                if not self._limits:
                    self._thread = None
                    return None
                wait_s = self._limits[0].due - time.monotonic()
                if wait_s > 0:
                    self._changed.wait(wait_s)
                    continue
                end = heapq.heappop(self._limits).end
                if end is not None:  # it may have ended by itself since
                    return end

    def _drop_ended(self) -> None:
        while self._limits and self._limits[0].end is None:
            heapq.heappop(self._limits)


_deadlines = _Deadlines()


@contextlib.contextmanager
def limited_by(limit_s: float, end: Callable[[], object]) -> Iterator[None]:
    """Call `end`, which must neither block nor raise, in another thread, if what runs inside takes longer than that."""
    limit = _deadlines.add(limit_s, end)
    try:
        yield
    finally:
        limit.end = None
