"""Tuners that send their trials by NNI's `st_callback`: at once, later, or after a crash."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import example_runs
from nnilite._tuner_host.child import Child
from nnilite._tuner_host.later_trials import LaterTrials, wants_callback
from nnilite.errors import NoMoreTrialError
from nnilite.tuner import Call, CallKind, Tuner

SENDING = '''
from nni.tuner import Tuner
import nni

class Batches(Tuner):
    """Makes trials in batches, as NNI's PPO: the next batch needs all results of the one before it."""

    def __init__(self, size=3, batches=3):
        self.size, self.batches = size, batches
        self.ready, self.out, self.waiting = [], set(), []
        self.asked, self.told = [], []

    def update_search_space(self, search_space):
        self._next_batch()

    def _next_batch(self):
        if self.batches:
            self.batches -= 1
            self.ready = [{"x": n, "batch": self.batches} for n in range(self.size)]

    def generate_multiple_parameters(self, parameter_id_list, **kwargs):
        self.callback = kwargs["st_callback"]
        found = []
        for parameter_id in parameter_id_list:
            try:
                found.append(self.generate_parameters(parameter_id))
            except nni.NoMoreTrialError:
                continue
        return found

    def generate_parameters(self, parameter_id, **kwargs):
        self.asked.append(parameter_id)
        if not self.ready:
            self.waiting.append(parameter_id)
            raise nni.NoMoreTrialError("not now")
        self.out.add(parameter_id)
        return self.ready.pop(0)

    def receive_trial_result(self, parameter_id, parameters, value, **kwargs):
        self.told.append((parameter_id, parameters))

    def trial_end(self, parameter_id, success, **kwargs):
        self.out.remove(parameter_id)
        if not self.out and not self.ready:
            self._next_batch()
            while self.ready and self.waiting:
                later = self.waiting.pop(0)
                self.out.add(later)
                self.callback(later, self.ready.pop(0))
'''


@pytest.fixture(scope="module")
def batches() -> Callable[..., Tuner]:
    from nnilite import tuner

    found: dict[str, Any] = {}
    text = SENDING.replace("from nni.tuner import Tuner\nimport nni\n", "").replace("nni.NoMore", "NoMore")
    exec(text, {"Tuner": tuner.Tuner, "NoMoreTrialError": NoMoreTrialError}, found)
    return found["Batches"]


def opened(tuner: Tuner) -> LaterTrials:
    assert wants_callback(tuner)
    found = LaterTrials(tuner)
    found.update_search_space({})
    return found


def play(tuner: Tuner, slots: int, order: random.Random, known: list[Call] | None = None) -> list[Call]:
    """Run an experiment to its end; all calls as the manager records them."""
    calls = list(known or [])
    asked = [call.parameter_id for call in calls if call.kind is CallKind.GENERATE]
    number = max((one for one in asked if one is not None), default=-1) + 1  # no id goes out twice
    running = {
        call.parameter_id: call
        for call in calls
        if call.kind is CallKind.GENERATE
        and not any(one.kind is CallKind.END and one.parameter_id == call.parameter_id for one in calls)
    }
    while True:
        free = slots - len(running)
        ids = list(range(number, number + free))
        number += free
        for number_of, parameters in zip(ids, tuner.generate_multiple_parameters(ids) if ids else [], strict=False):
            calls.append(Call(CallKind.GENERATE, number_of, f"t{number_of}", parameters))
            running[number_of] = calls[-1]
        if not running:
            return calls
        ended = running.pop(order.choice(sorted(running)))
        more = {"parameter_id": ended.parameter_id, "trial_job_id": ended.trial_job_id}
        if order.random() < 0.8:
            calls.append(Call(CallKind.RESULT, parameters=ended.parameters, value=1.0, **more))
            tuner.apply(calls[-1])
        calls.append(Call(CallKind.END, success=True, **more))
        tuner.apply(calls[-1])


def made(calls: list[Call]) -> list[str]:
    return sorted(json.dumps(call.parameters) for call in calls if call.kind is CallKind.GENERATE)


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 4), st.randoms(use_true_random=False))
def test_each_trial_of_each_batch_runs_once_and_is_told_by_the_tuners_own_id(batches, slots, size, number, order):
    inner = batches(size, number)
    calls = play(opened(inner), slots, order)
    assert made(calls) == sorted(json.dumps({"x": x, "batch": b}) for x in range(size) for b in range(number))
    assert inner.asked == list(range(len(inner.asked))), "an id was asked for twice, or out of order"
    assert not inner.out
    results = [call.parameters for call in calls if call.kind is CallKind.RESULT]
    assert [parameters for _, parameters in inner.told] == results


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 4), st.randoms(use_true_random=False), st.integers(0, 200))
def test_after_a_crash_the_rest_runs_once(batches, slots, size, number, order, cut):
    calls = play(opened(batches(size, number)), slots, order)
    calls = calls[: cut % (len(calls) + 1)]
    again = opened(batches(size, number))
    again.replay(calls)
    assert made(play(again, slots, order, calls)) == sorted(
        json.dumps({"x": x, "batch": b}) for x in range(size) for b in range(number)
    )


class AtOnce(Tuner):
    """Sends the first trial before it returns the others, so that it can start meanwhile."""

    def __init__(self) -> None:
        self.told: list[int | None] = []

    def update_search_space(self, search_space: Any) -> None:
        pass

    def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
        if parameter_id == 0:
            kwargs["st_callback"](7, {"early": True})
        return {"x": parameter_id}

    def receive_trial_result(self, parameter_id: int | None, parameters: Any, value: Any, **kwargs: Any) -> None:
        self.told.append(parameter_id)


def test_a_trial_may_be_sent_before_the_others_are_returned() -> None:
    inner = AtOnce()
    tuner = opened(inner)
    assert tuner.generate_multiple_parameters([0, 1]) == [{"early": True}, {"x": 0}]
    assert tuner.generate_multiple_parameters([2]) == [{"x": 1}]
    tuner.receive_trial_result(0, {"early": True}, 1.0)
    tuner.receive_trial_result(None, {"mine": 1}, 1.0, customized=True)
    tuner.receive_trial_result(99, {}, 1.0)  # of a trial that this tuner never made
    assert inner.told == [7, None]


class Plain(Tuner):
    """Takes no keywords, which NNI would not allow."""

    def update_search_space(self, search_space: Any) -> None:
        pass

    def generate_parameters(self, parameter_id: int) -> Any:  # type: ignore[override]
        return {"x": parameter_id}


def test_a_tuner_that_does_not_name_the_callback_does_not_get_it() -> None:
    assert not wants_callback(Plain())
    child = Child()
    child._tuner = Plain()
    assert child.answer({"do": "generate", "ids": [3]}) == {"ok": [{"x": 3}], "choice": ""}


def decorated(function: Any) -> Any:
    @functools.wraps(function)
    def called(*words: Any, **more: Any) -> Any:
        return function(*words, **more)

    return called


class Heir(Plain):
    """Names it in a decorated method."""

    @decorated
    def generate_multiple_parameters(self, parameter_id_list: list[int], st_callback: Any = None) -> list[Any]:  # type: ignore[override]
        return []


def test_a_tuner_may_name_the_callback_in_any_way() -> None:
    assert wants_callback(Heir())
    assert wants_callback(AtOnce())


def test_more_parameters_than_asked_for_are_the_tuners_mistake() -> None:
    class Generous(Tuner):
        def update_search_space(self, search_space: Any) -> None:
            pass

        def generate_multiple_parameters(self, parameter_id_list: list[int], **kwargs: Any) -> list[Any]:
            return [{} for _ in range(9)] if kwargs["st_callback"] else []

    with pytest.raises(TypeError, match="a list of at most 2 parameters"):
        opened(Generous()).generate_multiple_parameters([0, 1])


@pytest.mark.process
def test_an_experiment_with_such_a_tuner_runs_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    (tmp_path / "sending.py").write_text(SENDING)
    (tmp_path / "trial.py").write_text("import nni; nni.report_final_result(nni.get_next_parameter()['x'])")
    config = {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": "python3 trial.py",
        "trialCodeDirectory": str(tmp_path),
        "trialConcurrency": 2,
        "maxTrialNumber": 20,
        "tuner": {"className": "sending.Batches", "codeDirectory": str(tmp_path)},
        "trainingService": {"platform": "local"},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    profile = json.loads(example_runs.create(tmp_path / "config.yaml", "-p", "0", "--foreground", "--json"))
    assert profile["state"] == "DONE"
    assert profile["counts"]["SUCCEEDED"] == 9


def test_calls_are_json_for_the_child(batches: Callable[..., Tuner]) -> None:
    child = Child()
    child._tuner = opened(batches(1, 2))
    assert child.answer({"do": "generate", "ids": [0, 1]}) == {"ok": [{"x": 0, "batch": 1}], "choice": ""}
    call = Call(CallKind.END, 0, "t0", success=True)
    child._tuner.apply(call)
    assert child.answer({"do": "generate", "ids": [2]}) == {"ok": [{"x": 0, "batch": 0}], "choice": ""}
    assert json.dumps(asdict(call))
