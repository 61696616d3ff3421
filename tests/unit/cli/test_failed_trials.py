"""What is said of a failed trial besides its own last words."""

from __future__ import annotations

import pytest

from nnilite._cli import summary


@pytest.mark.parametrize(
    "said",
    [
        "TypeError: 'float' object cannot be interpreted as an integer",
        "TypeError: can't multiply sequence by non-int of type 'float'",
        "TypeError: list indices must be integers or slices, not float",
        "ValueError: batch_size should be a positive integer value, but got batch_size=16.0",
        "TypeError: Dimension value must be integer or None or have an __index__ method, got value '16.0'",
    ],
)
def test_a_program_that_wants_an_integer_is_answered_with_int(said: str) -> None:
    trial = {"reason": f"exit code 1\n{said}", "parameters": {"lr": 0.5, "batch": 16.0}}
    assert list(summary.cure_floats(trial)) == [
        "batch is 16.0, a float, as quniform gives it: write int(...) in the program, or qrandint in the search space."
    ]


@pytest.mark.parametrize(
    ("reason", "parameters"),
    [
        ("exit code 1\nKeyError: 'batch'", {"batch": 16.0}),
        ("TypeError: 'float' object cannot be interpreted as an integer", {"lr": 0.5, "batch": 16}),
        ("TypeError: 'float' object cannot be interpreted as an integer", None),
        ("it must be int" + " or what else" * 100 + ", not float", {"batch": 16.0}),
    ],
)
def test_other_failures_are_left_alone(reason: str, parameters: object) -> None:
    assert list(summary.cure_floats({"reason": reason, "parameters": parameters})) == []
