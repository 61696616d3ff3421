"""Search spaces from Python: functions that return what the JSON form has.

    from nnilite import space

    SPACE = {
        "rate": space.loguniform(1e-5, 0.1),
        "layer": space.choice([space.option("none"), space.option("conv", size=space.choice([3, 5]))]),
    }

Each checks its numbers at once. `default` is tried first, and tuners expect good values near to it; of `option`s, it
is a name. Raises, in every function: SpaceError.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from nnilite import _text
from nnilite.errors import Place, SpaceError
from nnilite.space.search_space import SearchSpace

if TYPE_CHECKING:
    from nnilite.records import Json


class _TypeAndValue(TypedDict):
    _type: str
    _value: list[Any]


class ParameterJson(_TypeAndValue, total=False):
    _default: Any


"""One parameter of a search space, as in a search-space file."""


def choice(options: Sequence[Json | Mapping[str, Any]], default: Json = None) -> ParameterJson:
    """Choose one of the options. They are JSON values, or all of them made by `option`."""
    if isinstance(options, (str, bytes)):
        raise SpaceError(f"choice takes a list of options, not the text {options!r}", Place())
    return _checked("choice", list(options), default)


def option(name: str, **parameters: ParameterJson) -> dict[str, Any]:
    """Return an option of `choice` with further parameters, which exist only when it is chosen."""
    return {"_name": name, **parameters}


def randint(low: int, high: int, default: int | None = None) -> ParameterJson:
    """Choose a whole number from `low` up to, but not including, `high`."""
    return _checked("randint", [low, high], default)


def qrandint(low: int, high: int, q: int, default: int | None = None) -> ParameterJson:
    """Choose a multiple of `q` from `low` to `high`, both multiples of `q` and included."""
    return _checked("qrandint", [low, high, q], default)


def lograndint(low: int, high: int, default: int | None = None) -> ParameterJson:
    """Choose a whole number from `low` (above 0) to `high`, both included, on a logarithmic scale."""
    return _checked("lograndint", [low, high], default)


def qlograndint(low: int, high: int, q: int, default: int | None = None) -> ParameterJson:
    """Choose as `qrandint` does, on a logarithmic scale."""
    return _checked("qlograndint", [low, high, q], default)


def uniform(low: float, high: float, default: float | None = None) -> ParameterJson:
    """Choose a number from `low` to `high`."""
    return _checked("uniform", [low, high], default)


def quniform(low: float, high: float, q: float, default: float | None = None) -> ParameterJson:
    """Choose a number from `low` to `high`, rounded to a multiple of `q`."""
    return _checked("quniform", [low, high, q], default)


def loguniform(low: float, high: float, default: float | None = None) -> ParameterJson:
    """Choose a number from `low` (above 0) to `high` whose logarithm is uniform."""
    return _checked("loguniform", [low, high], default)


def qloguniform(low: float, high: float, q: float, default: float | None = None) -> ParameterJson:
    """Choose as `loguniform` does, rounded to a multiple of `q`."""
    return _checked("qloguniform", [low, high, q], default)


def normal(mu: float, sigma: float, default: float | None = None) -> ParameterJson:
    """Choose a number around `mu`, without bounds."""
    return _checked("normal", [mu, sigma], default)


def qnormal(mu: float, sigma: float, q: float, default: float | None = None) -> ParameterJson:
    """Choose as `normal` does, rounded to a multiple of `q`."""
    return _checked("qnormal", [mu, sigma, q], default)


def lognormal(mu: float, sigma: float, default: float | None = None) -> ParameterJson:
    """Choose a number above 0 whose logarithm is normal: `mu` and `sigma` are those of the logarithm."""
    return _checked("lognormal", [mu, sigma], default)


def qlognormal(mu: float, sigma: float, q: float, default: float | None = None) -> ParameterJson:
    """Choose as `lognormal` does, rounded to a multiple of `q`; 0 is possible."""
    return _checked("qlognormal", [mu, sigma, q], default)


def _checked(kind: str, value: list[Any], default: Json) -> ParameterJson:
    made: ParameterJson = {"_type": kind, "_value": plain_space(value)}
    if default is not None:
        made["_default"] = plain_space(default)
    SearchSpace.parse({kind: made})
    return made


def plain_space(space: Any) -> Any:
    """Return a search space, or a part of it, in which numbers and arrays of numpy and the like are plain ones.

    What cannot be one, and names that are not text, stay as they are: the check of the space names them.
    """
    if isinstance(space, Mapping):
        return {name: plain_space(part) for name, part in space.items()}
    if isinstance(space, (list, tuple)):
        return [plain_space(part) for part in space]
    if space is None or isinstance(space, (str, int)):
        return space
    try:
        return json.loads(_text(space))
    except TypeError:
        return space
