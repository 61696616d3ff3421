"""Measure how long a party has been silent, counting only the time in which Redis answered.

Time in which Redis does not answer, or this process is stopped, does not count as silence.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

_LONGEST_TURN_S = 15.0


class Silence:
    """Compares each party's sign of life with the one seen before."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answered_s = 0.0  # time in which Redis answered
        self._last: float | None = None
        self._signs: dict[str, tuple[str, float]] = {}

    def note_answer(self) -> None:
        """Redis has answered."""
        now = self._clock()
        if self._last is not None:
            self._answered_s += min(now - self._last, _LONGEST_TURN_S)
        self._last = now

    def note_outage(self) -> None:
        """Redis has not answered."""
        self._last = None

    def measure(self, party: str, sign: str, age_s: float = 0.0) -> float:
        """Return the seconds since the party's last sign of life.

        `age_s`: how old that sign is, where it says so; it counts when the party is looked at for the first time.
        """
        known, since_s = self._signs.get(party, (None, 0.0))
        if known != sign:
            since_s = self._answered_s - (age_s if known is None else 0.0)
            self._signs[party] = (sign, since_s)
        return self._answered_s - since_s

    def keep(self, parties: Collection[str]) -> None:
        """Forget all other parties."""
        self._signs = {party: seen for party, seen in self._signs.items() if party in parties}
