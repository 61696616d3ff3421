"""JSON by the part of `json` that is written in C, which is all of the work.

`import json` takes longer than a start of Python, mostly for `re`, and a trial would wait for it. Where a Python has no
such part, or another one, and for texts that are not JSON, `json` itself is used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict


class _Numbers:
    """What the reader in C asks for."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float  # of "NaN", "Infinity" and "-Infinity"
    memo: Dict[str, str] = {}


def loads(text: str) -> Any:
    """The value of a JSON text. Raises: ValueError, RecursionError."""
    text = text.strip(" \t\n\r")
    try:
        from _json import make_scanner

        value, end = make_scanner(_Numbers)(text, 0)  # type: ignore[arg-type]
    except (ImportError, AttributeError, TypeError, StopIteration, SystemError):  # `json` tells what is wrong
        end = -1
    if end == len(text):
        return value
    import json

    return json.loads(text)


def dumps(value: Any) -> str:
    """The JSON text of a value, in ASCII. Raises: TypeError, ValueError, RecursionError."""
    try:
        from _json import encode_basestring_ascii, make_encoder

        encode = make_encoder({}, _refuse, encode_basestring_ascii, None, ": ", ", ", False, False, True)
    except (ImportError, TypeError):
        import json

        return json.dumps(value)
    return "".join(encode(value, 0))


def _refuse(value: Any) -> Any:
    raise TypeError("{} is not a value of JSON".format(type(value).__name__))
