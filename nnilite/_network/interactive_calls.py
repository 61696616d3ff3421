"""The time for which calls to a platform are tried while a person waits for the answer. It needs no HTTP library."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

OUTAGE_S = 8.0
"""How long a person waits for an unreachable platform before an error; a manager waits longer."""

_longest_patience_s: ContextVar[float] = ContextVar("longest_patience_s", default=math.inf)


@contextmanager
def limit_patience(seconds: float) -> Iterator[None]:
    """Try each call of this block for at most that long, as where a person waits for the answer."""
    before = _longest_patience_s.set(seconds)
    try:
        yield
    finally:
        _longest_patience_s.reset(before)


def shorten_patience(patience_s: float) -> float:
    """Return the seconds for which a call is tried that would have these, by the block that it is made in."""
    return min(patience_s, _longest_patience_s.get())
