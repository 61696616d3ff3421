"""The front of several objectives."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnilite._store.settings_of_config import is_maximizing
from nnilite.errors import ConfigError
from nnilite.tuning.objectives import front, gains, signs

GOALS = signs({"good": "maximize", "cost": "minimize"})
RESULTS = st.lists(st.fixed_dictionaries({"good": st.integers(0, 6), "cost": st.integers(0, 6)}), max_size=12)


def beats(one: dict, other: dict) -> bool:
    return one != other and one["good"] >= other["good"] and one["cost"] <= other["cost"]


@given(RESULTS)
def test_the_front_is_what_no_other_result_beats(results):
    found = [results[k] for k in front(enumerate(results), GOALS)]
    unbeaten = [one for one in results if not any(beats(other, one) for other in results)]
    assert [(one["good"], one["cost"]) for one in found] == sorted(
        {(one["good"], one["cost"]) for one in unbeaten}, reverse=True
    )


@pytest.mark.parametrize("value", [0.5, None, {}, {"good": 1}, {"good": 1, "cost": math.nan}, {"good": "1", "cost": 1}])
def test_a_result_that_lacks_an_objective_does_not_count(value):
    assert gains(value, GOALS) is None


def test_a_number_counts_as_the_default():
    assert gains(0.5, signs({"default": "minimize"})) == (-0.5,)


def test_a_wrong_direction_gets_a_sentence():
    with pytest.raises(ConfigError, match=r"objectives.cost: must be one of 'maximize', 'minimize', not 'low'"):
        signs({"cost": "low"})


@pytest.mark.parametrize(
    ("class_args", "larger_is_better"),
    [
        ({}, True),
        ({"optimize_mode": "minimize"}, False),
        ({"objectives": {"default": "minimize", "size": "maximize"}}, False),
        ({"objectives": {"default": "maximize", "size": "minimize"}, "optimize_mode": "minimize"}, True),
        ({"objectives": {"size": "minimize"}}, True),
    ],
)
def test_the_best_trial_is_best_in_the_direction_of_its_own_objective(class_args, larger_is_better):
    assert is_maximizing({"className": "mine.Tuner", "classArgs": class_args}) is larger_is_better
