"""What is allowed in a search space but is hardly meant is told, each with its cure, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from nnilite.space import SearchSpace
from nnilite.space.space_hints import space_hints

CONV = {"_name": "conv", "size": {"_type": "randint", "_value": [1, 5]}}


def hints(_type: str, _value: list[Any], **more: Any) -> list[str]:
    return [str(hint) for hint in space_hints(SearchSpace.parse({"x": {"_type": _type, "_value": _value}}), **more)]


@pytest.mark.parametrize(
    ("kind", "value", "word"),
    [
        ("quniform", [0, 1, 5], "wider than its range (0 to 1), so it takes the value"),
        ("qloguniform", [1, 2, 3], "wider than its range"),
        ("uniform", [2, 2], "can only be 2"),
        ("randint", [3, 4], "can only be 3"),
        ("choice", ["adam"], "only one option"),
        ("uniform", [1e-5, 0.1], "loguniform"),
        ("choice", ["0.1", "0.01"], "look like numbers, such as '0.1'; remove the quotes"),
        ("choice", [0.1, "1e-2"], "look like numbers, such as '1e-2'"),
        ("choice", ["true", "False"], "Python takes any text but an empty one for true; remove the quotes"),
        ("choice", ["None", 5], "write null"),
        ("choice", ["de", False, "se"], "YAML reads no, off, yes and on as these; put them in quotes"),
        ("choice", [{"layers": [{"_type": "uniform", "_value": [0, 1]}]}, 1], "none is reached"),
    ],
)
def test_what_is_hardly_meant_is_told(kind: str, value: list[Any], word: str) -> None:
    found = hints(kind, value)
    assert len(found) == 1
    assert found[0].startswith(("x", "the step of x"))
    assert word in found[0]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("quniform", [0, 1, 0.1]),
        ("quniform", [0, 10, 10]),
        ("uniform", [0, 1]),
        ("loguniform", [1e-5, 0.1]),
        ("randint", [1, 10_000]),
        ("normal", [0, 1]),
        ("choice", ["adam", "sgd"]),
        ("choice", ["adam", "1"]),
        ("choice", [True, False, None, 0.5]),
        ("choice", [CONV, {"_name": "none"}]),
        ("choice", [{"plain": [1, 2]}, {"plain": []}]),
    ],
)
def test_sound_parameters_are_not_complained_of(kind: str, value: list[Any]) -> None:
    assert hints(kind, value, max_trials=100, tuner="GridSearch") == []


def test_options_beyond_the_number_of_trials_cannot_be_reached() -> None:
    assert "10 options, more than maxTrialNumber (4), so not all" in hints("choice", list(range(10)), max_trials=4)[0]
    assert hints("choice", list(range(10)), max_trials=None) == []


def test_a_grid_beyond_a_million_is_told_for_grid_search_alone() -> None:
    space = {f"x{k}": {"_type": "randint", "_value": [0, 101]} for k in range(3)}
    parsed = SearchSpace.parse(space)
    assert "1,030,301 points" in str(space_hints(parsed, tuner="gridsearch")[0])
    assert "only its first corner" in str(space_hints(parsed, tuner="GridSearch", max_trials=50)[0])
    assert space_hints(parsed, tuner="TPE") == []
    small = SearchSpace.parse({name: space[name] for name in ("x0", "x1")})
    assert space_hints(small, tuner="GridSearch") == []


@pytest.mark.parametrize("name", ["epochs:", " epochs", "epochs "])
def test_a_sign_too_many_in_a_name_is_told(name: str) -> None:
    found = space_hints(SearchSpace.parse({name: {"_type": "uniform", "_value": [0, 1]}}))
    assert [str(hint).endswith("write 'epochs'.") for hint in found] == [True]
