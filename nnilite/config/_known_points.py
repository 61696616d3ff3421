"""Checks what people know of a search: `constraints` of parameters and of results, and `firstTrials`."""

from __future__ import annotations

from typing import Any

from nnilite.config._config_reading import INVALID, At
from nnilite.errors import ConfigError, SpaceError
from nnilite.space import Constraints, SearchSpace
from nnilite.tuning.result_constraints import ResultConstraints


def check_known(values: dict[str, Any], at: At) -> None:
    """Note faults in `constraints` and `firstTrials`. Where the space has faults, those come first."""
    texts, trials = values.get("constraints") or (), values.get("first_trials") or ()
    if INVALID in (texts, trials) or not (texts or trials):
        return
    most = values.get("max_trial_number")
    if isinstance(most, int) and len(trials) > most:
        at.below("firstTrials").fault(
            f"has {len(trials)} trials, but maxTrialNumber is {most}; raise it, or leave some out"
        )
    space = _parsed(values)
    if space is None:
        if texts and values["tuner"] is not INVALID and values["tuner"].class_name:
            at.below("constraints").fault("cannot be used, as the search space is not one of NNI's types")
        return
    rules = _constraints(texts, space, at)
    for number, parameters in enumerate(trials):
        here = at.below("firstTrials", number)
        try:
            outside = space.contains(parameters)
            broken = rules.violated(parameters) if rules is not None and outside is None else None
        except SpaceError as error:
            outside, broken = error.message, None
        if outside is not None:
            here.fault(f"is not in the search space: {outside}")
        elif broken is not None:
            here.fault(f"violates the constraint {broken!r}; change one of the two")


def check_result_constraints(values: dict[str, Any], at: At) -> None:
    """Note faults in `resultConstraints`."""
    texts = values.get("result_constraints") or ()
    for number, text in enumerate(() if texts is INVALID else texts):
        try:
            ResultConstraints.parse([text])
        except ConfigError as error:
            at.below("resultConstraints", number).fault(error.message)


def _parsed(values: dict[str, Any]) -> SearchSpace | None:
    try:
        return SearchSpace.parse(values["search_space"])
    except (SpaceError, KeyError):
        return None


def _constraints(texts: Any, space: SearchSpace, at: At) -> Constraints | None:
    """Return the constraints, if they are expressions and something satisfies them."""
    good = True
    for number, text in enumerate(texts):
        try:
            Constraints.parse([text], space)
        except SpaceError as error:
            at.below("constraints", number).fault(error.message)
            good = False
    if not good or not texts:
        return None
    rules = Constraints.parse(texts, space)
    try:
        rules.check(space)
    except SpaceError as error:
        at.below("constraints").fault(error.message)
        return None
    return rules
