"""Distributions as other programs write them: their types, parts, and calls such as `tune.uniform(0, 1)`."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nnilite.space._parameter import ParameterKind

if TYPE_CHECKING:
    from nnilite.records import Json

_TYPES = {
    **dict.fromkeys(("float", "double", "real", "continuous", "range", "interval"), "uniform"),
    **dict.fromkeys(("log", "logfloat", "logreal", "reciprocal"), "loguniform"),
    **dict.fromkeys(("int", "integer", "intuniform", "uniformint"), "randint"),
    **dict.fromkeys(("intquniform", "quniformint"), "qrandint"),
    **dict.fromkeys(("intloguniform", "loguniformint"), "lograndint"),
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
            "const",
            "constant",
        ),
        "choice",
    ),
    **dict.fromkeys(("bool", "boolean"), "choice"),
    **dict.fromkeys(("gaussian", "randn"), "normal"),
}
"""What other programs call the types."""
_KEYS = {
    **dict.fromkeys(("type", "distribution", "dist", "parametertype", "method", "kind"), "type"),
    **dict.fromkeys(("low", "lower", "min", "minimum", "lo", "minval"), "low"),
    **dict.fromkeys(("high", "upper", "max", "maximum", "hi", "maxval"), "high"),
    **dict.fromkeys(("mu", "mean", "loc"), "mean"),
    **dict.fromkeys(("sigma", "std", "sd", "stddev", "scale"), "deviation"),
    **dict.fromkeys(("q", "step"), "q"),
    **dict.fromkeys(("log", "logscale"), "log"),
    "base": "base",
    **dict.fromkeys(("value", "values", "val", "vals", "options", "choices", "categories", "range", "bounds"), "value"),
}
"""What other programs call the parts of a parameter."""
_ON_A_LOG_SCALE = {
    "uniform": "loguniform",
    "quniform": "qloguniform",
    "randint": "lograndint",
    "qrandint": "qlograndint",
}
MOST_OPTIONS = 50
"""So many options are written out at most."""
_LONGEST_CALL = 500
_LARGEST_EXPONENT = 700.0  # exp of more is not a float


def translate_type(name: Json) -> str | None:
    """Return our name of a type that another program calls `name`; None if it is not known.

    >>> translate_type("log_uniform"), translate_type("suggest_categorical"), translate_type("IntDistribution")
    ('loguniform', 'choice', 'randint')
    """
    plain = _plain_type(name)
    return plain if plain in {kind.value for kind in ParameterKind} else _TYPES.get(plain)


def _plain_type(name: Json) -> str:
    plain = str(name).lower().replace("_", "").replace("-", "").removeprefix("suggest").removesuffix("distribution")
    return plain.removesuffix("values") or plain  # log_uniform_values of W&B


def name_parts(given: Mapping[str, Json]) -> dict[str, Json]:
    """Return the parts of a parameter by the names that `write_distribution` knows."""
    return {_KEYS[plain]: value for key, value in given.items() if (plain := _plain_key(key)) in _KEYS}


def _plain_key(key: object) -> str:
    return str(key).lower().replace("_", "")


def read_drawing_call(text: str) -> dict[str, Json] | None:
    """Return the parts of a distribution that is written as a call, or None.

    >>> read_drawing_call("trial.suggest_float('lr', 1e-5, 0.1, log=True)")
    {'log': True, 'type': 'suggest_float', 'low': 1e-05, 'high': 0.1}
    """
    if len(text) > _LONGEST_CALL:
        return None
    try:
        call = ast.parse(text.strip(), mode="eval").body
        return _parts_of_call(call) if isinstance(call, ast.Call) else None
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _parts_of_call(call: ast.Call) -> dict[str, Json] | None:
    function = ast.unparse(call.func).rpartition(".")[2]
    if function == "tag":  # Hydra: tag(log, interval(0.001, 1))
        [*tags, inner] = call.args
        parts = _parts_of_call(inner) if isinstance(inner, ast.Call) else None
        return parts and ({**parts, "log": True} if "log" in map(ast.unparse, tags) else parts)
    kind = translate_type(function)
    if kind is None:
        return None
    values = [one.id if isinstance(one, ast.Name) else ast.literal_eval(one) for one in call.args]
    parts = name_parts({str(one.arg): ast.literal_eval(one.value) for one in call.keywords})
    parts["type"] = function
    if kind == "choice":
        lists = [one for one in values if isinstance(one, (list, tuple))]
        return {"value": lists[0] if lists else values, **parts}
    names = ("mean", "deviation", "q") if "normal" in kind else ("low", "high", "q")
    numbers = [one for one in values if not isinstance(one, str)]  # the first argument may be a label
    if function == "range" and all(isinstance(one, int) for one in (*numbers, parts.get("q", 1))):
        return _write_range([*numbers, *([parts["q"]] if "q" in parts else [])])
    return {**parts, **dict(zip(names, numbers, strict=False))}


def _write_range(numbers: Sequence[int]) -> dict[str, Json] | None:
    if len(numbers) == 2:
        return {"type": "randint", "low": numbers[0], "high": numbers[1]}
    options = range(*numbers)
    return {"value": list(options)} if 0 < len(options) <= MOST_OPTIONS else None


def write_distribution(parts: Mapping[str, Json]) -> dict[str, Json] | None:
    """Return a parameter with these parts as it is written here, None if they are too few."""
    kind = translate_type(parts["type"]) if "type" in parts else None
    if parts.get("log") is True:
        kind = _ON_A_LOG_SCALE.get(kind or "uniform", kind)
    value = parts.get("value")
    if isinstance(value, (list, tuple)):
        return {"_type": kind or "choice", "_value": value}
    if "value" in parts and kind in (None, "choice") and not isinstance(value, Mapping):
        return {"_type": "choice", "_value": [value]}
    names = ("mean", "deviation") if kind and "normal" in kind else ("low", "high")
    if not set(names) <= set(parts):
        return None
    bounds = [parts[name] for name in (*names, "q") if name in parts]
    kind = _take_step(kind or "uniform", bounds)
    if kind == "qrandint" and all(type(bound) is int for bound in bounds) and bounds[2] > 0 and bounds[0] % bounds[2]:
        options = range(bounds[0], bounds[1] + 1, bounds[2])  # such as 1, 3, 5, which are not multiples of the step
        return {"_type": "choice", "_value": list(options)} if len(options) <= MOST_OPTIONS else None
    return {"_type": kind, "_value": _convert_bounds(kind, bounds, parts)}


def _take_step(kind: str, bounds: Sequence[Json]) -> str:
    return f"q{kind}" if len(bounds) == 3 and not kind.startswith("q") else kind


def _convert_bounds(kind: str, bounds: list[Json], parts: Mapping[str, Json]) -> list[Json]:
    if not all(type(bound) in (int, float) for bound in bounds):
        return bounds
    low, high, *step = bounds
    if "loguniform" in kind and low <= 0 and not parts.get("log"):
        # Elsewhere bounds may be exponents, of e if no base is said.
        base = parts.get("base", 10 if _plain_type(parts.get("type")) == "log" else math.e)
        if type(base) in (int, float) and base > 1 and high * math.log(base) < _LARGEST_EXPONENT:
            return [*(float(f"{base**bound:.6g}") for bound in (low, high)), *step]
    if kind == "randint" and type(high) is int and _plain_type(parts.get("type")) != "randint":
        high += 1  # what others call int has its upper bound among its values
    return [low, high, *step]
