"""Reported dicts with entries that JSON does not have: the number still counts, and the others are kept as texts."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_CHARS_MAX = 200


def keep_as_texts(
    metric: Any, is_json: Callable[[Any], bool], is_number: Callable[[Any], bool]
) -> dict[str, Any] | None:
    """Return the dict with names and values that JSON has; None if no number is in it, or its `default` is none.

    A date, a path or a set becomes its text, and the name of an epoch as an integer of numpy becomes that number.
    """
    from collections.abc import Mapping

    if not isinstance(metric, Mapping):
        return None
    counts = [value for name, value in metric.items() if isinstance(name, str) and is_number(value)]
    if not counts or ("default" in metric and not is_number(metric["default"])):
        return None
    return _convert(metric, is_json)  # type: ignore[no-any-return]


def _convert(value: Any, is_json: Callable[[Any], bool]) -> Any:
    from collections.abc import Mapping

    if is_json(value):
        return value
    if isinstance(value, Mapping):
        return {name if isinstance(name, str) else str(name): _convert(part, is_json) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_convert(part, is_json) for part in value]
    text = str(value)
    return text if len(text) <= _CHARS_MAX else text[: _CHARS_MAX - 3] + "..."
