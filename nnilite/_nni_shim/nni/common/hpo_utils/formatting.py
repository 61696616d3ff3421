"""`nni.common.hpo_utils.formatting`: a search space by paths, and the two forms that parameters take.

A trial gets *plain* parameters: `{"lr": 0.1, "net": {"_name": "conv", "size": 5}}`. Tuners work with *formatted* ones:
`{("lr",): -2.3, ("net",): 1, ("net", 1, "size"): 2}`, a number for each parameter that is active. The number of a
choice is that of its option, the number of a randint counts from its lowest value, and that of a `log` type is the
logarithm. Rounding to `q` happens when the parameters become plain.

    space = format_search_space({"lr": {"_type": "loguniform", "_value": [0.001, 1]}})
    formatted = format_parameters({"lr": 0.1}, space)
    assert deformat_parameters({("lr",): 0.0}, space) == {"lr": 1.0}
"""

from __future__ import annotations

import copy
import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

__path__ = []  # type: ignore[var-annotated]  # see `nni._Elsewhere`

__all__ = [
    "FormattedParameters",
    "FormattedSearchSpace",
    "ParameterKey",
    "ParameterSpec",
    "deformat_parameters",
    "format_parameters",
    "format_search_space",
]

ParameterKey = Tuple[Union[str, int], ...]
"""Names, and between two of them the number of the option that brings the second."""
FormattedParameters = Dict[ParameterKey, Any]
FormattedSearchSpace = Dict[ParameterKey, "ParameterSpec"]

_VALUES = {"uniform": 2, "normal": 2, "quniform": 3, "qnormal": 3}


class ParameterSpec(NamedTuple):
    """One parameter. What its type does not have is None."""

    name: str
    type: str
    values: List[Any]
    """What the search space says as `_value`."""
    key: ParameterKey
    categorical: bool
    """Whether it is a choice or a randint; the numbers of their values are 0 to `size` - 1."""
    size: Optional[int] = None
    chosen_size: Optional[int] = 1
    """Always 1: NNI keeps it for types that nnilite does not have."""
    low: Optional[float] = None
    high: Optional[float] = None
    normal_distributed: Optional[bool] = None
    mu: Optional[float] = None
    sigma: Optional[float] = None
    q: Optional[float] = None
    clip: Optional[Tuple[float, float]] = None
    """Where the plain value is moved to after its rounding to `q`; `low` and `high` are logarithms for `log` types."""
    log_distributed: Optional[bool] = None

    def is_activated_in(self, partial_parameters: FormattedParameters) -> bool:
        """Return whether its parent is among these parameters and has chosen the option that brings it."""
        return len(self.key) == 1 or bool(partial_parameters.get(self.key[:-2]) == self.key[-2])

    def is_nested(self) -> bool:
        """Return whether an option of a choice brings it."""
        return len(self.key) > 1


def format_search_space(search_space: Any) -> FormattedSearchSpace:
    """Return each parameter by its path, in the order written, parents before their children.

    Raises: ValueError for a value that is not a parameter of one of NNI's ten types.
    """
    found: FormattedSearchSpace = {}
    _collect((), search_space, found)
    return found


def format_parameters(parameters: Any, formatted_search_space: FormattedSearchSpace) -> FormattedParameters:
    """Return the formatted parameters for plain ones; names that are not in the space are left out.

    Raises: ValueError for a parameter that is missing or that its type cannot have.
    """
    formatted: FormattedParameters = {}
    for key, spec in formatted_search_space.items():
        if spec.is_activated_in(formatted):
            formatted[key] = _number(spec, _given(parameters, key))
    return formatted


def deformat_parameters(formatted_parameters: FormattedParameters, formatted_search_space: FormattedSearchSpace) -> Any:
    """Return the plain parameters for formatted ones; those that are not active are left out.

    Raises: ValueError for a path that is not in the space, or an option that a choice does not have.
    """
    odd = next((key for key in formatted_parameters if key not in formatted_search_space), None)
    if odd is not None:
        raise ValueError(f"{_shown(odd)} is not in the search space; format_search_space gives the paths there")
    plain: Dict[str, Any] = {}
    for key, spec in formatted_search_space.items():
        if key in formatted_parameters and _is_active(spec, formatted_parameters):
            _inside(plain, key)[spec.name] = _value(spec, formatted_parameters[key])
    return plain


def _collect(prefix: ParameterKey, search_space: Any, specs: FormattedSearchSpace) -> None:
    if not isinstance(search_space, dict):
        raise ValueError(f"a search space must be a dict of parameters; this one is {search_space!r:.200}")
    for name, part in search_space.items():
        if prefix and name == "_name":
            continue
        spec = _spec((*prefix, name), part)
        specs[spec.key] = spec
        if _has_subspaces(spec):
            for number, option in enumerate(spec.values):
                _collect((*spec.key, number), option, specs)


def _spec(key: ParameterKey, part: Any) -> ParameterSpec:
    if not isinstance(part, dict) or "_type" not in part or "_value" not in part:
        raise ValueError(f"{_shown(key)} must be a dict with _type and _value; it is {part!r:.200}")
    kind, values = part["_type"], part["_value"]
    wrong = f"{_shown(key)}: {values!r:.200} cannot be the _value of a {kind}"
    if kind == "choice":
        if not values:
            raise ValueError(f"{wrong}; it needs an option at least")
        return ParameterSpec(str(key[-1]), kind, values, key, True, len(values))
    try:
        if kind == "randint":
            low, high = _ends(values)
            return ParameterSpec(str(key[-1]), kind, values, key, True, high - low)
        return _continuous(key, kind, values)
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise ValueError(f"{wrong}: {error}") from error


def _continuous(key: ParameterKey, kind: str, values: Any) -> ParameterSpec:
    plain = kind.replace("log", "")
    if plain not in _VALUES:
        raise ValueError("it is none of NNI's ten types")
    log = plain != kind
    numbers = [float(values[place]) for place in range(_VALUES[plain])]
    q = numbers[2] if plain.startswith("q") else None
    bare = ParameterSpec(str(key[-1]), kind, values, key, False, q=q, log_distributed=log)
    first, second = numbers[:2]
    if plain.endswith("normal"):
        return bare._replace(normal_distributed=True, mu=first, sigma=second)
    clip = None if q is None else (first, second)
    low, high = (math.log(first), math.log(second)) if log else (first, second)
    return bare._replace(normal_distributed=False, low=low, high=high, clip=clip)


def _number(spec: ParameterSpec, value: Any) -> Any:
    wrong = f"{_shown(spec.key)}: {value!r:.200} is not a value of the {spec.type} {spec.values!r:.200}"
    try:
        if _has_subspaces(spec):
            return [option["_name"] for option in spec.values].index(value["_name"])
        if spec.type == "choice":
            return spec.values.index(value)
        if spec.type == "randint":
            return value - _ends(spec.values)[0]
        if not spec.log_distributed:
            return value
        # 0 is what values below half of q are rounded to, and has no logarithm itself.
        return math.log(spec.q / 4 if value == 0 and spec.q and spec.clip is None else value)
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(wrong) from error


def _value(spec: ParameterSpec, number: Any) -> Any:
    if spec.categorical:
        if spec.type == "randint":
            return int(_ends(spec.values)[0] + number)
        option = _option(spec, number)
        return {"_name": option["_name"]} if _has_subspaces(spec) else copy.deepcopy(option)
    if spec.log_distributed:
        number = math.exp(number)
    if spec.q is not None:
        number = round(number / spec.q) * spec.q
    return number if spec.clip is None else max(spec.clip[0], min(spec.clip[1], number))


def _option(spec: ParameterSpec, number: Any) -> Any:
    try:
        return spec.values[number]
    except (IndexError, TypeError) as error:
        last = len(spec.values) - 1
        raise ValueError(f"{_shown(spec.key)}: {number!r} is not the number of an option, 0 to {last}") from error


def _given(parameters: Any, key: ParameterKey) -> Any:
    for name in key[::2]:
        if not isinstance(parameters, dict) or name not in parameters:
            raise ValueError(f"{_shown(key)} is missing from the parameters")
        parameters = parameters[name]
    return parameters


def _is_active(spec: ParameterSpec, parameters: FormattedParameters) -> bool:
    """Return whether each choice above it has chosen the option on its path."""
    steps = range(1, len(spec.key), 2)
    return all(parameters.get(spec.key[:place]) == spec.key[place] for place in steps)


def _inside(plain: Any, key: ParameterKey) -> Any:
    for place in range(0, len(key) - 1, 2):
        plain = plain[key[place]]
    return plain


def _has_subspaces(spec: ParameterSpec) -> bool:
    return spec.type == "choice" and all(isinstance(option, dict) and "_name" in option for option in spec.values)


def _ends(values: Any) -> Tuple[int, int]:
    return math.ceil(float(values[0])), math.ceil(float(values[1]))


def _shown(key: ParameterKey) -> str:
    return ".".join(str(name) for name in key[::2])
