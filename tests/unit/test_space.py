"""The search space: what is wrong with it, and its two forms."""

from __future__ import annotations

import copy
import math
import random

import pytest

from nnilite.errors import Place, SpaceError
from nnilite.space import ParameterKind, SearchSpace
from nnilite.space.space_checks import drop_repeats

NESTED = {
    "lr": {"_type": "loguniform", "_value": [1e-5, 0.1]},
    "layer": {
        "_type": "choice",
        "_value": [
            {"_name": "Empty"},
            {
                "_name": "Conv",
                "size": {"_type": "choice", "_value": [2, 3]},
                "pool": {
                    "_type": "choice",
                    "_value": [{"_name": "Max", "k": {"_type": "randint", "_value": [1, 4]}}, {"_name": "None"}],
                },
            },
        ],
    },
}


def of(kind, *value):
    return SearchSpace.parse({"x": {"_type": kind, "_value": list(value)}})


def one(kind, *value):
    return of(kind, *value).parameters[0]


def test_nested_choices_are_flattened_with_paths_and_parents():
    space = SearchSpace.parse(NESTED)
    paths = [parameter.path for parameter in space.parameters]
    assert paths[2:] == [("layer", 1, "size"), ("layer", 1, "pool"), ("layer", 1, "pool", 0, "k")]
    assert space.parameters[-1].parent == (("layer", 1, "pool"), 0)
    assert space.parameters[0].parent is None


def test_a_trial_gets_the_names_of_chosen_options():
    space = SearchSpace.parse(NESTED)
    flat = {("lr",): 0.1, ("layer",): 1, ("layer", 1, "size"): 1, ("layer", 1, "pool"): 1}
    expected = {"lr": 0.1, "layer": {"_name": "Conv", "size": 3, "pool": {"_name": "None"}}}
    assert space.build(flat) == expected
    assert space.flatten(expected) == flat


def test_inactive_parameters_are_ignored_by_build():
    space = SearchSpace.parse(NESTED)
    flat = {("lr",): 0.1, ("layer",): 0, ("layer", 1, "size"): 77}
    assert space.build(flat) == {"lr": 0.1, "layer": {"_name": "Empty"}}


def test_an_active_parameter_must_be_there():
    with pytest.raises(SpaceError, match=r"layer\.size is missing"):
        SearchSpace.parse(NESTED).build({("lr",): 0.1, ("layer",): 1})


@pytest.mark.parametrize("option", [-1, 2, 0.5, math.nan])
def test_build_refuses_an_option_that_does_not_exist(option):
    with pytest.raises(SpaceError, match="not the number of an option, 0 to 1"):
        of("choice", "a", "b").build({("x",): option})


def test_size_multiplies_and_adds_over_nested_options():
    space = {"a": {"_type": "quniform", "_value": [2, 10, 5]}, "layer": NESTED["layer"]}
    assert SearchSpace.parse(space).size == 3 * (1 + 2 * (3 + 1))
    assert SearchSpace.parse(NESTED).size is None


def test_options_that_are_not_all_named_are_plain_values():
    space = of("choice", {"_name": "a"}, 3)
    assert space.build({("x",): 0}) == {"x": {"_name": "a"}}
    assert not space.parameters[0].nested


def test_quniform_is_clipped_and_rounded_half_to_even_as_in_nni():
    parameter = one("quniform", 2, 10, 5)
    assert list(parameter.points()) == [2.0, 5.0, 10.0]
    assert [parameter.legal(x) for x in (2, 4.9, 7.5, 7.4, 10)] == [2.0, 5.0, 10.0, 5.0, 10.0]
    assert one("quniform", 0, 10, 5).legal(2.5) == 0.0


def test_quniform_gives_floats_for_an_integer_step():
    value = of("quniform", 0, 10, 1).sample(random.Random(1))["x"]
    assert isinstance(value, float)
    assert value == int(value)


def test_normal_kinds_with_q_are_rounded_and_not_clipped():
    parameter = one("qnormal", 0, 10, 0.5)
    assert parameter.legal(-1234.3) == -1234.5
    assert parameter.count is None


def test_the_kinds_are_distributed_as_documented():
    rng = random.Random(3)
    logs = [math.log10(one("loguniform", 1e-4, 1).sample(rng)) for _ in range(4000)]
    assert abs(sum(logs) / 4000 + 2) < 0.1
    normal = [math.log(one("lognormal", 1, 2).sample(rng)) for _ in range(4000)]
    assert abs(sum(normal) / 4000 - 1) < 0.15
    assert {one("randint", 1, 4).sample(rng) for _ in range(100)} == {1, 2, 3}


def test_choices_tell_numbers_from_truth_values():
    space = of("choice", 1, True, 1.0, "1", None, [1])
    assert [space.flatten({"x": value})[("x",)] for value in (1, True, 1.0, "1", None, [1])] == [0, 1, 2, 3, 4, 5]


def test_a_number_that_went_through_javascript_is_still_known():
    assert of("choice", 1.0, 2.0).contains({"x": 1}) is None
    assert of("randint", 0, 5).flatten({"x": 3.0}) == {("x",): 3}


def test_options_are_copied_so_that_a_trial_cannot_change_the_space():
    space = of("choice", {"a": [1]}, {"a": [2]})
    space.build({("x",): 0})["x"]["a"].append(9)
    assert space.build({("x",): 0}) == {"x": {"a": [1]}}


def test_parse_leaves_its_input_alone_and_keeps_the_original():
    given = copy.deepcopy(NESTED)
    space = SearchSpace.parse(given)
    space.sample(random.Random(0))
    assert given == NESTED == space.json


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"lr": 1, "layer": {"_name": "Empty"}}, "lr: 1 is not a number from 1e-05 to 0.1"),
        ({"lr": "a", "layer": {"_name": "Empty"}}, "lr: 'a' is not a number"),
        ({"lr": 0.1}, "layer is missing"),
        ({"lr": 0.1, "layer": {"_name": "Conv", "size": 4, "pool": {"_name": "None"}}}, "layer.size: 4 is not one of"),
        ({"lr": 0.1, "layer": {"_name": "Dense"}}, "one of the options named 'Empty', 'Conv'"),
        ({"lr": 0.1, "layer": "Empty"}, "one of the options named"),
        ({"lr": 0.1, "layer": {"_name": "Empty", "k": 1}}, "layer.k is not in the search space"),
        ({"lr": 0.1, "layer": {"_name": "Empty"}, "z": 1}, "z is not in the search space"),
        ([], "is not an object"),
        ({"lr": math.nan, "layer": {"_name": "Empty"}}, "is not a number"),
        ({"lr": True, "layer": {"_name": "Empty"}}, "lr: True is not a number"),
    ],
)
def test_parameters_outside_the_space_are_told_why(parameters, reason):
    assert reason in (SearchSpace.parse(NESTED).contains(parameters) or "")


@pytest.mark.parametrize(
    ("kind", "value", "good", "bad"),
    [
        ("randint", [1, 4], [1, 3], [0, 4, 1.5]),
        ("uniform", [0, 1], [0, 1, 0.3], [-0.1, 1.1]),
        ("quniform", [0, 1, 0.1], [0.1, 0.3, 0.30000000000000004, 1], [0.15, 1.1]),
        ("normal", [0, 1], [-1e9, 0], []),
        ("lognormal", [0, 1], [1e-9], [0, -1]),
        ("qlognormal", [0, 1, 0.5], [0, 0.5], [-0.5, 0.3]),
        ("qnormal", [0, 1, 0.5], [-0.5], [0.3]),
    ],
)
def test_each_kind_knows_its_values(kind, value, good, bad):
    space = of(kind, *value)
    assert [x for x in good if space.contains({"x": x})] == []
    assert [x for x in bad if not space.contains({"x": x})] == []


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("loguniform", [0, 1], "low must be above 0"),
        ("qloguniform", [-1, 1, 1], "low must be above 0"),
        ("quniform", [0, 1, 0], "q, the step between values, must be above 0"),
        ("qnormal", [0, 1, -1], "q, the step"),
        ("uniform", [2, 1], r"low \(2\) is above high \(1\)"),
        ("randint", [3, 3], "is empty"),
        ("randint", [0.5, 3], "whole number, not 0.5"),
        ("choice", [], "no option"),
        ("choice", [{"_name": "a"}, {"_name": "a"}], "name 'a' is given twice"),
        ("choice", [math.inf], "not a JSON value"),
        ("choice", [{1: 2}], "key that is not text"),
        ("choice", [{"s": {"_type": "randint", "_value": [0, 1]}}], "its own '_name'"),
        ("choice", [{"_name": 3}], "must be text"),
        ("choice", "ab", "must be a list"),
        ("uniform", [0], r"takes \[low, high\], not 1 values"),
        ("quniform", [0, 1], r"takes \[low, high, q\]"),
        ("normal", [0, 0], "sigma must be above 0"),
        ("lognormal", [800, 1], "describe the logarithm"),
        ("uniform", [0, "1e-5"], "write 1.0e-5"),
        ("uniform", [0, True], "must be a number, not True"),
        ("uniform", [0, math.inf], "finite"),
        ("uniform", [0, 10**400], "too large"),
        ("quniform", [0, 1e300, 1e-10], "no longer exact"),
        ("log_uniform", [0, 1], "did you mean 'loguniform'"),
        ("layer_choice", [0, 1], "is for architecture search"),
        ("randint", [10], r"before NNI 0.7 this was \[0, 10\]"),
        ("normal", ["label", 0, 1], "leave out the label"),
        (7, [0, 1], "there is no type 7"),
    ],
)
def test_an_impossible_parameter_gets_a_sentence(kind, value, reason):
    with pytest.raises(SpaceError, match=reason):
        SearchSpace.parse({"x": {"_type": kind, "_value": value}})


@pytest.mark.parametrize(
    ("space", "reason"),
    [
        ({}, "is empty"),
        ([], "is an object of parameters"),
        (None, "is an object of parameters"),
        ({"x": 3}, "must be an object such as"),
        ({"x": {"type": "uniform", "_value": [0, 1]}}, 'write it as {"_type": "uniform"'),
        ({"x": {"_type": "uniform"}}, "has no '_value'"),
        ({1: {"_type": "uniform", "_value": [0, 1]}}, "name 1 is not text"),
    ],
)
def test_what_is_no_search_space_gets_a_sentence(space, reason):
    with pytest.raises(SpaceError, match=reason):
        SearchSpace.parse(space)


def test_a_fault_deep_down_is_located():
    bad = copy.deepcopy(NESTED)
    bad["layer"]["_value"][1]["pool"]["_value"][0]["k"]["_value"] = [4, 1]
    with pytest.raises(SpaceError) as caught:
        SearchSpace.parse(bad, Place("s.json", None, "searchSpace"))
    assert caught.value.place.field == "searchSpace.layer._value[1].pool._value[0].k._value"
    assert str(caught.value).startswith("s.json: searchSpace.layer")


def test_choices_may_be_nested_very_deep():
    space = {"_type": "choice", "_value": [1, 2]}
    for level in range(60):
        space = {"_type": "choice", "_value": [{"_name": f"n{level}", "x": space}]}
    parsed = SearchSpace.parse({"x": space})
    parameters = parsed.sample(random.Random(0))
    assert parsed.size == 2
    assert parsed.build(parsed.flatten(parameters)) == parameters


def test_a_parameter_fixed_by_equal_bounds_is_allowed():
    space = of("uniform", 0.5, 0.5)
    assert space.size == 1
    assert list(space.parameters[0].points()) == [0.5]
    assert space.sample(random.Random(0)) == {"x": 0.5}


def test_a_continuous_parameter_cannot_be_listed():
    with pytest.raises(SpaceError, match="continuous"):
        one("uniform", 0, 1).points()


def test_kinds_are_their_nni_names():
    assert {kind.value for kind in ParameterKind if kind == kind.value} == {kind.value for kind in ParameterKind}
    assert one("randint", 0, 2).categorical
    assert one("qloguniform", 1, 2, 1).log


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ([1, 2, 1], [1, 2]),
        (["a", "a"], ["a"]),
        ([{"k": 1, "l": 2}, {"l": 2, "k": 1}], [{"k": 1, "l": 2}]),
        ([1, 1.0, True], [1, 1.0, True]),
        ([None, None], [None]),
    ],
)
def test_an_option_that_is_given_twice_counts_once(options, kept):
    space = SearchSpace.parse({"x": {"_type": "choice", "_value": options}})
    assert list(space.parameters[0].values) == kept
    assert space.json["x"]["_value"] == kept
    assert space.size == len(kept)


def test_options_of_nested_parameters_are_looked_at_too():
    option = {"_name": "a", "y": {"_type": "choice", "_value": [1, 1]}}
    told = []
    assert drop_repeats({"x": {"_type": "choice", "_value": [option]}}, told)["x"]["_value"][0]["y"]["_value"] == [1]
    assert told == [(("x", "_value", 0, "y", "_value", 1), "1 is given twice, and counts once")]


@pytest.mark.parametrize(
    ("given", "cure"),
    [
        (10, '; for a value that stays the same, write {"_type": "choice", "_value": [10]}'),
        ("sgd", '{"_type": "choice", "_value": ["sgd"]}'),
        ([1, "a"], '; to choose one of them, write {"_type": "choice", "_value": [1, "a"]}'),
        (["x" * 200], ", not ['"),
        ([float("nan")], ", not [nan]"),
        ([], ", not []"),
    ],
)
def test_a_value_in_place_of_a_parameter_is_answered_with_the_parameter(given, cure):
    with pytest.raises(SpaceError) as caught:
        SearchSpace.parse({"x": given})
    assert cure in str(caught.value)


@pytest.mark.parametrize("value", [[-1, 5, 0.1], [0, 4, 1], [3, 10, 0.5]])
def test_a_wide_qlognormal_has_steps_where_floats_have_them(value):
    space = SearchSpace.parse({"x": {"_type": "qlognormal", "_value": value}})
    (parameter,) = space.parameters
    rng = random.Random(1)
    for _ in range(200):
        drawn = parameter.sample(rng)
        assert parameter.raw(drawn) == drawn
        steps = drawn / value[2]
        assert steps > 2**53 or steps == pytest.approx(round(steps))
    assert parameter.legal(1e308) == 1e308
