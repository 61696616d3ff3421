"""`nni.utils`: what trial code and custom tuners use of it."""

from __future__ import annotations

import copy
import os
from enum import Enum

__path__ = []  # type: ignore[var-annotated]  # see `nni._Elsewhere`

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "ClassArgsValidator",
    "MetricType",
    "NodeType",
    "OptimizeMode",
    "convert_dict2tuple",
    "extract_scalar_history",
    "extract_scalar_reward",
    "json2parameter",
    "json2space",
    "merge_parameter",
    "split_index",
]


class OptimizeMode(Enum):
    """Whether a tuner looks for the largest or the smallest metric."""

    Minimize = "minimize"
    Maximize = "maximize"


class MetricType:
    """The kinds of metric."""

    FINAL = "FINAL"
    PERIODICAL = "PERIODICAL"
    REQUEST_PARAMETER = "REQUEST_PARAMETER"  # from NNI 2; advisors compare with it, but it never comes


class NodeType:
    """The words of search spaces, and of parameters with the index of each choice."""

    ROOT = "root"
    TYPE = "_type"
    VALUE = "_value"
    INDEX = "_index"
    NAME = "_name"


class ClassArgsValidator:
    """Kept for NNI's tuners, whose modules define one; neither NNI 3 nor nnilite calls it."""

    def validate_class_args(self, **kwargs: Any) -> None:
        """Raise for arguments that are wrong."""

    def choices(self, key: str, *args: Any) -> Any:
        """Return a check by the package `schema`: one of these."""
        from schema import Or

        return Or(*args, error=f"{key} must be one of {args}")

    def range(self, key: str, keyType: type, start: Any, end: Any) -> Any:
        """Return a check by the package `schema`: of this type, from start to end."""
        from schema import And

        error = f"{key} must be of type {keyType.__name__}, from {start} to {end}"
        return And(keyType, lambda value: start <= value <= end, error=error)

    def path(self, key: str) -> Any:
        """Return a check by the package `schema`: a path that exists."""
        from schema import And

        return And(os.path.exists, error=f"{key} must be a path that exists")


def extract_scalar_reward(value: Any, scalar_key: str = "default") -> float | int:
    """Return the number that a metric stands for: itself, or a dict's `default`. Raises: RuntimeError."""
    reward = value.get(scalar_key) if isinstance(value, dict) else value
    if isinstance(reward, (int, float)):
        return reward
    raise RuntimeError(
        f"a metric must be a number, or a dict with a number as {scalar_key!r}; this one is {value!r:.200}"
    )


def extract_scalar_history(trial_history: Any, scalar_key: str = "default") -> list[float]:
    """Return the numbers that the intermediate results of a trial stand for. Raises: RuntimeError."""
    return [extract_scalar_reward(value, scalar_key) for value in trial_history]


def convert_dict2tuple(value: Any) -> Any:
    """Return parameters as something that can be a key: nested tuples, sorted by name."""
    if isinstance(value, dict):
        return tuple(sorted((name, convert_dict2tuple(part)) for name, part in value.items()))
    return value


def split_index(params: Any) -> Any:
    """Return parameters without the index of each choice, as trials get them."""
    if not isinstance(params, dict):
        return params
    if NodeType.INDEX in params:
        return split_index(params[NodeType.VALUE])
    return {name: split_index(part) for name, part in params.items()}


def json2space(x: Any, oldy: Any = None, name: str = NodeType.ROOT) -> list[str]:
    """Return the names of all parameters of a search space, such as `root[lr]-uniform`; only those in use in `oldy`.

    Raises: RuntimeError for a nested choice without a name.
    """
    if isinstance(x, list):
        return [found for place, part in enumerate(x) for found in _of_option(part, oldy and oldy[place], name, place)]
    if not isinstance(x, dict):
        return []
    if NodeType.TYPE not in x:
        inner = [json2space(part, oldy[key] if oldy else None, f"{name}[{key}]") for key, part in x.items()]
        return [found for names in inner for found in names]
    name = f"{name}-{x[NodeType.TYPE]}"
    if x[NodeType.TYPE] != "choice":
        return [name]
    if oldy is None:
        return [*json2space(x[NodeType.VALUE], None, name), name]
    index = oldy[NodeType.INDEX]
    return [*json2space(x[NodeType.VALUE][index], oldy[NodeType.VALUE], f"{name}[{index}]"), name]


def _of_option(part: Any, old: Any, name: str, place: int) -> list[str]:
    if isinstance(part, dict) and NodeType.NAME not in part:
        raise RuntimeError(f"an option of the nested choice {name} has no {NodeType.NAME}")
    return json2space(part, old or None, f"{name}[{place}]")


def json2parameter(
    x: Any, is_rand: Any, random_state: Any, oldy: Any = None, Rand: bool = False, name: str = NodeType.ROOT
) -> Any:
    """Draw parameters from a search space, with the index of each choice; see `split_index`.

    `is_rand` says by their names which ones are redrawn (see `json2space`), with all below them; the others are as in
    `oldy`.
    """
    if isinstance(x, list):
        parts = enumerate(x)
        return [json2parameter(p, is_rand, random_state, oldy and oldy[i], Rand, f"{name}[{i}]") for i, p in parts]
    if not isinstance(x, dict):
        return copy.deepcopy(x)
    if NodeType.TYPE not in x:
        old = oldy or {}
        return {
            key: json2parameter(part, is_rand, random_state, old.get(key), Rand, f"{name}[{key}]")
            for key, part in x.items()
        }
    name = f"{name}-{x[NodeType.TYPE]}"
    if not (Rand or is_rand[name]):
        return copy.deepcopy(oldy)
    if x[NodeType.TYPE] != "choice":
        from . import parameter_expressions

        return getattr(parameter_expressions, x[NodeType.TYPE])(*x[NodeType.VALUE], random_state)
    index = int(random_state.randint(len(x[NodeType.VALUE])))
    option = x[NodeType.VALUE][index]
    drawn = json2parameter(option, is_rand, random_state, None, True, f"{name}[{index}]")
    return {NodeType.INDEX: index, NodeType.VALUE: drawn}


def merge_parameter(base_params: Any, override_params: Any) -> Any:
    """Put the tuned parameters over defaults (argparse namespace, object or dict), which are returned.

        args = merge_parameter(parser.parse_args(), nni.get_next_parameter())

    A number that is the same in the argument's type becomes one of that type: 160.0 is 160.

    Raises: ValueError for a parameter that `base_params` does not have, or of another type; TypeError for a function.
    """
    if override_params is None:
        return base_params
    if callable(base_params):
        raise TypeError("merge_parameter takes the arguments, not a function: call it")
    target = base_params if isinstance(base_params, dict) else vars(base_params)
    for name, value in override_params.items():
        if name not in target:
            known = ", ".join(map(str, target))
            raise ValueError(f"the tuned parameter {name!r} is not among the arguments: {known}{_cure(name, target)}")
        target[name] = _of_type(target[name], value, name)
    return base_params


def _cure(name: Any, target: Any) -> str:
    """Return what to do about a parameter that is not among the arguments; "" if that is not known."""
    if name in _OF_TUNER:
        return f"; the tuner adds it, and the search space has none: add an argument {name}, {_OF_TUNER[name]}"
    twin = next((one for one in target if str(one).replace("-", "_") == str(name).replace("-", "_")), None)
    return f"; write {twin!r} in the search space" if twin else ""


_OF_TUNER = {
    "TRIAL_BUDGET": "the number of epochs to train, of Hyperband, BOHB and ASHA",
    "load_checkpoint_dir": "the folder to continue from",
    "save_checkpoint_dir": "the folder to save to",
}
"""What some tuners add to the parameters, as in `nnilite.tuner.EXTRAS`, and what it is."""


def _as_number_of_numpy(old: Any, new: Any) -> Any:
    """Return a number in the type of a default that is a scalar of numpy; None where there is none."""
    if type(old).__module__ != "numpy" or not hasattr(old, "dtype") or not isinstance(new, (int, float)):
        return None
    try:
        made = type(old)(new)
    except (TypeError, ValueError, OverflowError):
        return None
    return made if made == new or (isinstance(new, float) and old.dtype.kind == "f") else None


def _of_type(old: Any, new: Any, name: str) -> Any:
    if old is None or isinstance(new, type(old)):
        return new
    if isinstance(old, (int, float)) and isinstance(new, (int, float)) and new - new == 0 and new == type(old)(new):
        return type(old)(new)
    if isinstance(old, tuple) and isinstance(new, list):  # JSON has no tuples
        return tuple(new)
    made = _as_number_of_numpy(old, new)
    if made is not None:
        return made
    cure = "give the argument a default of that type"
    if new is None:
        cure = "remove null from the search space, or make None the argument's default"
    elif isinstance(new, str) and isinstance(old, (int, float)):
        cure = "remove the quotes in the search space"
    elif isinstance(old, bool):
        cure = "choose between true and false in the search space"
    elif isinstance(old, int):
        cure = "use randint in the search space, or a float as its default"
    raise ValueError(
        f"the tuned parameter {name!r} is {new!r}, of type {type(new).__name__}; "
        f"the argument is of type {type(old).__name__}: {cure}"
    )
