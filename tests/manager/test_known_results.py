"""Results of earlier experiments, fitted to a search space that has changed since."""

from __future__ import annotations

from typing import Any

import pytest

from nnilite._manager.known_results import fit
from nnilite.space import SearchSpace

LR: dict[str, Any] = {"_type": "uniform", "_value": [0, 1]}
UNITS: dict[str, Any] = {"_type": "randint", "_value": [1, 100]}
LAYER: dict[str, Any] = {
    "_type": "choice",
    "_value": [{"_name": "none"}, {"_name": "dense", "units": UNITS, "act": {"_type": "choice", "_value": ["relu"]}}],
}


def results(*parameters: dict[str, Any]) -> list[Any]:
    return [{"parameter": one, "value": 0.5} for one in parameters]


def test_a_parameter_that_is_new_gets_values_over_its_whole_domain() -> None:
    known = results(*({"lr": k / 100} for k in range(100)))
    found = fit(known, {"lr": LR, "units": UNITS})
    assert [one["parameter"]["lr"] for one in found.taken] == [one["parameter"]["lr"] for one in known]
    drawn = [one["parameter"]["units"] for one in found.taken]
    assert min(drawn) < 15
    assert max(drawn) > 85
    assert found.sentence == (
        "100 of 100 results are taken, 100 of them changed (random values for units, which they do not have)"
    )


def test_the_same_parameters_get_the_same_values() -> None:
    space = {"lr": LR, "units": UNITS}
    assert fit(results({"lr": 0.5}), space).taken == fit(results({"lr": 0.5}), space).taken


def test_a_parameter_that_the_space_does_not_have_is_dropped() -> None:
    found = fit(results({"lr": 0.5, "decay": 3}, {"lr": 0.25}), {"lr": LR})
    assert found.taken == results({"lr": 0.5}, {"lr": 0.25})
    assert found.sentence == (
        "2 of 2 results are taken, 1 of them changed (without decay, which the search space does not have)"
    )


def test_a_wider_range_and_one_more_option_change_nothing() -> None:
    known = results({"lr": 0.5, "act": "relu"})
    space = {"lr": {"_type": "uniform", "_value": [-9, 9]}, "act": {"_type": "choice", "_value": ["tanh", "relu"]}}
    found = fit(known, space)
    assert (found.taken, found.is_as_it_was) == (known, True)


def test_results_outside_of_the_space_and_without_a_number_are_left_out_with_the_reason() -> None:
    known = [*results({"lr": 7}, {"lr": 8}, {"lr": 0.5}), {"parameter": {"lr": 0.5}, "value": [1, 2]}]
    found = fit(known, {"lr": LR})
    assert found.taken == [known[2]]
    assert found.sentence == (
        "1 of 4 results is taken, 3 left out "
        "(2 since lr: 7 is not a number from 0 to 1; 1 since the value is not a number: [1, 2])"
    )


def test_without_any_result_that_fits_none_is_taken() -> None:
    assert fit(results({"lr": 7}), {"lr": LR}).sentence.startswith("none of 1 results is taken")
    assert fit([], {"lr": LR}).sentence == "none of 0 results is taken"


@pytest.mark.parametrize(
    ("given", "fitted"),
    [
        ({"_name": "none", "act": "relu"}, {"_name": "none"}),
        ({"_name": "dense", "units": 7}, {"_name": "dense", "units": 7, "act": "relu"}),
    ],
)
def test_nested_parameters_are_fitted_too(given: Any, fitted: Any) -> None:
    assert fit(results({"layer": given}), {"layer": LAYER}).taken == results({"layer": fitted})


def test_a_nested_choice_that_is_new_is_drawn_whole() -> None:
    space = {"lr": LR, "layer": LAYER}
    found = fit(results({"lr": 0.5}), space)
    assert SearchSpace.parse(space).contains(found.taken[0]["parameter"]) is None


def test_a_parameter_that_is_new_takes_its_default() -> None:
    space = {"lr": LR, "units": {**UNITS, "_default": 64}, "layer": {**LAYER, "_default": "none"}}
    found = fit(results({"lr": 0.5}, {"lr": 0.25, "units": 7}), space)
    none = {"layer": {"_name": "none"}}
    assert found.taken == results({"lr": 0.5, "units": 64, **none}, {"lr": 0.25, "units": 7, **none})
    assert found.sentence == (
        "2 of 2 results are taken, 2 of them changed (the default of layer, units, which they do not have)"
    )


def test_a_result_without_any_parameter_of_the_space_teaches_nothing() -> None:
    found = fit(results({"rate": 0.5, "TRIAL_BUDGET": 3}, {}), {"lr": LR})
    assert found.taken == []
    assert found.sentence == (
        "none of 2 results is taken, 2 left out (2 since they have no parameter of the search space)"
    )


def test_what_a_tuner_adds_to_the_parameters_stays() -> None:
    known = results({"lr": 0.5, "TRIAL_BUDGET": 3})
    assert fit(known, {"lr": LR}).taken == known


def test_a_space_of_the_user_s_own_kind_takes_all() -> None:
    known = [{"parameter": [1, 2], "value": "any"}]
    assert fit(known, None).taken == known
