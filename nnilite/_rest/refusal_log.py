"""Logs requests that are refused for want of a sign-in: one line a minute for each sender and reason.

A page that somebody has left open asks every second or so, and a stranger may ask as often as he likes. Neither may
fill the log.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass

TELL_EVERY_S = 60.0
_MOST = 1000


@dataclass
class _Told:
    at: float
    untold: int = 0


class RefusalLog:
    """What has been logged of late. The senders that were logged longest ago are forgotten."""

    def __init__(self) -> None:
        self._told: OrderedDict[tuple[str, str], _Told] = OrderedDict()

    def untold(self, sender: str, reason: str) -> int | None:
        """How many such refusals were not logged since the last line; None if this one is not to be logged either."""
        now, key = time.monotonic(), (sender, reason)
        told = self._told.get(key)
        if told is not None and now - told.at < TELL_EVERY_S:
            told.untold += 1
            return None
        self._told[key] = _Told(now)
        self._told.move_to_end(key)
        if len(self._told) > _MOST:
            self._told.popitem(last=False)
        return 0 if told is None else told.untold
