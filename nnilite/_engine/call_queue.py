"""The calls of the training service that wait to be made, in their order.

Cancellations come first: they are quick, and free what the next submissions need. The end of a trial brings a removal
and, a moment later, the next submission, which may be urgent. So removals come after all other calls, and none is made
before that moment is over. A removal that has waited for long comes before submissions, since what it frees may cost
money.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass

from nnilite._engine import messages
from nnilite.service import Handle

_REMOVE_AFTER_S = 0.05
_OVERDUE_S = 2.0


@dataclass(frozen=True)
class Scaling:
    """A request for another number of workers, whose caller waits for the answer."""

    handle: Handle
    workers: int
    answer: asyncio.Future[None]


Waiting = messages.ServiceCall | Scaling


class CallQueue:
    """All times are those of the event loop, in seconds."""

    def __init__(self) -> None:
        self._submits: deque[messages.Submit] = deque()
        self._urgent: deque[messages.Cancel | Scaling] = deque()
        self._removals: deque[tuple[float, messages.Remove]] = deque()  # each with the time from which on it is made
        self._remove_after_s = _REMOVE_AFTER_S

    def __bool__(self) -> bool:
        return bool(self._submits or self._urgent or self._removals)

    @property
    def has_removals(self) -> bool:
        return bool(self._removals)

    @property
    def next_other(self) -> float:
        """When the next call other than a submission is due; infinite if none waits."""
        if self._urgent:
            return -math.inf
        first = self._removals[0][0] if self._removals else math.inf
        return first + _OVERDUE_S if self._submits else first

    def put(self, call: Waiting, now: float) -> None:
        if isinstance(call, messages.Remove):
            self._removals.append((now + self._remove_after_s, call))
        elif isinstance(call, messages.Submit):
            self._submits.append(call)
        else:
            self._urgent.append(call)

    def close(self, now: float) -> None:
        """Release the removals that wait for their moment: no submissions will come."""
        self._remove_after_s = 0.0
        self._removals = deque((now, call) for _, call in self._removals)

    def submits(self, most: int) -> list[messages.Submit]:
        """Return the submissions that come next."""
        return [self._submits.popleft() for _ in range(min(most, len(self._submits)))]

    def other(self, now: float) -> messages.Cancel | messages.Remove | Scaling | None:
        """Return the call that comes before the submissions, or is due while none waits; None if there is none."""
        if self._urgent:
            return self._urgent.popleft()
        return self.removal() if self.next_other <= now else None

    def removal(self) -> messages.Remove | None:
        """Return the next removal, also before its moment; None if none waits."""
        return self._removals.popleft()[1] if self._removals else None
