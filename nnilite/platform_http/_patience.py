"""The time for which calls to platforms are tried: the limit of the call, and that of a person who waits for it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

OUTAGE_S = 8.0
"""How long a person waits for an unreachable platform before an error; a manager waits longer."""

PAUSE_S = (0.5, 10.0)
"""The first pause between two tries, and the longest one."""
CALLS_AT_ONCE = 8

_longest_patience_s: ContextVar[float] = ContextVar("longest_patience_s", default=math.inf)


@contextmanager
def patience_of_at_most(seconds: float) -> Iterator[None]:
    """Try each call of this block for at most that long, as where a person waits for the answer."""
    before = _longest_patience_s.set(seconds)
    try:
        yield
    finally:
        _longest_patience_s.reset(before)


def compute_deadline(patience_s: float) -> float:
    """Return the time, by `time.monotonic`, after which a call that begins now is not tried again."""
    return time.monotonic() + min(patience_s, _longest_patience_s.get())
