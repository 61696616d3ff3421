"""What the tuner's process says and leaves behind ends no manager, and is not taken for an answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keeper_bench import running
from nnilite._engine.messages import Ask, Assess, Tell, TunerCall
from nnilite._tuner_host.answer_check import Failure, WrongAnswer, read_answer, read_words
from nnilite._tuner_host.tuner_client import TunerHost, TunerPlan
from nnilite._tuner_host.tuner_process import TunerProcess
from nnilite.errors import TunerError
from nnilite.tuner import Call
from processes import send_signal
from waiting import eventually_async

pytestmark = pytest.mark.process

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}
PLAN = TunerPlan({"name": "Random"}, None, SPACE, Path("/nowhere"), 5.0)

FORKING = """
import json, os, signal, socket, subprocess, sys, time
from nnilite import Tuner

class Forking(Tuner):
    def __init__(self, how):
        self.how = how
    def update_search_space(self, space):
        pass
    def note(self):
        with open("pids", "a") as file:
            file.write("%d\\n" % os.getpid())
    def generate_parameters(self, parameter_id, **kwargs):
        if self.how == "sleeps" and os.fork() == 0:
            self.note()
            time.sleep(1000)
        if self.how == "starts" and parameter_id == 1:
            subprocess.Popen(["sh", "-c", "echo $$ >> pids; exec sleep 1000"], close_fds=False)
        if self.how == "comes back" and os.fork() == 0:
            self.note()
            return {"x": "of the forked process"}
        if self.how == "writes" and not os.path.exists("written"):
            open("written", "w").close()
            for name in os.listdir("/proc/self/fd"):
                if os.path.exists("/proc/self/fd/" + name) and "socket" in os.readlink("/proc/self/fd/" + name):
                    os.write(int(name), b'{"number": 2, "ok": [1, 2, 3, 4]}\\n')
        return {"x": parameter_id}
"""


async def nothing(*_: Any) -> list[Any]:
    return []


MakeHost = Callable[[str], TunerHost]


@pytest.fixture
async def make_host(tmp_path: Path) -> AsyncIterator[MakeHost]:
    """Make a host of a tuner that forks in the named way; it is closed at the end of the test."""
    (tmp_path / "log").mkdir()
    (tmp_path / "forking.py").write_text(FORKING)
    async with contextlib.AsyncExitStack() as hosts:

        def make(how: str) -> TunerHost:
            tuner = {"className": "forking.Forking", "codeDirectory": str(tmp_path), "classArgs": {"how": how}}
            host = TunerHost(TunerPlan(tuner, None, SPACE, tmp_path), nothing, nothing)
            hosts.push_async_callback(host.close)
            return host

        yield make


def pids(tmp_path: Path) -> list[int]:
    place = tmp_path / "log" / "pids"
    return [int(line) for line in place.read_text().split()] if place.exists() else []


@pytest.mark.parametrize("how", ["sleeps", "starts"])
async def test_a_killed_tuner_is_replaced_at_once_though_a_process_of_it_lives(
    make_host: MakeHost, tmp_path: Path, how: str
) -> None:
    host = make_host(how)
    await host.call(Ask((1,), 0))
    await eventually_async(lambda: pids(tmp_path))
    asked = asyncio.create_task(host.call(Ask((2,), 0)))
    send_signal(host.pid)
    assert await asked == [{"x": 2}]


async def test_what_a_tuner_has_forked_ends_with_it(make_host: MakeHost, tmp_path: Path) -> None:
    host = make_host("sleeps")
    await host.call(Ask((1,), 0))
    await eventually_async(lambda: pids(tmp_path))
    send_signal(host.pid)
    await eventually_async(lambda: not any(map(running, pids(tmp_path))))


async def test_a_forked_process_that_comes_back_gives_no_answer(make_host: MakeHost, tmp_path: Path) -> None:
    host = make_host("comes back")
    found = [await host.call(Ask((number,), 0)) for number in range(3)]
    await eventually_async(lambda: len(pids(tmp_path)) == 3 and not any(map(running, pids(tmp_path))))
    assert found == [[{"x": 0}], [{"x": 1}], [{"x": 2}]]


async def test_a_wrong_answer_is_not_taken_and_the_tuner_is_made_again(make_host: MakeHost, caplog: Any) -> None:
    host = make_host("writes")
    await host.open(0)
    first = host.pid
    found = await host.call(Ask((1,), 0))
    assert host.pid != first
    assert found == [{"x": 1}]
    assert "its process answered [1, 2, 3, 4] instead of at most 1 sets of parameters" in caplog.text


class SayingProcess:
    """Stands for the process of a tuner, and says to each request what it is told to."""

    pid = 0

    def __init__(self, says: Callable[[dict[str, Any]], bytes]) -> None:
        self._says = says
        self._lines: list[bytes] = []

    async def send(self, lines: Sequence[bytes]) -> None:
        self._lines += [self._says(json.loads(line)) for line in lines]

    async def line(self) -> bytes:
        return self._lines.pop(0)

    async def end(self) -> None:
        self._lines = []

    async def exit_word(self) -> str:
        return ""


async def said(call: TunerCall, line: bytes, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The host's answer to a call to which the process says this, after an opening in good order."""

    def says(request: dict[str, Any]) -> bytes:
        if request["do"] == "open":
            return json.dumps({"number": request["number"], "ok": False}).encode() + b"\n"
        return line

    async def start(directory: Path) -> SayingProcess:
        return SayingProcess(says)

    monkeypatch.setattr(TunerProcess, "start", start)

    host = TunerHost(PLAN, nothing, nothing)
    try:
        return await host.call(call)
    finally:
        await host.close(committed=False)


ASK = Ask((4, 5), 0)
TELL = Tell(1, Call("result", 0, "t", {"x": 0}, 0.5))
ASSESS = Assess("t", 0, 0, (0.5,), 0)


WRONG = [
    (ASK, b'{"number": 2, "ok": null}'),
    (ASK, b'{"number": 2, "ok": 5}'),
    (ASK, b'{"number": 2, "ok": {"x": 1}}'),
    (ASK, b'{"number": 2, "ok": [1, 2, 3]}'),
    (ASK, b'{"number": 2, "ok": [NaN]}'),
    (ASK, b'{"number": 2, "ok": [1e999]}'),
    (ASK, b'{"number": 2, "ok": ["\\ud800"]}'),
    (ASK, b'{"number": 2, "ok": [%s]}' % (b"1" * 400)),
    (ASK, b'{"number": 2, "ok": [%s1%s]}' % (b"[" * 200, b"]" * 200)),
    (ASK, b"[" * 200_000),
    (ASK, b'{"number": 2}'),
    (ASK, b'{"number": 1, "ok": []}'),
    (ASK, b'{"number": true, "ok": []}'),
    (ASK, b'{"ok": []}'),
    (ASK, b"[]"),
    (ASK, b"7"),
    (ASK, b"\xff\xfe"),
    (ASK, b'{"number": 2, "error": 5, "fatal": true}'),
    (ASK, b'{"number": 2, "error": "x"}'),
    (ASK, b'{"number": 2, "error": "x", "fatal": "no", "traceback": ""}'),
    (ASSESS, b'{"number": 2, "ok": "yes"}'),
    (ASSESS, b'{"number": 2, "ok": null}'),
    (TELL, b'{"number": 2, "ok": [1]}'),
]


@pytest.mark.parametrize(("call", "line"), WRONG, ids=map(str, range(len(WRONG))))
async def test_an_answer_of_a_wrong_shape_is_three_failures_and_a_sentence(
    call: TunerCall, line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TunerError, match=r"failed 3 times in a row on .*: its process"):
        await said(call, line + b"\n", monkeypatch)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
ANSWERS = st.fixed_dictionaries(
    {}, optional={"number": JSON | st.just(2), "ok": JSON, "error": JSON, "fatal": JSON, "traceback": JSON}
)


@settings(max_examples=300, deadline=None)
@given(line=st.binary(max_size=200) | (JSON | ANSWERS).map(lambda value: json.dumps(value).encode()))
@pytest.mark.parametrize("call", [{"do": "generate", "ids": [4, 5]}, {"do": "assess"}, {"do": "call"}, {"do": "open"}])
def test_whatever_is_said_is_refused_or_has_the_type_that_was_asked_for(call: dict[str, Any], line: bytes) -> None:
    try:
        answer = read_answer(line + b"\n", 2, call)
    except WrongAnswer:
        return
    if isinstance(answer, Failure):
        assert isinstance(answer.text, str)
    elif call["do"] == "generate":
        assert len(answer) <= 2
        json.dumps(answer, allow_nan=False).encode("utf-8")
    else:
        assert answer is None if call["do"] == "call" else type(answer) is bool


@pytest.mark.parametrize("choice", ["GP: few results", 3, None, ["GP"], "a" * 10_000])
def test_what_a_tuner_says_of_its_choice_is_a_short_text(choice):
    line = json.dumps({"number": 1, "ok": [], "choice": choice}).encode()
    assert read_words(line, "choice") == (choice[:500] if isinstance(choice, str) else "")
