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
class _Sender:
    at: float
    left_out: int = 0


class SparseLog:
    """Remembers what has been logged of late. The senders that were logged longest ago are forgotten."""

    def __init__(self) -> None:
        self._senders: OrderedDict[tuple[str, str], _Sender] = OrderedDict()
        self._minute_began = -TELL_EVERY_S
        self._lines = 0  # in this minute

    def left_out(self, sender: str, reason: str = "") -> int | None:
        """Return how many such events were not logged since the last line; None if this one is not to be logged."""
        now, key = time.monotonic(), (sender, reason)
        last = self._senders.get(key)
        if last is not None and now - last.at < TELL_EVERY_S:
            last.left_out += 1
            return None
        if now - self._minute_began >= TELL_EVERY_S:
            self._minute_began, self._lines = now, 0
        self._lines += 1
        if self._lines > _LINES_MOST:
            return None
        self._senders[key] = _Sender(now)
        self._senders.move_to_end(key)
        if len(self._senders) > _MOST:
            self._senders.popitem(last=False)
        return 0 if last is None else last.left_out

    def more(self, sender: str, reason: str = "") -> str | None:
        """Return the end of a log line, with the number of lines left out; None if the line is not to be logged."""
        left_out = self.left_out(sender, reason)
        if left_out is None:
            return None
        return f"; {left_out} more like this since the last such line" if left_out else ""
