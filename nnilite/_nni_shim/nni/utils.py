"""`nni.utils`: what trial code and custom tuners use of it."""

from __future__ import annotations

import os
from enum import Enum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["ClassArgsValidator", "MetricType", "OptimizeMode", "extract_scalar_reward", "merge_parameter"]


class OptimizeMode(Enum):
    """Whether a tuner looks for the largest or the smallest metric."""

    Minimize = "minimize"
    Maximize = "maximize"


class MetricType:
    """The kinds of metric."""

    FINAL = "FINAL"
    PERIODICAL = "PERIODICAL"


class ClassArgsValidator:
    """Kept for NNI's tuners, whose modules define one; neither NNI 3 nor nnilite calls it."""

    def validate_class_args(self, **kwargs: Any) -> None:
        """Raise for arguments that are wrong."""

    def choices(self, key: str, *args: Any) -> Any:
        """A check by the package `schema`: one of these."""
        from schema import Or

        return Or(*args, error=f"{key} must be one of {args}")

    def range(self, key: str, keyType: type, start: Any, end: Any) -> Any:
        """A check by the package `schema`: of this type, from start to end."""
        from schema import And

        error = f"{key} must be of type {keyType.__name__}, from {start} to {end}"
        return And(keyType, lambda value: start <= value <= end, error=error)

    def path(self, key: str) -> Any:
        """A check by the package `schema`: a path that exists."""
        from schema import And

        return And(os.path.exists, error=f"{key} must be a path that exists")


def extract_scalar_reward(value: Any, scalar_key: str = "default") -> float | int:
    """The number that a metric stands for: itself, or a dict's `default`. Raises: RuntimeError."""
    reward = value.get(scalar_key) if isinstance(value, dict) else value
    if isinstance(reward, (int, float)):
        return reward
    raise RuntimeError(
        f"a metric must be a number, or a dict with a number as {scalar_key!r}; this one is {value!r:.200}"
    )


def merge_parameter(base_params: Any, override_params: Any) -> Any:
    """Put the tuned parameters over defaults (argparse namespace, object or dict), which are returned.

        args = merge_parameter(parser.parse_args(), nni.get_next_parameter())

    Raises: ValueError for a parameter that `base_params` does not have, or of another type; a whole number is
    accepted where a float is expected.
    """
    if override_params is None:
        return base_params
    target = base_params if isinstance(base_params, dict) else vars(base_params)
    for name, value in override_params.items():
        if name not in target:
            known = ", ".join(map(str, target))
            raise ValueError(f"the tuned parameter {name!r} is not among the arguments: {known}")
        target[name] = _of_type(target[name], value, name)
    return base_params


def _of_type(old: Any, new: Any, name: str) -> Any:
    if old is None or isinstance(new, type(old)):
        return new
    if isinstance(old, float) and isinstance(new, int):
        return float(new)
    raise ValueError(
        f"the tuned parameter {name!r} is {new!r}, of type {type(new).__name__}; "
        f"the argument is of type {type(old).__name__}"
    )
