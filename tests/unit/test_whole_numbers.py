"""Whole numbers with a step or on a log scale, and choices of numbers with an order: what is checked and drawn."""

from __future__ import annotations

import random
from typing import Any

import pytest

from nnilite.errors import SpaceError
from nnilite.space import Parameter, SearchSpace


def one(kind: str, value: list[Any], **more: Any) -> Parameter:
    [parameter] = SearchSpace.parse({"x": {"_type": kind, "_value": value, **more}}).parameters
    return parameter


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("lograndint", [2, 6], {2, 3, 4, 5, 6}),
        ("lograndint", [3, 3], {3}),
        ("qrandint", [-4, 8, 4], {-4, 0, 4, 8}),
        ("qlograndint", [16, 64, 16], {16, 32, 48, 64}),
    ],
)
def test_values_are_whole_and_both_ends_are_among_them(kind: str, value: list[int], expected: set[int]) -> None:
    parameter, rng = one(kind, value), random.Random(0)
    drawn = [parameter.sample(rng) for _ in range(500)]
    assert set(drawn) == set(parameter.points()) == expected
    assert {type(number) for number in drawn} == {int}
    assert parameter.count == len(expected)


def test_a_log_scale_gives_small_and_large_values_alike() -> None:
    parameter, rng = one("lograndint", [1, 1024]), random.Random(0)
    drawn = [parameter.sample(rng) for _ in range(4000)]
    assert sum(number <= 32 for number in drawn) / 4000 == pytest.approx(0.53, abs=0.04)
    assert sum(number == 1 for number in drawn) > 300


def test_a_trial_gets_an_int_and_its_float_is_taken_back() -> None:
    space = SearchSpace.parse({"x": {"_type": "qlograndint", "_value": [8, 64, 8]}})
    built = space.build({("x",): 23.0})
    assert built == {"x": 24}
    assert isinstance(built["x"], int)
    assert space.flatten({"x": 24.0}) == {("x",): 24}
    assert "25 is not a multiple of 8 from 8 to 64" in (space.contains({"x": 25}) or "")


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("lograndint", [0, 5], "low must be above 0"),
        ("lograndint", [1, 5, 2], "two whole numbers above 0, both included"),
        ("lograndint", [1.5, 5], "must be a whole number"),
        ("qrandint", [1, 9, 2], r"multiples of q \(2\), such as \[0, 10, 2\]"),
        ("qlograndint", [1, 9, 2], r"such as \[2, 10, 2\]"),
        ("qrandint", [0, 9, 0], "q, the step between values, must be above 0"),
        ("qrandint", [9, 0, 3], "swap them"),
    ],
)
def test_what_cannot_be_is_refused_with_its_cure(kind: str, value: list[float], reason: str) -> None:
    with pytest.raises(SpaceError, match=reason):
        one(kind, value)


@pytest.mark.parametrize(
    ("kind", "value", "more", "reason"),
    [
        ("choice", [1, 3, 2], {"_ordered": True}, "must be numbers in ascending order"),
        ("choice", ["a", "b"], {"_ordered": True}, "must be numbers in ascending order"),
        ("choice", [1, 2], {"_ordered": "yes"}, "must be true or false"),
        ("uniform", [1, 2], {"_ordered": True}, "the values of uniform have an order anyway"),
        ("uniform", [1, 2], {"_unit": 5}, "a text of at most 20 characters"),
    ],
)
def test_an_order_or_a_unit_that_cannot_be_is_refused(kind: str, value: Any, more: Any, reason: str) -> None:
    with pytest.raises(SpaceError, match=reason):
        one(kind, value, **more)


def test_a_choice_has_an_order_only_if_it_says_so() -> None:
    assert one("choice", [1, 2, 3], _ordered=True, _unit="layers").unordered is False
    assert one("choice", [1, 2, 3]).unordered is True
