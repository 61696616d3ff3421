"""The usual mistakes of those who write plugins are answered with their cure."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nnilite._engine.guarded_calls import PluginFault, guarded
from nnilite._plugins import lookup
from nnilite._tuner_host.child import Child
from nnilite.errors import PluginError
from nnilite.service import TrainingService

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
        await guarded("mine", {})  # type: ignore[arg-type]
