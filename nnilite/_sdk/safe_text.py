"""Values and errors of the user's code as text, also where that code fails when it is asked for it.

Only the standard library, and nothing newer than Python 3.8: trials import this, too.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def safe_repr(value: Any, most: int = 120) -> str:
    """Return at most `most` characters of a value as Python writes it.

    >>> safe_repr([1, 2])
    '[1, 2]'
    >>> safe_repr("a" * 50, 20)
    "'aaaaaaaaaaaaaaaa..."
    """
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  a user's class may raise anything here, and Python for huge numbers
        return f"<{type(value).__name__}, whose repr() raises {type(error).__name__}>"
    return text if len(text) <= most else text[: most - 3] + "..."


def safe_error_text(error: BaseException) -> str:
    """Return an exception as the last line of a traceback has it.

    >>> safe_error_text(KeyError("x"))
    "KeyError: 'x'"
    >>> safe_error_text(AssertionError())
    'AssertionError'
    """
    return ": ".join(filter(None, (type(error).__name__, safe_message(error))))


def safe_message(error: BaseException) -> str:
    """Return the text of an exception."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  a user's class may raise anything here
        return "<exception str() failed>"  # as Python says it
