"""A parameter written as other programs do is answered with how to write it here, and following that helps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nnilite.errors import SpaceError
from nnilite.space import SearchSpace
from nnilite.space.distribution_synonyms import translate_type


def fault(given: Any) -> str:
    with pytest.raises(SpaceError) as caught:
        SearchSpace.parse({"x": given})
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"min": 0.5, "max": 1.5, "_type": "uniform"}, ["uniform", [0.5, 1.5]]),
        ({"type": "loguniform", "lower": 1e-6, "upper": 1}, ["loguniform", [1e-6, 1]]),
        ({"distribution": "log_uniform", "min": 1, "max": 8}, ["loguniform", [1, 8]]),
        ({"type": "float", "low": 0, "high": 1, "step": 0.5}, ["quniform", [0, 1, 0.5]]),
        ({"parameter_type": "ordinal", "values": [1, 2], "unit": "MB"}, ["choice", [1, 2]]),
        ({"_Type": "Uniform", "_Value": [0, 1]}, ["uniform", [0, 1]]),
        ({"values": ["adam", "sgd"]}, ["choice", ["adam", "sgd"]]),
        ({"_type": "loguniform", "_value": [1e-4, 1e-3, 1e-2, 0.1]}, ["choice", [1e-4, 1e-3, 1e-2, 0.1]]),
        ({"grid_search": [1, 2]}, ["choice", [1, 2]]),
        # W&B
        ({"distribution": "log_uniform_values", "min": 1e-4, "max": 0.1}, ["loguniform", [1e-4, 0.1]]),
        ({"distribution": "log_uniform", "min": -5, "max": 0}, ["loguniform", [0.00673795, 1.0]]),
        ({"distribution": "q_log_uniform_values", "min": 1, "max": 8, "q": 2}, ["qloguniform", [1, 8, 2]]),
        ({"distribution": "int_uniform", "min": 8, "max": 64}, ["randint", [8, 65]]),
        ({"distribution": "normal", "mu": 3, "sigma": 2}, ["normal", [3, 2]]),
        ({"value": 10}, ["choice", [10]]),
        # Optuna, Ax, Determined
        ({"type": "float", "low": 1e-5, "high": 1, "log": True}, ["loguniform", [1e-5, 1]]),
        ({"type": "int", "low": 8, "high": 64, "log": True}, ["lograndint", [8, 64]]),
        ({"type": "int", "low": 8, "high": 64}, ["randint", [8, 65]]),
        ({"type": "int", "low": 1, "high": 6, "step": 2}, ["choice", [1, 3, 5]]),
        ({"name": "lr", "type": "range", "bounds": [1e-5, 1], "log_scale": True}, ["loguniform", [1e-5, 1]]),
        ({"type": "log", "base": 10, "minval": -4, "maxval": -1}, ["loguniform", [1e-4, 0.1]]),
        ({"type": "const", "val": 0.5}, ["choice", [0.5]]),
    ],
)
def test_the_whole_parameter_is_written_out(given: Any, meant: list[Any]) -> None:
    written = json.loads(fault(given).partition("; ")[2].partition("{")[2].join(("{", "")))
    assert [written["_type"], written["_value"]] == meant
    SearchSpace.parse({"x": written})


@pytest.mark.parametrize(
    ("kind", "value", "meant"),
    [
        ("uniform", {"low": 1, "high": 2}, [1, 2]),
        ("uniform", "0, 1", [0, 1]),
        ("uniform", "[0, 1]", [0, 1]),
        ("uniform", [[0, 1]], [0, 1]),
        ("uniform", [10], [0, 10]),
        ("quniform", [1, 5], [1, 5, 1]),
        ("quniform", [5], [0, 5, 1]),
        ("choice", "adam", ["adam"]),
        ("choice", "range(1, 5)", [1, 2, 3, 4]),
        ("uniform", "0-1", [0, 1]),
        ("uniform", "-1.5 to -0.5", [-1.5, -0.5]),
        ("choice", "list(range(0, 10, 5))", [0, 5]),
        ("choice", 3, [3]),
        ("choice", {"a": 1, "b": 2}, ["a", "b"]),
        ("loguniform", [-5, -1], [1e-5, 0.1]),
        ("randint", 10, [0, 10]),
    ],
)
def test_the_right_list_is_written_out(kind: str, value: Any, meant: list[Any]) -> None:
    said = fault({"_type": kind, "_value": value})
    assert json.loads(said[said.rindex("[") : said.rindex("]") + 1]) == meant
    SearchSpace.parse({"x": {"_type": kind, "_value": meant}})


@pytest.mark.parametrize(
    ("given", "cure"),
    [
        ({"_type": "choice", "_value": "(1"}, "; write it in [ ], not in ( )"),
        ({"_type": "randint", "_value": [1, 5, 2]}, "; with a step it is called qrandint"),
        ({"_type": "randint", "_value": [1.5, 5]}, "; uniform draws fractions"),
        ({"_type": "loguniform", "_value": ["10**-5", 1]}, "; write 1.0e-5 without quotes"),
        ({"lr": {"_type": "uniform", "_value": [0, 1]}}, "; it holds parameters itself: write them one level up"),
    ],
)
def test_other_forms_are_answered_in_words(given: Any, cure: str) -> None:
    assert fault(given).endswith(cure)


@pytest.mark.parametrize(("kind", "value"), [("quniform", [0]), ("uniform", [-1]), ("randint", 0), ("loguniform", [5])])
def test_a_single_number_that_is_no_end_of_a_range_is_not_made_one(kind: str, value: Any) -> None:
    assert "did you mean" not in fault({"_type": kind, "_value": value})


def test_types_have_the_names_of_other_programs() -> None:
    names = ["float", "log-uniform", "categorical", "bool", "INT", "QUniform"]
    meant = ["uniform", "loguniform", "choice", "choice", "randint", "quniform"]
    assert [translate_type(name) for name in names] == meant
    assert [translate_type(name) for name in ("layer_choice", None, 3, ["int"])] == [None] * 4
    assert "did you mean 'choice'?" in fault({"_type": "categorical", "_value": [1]})


@pytest.mark.parametrize("value", [None, object(), {1: 2}, [None], [], [object()], "x" * 500, {"low": object()}])
@pytest.mark.parametrize("kind", ["choice", "uniform", "quniform", "normal", "randint"])
def test_no_value_of_any_kind_breaks_the_sentence(kind: str, value: Any) -> None:
    if (kind, value) not in (("choice", [None]),):
        assert len(fault({"_type": kind, "_value": value})) < 1000
        assert len(fault({"type": kind, "value": value})) < 1000


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("uniform(0, 1)", {"_type": "uniform", "_value": [0, 1]}),
        ("tune.loguniform(0.001, 1)", {"_type": "loguniform", "_value": [0.001, 1]}),
        ("hp.choice(['a', 'b'])", {"_type": "choice", "_value": ["a", "b"]}),
        ("hp.uniform('x', 0, 1)", {"_type": "uniform", "_value": [0, 1]}),
        ("trial.suggest_float('lr', 1e-5, 0.1, log=True)", {"_type": "loguniform", "_value": [1e-5, 0.1]}),
        ("trial.suggest_int('n', 1, 8)", {"_type": "randint", "_value": [1, 9]}),
        ("np.random.normal(loc=1, scale=2)", {"_type": "normal", "_value": [1, 2]}),
        ("interval(0, 1)", {"_type": "uniform", "_value": [0, 1]}),
        ("tag(log, interval(0.001, 1))", {"_type": "loguniform", "_value": [0.001, 1]}),
        ("range(1, 4)", {"_type": "randint", "_value": [1, 4]}),
        ("range(1, 8, step=3)", {"_type": "choice", "_value": [1, 4, 7]}),
        ("range(-1.5, 1.5, step=0.5)", {"_type": "quniform", "_value": [-1.5, 1.5, 0.5]}),
        ("choice(adam, sgd)", {"_type": "choice", "_value": ["adam", "sgd"]}),
        ("16, 32,64", {"_type": "choice", "_value": [16, 32, 64]}),
        ("relu", {"_type": "choice", "_value": ["relu"]}),
        (None, {"_type": "choice", "_value": [None]}),
        ([16, 32], {"_type": "choice", "_value": [16, 32]}),
    ],
)
def test_what_is_no_object_is_written_as_one(given: Any, meant: dict[str, Any]) -> None:
    assert json.loads("{" + fault(given).rpartition("{")[2]) == meant
    SearchSpace.parse({"x": meant})


def test_two_numbers_that_are_bounds_are_written_as_a_range() -> None:
    for bounds in ((0, 1), [0.0, 1.5]):
        written = json.dumps({"_type": "uniform", "_value": bounds})
        assert fault(bounds).endswith(f"; for a range write {written}, to choose one of them a choice")


@pytest.mark.parametrize("name", ["_comment", "//", "note"])
def test_a_comment_is_no_parameter(name: str) -> None:
    with pytest.raises(SpaceError, match="JSON has no comments: remove it"):
        SearchSpace.parse({name: "the learning rate", "x": {"_type": "uniform", "_value": [0, 1]}})


@pytest.mark.parametrize(
    ("space", "cure"),
    [
        ({"_type": "choice", "_value": [1, 2]}, '; give it a name, as in {"x": {"_type": "choice", "_value": [1, 2]}}'),
        ([{"name": "lr", "_type": "uniform", "_value": [0, 1]}], 'in front of each parameter, as in "lr": {...}'),
    ],
)
def test_a_space_without_names_is_answered_with_where_they_stand(space: Any, cure: str) -> None:
    with pytest.raises(SpaceError) as caught:
        SearchSpace.parse(space)
    assert str(caught.value).endswith(cure)


def test_a_parameter_without_a_name_and_the_name_of_a_file_are_answered() -> None:
    with pytest.raises(SpaceError, match="has an empty name; give it the one that the trial uses"):
        SearchSpace.parse({" ": {"_type": "choice", "_value": [1]}})
    with pytest.raises(SpaceError, match=r"; the name of a file is written as searchSpaceFile: space\.json"):
        SearchSpace.parse("space.json")


def test_a_huge_number_is_written_out_with_its_exponent() -> None:
    assert fault({"_type": "uniform", "_value": [0, "1e300"]}).endswith("write 1.0e+300 without quotes")
