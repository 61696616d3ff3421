"""The values that the database may have, and how they are read.

SQLite keeps any type in any column, and a file may come from a stranger.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from nnilite.records import Exited, Json
from nnilite.records.record_types import INTEGER_MAX, TIME_MAX
from nnilite.services.keeper_events import parse_event, read_value

Check = Callable[[Any], bool]

_TRIAL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def nullable(check: Check) -> Check:
    return lambda value: value is None or check(value)


def one_of(*values: str) -> Check:
    return lambda value: value in values


def text(value: Any) -> bool:
    return isinstance(value, str)


def is_at_most(length: int) -> Check:
    """Check a text of at most `length` characters."""
    return lambda value: isinstance(value, str) and len(value) <= length


def is_any_whole(value: Any) -> bool:
    return type(value) is int


def whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= INTEGER_MAX


def positive(value: Any) -> bool:
    return whole(value) and value > 0


def time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= TIME_MAX


def number(value: Any) -> bool:
    return type(value) in (int, float)


def finite(value: Any) -> bool:
    return number(value) and abs(value) < math.inf


def amount(value: Any) -> bool:
    return number(value) and 0 <= value <= INTEGER_MAX


def limit(value: Any) -> bool:
    return number(value) and 0 < value <= INTEGER_MAX


def truth(value: Any) -> bool:
    return type(value) is int and value in (0, 1)


def trial_id(value: Any) -> bool:
    return isinstance(value, str) and _TRIAL_ID.fullmatch(value) is not None


def is_json_object(value: Any) -> bool:
    return isinstance(value, str) and isinstance(read_value(value)[0], dict)


def end(value: Any) -> bool:
    try:
        read_stored_end(value)
    except (ValueError, TypeError):
        return False
    return True


def read_stored_end(text: str) -> Exited:
    """Return an end that a keeper has reported. Raises: ValueError."""
    fields = read_value(text)[0]
    event = parse_event({**fields, "type": "exit"} if isinstance(fields, dict) else None)
    if not isinstance(event, Exited):
        raise ValueError(f"{text!r:.60} is not an end")
    return event


def read_stored_value(text: str | None) -> Json:
    """Return a user's value as it was stored; None if it is no longer allowed, as earlier versions accepted more."""
    return None if text is None else read_value(text)[0]
