"""What is allowed in a search space but is hardly meant: a linter for `nnictl create --dry-run` and `nnictl doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nnilite._parameter import Parameter, ParameterKind, shown
from nnilite.records import Json
from nnilite.space import SearchSpace

LARGEST_GRID = 1_000_000
WIDE = 1000
"""A positive range whose ends differ by this factor is mostly meant to be searched by its logarithm."""


def space_hints(space: SearchSpace, *, tuner: str = "", max_trials: int | None = None) -> list[str]:
    """One sentence for each thing in the space that is hardly meant, with its parameter and a cure.

    `tuner` is the name of the tuner, in any case; `max_trials` is how many trials there will be (None: no limit).
    """
    found = [hint for parameter in space.parameters for hint in _hints_of(parameter, max_trials)]
    if tuner.lower() == "gridsearch":
        found.extend(_grid_hints(space, max_trials))
    return found


def _hints_of(parameter: Parameter, max_trials: int | None) -> Iterator[str]:
    name = shown(parameter.path)
    if parameter.kind is ParameterKind.CHOICE:
        yield from _choice_hints(parameter, name, max_trials)
    elif parameter.low is not None and parameter.high is not None:
        yield from _range_hints(parameter, name, parameter.low, parameter.high)


def _choice_hints(parameter: Parameter, name: str, max_trials: int | None) -> Iterator[str]:
    options = parameter.values
    if len(options) == 1:
        yield f"{name} has one option only, so it is no choice: write it into the trial, or add options."
    if max_trials is not None and len(options) > max_trials:
        most = f"{len(options)} options, and there are {max_trials} trials"
        yield f"{name} has {most}: not all options can be reached; raise maxTrialNumber, or take options out."
    # The parameters of a nested choice are all reached: anything else in its options is refused.
    if not parameter.nested and any(map(_holds_parameter, options)):
        yield (
            f"{name} has an option that holds a parameter where none is reached: trials get it as it is written. "
            "A parameter of an option stands directly in the option, and all options have a '_name'."
        )


def _range_hints(parameter: Parameter, name: str, low: float, high: float) -> Iterator[str]:
    if parameter.q is not None and parameter.q > high - low:
        text = f"the step of {name} ({parameter.q:g}) is wider than its range ({low:g} to {high:g})"
        yield f"{text}, so it takes {_values(parameter)}; make the step smaller, or the range wider."
    elif parameter.count == 1:
        yield f"{name} can only be {low:g}: write it into the trial, or make the range wider."
    elif not parameter.log and parameter.kind is not ParameterKind.RANDINT and 0 < low * WIDE <= high:
        yield f"{name} goes from {low:g} to {high:g}, mostly its largest tenth: loguniform searches all sizes alike."


def _values(parameter: Parameter) -> str:
    points = sorted(set(parameter.points()))
    return "the value " + " or ".join(f"{point:g}" for point in points)


def _grid_hints(space: SearchSpace, max_trials: int | None) -> Iterator[str]:
    size = space.size
    if size is None:
        return
    if size > LARGEST_GRID and (max_trials is None or max_trials > LARGEST_GRID):
        yield f"the grid has {size:,} points; take options or steps out, or use a tuner that samples, such as TPE."
    elif max_trials is not None and size > max(max_trials, LARGEST_GRID):
        yield (
            f"the grid has {size:,} points and there are {max_trials:,} trials, so only its first corner is "
            "searched; a tuner that samples, such as TPE or Random, spreads them."
        )


def _is_parameter(value: Json) -> bool:
    return isinstance(value, Mapping) and "_type" in value and "_value" in value


def _holds_parameter(value: Json) -> bool:
    if _is_parameter(value):
        return True
    if isinstance(value, Mapping):
        return any(map(_holds_parameter, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_holds_parameter, value))
