"""The tuner host as the engine sees it: a real child process with the user's tuner in it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from nnilite._engine.messages import Ask, Assess, Tell
from nnilite._tuner_host import tuner_process
from nnilite._tuner_host.child import Child
from nnilite._tuner_host.tuner_client import History, TunerHost, TunerPlan
from nnilite._tuner_host.tuner_process import TunerProcess
from nnilite.errors import ConfigError, StoreError, TunerError
from nnilite.tuner import Call
from processes import send_signal

pytestmark = pytest.mark.process

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}

COUNTING = """
import json, logging, os, time
from nni.tuner import Tuner   # as an archived project has it

class Counting(Tuner):
    def __init__(self, bad=None, hang=None, once=None):
        self.results, self.bad, self.hang, self.once = [], bad, hang, once
    def update_search_space(self, space):
        print("a print of the user's")
        logging.getLogger("counting").warning("a value\\n[2026-01-01 00:00:00,000] ERROR (tuner) forged \\x1b[2J")
        if "layer" in space: raise ValueError("no layers")
    def generate_parameters(self, parameter_id, **kwargs):
        if parameter_id == self.hang: time.sleep(1000)
        if parameter_id == self.bad:
            if self.once is None or not os.path.exists(self.once):
                if self.once: open(self.once, "w").close()
                raise KeyError("the user's mistake")
        return {"x": parameter_id, "results": len(self.results)}
    def receive_trial_result(self, parameter_id, parameters, value, **kwargs):
        self.results.append(value)
    def _on_exit(self):
        time.sleep(0.3)
        print("an end in good order", flush=True)
"""


class Past:
    """The recorded history."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    async def until(self, number: int) -> list[Call]:
        return self.calls[:number]

    async def histories(self) -> list[History]:
        return []


MakeHost = Callable[..., TunerHost]


@pytest.fixture
def past() -> Past:
    return Past()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine an end in good order takes longer than a manager waits for it."""
    monkeypatch.setattr("nnilite._tuner_host.tuner_client._CLOSE_TIMEOUT_S", 60.0)


@pytest.fixture
async def make_host(tmp_path: Path, past: Past) -> AsyncIterator[MakeHost]:
    """Make a host of the tuner above with these arguments of its class; it is closed at the end of the test."""
    folder = tmp_path / "it's $HOME; a\nfolder"
    for name in ("log", "code"):
        (folder / name).mkdir(parents=True)
    (folder / "code" / "counting.py").write_text(COUNTING)
    async with contextlib.AsyncExitStack() as hosts:

        def make(timeout_s: float = 20.0, **arguments: Any) -> TunerHost:
            tuner = {"className": "counting.Counting", "codeDirectory": str(folder / "code"), "classArgs": arguments}
            host = TunerHost(TunerPlan(tuner, None, SPACE, folder, timeout_s), past.until, past.histories)
            hosts.push_async_callback(host.close)
            return host

        yield make


@pytest.fixture
def host(make_host: MakeHost) -> TunerHost:
    return make_host()


async def tell(host: TunerHost, past: Past, value: float) -> None:
    past.calls.append(Call("result", 0, "t", {"x": 0}, value))
    await host.call(Tell(len(past.calls), past.calls[-1]))


async def test_parameters_come_back_for_each_id(host: TunerHost) -> None:
    assert await host.call(Ask((4, 5), 0)) == [{"x": 4, "results": 0}, {"x": 5, "results": 0}]


@pytest.mark.parametrize("dies", [False, True])
async def test_a_process_that_was_started_ahead_is_used_unless_it_has_died(
    host: TunerHost, tmp_path: Path, dies: bool
) -> None:
    (folder,) = tmp_path.glob("*")
    ahead = await TunerProcess.start(folder)
    if dies:
        os.kill(ahead.pid, signal.SIGKILL)
    host.adopt(ahead)
    await host.open(0)
    assert (host.pid == ahead.pid) is not dies
    await host.call(Tell(0, Call("result", 0, "t", {"x": 0}, 0.5)))
    assert await host.call(Ask((4,), 0)) == [{"x": 4, "results": 1}]


@pytest.mark.parametrize("gpus", ["1,3", ""])
async def test_the_tuner_sees_the_gpus_that_it_is_given_when_its_code_is_imported(
    tmp_path: Path, past: Past, gpus: str
) -> None:
    (tmp_path / "log").mkdir()
    looking = COUNTING.replace("class Counting", "SEEN = os.environ['CUDA_VISIBLE_DEVICES']\n\nclass Counting")
    (tmp_path / "looking.py").write_text(looking.replace('"x": parameter_id', '"x": SEEN'))
    tuner = {"className": "looking.Counting", "codeDirectory": str(tmp_path), "classArgs": {}}

    host = TunerHost(TunerPlan(tuner, None, SPACE, tmp_path, gpus=gpus), past.until, past.histories)
    host.adopt(await TunerProcess.start(tmp_path))
    try:
        await host.open(0)
        assert (await host.call(Ask((4,), 0)))[0]["x"] == gpus
    finally:
        await host.close()


async def test_a_tuner_that_was_killed_may_have_been_out_of_memory(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    process = await TunerProcess.start(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    assert "killed by SIGKILL: the machine or the container may have been out of memory" in await process.exit_word()
    await process.end()


async def test_what_its_process_has_said_last_is_told(
    host: TunerHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new process does not find what a program has put on `sys.path` itself."""
    (tmp_path / "log").mkdir(exist_ok=True)
    (tmp_path / "python").write_text("#!/bin/sh\necho \"python: No module named 'nnilite'\"\nexit 1\n")
    (tmp_path / "python").chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(TunerError) as told:
        await host.open(0)
    ended = "its process ended (exit code 1); see log/tuner.log. Its last words: python: No module named 'nnilite'."
    assert ended in str(told.value)
    assert "set PYTHONPATH to this folder" in str(told.value)


async def test_a_python_that_is_gone_is_told_with_what_to_do(
    host: TunerHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").mkdir(exist_ok=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "moved" / "python"))
    with pytest.raises(TunerError, match="environment was moved or removed: stop the experiment, then resume it from"):
        await host.open(0)


async def test_a_space_is_tried_without_the_tuner_that_runs(host: TunerHost, past: Past, tmp_path: Path) -> None:
    await tell(host, past, 0.5)
    await host.try_space({"x": 1})
    with pytest.raises(TunerError, match=r"(?s)not accept this search space: .*no layers.*in update_search_space"):
        await host.try_space({"layer": 1})
    (log,) = tmp_path.glob("*/log/tuner.log")
    assert log.read_text().count("ValueError: no layers") == 1, "it was tried more than once"
    assert await host.call(Ask((1,), 1)) == [{"x": 1, "results": 1}]


async def test_a_machine_without_file_descriptors_is_waited_for_and_is_not_the_tuners_fault(
    host: TunerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnilite._tuner_host.tuner_client._START_AGAIN_S", 0.01)
    real, refused = tuner_process.open_log, []

    def full(path: Path) -> int:
        if len(refused) < 5:
            refused.append(path)
            raise OSError(errno.EMFILE, "Too many open files", str(path))
        return real(path)

    monkeypatch.setattr(tuner_process, "open_log", full)
    assert await host.call(Ask((4,), 0)) == [{"x": 4, "results": 0}]
    assert len(refused) == 5


async def test_a_history_that_cannot_be_read_now_is_waited_for(
    host: TunerHost, past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnilite._tuner_host.tuner_client._START_AGAIN_S", 0.01)
    troubles = [StoreError("disk I/O error", busy=True)] * 5

    async def until(number: int) -> list[Call]:
        if troubles:
            raise troubles.pop()
        return past.calls[:number]

    await tell(host, past, 0.5)
    host._calls = until
    send_signal(host.pid)
    assert await host.call(Ask((1,), 1)) == [{"x": 1, "results": 1}]
    assert not troubles


async def test_a_folder_that_is_gone_ends_the_waiting_with_a_sentence(host: TunerHost) -> None:
    shutil.rmtree(host._plan.directory / "log")
    with pytest.raises(TunerError, match=r"process cannot be started: .*No such file"):
        await host.open(0)


async def test_a_killed_host_is_rebuilt_from_the_history(host: TunerHost, past: Past) -> None:
    await tell(host, past, 0.5)
    await tell(host, past, 0.7)
    send_signal(host.pid)
    assert await host.call(Ask((1,), len(past.calls))) == [{"x": 1, "results": 2}]


async def test_a_call_that_raises_once_is_made_again(make_host: MakeHost, past: Past, tmp_path: Path) -> None:
    host = make_host(bad=3, once=str(tmp_path / "marker"))
    await tell(host, past, 0.5)
    assert await host.call(Ask((3,), 1)) == [{"x": 3, "results": 1}]


async def several(host: TunerHost, past: Past, count: int) -> list[Any]:
    """`count` results and a question, made at once."""
    past.calls += [Call("result", number, "t", {"x": 0}, 0.5) for number in range(count)]
    tells = [Tell(number, call) for number, call in enumerate(past.calls, 1)]
    return [answer async for answer in host.answers([*tells, Ask((3,), count)])]


@pytest.mark.parametrize("when", ["well", "killed before", "killed after", "raises once"])
async def test_several_calls_at_once_are_each_made_once(
    make_host: MakeHost, past: Past, tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {"bad": 3, "once": str(tmp_path / "marker")} if when == "raises once" else {}
    host = make_host(**more)
    await host.open(0)
    if when == "killed before":
        send_signal(host.pid)
    if when == "killed after":
        real = host._send

        async def send(*requests: Any) -> None:
            await real(*requests)
            monkeypatch.setattr(host, "_send", real)
            send_signal(host.pid)

        monkeypatch.setattr(host, "_send", send)
    assert await several(host, past, 30) == [None] * 30 + [[{"x": 3, "results": 30}]]


async def test_of_several_calls_the_one_that_fails_is_named_and_tried_three_times(
    make_host: MakeHost, past: Past, tmp_path: Path
) -> None:
    host = make_host(bad=3)
    await host.open(0)
    with pytest.raises(TunerError) as caught:
        await several(host, past, 3)
    (log,) = tmp_path.glob("*/log/tuner.log")
    text, times = str(caught.value), log.read_text().count('KeyError: "the user\'s mistake"')
    assert "the tuner failed 3 times in a row on generate_parameters for ids [3]" in text
    assert times == 3


async def test_answers_that_nobody_waits_for_do_not_cut_the_end_short(host: TunerHost, tmp_path: Path) -> None:
    await host.open(0)
    answers = host.answers([Ask((1,), 0), Ask((2,), 0), Ask((3,), 0)])
    await anext(answers)
    await answers.aclose()
    await host.close()
    (log,) = tmp_path.glob("*/log/tuner.log")
    assert "an end in good order" in log.read_text()


@pytest.mark.parametrize("committed", [True, False])
async def test_a_tuner_saves_its_state_at_the_end_only_if_all_that_it_knows_is_committed(
    host: TunerHost, past: Past, tmp_path: Path, committed: bool
) -> None:
    await tell(host, past, 0.5)
    await host.close(committed=committed)
    assert host.pid is None
    (log,) = tmp_path.glob("*/log/tuner.log")
    assert ("an end in good order" in log.read_text()) is committed


async def test_a_tuner_that_waits_for_its_history_saves_no_state(
    host: TunerHost, past: Past, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history waits for a commit that waits for the disk, and then the manager ends."""
    await tell(host, past, 0.5)
    send_signal(host.pid)
    asked = asyncio.Event()

    async def until(number: int) -> list[Call]:
        asked.set()
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(host, "_calls", until)
    call = asyncio.create_task(host.call(Ask((1,), 1)))
    await asyncio.wait_for(asked.wait(), 60)
    call.cancel()
    await asyncio.wait([call])
    await host.close()
    (log,) = tmp_path.glob("*/log/tuner.log")
    assert "an end in good order" not in log.read_text()


async def test_three_failures_on_the_same_input_are_told_with_the_users_traceback(make_host: MakeHost) -> None:
    host = make_host(bad=3)
    with pytest.raises(TunerError) as caught:
        await host.call(Ask((3,), 0))
    text = str(caught.value)
    assert "generate_parameters for ids [3]" in text
    assert "counting.py" in text
    assert 'KeyError: "the user\'s mistake"' in text
    assert "tuner_child" not in text


async def test_a_hung_tuner_meets_its_time_limit(make_host: MakeHost) -> None:
    host = make_host(timeout_s=1.0, hang=3)
    await host.open(0)
    with pytest.raises(TunerError, match="took longer than 1 s"):
        await host.call(Ask((3,), 0))


async def test_an_unknown_class_argument_is_told_as_a_failure_of_the_construction(make_host: MakeHost) -> None:
    host = make_host(colour="blue")
    with pytest.raises(ConfigError, match=r"tuner\.classArgs\.colour: Counting has no such argument"):
        await host.open(0)


async def test_a_space_that_the_tuner_refuses_is_told_with_its_field(tmp_path: Path, past: Past) -> None:
    (tmp_path / "log").mkdir()
    nested = {"x": {"_type": "choice", "_value": [{"_name": "a", "y": {"_type": "uniform", "_value": [0, 1]}}]}}
    plan = TunerPlan({"name": "GP", "classArgs": {}}, None, nested, tmp_path)
    host = TunerHost(plan, past.until, past.histories)
    try:
        with pytest.raises(ConfigError, match="no nested choices") as caught:
            await host.open(0)
    finally:
        await host.close()
    assert caught.value.place.field == "searchSpace"


@pytest.mark.parametrize(
    ("code", "last"),
    [
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def x(:\n", "SyntaxError: invalid syntax"),
        ("raise SystemExit('no data')\n", "SystemExit: no data"),
    ],
)
async def test_a_module_that_cannot_be_imported_is_told_with_its_own_lines_alone(
    host: TunerHost, tmp_path: Path, code: str, last: str
) -> None:
    (tmp_path / host._plan.tuner["codeDirectory"] / "counting.py").write_text(code)
    with pytest.raises(TunerError) as caught:
        await host.open(0)
    text = str(caught.value)
    assert 'counting.py", line 1' in text
    assert text.endswith(last)
    assert "importlib" not in text


def test_a_wrong_value_of_a_class_argument_is_a_sentence_without_a_traceback() -> None:
    wrong = {"do": "open", "tuner": {"name": "TPE", "classArgs": {"seed": "x"}}, "space": {}}
    answer = Child().answer(wrong)
    assert (answer["field"], answer["error"]) == ("tuner.classArgs.seed", "must be a whole number, not 'x'")


async def test_what_the_user_prints_goes_to_the_log(host: TunerHost, tmp_path: Path) -> None:
    await host.open(0)
    await host.close()
    (log,) = tmp_path.glob("*/log/tuner.log")
    assert "a print of the user's" in log.read_text()


async def test_no_text_that_is_logged_looks_like_another_record(host: TunerHost, tmp_path: Path) -> None:
    await host.open(0)
    await host.close()
    (log,) = tmp_path.glob("*/log/tuner.log")
    forged = [line for line in log.read_text().splitlines() if "forged" in line]
    assert forged == ["    [2026-01-01 00:00:00,000] ERROR (tuner) forged \\x1b[2J"]


WATCHING = """
from nnilite import Assessor
class Watching(Assessor):
    def assess_trial(self, trial_job_id, trial_history):
        print("history", trial_history, flush=True)
        return True
"""


async def test_an_assessor_that_was_killed_sees_no_result_twice(tmp_path: Path) -> None:
    for name in ("log", "code"):
        (tmp_path / name).mkdir()
    (tmp_path / "code" / "watching.py").write_text(WATCHING)
    assessor = {"className": "watching.Watching", "codeDirectory": str(tmp_path / "code")}
    plan = TunerPlan({"name": "Random"}, assessor, SPACE, tmp_path, 20.0)

    async def histories() -> list[History]:
        return [("t", 0, [1, 2, 3], False, False)]  # the third is committed, and yet to be shown

    host = TunerHost(plan, Past().until, histories)
    await host.call(Assess("t", 0, 0, (1, 2), 1))
    send_signal(host.pid)
    await host.call(Assess("t", 0, 2, (3,), 1))
    await host.close()
    assert (tmp_path / "log" / "tuner.log").read_text().splitlines()[-1] == "history [1, 2, 3]"
