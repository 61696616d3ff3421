"""Where raw values lie between 0 and 1."""

from __future__ import annotations

import random

import pytest

from nnilite.space import SearchSpace
from nnilite.tuning.positions import neighbour, position, raw_at

SPACE = SearchSpace.parse(
    {
        "choice": {"_type": "choice", "_value": ["a", "b", "c"]},
        "one": {"_type": "choice", "_value": ["only"]},
        "randint": {"_type": "randint", "_value": [-3, 4]},
        "uniform": {"_type": "uniform", "_value": [-2, 5]},
        "fixed": {"_type": "uniform", "_value": [2, 2]},
        "quniform": {"_type": "quniform", "_value": [2, 10, 5]},
        "loguniform": {"_type": "loguniform", "_value": [1e-4, 10]},
        "qloguniform": {"_type": "qloguniform", "_value": [0.1, 20, 1]},
        "lograndint": {"_type": "lograndint", "_value": [1, 900]},
        "qrandint": {"_type": "qrandint", "_value": [-8, 64, 8]},
        "qlograndint": {"_type": "qlograndint", "_value": [8, 64, 8]},
        "ordered": {"_type": "choice", "_value": [1, 2, 40], "_ordered": True},
        "normal": {"_type": "normal", "_value": [3, 2]},
        "qnormal": {"_type": "qnormal", "_value": [3, 2, 0.5]},
        "lognormal": {"_type": "lognormal", "_value": [0, 1]},
        "qlognormal": {"_type": "qlognormal", "_value": [0, 1, 0.5]},
    }
)
PARAMETERS = {parameter.name: parameter for parameter in SPACE.parameters}


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_raw_value_comes_back_from_its_position(name):
    parameter, rng = PARAMETERS[name], random.Random(0)
    for _ in range(200):
        raw = parameter.sample(rng)
        assert 0.0 <= position(parameter, raw) <= 1.0
        assert raw_at(parameter, position(parameter, raw)) == pytest.approx(raw, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", PARAMETERS)
def test_any_position_has_a_value_of_the_parameter(name):
    parameter = PARAMETERS[name]
    for place in (-1.0, 0.0, 0.3, 0.999999, 1.0, 7.0):
        raw = raw_at(parameter, place)
        assert parameter.kind.value == "choice" or parameter.raw(raw) == raw


@pytest.mark.parametrize("name", sorted(PARAMETERS.keys() - {"one", "fixed"}))
def test_a_neighbour_of_a_finite_parameter_is_another_value(name):
    parameter, rng = PARAMETERS[name], random.Random(1)
    for _ in range(100):
        raw = parameter.sample(rng)
        found = neighbour(parameter, raw, 0.05, rng)
        assert parameter.kind.value == "choice" or parameter.raw(found) == found
        assert parameter.count is None or found != raw


def test_a_parameter_of_one_value_keeps_it():
    rng = random.Random(2)
    assert neighbour(PARAMETERS["one"], 0, 0.1, rng) == 0
    assert neighbour(PARAMETERS["fixed"], 2.0, 0.1, rng) == 2.0


def test_uniform_positions_are_a_draw_from_the_space():
    rng = random.Random(3)
    values = sorted(raw_at(PARAMETERS["normal"], rng.random()) for _ in range(4001))
    assert values[2000] == pytest.approx(3, abs=0.15)
    assert values[3365] - values[635] == pytest.approx(4, abs=0.3)  # two standard deviations to each side of the median


def test_whole_numbers_on_a_log_scale_have_their_shares_of_it():
    parameter = PARAMETERS["lograndint"]
    width = 1 / 1000
    drawn = [raw_at(parameter, (k + 0.5) * width) for k in range(1000)]
    below = sum(raw <= 30 for raw in drawn) / 1000  # half of the logarithms from 1 to 900
    assert below == pytest.approx(0.5, abs=0.06)
    assert {1, 2, 3, 4} <= set(drawn)
    assert raw_at(parameter, 1.0) == 900


def test_steps_on_a_log_scale_are_drawn_by_position_as_by_the_space():
    parameter, rng = (
        SearchSpace.parse({"x": {"_type": "qloguniform", "_value": [1, 1000, 1]}}).parameters[0],
        random.Random(5),
    )
    by_place = [raw_at(parameter, (k + 0.5) / 1000) for k in range(1000)]
    drawn = [parameter.sample(rng) for _ in range(4000)]
    for bound in (3, 31, 300):
        shares = [sum(raw <= bound for raw in raws) / len(raws) for raws in (by_place, drawn)]
        assert shares[0] == pytest.approx(shares[1], abs=0.04)


def test_a_step_on_a_log_scale_that_has_one_value_keeps_it():
    parameter = SearchSpace.parse({"x": {"_type": "qloguniform", "_value": [2, 2, 1]}}).parameters[0]
    assert (position(parameter, 2.0), raw_at(parameter, 0.9)) == (0.5, 2.0)


def test_the_next_value_is_a_neighbour_however_narrow_the_step_is():
    parameter, rng = PARAMETERS["lograndint"], random.Random(3)
    assert {neighbour(parameter, 1, 1e-9, rng) for _ in range(9)} == {2}
    assert {neighbour(parameter, 5, 1e-9, rng) for _ in range(99)} == {4, 6}


@pytest.mark.parametrize(("name", "last", "before"), [("randint", 3, 2), ("qrandint", 64, 56), ("ordered", 2, 1)])
def test_the_last_value_has_a_neighbour_even_where_steps_have_no_width(name, last, before):
    assert neighbour(PARAMETERS[name], last, 0.0, random.Random(5)) == before


def test_only_a_choice_without_an_order_jumps_anywhere():
    rng = random.Random(4)
    assert {neighbour(PARAMETERS["ordered"], 0, 0.01, rng) for _ in range(50)} == {1}
    assert {neighbour(PARAMETERS["choice"], 0, 0.01, rng) for _ in range(50)} == {1, 2}
