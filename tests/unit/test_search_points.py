"""First points, results from elsewhere, spaces from Python, and what a search says of wrong functions."""

from __future__ import annotations

import contextlib
import logging
import pickle
import sqlite3
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from nnilite import Search, space
from nnilite._store.database_file import FILE_NAME
from nnilite._store.integrity import IntegrityCheck
from nnilite.errors import Conflict, NniliteError, SpaceError, StoreError
from nnilite.search import SearchResult

SPACE = {"x": space.uniform(0, 1)}


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "it's home"))


@pytest.mark.parametrize("storage", [None, "kept"])
@pytest.mark.parametrize("tuner", [None, "Random", "TPE", "Evolution", "GP"])
def test_first_points_come_first(tmp_path: Path, storage: str | None, tuner: str | None) -> None:
    search = Search(SPACE, tuner=tuner, optimize="minimize", storage=storage and tmp_path / storage)
    search.enqueue({"x": 0.25})
    search.enqueue({"x": 0.75})
    result = search.run(lambda parameters: parameters["x"], trials=4)
    assert [trial.parameters["x"] for trial in result][:2] == [0.25, 0.75]
    assert [trial.source for trial in result][1:3] == ["customized", "algorithm"]
    assert len(result) == len(result.trials) == 4


def test_a_first_point_that_could_not_be_stored_is_tried_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnilite._store.database_file._LOCK_TIMEOUT_S", 0.0)
    search = Search(SPACE, tuner="Random", storage=tmp_path / "kept")
    search.enqueue({"x": 0.25})
    with contextlib.closing(sqlite3.connect(tmp_path / "kept" / "nnilite.sqlite")) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked by another program"):
            search.ask()
    assert search.ask().parameters == {"x": 0.25}


@pytest.mark.parametrize("storage", [None, "kept"])
def test_results_from_elsewhere_count_and_stay(tmp_path: Path, storage: str | None) -> None:
    place = storage and tmp_path / storage
    search = Search(SPACE, tuner="TPE", optimize="minimize", storage=place)
    search.add_trial({"x": 0.5}, 0.01)
    result = search.run(lambda parameters: 1 + parameters["x"], trials=3)
    assert result.best is not None
    assert (result.best.value, len(result)) == (0.01, 4)
    copy = pickle.loads(pickle.dumps(search))
    again = Search(SPACE, tuner="TPE", optimize="minimize", storage=place) if place else copy
    assert again.result().best == result.best
    assert again.run(lambda parameters: 1, trials=1).best == result.best
    if place:
        with IntegrityCheck(place / FILE_NAME) as check:
            assert list(check.findings("kept")) == []
    with pytest.raises(Conflict, match="the result 'bad' is neither a finite number"):
        search.add_trial({"x": 0.5}, "bad")


def test_odd_points_are_said_and_tried(caplog: pytest.LogCaptureFixture) -> None:
    search = Search(SPACE, tuner="Random")
    with caplog.at_level(logging.WARNING):
        search.enqueue({"x": 7})
    assert "parameters that are not in the search space" in caplog.text
    assert search.run(lambda parameters: parameters["x"], trials=1).trials[0].value == 7


@pytest.mark.parametrize("value", [(1, 2), None, "good", object(), {"loss": 1}, [0.1, 0.2]])
def test_a_search_whose_function_returns_no_result_ends_at_the_first_trial(value: Any) -> None:
    search = Search(SPACE, tuner="Random")
    with pytest.raises(NniliteError, match="trial 0 failed, as all others would: the result"):
        search.run(lambda parameters: value, trials=6)
    assert len(search.result()) == 1


@pytest.mark.parametrize("value", [[0.5], (0.5,), "0.5", {"default": ["0.5"], "acc": [1]}, Fraction(1, 2)])
def test_what_is_one_number_in_a_trial_is_one_in_a_search(value: Any) -> None:
    search = Search(SPACE, tuner="Random", assessor="Medianstop")
    result = search.run(lambda parameters, report: report(value) or value, trials=2)
    wanted = {"default": 0.5, "acc": [1]} if isinstance(value, dict) else 0.5
    assert [trial.value for trial in result.trials] == [wanted, wanted]
    assert list(result.intermediate.values()) == [(wanted,), (wanted,)]


def test_a_report_without_a_number_is_warned_of_where_an_assessor_needs_it() -> None:
    def train(parameters: Any, report: Callable[[Any], None]) -> float:
        report("epoch 1")
        return 1.0

    with pytest.warns(RuntimeWarning, match="an intermediate result is not a finite number, so the assessor cannot"):
        Search(SPACE, tuner="Random", assessor="Medianstop").run(train, trials=1)
    assert Search(SPACE, tuner="Random").run(train, trials=1).best is not None  # nobody asks for its number


def test_a_value_that_is_not_finite_ends_no_search() -> None:
    values = iter([float("nan"), float("inf"), 1, 2])
    result = Search(SPACE, tuner="Random").run(lambda parameters: next(values), trials=4)
    assert [trial.state.value for trial in result] == ["FAILED", "FAILED", "SUCCEEDED", "SUCCEEDED"]


def test_errors_of_one_place_are_alike_whatever_their_values() -> None:
    def train(parameters: Any) -> float:
        raise ValueError(f"bad {parameters['x']}")

    search = Search(SPACE, tuner="Random")
    with pytest.raises(NniliteError, match="the first 5 trials all failed with the same error: ValueError: bad"):
        search.run(train, trials=20)


def test_a_result_says_why_there_is_no_best() -> None:
    assert SearchResult(None, ()).reason == "no trial has begun"
    search = Search(SPACE, tuner="Random")
    with pytest.raises(NniliteError):
        search.run(lambda parameters: 1 / 0, trials=2)
    result = search.result()
    assert result.best is None
    assert result.reason == "none with a result: 2 FAILED; trial 1: ZeroDivisionError: division by zero"
    assert result.reason in repr(result)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"direction": "minimize"}, "has no argument 'direction'; write optimize='minimize'"),
        ({"sampler": 1}, "write tuner='TPE'"),
        ({"pruner": 1}, "write assessor='Medianstop'"),
    ],
)
def test_the_words_of_optuna_are_answered_with_ours(words: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        Search(SPACE, **words)


@pytest.mark.parametrize(
    ("word", "ours"), [("n_trials", "trials="), ("n_jobs", "concurrency="), ("workers", "concurrency="), ("odd", "")]
)
def test_the_words_of_optuna_are_answered_by_run_too(word: str, ours: str) -> None:
    with pytest.raises(TypeError, match=f"has no argument '{word}'.*{ours}"):
        Search(SPACE).run(lambda parameters: 1, **{word: 3})  # type: ignore[arg-type]


def test_spaces_from_python_equal_their_json() -> None:
    assert space.loguniform(1e-4, 0.1) == {"_type": "loguniform", "_value": [1e-4, 0.1]}
    assert space.randint(1, 5) == {"_type": "randint", "_value": [1, 5]}
    layer = space.choice([space.option("none"), space.option("conv", size=space.choice([3, 5]))])
    assert layer["_value"][1] == {"_name": "conv", "size": {"_type": "choice", "_value": [3, 5]}}
    made = [space.quniform(0, 1, 0.5), space.qloguniform(1, 9, 2), space.normal(0, 1), space.qnormal(0, 1, 1)]
    made += [space.qrandint(2, 8, 2), space.lograndint(1, 9), space.qlograndint(2, 8, 2)]
    made += [space.lognormal(0, 1), space.qlognormal(0, 1, 1), space.uniform(0, 1), layer]
    Search({str(number): one for number, one in enumerate(made)}, tuner="Random").run(lambda parameters: 1, trials=3)


@pytest.mark.parametrize(
    "make",
    [lambda: space.loguniform(0, 1), lambda: space.uniform(2, 1), lambda: space.choice([]), lambda: space.choice("ab")],
)
def test_wrong_spaces_are_refused_where_they_are_written(make: Any) -> None:
    with pytest.raises(SpaceError):
        make()
