"""What workers use of CPython's own modules, each with the public module that takes its place where it is missing.

The imports of `json`, `signal`, and `hashlib` cost more than a start of Python, mostly for `re`, `enum`, and OpenSSL,
and each trial would wait for them. The parts of them that are written in C do all of the work. They are private, so no
other module of nnilite imports them, and JSON is only left to them once they have read and written a sample correctly.

The keeper, the SDK, and the bootstrap share this module. It needs Python 3.8 and the standard library alone.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import hashlib
    import signal
    from importlib import util as importing
    from typing import Any, Callable, Dict, List
else:
    try:
        import _frozen_importlib_external as importing
        import _signal as signal
    except ImportError:  # another Python than CPython
        import signal
        from importlib import util as importing

__all__ = ["dumps", "importing", "loads", "sha256", "signal"]

_SAMPLE = {"a": [0, -1.5, float("inf"), True, None, '\xe9\n"'], "b": {}}
_SAMPLE_TEXT = '{"a": [0, -1.5, Infinity, true, null, "\\u00e9\\n\\""], "b": {}}'
_proven: List[bool] = []


def sha256(data: bytes = b"") -> hashlib._Hash:
    """Return a new digest."""
    for name in ("_sha2", "_sha256"):
        try:
            found: hashlib._Hash = __import__(name).sha256(data)
        except (ImportError, AttributeError):
            continue
        return found
    import hashlib

    return hashlib.sha256(data)


def loads(text: str) -> Any:
    """Return the value of a JSON text. Raises: ValueError, RecursionError."""
    text = text.strip(" \t\n\r")
    if _is_proven():
        try:
            value, end = _parsed(text)
        except (StopIteration, SystemError):  # `json` says what is wrong
            end = -1
        if end == len(text):
            return value
    import json

    return json.loads(text)


def _refuse(value: Any) -> Any:
    raise TypeError("{} is not a value of JSON".format(type(value).__name__))


def dumps(value: Any, default: Callable[[Any], Any] = _refuse) -> str:
    """Return the JSON text of a value, in ASCII. `default` converts what JSON does not know.

    Raises: TypeError, ValueError, RecursionError.
    """
    if _is_proven():
        return _encode_all(value, default)
    import json

    return json.dumps(value, default=default)


class _Reading:
    """The options of the reader in C."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    array_hook = None  # from Python 3.15 on
    parse_float = float
    parse_int = int
    parse_constant = float  # of "NaN", "Infinity", and "-Infinity"
    memo: Dict[str, str] = {}


def _is_proven() -> bool:
    """Return whether this Python's reader and writer in C are those that this module knows."""
    if not _proven:
        try:
            known = (
                _parsed(_SAMPLE_TEXT) == (_SAMPLE, len(_SAMPLE_TEXT)) and _encode_all(_SAMPLE, _refuse) == _SAMPLE_TEXT
            )
        except (ImportError, AttributeError, TypeError, ValueError, StopIteration, SystemError):
            known = False
        _proven.append(known)
    return _proven[0]


def _parsed(text: str) -> Any:
    from _json import make_scanner

    return make_scanner(_Reading)(text, 0)  # type: ignore[arg-type]


def _encode_all(value: Any, default: Callable[[Any], Any]) -> str:
    from _json import encode_basestring_ascii, make_encoder

    encode = make_encoder({}, default, encode_basestring_ascii, None, ": ", ", ", False, False, True)
    return "".join(encode(value, 0))
