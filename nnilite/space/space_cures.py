"""How to write what was meant, where a parameter is written as other programs do: the ends of sentences on faults."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nnilite.space._parameter import ParameterKind

if TYPE_CHECKING:
    from nnilite.records import Json

_LONGEST_SHOWN = 80
_TYPES = {
    **dict.fromkeys(("float", "double", "real", "continuous", "range"), "uniform"),
    **dict.fromkeys(("logfloat", "logreal", "reciprocal"), "loguniform"),
    **dict.fromkeys(("int", "integer"), "randint"),
    **dict.fromkeys(("logint", "loginteger"), "lograndint"),
    **dict.fromkeys(
        (
            "categorical",
            "category",
            "categories",
            "discrete",
            "ordinal",
            "enum",
            "list",
            "grid",
            "gridsearch",
            "values",
        ),
        "choice",
    ),
    **dict.fromkeys(("bool", "boolean"), "choice"),
    **dict.fromkeys(("gaussian", "randn"), "normal"),
}
"""What other programs call the types."""
_KEYS = {
    **dict.fromkeys(("type", "distribution", "dist", "parametertype", "method", "kind"), "type"),
    **dict.fromkeys(("low", "lower", "min", "minimum", "lo"), "low"),
    **dict.fromkeys(("high", "upper", "max", "maximum", "hi"), "high"),
    **dict.fromkeys(("q", "step"), "q"),
    **dict.fromkeys(("value", "values", "options", "choices", "categories", "range", "bounds"), "value"),
}
"""What other programs call the parts of a parameter."""


def translate_type(name: Json) -> str | None:
    """Return our name of a type that another program calls `name`; None if it is not known.

    >>> translate_type("log_uniform"), translate_type("categorical")
    ('loguniform', 'choice')
    """
    plain = str(name).lower().replace("_", "").replace("-", "")
    return plain if plain in {kind.value for kind in ParameterKind} else _TYPES.get(plain)


def cure_object(given: Mapping[str, Json]) -> str:
    """Return how to write a parameter whose `_type` or `_value` is missing; "" if that cannot be guessed."""
    parts = {_KEYS[plain]: value for key, value in given.items() if (plain := _plain(key)) in _KEYS}
    if given and all(isinstance(value, Mapping) and "_type" in value for value in given.values()):
        return "; it holds parameters itself: write them one level up"
    kind = translate_type(parts["type"]) if "type" in parts else None
    value = parts.get("value")
    if isinstance(value, (list, tuple)):
        return show("; write it as %s", {"_type": kind or "choice", "_value": value})
    if "low" not in parts or "high" not in parts:
        return ""
    bounds = [parts[name] for name in ("low", "high", "q") if name in parts]
    return show("; write it as %s", {"_type": _take_step(kind or "uniform", bounds), "_value": bounds})


def _plain(key: object) -> str:
    return str(key).lower().replace("_", "")


def _take_step(kind: str, bounds: Sequence[Json]) -> str:
    return f"q{kind}" if len(bounds) == 3 and not kind.startswith("q") else kind


def cure_value(kind: ParameterKind, value: Json) -> str:
    """Return how to write a `_value` that is not a list; "" if that cannot be guessed."""
    if isinstance(value, str) and value.lstrip().startswith("("):
        return "; write it in [ ], not in ( )"
    if isinstance(value, str):
        return show("; write %s", _split(value))
    if isinstance(value, Mapping) and kind is ParameterKind.CHOICE:
        return show("; write %s", list(value))
    if isinstance(value, Mapping):
        parts = {_KEYS.get(_plain(key)): item for key, item in value.items()}
        bounds = [parts[name] for name in ("low", "high", "q") if name in parts]
        return show("; write %s", bounds) if len(bounds) > 1 else ""
    return show("; write %s", [value]) if kind is ParameterKind.CHOICE else ""


def _split(text: str) -> list[Json]:
    """Return the numbers of a text such as "0, 1", or the text itself as the only part."""
    try:
        return [json.loads(part) for part in text.strip(" []").split(",")]
    except (ValueError, RecursionError):
        return [part.strip() for part in text.split(",")]


def cure_count(kind: ParameterKind, value: Sequence[Json]) -> str:
    """Return how to write a `_value` with too many or too few numbers; "" if that cannot be guessed."""
    [first, *more] = value or [None]
    if not more and isinstance(first, (list, tuple)):
        return show("; write %s", first)
    if not all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in value) or not value:
        return ""
    if kind.quantised and len(value) == 2:
        return f"; q is the step between values, as in {json.dumps([*value, 1])}"
    if not more:
        return f"; did you mean {json.dumps([0, first])}?" if not kind.normal else ""
    stepped = f"q{kind.value}"
    if len(value) == 3 and stepped in {one.value for one in ParameterKind}:
        return f"; with a step it is called {stepped}"
    return show("; to choose one of them, write %s", {"_type": "choice", "_value": value})


def show(sentence: str, value: Json) -> str:
    """Return a sentence with a value in it; "" if that is long, or no JSON."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return ""
    return sentence % text if len(text) <= _LONGEST_SHOWN else ""
