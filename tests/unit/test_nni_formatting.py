"""`nni.common.hpo_utils`: search spaces by paths, formatted parameters, and none of them twice, as in NNI 3.0."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from nnilite.errors import NoMoreTrialError
from shim import nni_modules

CHOICE = {"_type": "choice", "_value": ["a", "b"]}
UNIFORM = {"_type": "uniform", "_value": [0, 1]}
INNER = {"_name": "z", "q": {"_type": "uniform", "_value": [1, 2]}}
NESTED = {
    "_type": "choice",
    "_value": [{"_name": "e"}, {"_name": "c", "size": CHOICE, "in": {"_type": "choice", "_value": [INNER]}}],
}


@pytest.fixture(scope="module")
def nni() -> Iterator[ModuleType]:
    with nni_modules() as imported:
        yield imported("nni.common.hpo_utils")


def _one(nni: ModuleType, kind: str, *values: Any) -> Any:
    return nni.format_search_space({"x": {"_type": kind, "_value": list(values)}})


CONTINUOUS = {"categorical": False, "normal_distributed": False, "log_distributed": False}
NORMAL = {**CONTINUOUS, "normal_distributed": True, "mu": 0.0, "sigma": 1.0}
LN8 = math.log(8)


@pytest.mark.parametrize(
    ("kind", "values", "facts"),
    [
        ("choice", ["x", 2, None], {"categorical": True, "size": 3}),
        ("randint", [1.2, 5], {"categorical": True, "size": 3}),
        ("uniform", [0, 1], {**CONTINUOUS, "low": 0.0, "high": 1.0}),
        ("quniform", [2, 10, 5], {**CONTINUOUS, "low": 2.0, "high": 10.0, "q": 5.0, "clip": (2.0, 10.0)}),
        ("loguniform", [1, 8], {**CONTINUOUS, "low": 0.0, "high": LN8, "log_distributed": True}),
        (
            "qloguniform",
            [1, 8, 2],
            {**CONTINUOUS, "low": 0.0, "high": LN8, "q": 2.0, "clip": (1.0, 8.0), "log_distributed": True},
        ),
        ("normal", [0, 1], NORMAL),
        ("qnormal", [0, 1, 0.5], {**NORMAL, "q": 0.5}),
        ("lognormal", [0, 1], {**NORMAL, "log_distributed": True}),
        ("qlognormal", [0, 1, 2], {**NORMAL, "q": 2.0, "log_distributed": True}),
    ],
)
def test_each_type_has_nnis_fields(nni: ModuleType, kind: str, values: list[Any], facts: dict[str, Any]) -> None:
    spec = nni.ParameterSpec("x", kind, values, ("x",), **facts)
    assert _one(nni, kind, *values) == {("x",): spec}
    assert spec.chosen_size == 1
    assert not spec.is_nested()
    assert spec.is_activated_in({})


def test_the_options_of_a_nested_choice_stand_in_the_paths(nni: ModuleType) -> None:
    space = nni.format_search_space({"n": NESTED})
    assert list(space) == [("n",), ("n", 1, "size"), ("n", 1, "in"), ("n", 1, "in", 0, "q")]
    size = space["n", 1, "size"]
    assert size.is_nested()
    assert size.is_activated_in({("n",): 1})
    assert not size.is_activated_in({("n",): 0})


PLAIN = {"n": {"_name": "c", "size": "b", "in": {"_name": "z", "q": 1.5}}, "lr": 1.0}
FORMATTED = {("n",): 1, ("n", 1, "size"): 1, ("n", 1, "in"): 0, ("n", 1, "in", 0, "q"): 1.5, ("lr",): 0.0}


def test_parameters_go_there_and_back(nni: ModuleType) -> None:
    space = nni.format_search_space({"n": NESTED, "lr": {"_type": "loguniform", "_value": [0.1, 10]}})
    assert nni.format_parameters({**PLAIN, "unknown": 1}, space) == FORMATTED
    assert nni.deformat_parameters(dict(reversed(FORMATTED.items())), space) == PLAIN


def test_choices_within_options_that_were_not_chosen_are_left_out(nni: ModuleType) -> None:
    space = nni.format_search_space({"n": NESTED})
    assert nni.format_parameters({"n": {"_name": "e"}}, space) == {("n",): 0}


@pytest.mark.parametrize(
    ("kind", "values", "formatted", "plain"),
    [
        ("randint", [1.2, 5], 1.0, 3),
        ("quniform", [0, 10, 3], 4, 3.0),
        ("quniform", [0.1, 10, 3], 0, 0.1),
        ("quniform", [0, 5, 2], 9, 5.0),
        ("loguniform", [1, 5], 9, math.exp(9)),
        ("uniform", [0, 1], 5, 5),
        ("qnormal", [0, 1, 0.5], 0.74, 0.5),
        ("qlognormal", [0, 1, 2], math.log(4.9), 4.0),
    ],
)
def test_rounding_and_bounds_come_with_the_plain_form(
    nni: ModuleType, kind: str, values: list[Any], formatted: Any, plain: Any
) -> None:
    found = nni.deformat_parameters({("x",): formatted}, _one(nni, kind, *values))["x"]
    assert (found, type(found)) == (plain, type(plain))


def test_what_is_not_active_is_left_out(nni: ModuleType) -> None:
    space = nni.format_search_space({"n": NESTED})
    assert nni.deformat_parameters({("n",): 0, ("n", 1, "size"): 1}, space) == {"n": {"_name": "e"}}


def test_zero_of_a_rounded_logarithm_stays_zero(nni: ModuleType) -> None:
    space = _one(nni, "qlognormal", 0, 1, 3)
    assert nni.deformat_parameters(nni.format_parameters({"x": 0}, space), space) == {"x": 0.0}


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ([1], "must be a dict of parameters"),
        ({"x": 1}, "x must be a dict with _type and _value"),
        ({"x": {"_type": "choice", "_value": []}}, "needs an option"),
        ({"x": {"_type": "layer_choice", "_value": ["a"]}}, "none of NNI's ten types"),
        ({"x": {"_type": "loguniform", "_value": [0, 1]}}, r"x: \[0, 1\] cannot be"),
        ({"x": {"_type": "uniform", "_value": [1]}}, r"x: \[1\] cannot be"),
    ],
)
def test_what_is_no_search_space_gets_a_sentence(nni: ModuleType, space: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        nni.format_search_space(space)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, "n is missing"),
        ({"n": {"_name": "x"}}, "not a value of the choice"),
        ({"n": {"_name": "c", "size": "a"}}, r"n\.in is missing"),
        ({"n": 3}, "not a value of the choice"),
    ],
)
def test_parameters_outside_the_space_get_a_sentence(nni: ModuleType, parameters: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        nni.format_parameters(parameters, nni.format_search_space({"n": NESTED}))


@pytest.mark.parametrize(("formatted", "said"), [({("m",): 1}, "m is not in"), ({("n",): 2}, "0 to 1")])
def test_formatted_parameters_outside_the_space_get_a_sentence(nni: ModuleType, formatted: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        nni.deformat_parameters(formatted, nni.format_search_space({"n": NESTED}))


def test_what_was_tried_before_becomes_the_next_of_a_grid(nni: ModuleType) -> None:
    space = nni.format_search_space({"c": CHOICE, "r": {"_type": "randint", "_value": [0, 3]}})
    dedup = nni.Deduplicator(space)
    dedup.add_history({("c",): 0, ("r",): 1})
    asked = {("c",): 1, ("r",): 2}
    assert dedup(asked) is asked
    rest = [{("c",): 0, ("r",): 0}, {("c",): 0, ("r",): 2}, {("c",): 1, ("r",): 0}, {("c",): 1, ("r",): 1}]
    assert [dedup(asked) for _ in rest] == rest
    with pytest.raises(NoMoreTrialError):
        dedup(asked)


def test_values_are_the_same_if_they_are_so_for_a_trial(nni: ModuleType) -> None:
    dedup = nni.Deduplicator(_one(nni, "quniform", 0, 2, 1))
    assert dedup({("x",): 0.2}) == {("x",): 0.2}
    assert dedup({("x",): 0.3}) == {("x",): 1.0}


def test_a_continuous_parameter_at_the_top_ends_the_search_for_others(nni: ModuleType) -> None:
    dedup = nni.Deduplicator(nni.format_search_space({"u": UNIFORM, "c": CHOICE}))
    asked = {("u",): 0.5, ("c",): 0}
    dedup.add_history(asked)
    assert dedup(asked) is dedup(asked) is asked


def test_a_continuous_parameter_in_an_option_is_searched_in_steps(nni: ModuleType) -> None:
    options = [{"_name": "e"}, {"_name": "c", "u": UNIFORM}]
    dedup = nni.Deduplicator(_one(nni, "choice", *options))
    found = [dedup({("x",): 0}).get(("x", 1, "u")) for _ in range(4)]
    assert found == [None, 0.5, 0.25, 0.75]


def test_the_modules_of_nni_have_these_names_too() -> None:
    with nni_modules() as imported:
        assert imported("nni.common.hpo_utils.formatting").ParameterKey
        assert imported("nni.common.hpo_utils.dedup").Deduplicator
        assert imported("nni.common.hpo_utils.optimize_mode").OptimizeMode.Maximize.value == "maximize"


@pytest.mark.parametrize(
    ("kind", "values"), [("choice", [None]), ("choice", [{"a": 1}]), ("randint", [1.0, 2]), ("uniform", [1, 1])]
)
def test_what_nnis_tuners_cannot_take_is_not_valid(nni: ModuleType, kind: str, values: list[Any]) -> None:
    space = {"x": {"_type": kind, "_value": values}}
    assert not nni.validate_search_space(space)
    with pytest.raises(ValueError, match=r"x: .* here"):
        nni.validate_search_space(space, raise_exception=True)
