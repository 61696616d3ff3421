"""Small rules on live trials."""

from __future__ import annotations

import math
from typing import Any

import pytest
from simulation import EMPTY

from nnilite._engine import messages
from nnilite._engine.live_trial import find_error_kind, retry_delay_s
from nnilite._engine.rules import Rules
from nnilite.records import Exited
from nnilite.service import JobState, JobStatus
from nnilite.tuner import scalar


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("exit code 1\nTraceback\nValueError: x is 0.25", "exit code 1\nTraceback\nValueError: x is 3e-07\n"),
        ("KeyError: 'lr'", "KeyError: 'momentum'"),
        ('no file "a b"', 'no file "c"'),
        ("killed by signal 9", "killed by signal 11"),
    ],
)
def test_errors_that_differ_in_their_values_are_of_one_kind(one: str, other: str) -> None:
    assert find_error_kind(one) == find_error_kind(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("ValueError: x is 1", "TypeError: x is 1"), ("exit code 1", "a\nKeyError: 'x'"), ("", "exit code 1")],
)
def test_other_errors_are_of_another_kind(one: str, other: str) -> None:
    assert find_error_kind(one) != find_error_kind(other)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1.0),
        ({"default": 2.5}, 2.5),
        (math.nan, None),
        (math.inf, None),
        ("x", None),
        ({"loss": 1}, None),
        (None, None),
    ],
)
def test_the_number_that_a_metric_stands_for(value: Any, number: float | None) -> None:
    assert scalar(value) == number


def test_retries_wait_longer_and_longer_but_never_long() -> None:
    delays = [retry_delay_s(times) for times in range(1, 12)]
    assert delays[:3] == [1.0, 2.0, 4.0]
    assert max(delays) == 60.0


def test_what_a_platform_tells_of_host_and_image_stays_with_the_attempt() -> None:
    rules = Rules(messages.Settings(1), EMPTY, 0.0)
    rules.step(messages.Customized("t", {}, 0.0))
    rules.step(messages.Submitted("t", 0, "cluster", {}, 1.0))
    for status in (JobStatus(JobState.RUNNING, host="h", image="some@sha256:0123"), JobStatus(JobState.RUNNING)):
        rules.step(messages.Polled("t", 0, status, 2.0))
    attempt = rules.live["t"].attempt
    assert attempt is not None
    assert (attempt.host, attempt.url, attempt.image) == ("h", "", "some@sha256:0123")


@pytest.mark.parametrize(
    ("line", "cure"),
    [
        ("ModuleNotFoundError: No module named 'nnilite'", ": Python did not look into the folder that PYTHONPATH has"),
        ("ModuleNotFoundError: No module named 'nnilite.torch'", ""),
        ("ModuleNotFoundError: No module named 'torch'", ""),
    ],
)
def test_a_trial_that_lacks_its_functions_is_told_of_the_command(line: str, cure: str) -> None:
    rules = Rules(messages.Settings(1), EMPTY, 0.0)
    rules.step(messages.Customized("t", {}, 0.0))
    trace = f'Traceback\n  File "t.py", line 1, in <module>\n    import x\n{line}'
    first, rest = rules.live["t"].failure(Exited(1.0, 1, f"exit code 1\n{trace}")).split("\n", 1)
    assert (first.partition(" for ")[0], rest) == (f"exit code 1{cure}", trace)
