"""The calls of the training service that wait to be made, in their order.

Cancellations come first: they are quick, and free what the next submissions need. The end of a trial brings a removal
and, a moment later, the next submission, which may be urgent. So removals come after all other calls, and none is made
before that moment is over. They are made in groups, as each turn costs rounds of the event loop. A removal that has
waited for long comes before submissions, since what it frees may cost money.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nnilite._engine import messages
from nnilite.service import TrainingService

_MOMENT_S = 0.05
_GROUP_S = 0.5  # how long a removal waits for others
_OVERDUE_S = 2.0


@dataclass(frozen=True)
class AskedCall:
    """A call whose caller waits for the answer."""

    make: Callable[[TrainingService], Awaitable[None]]
    answer: asyncio.Future[None]


Waiting = messages.ServiceCall | AskedCall


class CallQueue:
    """All times are those of the event loop, in seconds."""

    def __init__(self) -> None:
        self._submits: deque[messages.Submit] = deque()
        self._urgent: deque[messages.Cancel | AskedCall] = deque()
        # Each with the time from which on it may be made.
        self._removals: deque[tuple[float, messages.Remove]] = deque()
        self._moment_s, self._group_s = _MOMENT_S, _GROUP_S

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
        first = self._removals[0][0] + self._group_s if self._removals else math.inf
        return first + _OVERDUE_S if self._submits else first

    def put(self, call: Waiting, now: float) -> None:
        if isinstance(call, messages.Remove):
            self._removals.append((now + self._moment_s, call))
        elif isinstance(call, messages.Submit):
            self._submits.append(call)
        else:
            self._urgent.append(call)

    def expedite_removals(self) -> None:
        """Let no removal wait for others any more: the experiment has stopped, and its end waits for them."""
        self._group_s = 0.0

    def close(self, now: float) -> None:
        """Release the removals that wait for their moment, too: the manager ends."""
        self.expedite_removals()
        self._moment_s = 0.0
        self._removals = deque((now, call) for _, call in self._removals)

    def submits(self, most: int) -> list[messages.Submit]:
        """Return the submissions that come next."""
        return [self._submits.popleft() for _ in range(min(most, len(self._submits)))]

    def other(self, now: float) -> messages.Cancel | messages.Remove | AskedCall | None:
        """Return the call that comes before the submissions, or is due while none waits; None if there is none."""
        if self._urgent:
            return self._urgent.popleft()
        return self.removal() if self.next_other <= now else None

    def next_of_group(self, now: float) -> messages.Remove | None:
        """Return the removal that is made in the same turn as the last one; None if there is none, or another call."""
        if self._urgent or self._submits or not self._removals or self._removals[0][0] > now:
            return None
        return self.removal()

    def removal(self) -> messages.Remove | None:
        """Return the next removal, also before its moment; None if none waits."""
        return self._removals.popleft()[1] if self._removals else None
