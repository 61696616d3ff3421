"""What is allowed in a search space but is hardly meant: a linter for `nnictl create --dry-run` and `nnictl doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nnilite.records import Json
from nnilite.space._parameter import Parameter, ParameterKind, format_path
from nnilite.space.search_space import SearchSpace
from nnilite.units import read_meant_number

LARGEST_GRID = 1_000_000
WIDE = 1000
"""A positive range whose ends differ by this factor is mostly meant to be searched by its logarithm."""


@dataclass(frozen=True)
class Hint:
    """Something in a search space that is hardly meant, and what to do about it."""

    what: str
    cure: str

    def __str__(self) -> str:
        return f"{self.what}; {self.cure}."


def space_hints(space: SearchSpace, *, tuner: str = "", max_trials: int | None = None) -> list[Hint]:
    """Return what in the space looks like a mistake. The tuner's name decides whether the size of a grid matters.

    `tuner` is the name of the tuner, in any case; `max_trials` is how many trials there will be (None: no limit).
    """
    found = [hint for parameter in space.parameters for hint in _find_hints(parameter, max_trials)]
    if tuner.lower() == "gridsearch":
        found.extend(_find_grid_hints(space, max_trials))
    return found


def _find_hints(parameter: Parameter, max_trials: int | None) -> Iterator[Hint]:
    name = format_path(parameter.path)
    plain = parameter.name.strip(" :\t")
    if plain != parameter.name:
        yield Hint(f"the name {parameter.name!r} has a sign too many, with which trials get it", f"write {plain!r}")
    if parameter.kind is ParameterKind.CHOICE:
        yield from _find_choice_hints(parameter, name, max_trials)
    elif parameter.low is not None and parameter.high is not None:
        yield from _find_range_hints(parameter, name, parameter.low, parameter.high)


def _find_choice_hints(parameter: Parameter, name: str, max_trials: int | None) -> Iterator[Hint]:
    options = parameter.values
    if len(options) == 1:
        yield Hint(
            f"{name} has only one option, so there is nothing to choose", "write it into the trial, or add options"
        )
    if max_trials is not None and len(options) > max_trials:
        what = f"{name} has {len(options)} options, more than maxTrialNumber ({max_trials}), so not all can be reached"
        yield Hint(what, "raise maxTrialNumber, or remove options")
    yield from _find_quoted_options(parameter, name)
    # The parameters of a nested choice are all reached: anything else in its options is refused.
    if not parameter.nested and any(map(_holds_parameter, options)):
        what = f"{name} has an option that holds a parameter where none is reached: trials get it as it is written"
        yield Hint(what, "put it directly into the option, and give all options a '_name'")


def _find_quoted_options(parameter: Parameter, name: str) -> Iterator[Hint]:
    """Yield a hint on options that are texts in YAML, and are hardly meant so."""
    texts = [one for one in parameter.values if isinstance(one, str)]
    if texts and any(isinstance(one, bool) for one in parameter.values):
        what = f"{name} has texts and true or false as options, and YAML reads no, off, yes and on as these"
        yield Hint(what, "put them in quotes if they are meant as texts")
    if "None" in texts:
        yield Hint(f"{name} has the text 'None' as an option", "write null if you mean Python's None")
    if texts and all(read_meant_number(one) is not None for one in texts):
        what = f"{name} has options that are texts and look like numbers, such as {texts[0]!r}"
        yield Hint(what, "remove the quotes, unless the trial wants texts")
    elif texts and {one.lower() for one in texts} <= {"true", "false"}:
        what = f"{name} has the text {texts[0]!r} as an option, and Python takes any text but an empty one for true"
        yield Hint(what, "remove the quotes, unless the trial wants texts")


def _find_range_hints(parameter: Parameter, name: str, low: float, high: float) -> Iterator[Hint]:
    if parameter.q is not None and parameter.q > high - low:
        what = f"the step of {name} ({parameter.q:g}) is wider than its range ({low:g} to {high:g})"
        yield Hint(f"{what}, so it takes {_values(parameter)}", "make the step smaller, or the range wider")
    elif parameter.count == 1:
        yield Hint(f"{name} can only be {low:g}", "write it into the trial, or make the range wider")
    elif not parameter.log and parameter.kind is not ParameterKind.RANDINT and 0 < low * WIDE <= high:
        what = f"{name} goes from {low:g} to {high:g}, so nine of ten values lie above {high / 10:g}"
        better = {"qrandint": "qlograndint"}.get(parameter.kind.value, "loguniform")
        yield Hint(what, f"{better} searches small and large values alike")


def _values(parameter: Parameter) -> str:
    points = sorted(set(parameter.points()))
    return "the value " + " or ".join(f"{point:g}" for point in points)


def _find_grid_hints(space: SearchSpace, max_trials: int | None) -> Iterator[Hint]:
    size = space.size
    if size is None or size <= LARGEST_GRID:
        return
    what = f"the grid has {size:,} points"
    if max_trials is not None and size > max_trials:
        what += f" and there are {max_trials:,} trials, so only its first corner is searched"
    yield Hint(what, "remove options or steps, or use a tuner that samples, such as TPE")


def _is_parameter(value: Json) -> bool:
    return isinstance(value, Mapping) and "_type" in value and "_value" in value


def _holds_parameter(value: Json) -> bool:
    if _is_parameter(value):
        return True
    if isinstance(value, Mapping):
        return any(map(_holds_parameter, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_holds_parameter, value))
