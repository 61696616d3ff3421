"""Values of trials: as JSON, as results, and as calls of the tuner."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nnilite import _number, _text
from nnilite._sdk.safe_text import safe_repr
from nnilite._states import CallKind, TrialState
from nnilite.tuner import Call, scalar

if TYPE_CHECKING:
    from nnilite.records import Json, Trial
    from nnilite.tuning.result_constraints import ResultConstraints


def read_metric(value: Any, objectives: Collection[str]) -> Json:
    """Return a metric as a trial would have it: an array, a list or a text of one number is that number."""
    value = plain_value(value)
    if isinstance(value, dict):
        return {**value, **{name: _number(value[name]) for name in objectives if name in value}}
    return _number(value)


def warn_of_no_number(value: Json) -> None:
    """Warn of an intermediate result without a number. Python shows this once."""
    if scalar(value) is None:
        cure = "report a number, or a dict with one under 'default'"
        message = f"an intermediate result is not a finite number, so the assessor cannot use it; {cure}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def judged(trial: Trial, limits: ResultConstraints) -> Trial:
    """Return a trial that succeeded, with the result constraints that it breaks.

    Of a number that one needs and that is missing, Python warns once.
    """
    from nnilite.tuning.result_constraints import NOT_REPORTED

    broken = limits.violated(trial.value)
    if NOT_REPORTED in broken:
        cure = "report each number that result_constraints name in the result, a dict"
        warnings.warn(f"a result breaks {broken}, and so it is never the best; {cure}", RuntimeWarning, stacklevel=2)
    return replace(trial, violates=broken)


def warn_of(space: Mapping[str, Any], parameters: Json) -> None:
    """Log what is odd in a user's own parameters."""
    from nnilite.space import SearchSpace

    odd = SearchSpace.parse(dict(space)).contains(parameters)
    if odd:
        import logging

        logging.getLogger("nnilite.search").warning("parameters that are not in the search space: %s", odd)


def warn_of_failure(trial: str, value: Json, objectives: Iterable[str]) -> None:
    """Log that a trial has failed since its value has the wrong form: `tell` does not raise then."""
    import logging

    log = logging.getLogger("nnilite.search")
    log.warning("trial %s failed: the result %s %s", trial, safe_repr(value), wanted(objectives, value))


def wanted(objectives: Iterable[str], value: Json) -> str:
    """Return what a result should be, and how to make one of this value."""
    names = list(objectives)
    if names == ["default"]:
        problem = "is neither a finite number nor a dict with one under 'default'"
        if value is None:
            return f"{problem}; let the function return the number"
        numbers = [name for name in value if scalar(value, name) is not None] if isinstance(value, dict) else []
        cure = f"; return the number alone, or give Search optimize={{{numbers[0]!r}: 'minimize'}}" if numbers else ""
        return problem + cure
    problem = f"is not a dict with finite numbers under {', '.join(names)}"
    if isinstance(value, (list, tuple)) and len(value) == len(names):
        return problem + "; return {" + ", ".join(f"{name!r}: ..." for name in names) + "}"
    return problem


def calls_of(trial: Trial, reported: Sequence[Json]) -> list[Call]:
    """Return the tuner's calls about a trial that has ended."""
    value = trial.value
    if value is None and trial.state is TrialState.EARLY_STOPPED and reported:
        value = reported[-1]  # the last reported value informs the tuner, too
    known = Call(CallKind.RESULT, trial.parameter_id, trial.id, trial.parameters, value)
    known = replace(known, customized=trial.parameter_id is None)
    end = replace(known, kind=CallKind.END, parameters=None, value=None, success=trial.state is TrialState.SUCCEEDED)
    return [end] if value is None else [known, end]


def is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def plain_value(value: Any) -> Json:
    """Return a value as an experiment would have it: numbers of numpy, torch and the like are numbers."""
    try:
        return json.loads(_text(value))
    except TypeError:  # the caller says what is wrong with it
        return value
