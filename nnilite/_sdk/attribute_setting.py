"""Sets attributes of a trial: from its program by the spool, and in a function of a `Search` by that search."""

from __future__ import annotations

import threading
from contextlib import contextmanager

from nnilite import _plain, get_trial_id
from nnilite._cpython import dumps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Optional

    Take = Callable[[str, Any], None]

_NAME_MAX = 100
_ATTRIBUTES_MAX = 100
_CHARS_MAX = 10_000

_thread = threading.local()


def hand_over(name: str, value: Any) -> bool:
    """Hand an attribute to the search that this thread works for, if there is one."""
    take = getattr(_thread, "take", None)
    if take is not None:
        take(name, value)
    return take is not None


def hand_over_report(value: Any) -> bool:
    """Hand an intermediate result to the search that this thread works for, if there is one that takes it so."""
    report = getattr(_thread, "report", None)
    if report is not None:
        report(value)
    return report is not None


def check_limits(texts: dict[str, str]) -> None:
    """Check all attributes of a trial, their values as JSON texts. Raises: ValueError."""
    if len(texts) > _ATTRIBUTES_MAX:
        raise ValueError(f"a trial has at most {_ATTRIBUTES_MAX} attributes")
    # As JSON has them: with a colon, a comma, and a blank after each.
    if sum(len(dumps(name)) + len(text) + 4 for name, text in texts.items()) > _CHARS_MAX:
        raise ValueError(
            f"the attributes of a trial have at most {_CHARS_MAX:,} characters as JSON; "
            "give larger values to nnilite.log_artifact"
        )


def make_text(name: str, value: Any) -> str:
    """Return the value as JSON text. Raises: TypeError, ValueError."""
    if not isinstance(name, str):
        raise TypeError(f"the name of an attribute must be a text, not {type(name).__name__}")
    if not 0 < len(name) <= _NAME_MAX:
        raise ValueError(f"the name of an attribute must have 1 to {_NAME_MAX} characters, not {len(name)}")
    try:
        return dumps(value, _plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"attribute {name!r} of trial {get_trial_id()} must be a JSON value: {error}") from error


@contextmanager
def hand_to(take: Take, report: Optional[Callable[[Any], None]] = None) -> Iterator[None]:
    """Have attributes that this thread sets in the block go to `take` instead of a trial's spool.

    Its intermediate results go to `report`, unless that is None or the program itself is a trial.
    """
    before = getattr(_thread, "take", None), getattr(_thread, "report", None)
    _thread.take, _thread.report = take, report
    try:
        yield
    finally:
        _thread.take, _thread.report = before
