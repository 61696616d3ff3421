"""Signals at a line of one's choice: a handler runs between two lines of nnilite, or of the HTTP client below it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from types import FrameType
from typing import Any

_PLACES = ("nnilite", "/http/client.py")


def is_interrupted_at(line: int, handle: Callable[[], object], call: Callable[[], object]) -> bool:
    """Call, and `handle` before the `line`th line that this runs there; False if it has fewer.

    What `handle` raises comes out of the line, as it does from a signal handler.
    """
    lines, before, reached = count(1), sys.gettrace(), False

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal reached
        if reached or not any(place in frame.f_code.co_filename for place in _PLACES):
            return None
        if event == "line" and next(lines) == line:
            reached = True
            sys.settrace(before)
            handle()
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return reached
