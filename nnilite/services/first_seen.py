"""Clocks that begin when something is first seen: what a platform says once may be a moment's trouble."""

from __future__ import annotations

import time
from collections.abc import Callable


class FirstSeen:
    """Remembers since when each of several things holds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    def lasts_s(self, what: str, holds: bool = True) -> float:
        """Return the seconds for which `what` has held, according to the calls of this; 0 if it does not hold."""
        if not holds:
            self._since.pop(what, None)
            return 0.0
        now = self._clock()
        return now - self._since.setdefault(what, now)

    def clear(self) -> None:
        """Note that nothing of it holds any more."""
        self._since.clear()
