"""A parameter written as other programs do is answered with how to write it here, and following that helps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nnilite.errors import SpaceError
from nnilite.space import SearchSpace
from nnilite.space.space_cures import translate_type


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
        ("choice", "adam", ["adam"]),
        ("choice", 3, [3]),
        ("choice", {"a": 1, "b": 2}, ["a", "b"]),
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
