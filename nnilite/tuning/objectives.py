"""Several objectives: their directions, and the trials that no other one beats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from nnilite.tuner import scalar
from nnilite.tuning.class_args import one_of

if TYPE_CHECKING:
    from nnilite.records import Json

__all__ = ["DIRECTIONS", "configured", "directions", "front", "gains", "signs"]

DIRECTIONS = ("maximize", "minimize")

T = TypeVar("T")


def configured(class_args: Mapping[str, Json] | None) -> dict[str, str]:
    """Return the objectives of a tuner, with their directions, by its `classArgs`; {} if it names none.

    A tuner of the user's own may mean anything by this argument.
    """
    given = (class_args or {}).get("objectives")
    if not isinstance(given, Mapping) or any(direction not in DIRECTIONS for direction in given.values()):
        return {}
    return {str(name): str(direction) for name, direction in given.items()}


def directions(class_args: Mapping[str, Json] | None, optimize: str) -> dict[str, str]:
    """Return the objectives of an experiment with directions: those of its tuner, or `default` with `optimize`."""
    return configured(class_args) or {"default": optimize}


def signs(directions: Mapping[str, str], argument: str = "objectives") -> dict[str, float]:
    """Return 1 for each objective that is maximised, -1 for one that is minimised. Raises: ConfigError."""
    for name, direction in directions.items():
        one_of(f"{argument}.{name}", direction, DIRECTIONS)
    return {name: 1.0 if direction == "maximize" else -1.0 for name, direction in directions.items()}


def gains(value: Json, signs: Mapping[str, float]) -> tuple[float, ...] | None:
    """Return a result's worth in each objective, more is better; None without a finite number for one of them."""
    by_name = value if isinstance(value, dict) else {"default": value}
    numbers = [scalar(by_name, name) for name in signs]
    known = tuple(sign * number for sign, number in zip(signs.values(), numbers, strict=True) if number is not None)
    return known if len(known) == len(signs) else None


def front(results: Iterable[tuple[T, Json]], signs: Mapping[str, float]) -> list[T]:
    """Return the items whose results no other one beats; the best in the first objective comes first.

    A result without a finite number for each objective does not count; of equal ones the first does.
    """
    points = [(reached, one) for one, value in results if (reached := gains(value, signs)) is not None]
    kept: list[tuple[tuple[float, ...], T]] = []
    for reached, one in sorted(points, key=lambda point: point[0], reverse=True):
        if not any(_covers(other, reached) for other, _ in kept):
            kept.append((reached, one))
    return [one for _, one in kept]


def _covers(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(a >= b for a, b in zip(one, other, strict=True))
