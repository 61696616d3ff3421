"""Why no trial begins while the tuner's process is at work."""

from __future__ import annotations

import pytest

from nnilite._engine.messages import Ask, Assess, Tell
from nnilite._engine.tuner_slowness import TunerSlowness
from nnilite.tuner import Call

ASK = Ask((0,), 0)


class Clock:
    time = 0.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


def results(count: int) -> list[Assess]:
    return [Assess("t", 0, number, (0.5,), 0, 0) for number in range(count)]


def test_nothing_is_slow_until_parameters_were_requested_for_a_while(clock: Clock) -> None:
    slowness = TunerSlowness(clock)
    slowness.queued(Tell(1, Call("end")))
    clock.time = 100.0
    assert slowness.reason() == ""
    slowness.queued(ASK)
    clock.time = 105.0
    assert slowness.reason() == ""


def test_results_before_the_request_are_counted(clock: Clock) -> None:
    slowness, judged = TunerSlowness(clock), results(3)
    for action in (*judged, Tell(1, Call("end")), ASK):
        slowness.queued(action)
    slowness.sent([*judged, Tell(1, Call("end")), ASK])
    slowness.answered(judged[0])
    clock.time = 30.0
    assert slowness.reason() == (
        "new parameters were requested 30 s ago, and the tuner's process still has 2 results to assess and "
        "1 other call to make"
    )


def test_a_tuner_whose_process_was_stopped_is_named(clock: Clock) -> None:
    slowness = TunerSlowness(clock)
    slowness.queued(ASK)
    stop = "process 7 is stopped; `kill -CONT 7` lets it continue"
    assert slowness.reason(lambda: stop) == ""
    clock.time = 30.0
    assert (
        slowness.reason(lambda: stop) == f"new parameters were requested 30 s ago, and the tuner does nothing: {stop}"
    )


def test_a_tuner_that_computes_is_named(clock: Clock) -> None:
    slowness = TunerSlowness(clock)
    slowness.queued(ASK)
    slowness.sent([ASK])
    clock.time = 30.0
    slowness.queued(results(1)[0])
    assert slowness.reason() == "new parameters were requested 30 s ago, and the tuner is still computing them"
    slowness.answered(ASK)
    assert slowness.reason() == ""
