"""Limits log lines that outsiders can cause: one line a minute for each sender and reason.

A page that was left open asks every second or so, a stranger asks at any rate, and a trial may send the same wrong
batch again and again. None of them may fill the log.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass

TELL_EVERY_S = 60.0
_MOST = 1000
_LINES_MOST = 100  # a minute, of all senders together: one may have many addresses


@dataclass
class _Told:
    at: float
    untold: int = 0


class SparseLog:
    """Remembers what has been logged of late. The senders that were logged longest ago are forgotten."""

    def __init__(self) -> None:
        self._told: OrderedDict[tuple[str, str], _Told] = OrderedDict()
        self._minute_began = -TELL_EVERY_S
        self._lines = 0  # in this minute

    def untold(self, sender: str, reason: str = "") -> int | None:
        """Return how many such events were not logged since the last line; None if this one is not to be logged."""
        now, key = time.monotonic(), (sender, reason)
        told = self._told.get(key)
        if told is not None and now - told.at < TELL_EVERY_S:
            told.untold += 1
            return None
        if now - self._minute_began >= TELL_EVERY_S:
            self._minute_began, self._lines = now, 0
        self._lines += 1
        if self._lines > _LINES_MOST:
            return None
        self._told[key] = _Told(now)
        self._told.move_to_end(key)
        if len(self._told) > _MOST:
            self._told.popitem(last=False)
        return 0 if told is None else told.untold

    def more(self, sender: str, reason: str = "") -> str | None:
        """Return the end of a log line, with the number of lines left out; None if the line is not to be logged."""
        untold = self.untold(sender, reason)
        if untold is None:
            return None
        return f"; {untold} more like this since the last such line" if untold else ""
