"""JSON that any parser accepts, also of values with NaN and infinities."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def spell_json(value: Any) -> str:
    """Return strict JSON in ASCII, so that even a lone surrogate in a user's text can be sent.

    >>> spell_json({"default": 0.5, "loss": float("nan"), "worst": [float("-inf")]})
    '{"default":0.5,"loss":"NaN","worst":["-Infinity"]}'
    """
    try:
        return _ENCODER.encode(value)
    except ValueError:
        return _ENCODER.encode(_spell_infinities(value))


def _spell_infinities(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: _spell_infinities(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_spell_infinities(item) for item in value]
    return value
