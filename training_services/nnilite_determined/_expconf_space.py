"""Convert Determined's `hyperparameters` to a search space.

A constant is a choice of one value, and an object of hyperparameters a choice of one nested space, so that trial code
finds everything where it did: `parameters["optimizer"]["lr"]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnilite.errors import ConfigError, Place
from nnilite.records import Json

_MOST = 100_000  # values of a grid


def search_space(hyperparameters: Mapping[str, Any], *, grid: bool) -> dict[str, Json]:
    """Return the search space. `grid`: a range with a `count` becomes its values. Raises: ConfigError."""
    return _convert_nested(hyperparameters, "hyperparameters", grid)


def _convert_nested(given: Mapping[str, Any], place: str, grid: bool) -> dict[str, Json]:
    return {str(name): _parameter(value, f"{place}.{name}", str(name), grid) for name, value in given.items()}


def _parameter(given: Any, place: str, name: str, grid: bool) -> dict[str, Json]:
    if not isinstance(given, Mapping):
        return _convert_constant(given)
    if "type" not in given:
        return {"_type": "choice", "_value": [{"_name": name, **_convert_nested(given, place, grid)}]}
    kind = given["type"]
    if kind == "const":
        return _convert_constant(_needed(given, "val", place))
    if kind == "categorical":
        return _choice(given, place)
    if kind not in ("int", "double", "log"):
        raise ConfigError(
            f"{kind!r} is not a type of Determined: use int, double, log, categorical, const", _at(place, "type")
        )
    return _range(given, place, grid)


def _convert_constant(value: Any) -> dict[str, Json]:
    return {"_type": "choice", "_value": [value]}


def _choice(given: Mapping[str, Any], place: str) -> dict[str, Json]:
    values = _needed(given, "vals", place)
    if not isinstance(values, list) or not values:
        raise ConfigError("must be a list of values", _at(place, "vals"))
    return {"_type": "choice", "_value": values}


def _range(given: Mapping[str, Any], place: str, grid: bool) -> dict[str, Json]:
    kind = given["type"]
    low, high = _number(given, "minval", place), _number(given, "maxval", place)
    if low >= high:
        raise ConfigError(f"must be above minval, {low:g}", _at(place, "maxval"))
    base = _number(given, "base", place) if kind == "log" else 0.0
    if kind == "log" and base <= 0:
        raise ConfigError("must be above 0", _at(place, "base"))
    if grid:
        return {"_type": "choice", "_value": _grid(given, place, (low, high, base))}
    if kind == "int":
        return {"_type": "randint", "_value": [int(low), int(high) + 1]}
    if kind == "double":
        return {"_type": "uniform", "_value": [low, high]}
    return {
        "_type": "loguniform",
        "_value": sorted((_compute_power(base, low, place), _compute_power(base, high, place))),
    }


def _grid(given: Mapping[str, Any], place: str, limits: tuple[float, float, float]) -> list[Json]:
    """Return `count` values, evenly from one end to the other."""
    kind, (low, high, base) = given["type"], limits
    count = given.get("count")
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= _MOST:
        raise ConfigError("is needed by the searcher grid; set a whole number above 0", _at(place, "count"))
    if kind == "int" and count > high - low:
        return list(range(int(low), int(high) + 1))
    points = [low + (high - low) * number / max(1, count - 1) for number in range(count)]
    if kind == "int":
        return sorted({round(point) for point in points})
    return [_compute_power(base, point, place) if kind == "log" else point for point in points]


def _compute_power(base: float, exponent: float, place: str) -> float:
    try:
        return float(base**exponent)
    except OverflowError:
        raise ConfigError(f"{base:g} to the power of {exponent:g} is too large", _at(place, "maxval")) from None


def _needed(given: Mapping[str, Any], name: str, place: str) -> Any:
    if name not in given:
        raise ConfigError(f"has no {name}, which its type {given.get('type')} needs", Place(field=place))
    return given[name]


def _number(given: Mapping[str, Any], name: str, place: str) -> float:
    value = _needed(given, name, place)
    whole = given.get("type") == "int"
    if not isinstance(value, int if whole else (int, float)) or isinstance(value, bool):
        raise ConfigError(f"must be a {'whole ' if whole else ''}number, not {value!r}", _at(place, name))
    return float(value)


def _at(place: str, name: str) -> Place:
    return Place(field=f"{place}.{name}")
