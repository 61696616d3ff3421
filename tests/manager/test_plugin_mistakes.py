"""The usual mistakes of those who write plugins are answered with their cure."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, open_bench
from hybrid_bench import hybrid_of, job

from nnilite._engine import report_reader, service_caller
from nnilite._engine.guarded_calls import PluginFault, guarded
from nnilite._engine.hybrid import Member
from nnilite._plugins import lookup
from nnilite._tuner_host.child import Child, _encode
from nnilite.errors import PluginError, ServiceError
from nnilite.records import Exited, MetricKind, Output, Reported, Started, TrialState
from nnilite.service import JobState, JobStatus, TrainingService
from nnilite.testing.fakes import BadService, FakeService, fake_context

TUNER = """
from nnilite import Assessor, Tuner

class Plain(Tuner):
    def update_search_space(self, search_space): pass
    def generate_parameters(self, parameter_id, **kwargs): return {"x": 1}
class Async(Plain):
    async def generate_parameters(self, parameter_id, **kwargs): return {"x": 1}
class Yields(Plain):
    def generate_parameters(self, parameter_id, **kwargs): yield {"x": 1}
class Forgets(Plain):
    def generate_parameters(self, parameter_id, **kwargs): {"x": 1}
class Static(Plain):
    def generate_parameters(parameter_id, **kwargs): return {"x": 1}
class Narrow(Plain):
    def receive_trial_result(self, parameter_id, parameters, value): pass
class Judge(Assessor):
    async def assess_trial(self, trial_job_id, trial_history): return True
class NoTuner:
    pass
"""


def opened(folder: Path, tuner: str, assessor: str | None = None) -> tuple[Child, dict[str, Any]]:
    (folder / "ours.py").write_text(TUNER)
    both = [name and {"className": f"ours.{name}", "codeDirectory": str(folder)} for name in (tuner, assessor)]
    child = Child()
    return child, child.answer({"do": "open", "tuner": both[0], "assessor": both[1], "space": {}})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sys.path", ["", *sys.path])
    monkeypatch.delitem(sys.modules, "ours", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Async", "not a coroutine: remove `async` from the method"),
        ("Yields", "not a generator: write `return` instead of `yield`"),
        ("Forgets", "not None: a `return` is missing, perhaps"),
        ("Static", "write `def generate_parameters(self, parameter_id, **kwargs)`"),
    ],
)
def test_a_tuner_that_proposes_wrongly_is_told_what_to_write(folder: Path, name: str, said: str) -> None:
    child, _ = opened(folder, name)
    assert child.answer({"do": "generate", "ids": [0]})["error"].endswith(said)


def test_a_method_without_keyword_arguments_is_answered_with_its_right_signature(folder: Path) -> None:
    child, _ = opened(folder, "Narrow")
    call = {"kind": "result", "parameter_id": 0, "parameters": {}, "value": 1.0, "trial_job_id": "t"}
    error = child.answer({"do": "call", "call": call})["error"]
    assert error.endswith("write `def receive_trial_result(self, parameter_id, parameters, value, **kwargs)`")


def test_an_assessor_that_is_async_is_told_so(folder: Path) -> None:
    child, _ = opened(folder, "Plain", "Judge")
    asked = {"do": "assess", "trial": "t", "attempt": 0, "before": 0, "values": [1]}
    assert "not a coroutine: remove `async`" in child.answer(asked)["error"]


def test_a_class_that_is_no_tuner_is_refused_at_its_field(folder: Path) -> None:
    _, answer = opened(folder, "NoTuner")
    assert answer["field"] == "tuner.className"
    assert "write `class NAME(Tuner):`" in answer["error"]


@dataclass(frozen=True)
class Fields:
    host: str = ""


class Half(TrainingService):
    Config = Fields

    async def open(self) -> None: ...


class NoFields(Half):
    Config = None  # type: ignore[assignment]

    async def submit(self, job: Any) -> Any: ...
    async def poll(self, handles: Any) -> Any: ...
    async def cancel(self, handle: Any) -> None: ...


@pytest.mark.parametrize(
    ("found", "said"),
    [(Half, "its class Half lacks cancel, poll, submit"), (NoFields, "Config must be a frozen dataclass")],
)
def test_a_training_service_that_is_not_whole_is_refused(
    monkeypatch: pytest.MonkeyPatch, found: type, said: str
) -> None:
    monkeypatch.setattr(lookup, "_import", lambda group, name: found)
    with pytest.raises(PluginError, match=said):
        lookup.training_service_class("half")


async def test_a_method_that_is_not_async_is_told_so() -> None:
    with pytest.raises(PluginFault, match=r"a method of mine returned \{\} at once: declare it with `async def`"):
        await guarded("mine", lambda: {})  # type: ignore[arg-type]


async def test_a_method_without_async_that_raises_at_once_is_a_fault_of_the_plugin() -> None:
    def fails() -> Any:
        raise KeyError("region")

    with pytest.raises(PluginFault, match="mine failed with KeyError: 'region'"):
        await guarded("mine", fails)


async def test_where_no_thread_can_be_started_the_limit_is_named_and_not_the_plugin() -> None:
    async def fails() -> None:
        raise RuntimeError("can't start new thread")  # as Python does at the limit

    with pytest.raises(ServiceError, match=r"^mine cannot start a thread on this machine; raise the limit") as caught:
        await guarded("mine", fails)
    assert not isinstance(caught.value, PluginFault)


class RaisesAtOnce(FakeService):
    """Its methods lack `async`, and those in `failing` raise before there is anything to await."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.failing = {"submit", "poll", "cancel", "remove"}

    def _check(self, name: str) -> None:
        if name in self.failing:
            raise KeyError(name)

    def submit(self, job: Any) -> Any:
        self._check("submit")
        return super().submit(job)

    def poll(self, handles: Any) -> Any:
        self._check("poll")
        return super().poll(handles)

    def cancel(self, handle: Any) -> Any:
        self._check("cancel")
        return super().cancel(handle)

    def remove(self, handle: Any) -> Any:
        self._check("remove")
        return super().remove(handle)


def reasons(bench: Bench) -> set[str]:
    return {trial.reason for trial in bench.live if trial.state is TrialState.WAITING}


async def test_a_service_that_raises_before_it_can_be_awaited_is_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_caller, "POLL_EVERY_S", 0.01)
    async with open_bench(tmp_path, service=RaisesAtOnce, concurrency=1, max_trials=1) as bench:
        service = bench.service
        assert isinstance(service, RaisesAtOnce)
        await bench.until(lambda: any("KeyError: 'submit' (trying again in" in one for one in reasons(bench)))
        service.failing.discard("submit")
        await bench.until(lambda: reasons(bench) == {"fake failed with KeyError: 'poll'"})
        service.failing.discard("poll")
        await bench.until(lambda: reasons(bench) == {"waits for the test"})
        await bench.run_job("nni-e-t0-0")
        await bench.until(lambda: bench.engine.rules.counts[TrialState.SUCCEEDED] == 1)


NO_EVENTS = {
    "offset": Output("stdout", -1.5, b"x"),  # type: ignore[arg-type]
    "data": Output("stdout", 0, "text"),  # type: ignore[arg-type]
    "value": Reported(0, MetricKind.FINAL, 0, {1, 2}, 1.0),
    "index": Reported(2**70, MetricKind.FINAL, 0, 1.0, 1.0),
    "kind": Reported(0, "FINAL", 0, 1.0, 1.0),  # type: ignore[arg-type]
    "time": Started("now"),  # type: ignore[arg-type]
    "code": Exited(1.0, "0"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("field", NO_EVENTS)
async def test_an_event_that_no_keeper_could_have_written_is_not_taken(
    tmp_path: Path, field: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service_caller, "POLL_EVERY_S", 0.01)
    monkeypatch.setattr(report_reader, "UNREAD_PATIENCE_S", 0.05)
    async with open_bench(tmp_path, concurrency=1, max_trials=1) as bench:
        await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
        job = bench.fake.jobs["nni-e-t0-0"]
        job.events = [NO_EVENTS[field]]
        job.finish()
        await bench.until(lambda: bench.engine.rules.counts[TrialState.SUCCEEDED] == 1 or bench.ended.done())
        assert not bench.ended.done()
    assert f"fake returned the event {NO_EVENTS[field]!r:.200}: " in caplog.text


class NoHandle(FakeService):
    """Takes jobs, and forgets to return handles."""

    async def submit(self, job: Any) -> Any:
        await super().submit(job)


NO_HANDLE = "returned None instead of a handle, which is a JSON object"


@pytest.mark.usefixtures("impatient")
async def test_trials_whose_service_returns_no_handles_fail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_bench(tmp_path, service=NoHandle, concurrency=1, max_trials=1) as bench:
        await bench.until(lambda: bench.engine.rules.counts[TrialState.FAILED] == 1)
    assert f"trial t0 was not accepted: fake {NO_HANDLE}" in caplog.text


async def test_a_member_of_a_hybrid_service_that_returns_no_handle_is_set_aside_with_that_reason(
    tmp_path: Path,
) -> None:
    context = fake_context(tmp_path)
    wrong, right = NoHandle("wrong", None, context), FakeService("right", None, context)
    hybrid = hybrid_of(tmp_path, Member(wrong, "a", None), Member(right, "b", None))
    with pytest.raises(PluginFault, match=f"^wrong {NO_HANDLE}$"):
        await hybrid.submit(job(0))
    assert hybrid.aside() == {"wrong": f"wrong {NO_HANDLE}"}
    assert (await hybrid.submit(job(1)))["service"] == "right"


async def test_a_member_of_a_hybrid_service_that_raises_is_at_fault_as_a_single_service_is(tmp_path: Path) -> None:
    context = fake_context(tmp_path)
    wrong, right = BadService("wrong", None, context), FakeService("right", None, context)
    hybrid = hybrid_of(tmp_path, Member(wrong, "a", None), Member(right, "b", None))
    said = "wrong failed with RuntimeError: a bug in the plugin"
    for _ in range(2):  # it may have the job, so no other is asked
        with pytest.raises(PluginFault, match=f"^{said}$"):
            await hybrid.submit(job(0))
    assert hybrid.aside() == {"wrong": said}
    assert (await hybrid.submit(job(1)))["service"] == "right"


class PollsWrongly(FakeService):
    found: Any = ()

    async def poll(self, handles: Any) -> Any:
        return [JobStatus(JobState.WAITING)] * len(handles) if self.found is None else self.found


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ((), "fake did not return a list of 2 statuses when polled"),
        (["RUNNING", "RUNNING"], "fake returned 'RUNNING' instead of a JobStatus"),
    ],
)
async def test_trials_say_that_their_service_breaks_its_contract_when_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Any, said: str
) -> None:
    monkeypatch.setattr(service_caller, "POLL_EVERY_S", 0.01)
    async with open_bench(tmp_path, service=PollsWrongly) as bench:
        bench.service.found = found  # type: ignore[attr-defined]
        await bench.until(lambda: len(bench.live) == 2 and reasons(bench) == {said})
        profile = await bench.manager.profile()
        assert [(one.reason, one.count) for one in profile.waiting] == [(said, 2)]
        bench.service.found = None  # type: ignore[attr-defined]
        await bench.until(lambda: reasons(bench) == {"submitted to fake, waiting for its start"})


class PollsWell(PollsWrongly):
    found = None


async def test_a_service_that_is_mended_while_the_manager_is_stopped_ends_the_reason_of_its_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_caller, "POLL_EVERY_S", 0.01)
    async with open_bench(tmp_path, service=PollsWrongly) as bench:
        said = {"fake did not return a list of 2 statuses when polled"}
        await bench.until(lambda: len(bench.live) == 2 and reasons(bench) == said)
    async with open_bench(tmp_path, service=PollsWell) as bench:
        await bench.until(lambda: reasons(bench) == {"submitted to fake, waiting for its start"})


async def test_a_member_of_a_hybrid_service_that_polls_wrongly_does_not_hide_the_others_jobs(tmp_path: Path) -> None:
    context = fake_context(tmp_path)
    wrong, right = PollsWrongly("wrong", None, context), FakeService("right", None, context)
    hybrid = hybrid_of(tmp_path, Member(wrong, "a", None), Member(right, "b", None))
    handles = [await hybrid.submit(job(number)) for number in range(2)]
    found = {handle["service"]: status for handle, status in zip(handles, await hybrid.poll(handles), strict=True)}
    assert found["right"].state is JobState.WAITING
    assert found["wrong"].state is JobState.UNKNOWN
    assert found["wrong"].reason == "cannot query wrong: wrong did not return a list of 1 statuses when polled"


def refuse(*_: object) -> Any:
    raise RuntimeError("not even this")


Unspeakable = type("Unspeakable", (), {"__repr__": refuse, "__str__": refuse, "tolist": refuse})
UnspeakableError = type("UnspeakableError", (Exception,), {"__repr__": refuse, "__str__": refuse})


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"x": found}
    return found


@pytest.mark.parametrize("proposed", [10**5000, Unspeakable(), nested(100_000)], ids=("huge", "unspeakable", "deep"))
def test_a_proposal_that_cannot_even_be_shown_does_not_end_the_tuner(proposed: object) -> None:
    answer = json.loads(_encode({"ok": [{"x": proposed}]}, 7))
    assert "not plain JSON" in answer["error"]
    assert (answer["number"], answer["fatal"]) == (7, False)


@pytest.mark.parametrize("error", [UnspeakableError(), GeneratorExit()])
def test_an_exception_of_a_users_class_does_not_end_the_tuner(error: BaseException) -> None:
    def fail(_: object) -> None:
        raise error

    child = Child()
    child._does["call"] = fail
    assert type(error).__name__ in child.answer({"do": "call"})["error"]
