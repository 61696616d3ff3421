"""The calls of the training service that wait to be made, in their order.

The end of a trial brings a removal and, a moment later, the next submission, which may be urgent. So removals come
after all other calls, and none is made before that moment is over. A removal that has waited for long comes next
anyway, since what it frees may cost money.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass

from nnilite._engine import messages as s
from nnilite.service import Handle

_REMOVE_AFTER_S = 0.05
_OVERDUE_S = 2.0


@dataclass(frozen=True)
class Scaling:
    """A request for another number of workers, whose caller waits for the answer."""

    handle: Handle
    workers: int
    answer: asyncio.Future[None]


Waiting = s.ServiceCall | Scaling


class CallQueue:
    """All times are those of the event loop, in seconds."""

    def __init__(self) -> None:
        self._calls: deque[s.Submit | s.Cancel | Scaling] = deque()
        self._removals: deque[tuple[float, s.Remove]] = deque()  # each with the time from which on it is made
        self._remove_after_s = _REMOVE_AFTER_S

    def __bool__(self) -> bool:
        return bool(self._calls or self._removals)

    @property
    def has_removals(self) -> bool:
        return bool(self._removals)

    @property
    def next_removal(self) -> float:
        """When the next removal is due; infinite if none waits."""
        return self._removals[0][0] if self._removals else math.inf

    def put(self, call: Waiting, now: float) -> None:
        if isinstance(call, s.Remove):
            self._removals.append((now + self._remove_after_s, call))
        else:
            self._calls.append(call)

    def close(self, now: float) -> None:
        """Release the removals that wait for their moment: no submissions will come."""
        self._remove_after_s = 0.0
        self._removals = deque((now, call) for _, call in self._removals)

    def submits(self, most: int, now: float) -> list[s.Submit]:
        """Return the submissions that come next, without any other call between them; [] if another call is next."""
        found: list[s.Submit] = []
        if self.next_removal + _OVERDUE_S <= now:
            return found
        while self._calls and len(found) < most and isinstance(call := self._calls[0], s.Submit):
            self._calls.popleft()
            found.append(call)
        return found

    def other(self, now: float) -> Waiting | None:
        """Return the next call, None if none is due."""
        if self._calls and self.next_removal + _OVERDUE_S > now:
            return self._calls.popleft()
        return self.removal(now)

    def removal(self, now: float = math.inf) -> s.Remove | None:
        """Return the next removal, None if none is due."""
        return self._removals.popleft()[1] if self.next_removal <= now and self._removals else None
