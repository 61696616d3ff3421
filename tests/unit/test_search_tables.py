"""The benchmark of tuners on published tables: how a table is looked up, and the interval of a difference."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

import pytest

from benchmarks.search_tables import DEVELOPMENT, HELD_OUT, Table

np = pytest.importorskip("numpy")
search_published = pytest.importorskip("benchmarks.search_published")


@pytest.fixture
def made() -> Table:
    """Two values of a number, three of a name; the trainings of a combination say which one it is."""
    values: dict[str, list[Any]] = {"width": [16, 64], "kind": ["a", "b", "c"]}
    runs = [np.array([10.0 * row + number for number in range(1 + row % 3)]) for row in range(6)]
    return Table(values, {"width": True, "kind": False}, runs, np.arange(6) / 3)


def test_tuners_see_places_of_numbers_and_names(made: Table) -> None:
    assert made.space == {
        "width": {"_type": "randint", "_value": [0, 2]},
        "kind": {"_type": "choice", "_value": ["a", "b", "c"]},
    }
    rows = [made.row({"width": width, "kind": kind}) for width in (0, 1) for kind in "abc"]
    assert rows == list(range(6))


def test_a_seed_gives_one_training_of_each_combination_and_seeds_give_all(made: Table) -> None:
    parameters = {"width": 1, "kind": "c"}  # the only one with three, of which the first is 50
    losses = [made.objective(seed)(parameters) for seed in range(40)]
    assert set(losses) == {50.0, 51.0, 52.0}
    assert losses == [made.objective(seed)(parameters) for seed in range(40)]
    assert made.objective(3)({"width": 0, "kind": "a"}) == 0.0


def test_no_table_is_both_for_development_and_held_out() -> None:
    for collection, names in DEVELOPMENT.items():
        assert not set(names) & set(HELD_OUT.get(collection, ()))


def numbers(text: str) -> list[float]:
    return [float(word) for word in re.findall(r"[-+]\d+\.\d+", text)]


def test_the_interval_is_about_the_difference_and_wider_with_noise() -> None:
    luck = np.random.default_rng(1)
    base = luck.normal(size=(4, 30))
    gap, low, high = numbers(search_published.interval(base - 0.5, base))
    assert (gap, low, high) == (-0.5, -0.5, -0.5)
    gap, low, high = numbers(search_published.interval(base - 0.5 + luck.normal(size=(4, 30)), base))
    assert low < gap < high
    assert low < -0.5 < high


@pytest.mark.parametrize("label", ["nnilite Random", "optuna default", "optuna liar"])
def test_with_several_at_once_there_are_as_many_results_and_each_is_of_its_parameters(label: str) -> None:
    space = {"x": {"_type": "uniform", "_value": [0, 1]}}
    found = list(islice(search_published.crowded(label, space, 1, lambda p: 2 * p["x"], 4), 50))
    assert len({parameters["x"] for parameters, _ in found}) == 50
    assert all(value == 2 * parameters["x"] for parameters, value in found)


def test_tuners_of_nni_take_one_trial_at_a_time() -> None:
    with pytest.raises(ValueError, match="not tried with several trials at once"):
        next(search_published.crowded("NNI TPE", {}, 1, lambda p: 0.0, 4))
