"""The short way from keepers to a manager on the same machine, and what happens where it fails."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import stat
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keeper_bench import JOB, TOKEN, Bench, Callback, until
from nnilite._answers.backend import CallbackAnswer, FencedConflict, GapConflict
from nnilite._keeper import local_link
from nnilite._keeper.link import LinkDown
from nnilite._keeper.link_choice import link_of
from nnilite._keeper.local_link import LocalLink
from nnilite._keeper.spec import parse
from nnilite._rest import callback_socket
from nnilite._rest.callback_socket import CallbackSocket
from nnilite._rest.route_definition import BODY_MAX
from nnilite.errors import StoreError
from nnilite.records import KeeperEvent, Reported
from waiting import others_turn

METRIC = {"type": "metric", "index": 0, "kind": "FINAL", "sequence": 0, "value": "0.5", "time": 1.0}


class Taking:
    """The manager's side: what it is told to do instead of taking, and what it has taken."""

    def __init__(self) -> None:
        self.taken: list[KeeperEvent] = []
        self.refusal: Exception | None = None
        self.hold: asyncio.Event | None = None

    def callback_token(self, job: str) -> str:
        return TOKEN if job == JOB else f"another {job}"

    async def events(self, job: str, events: Sequence[KeeperEvent]) -> CallbackAnswer:
        if self.hold is not None:
            await self.hold.wait()
        if self.refusal is not None:
            raise self.refusal
        self.taken += events
        return CallbackAnswer(False, sum(isinstance(event, Reported) for event in self.taken), {})


class Side:
    """A `CallbackSocket` on a loop in a thread of its own."""

    def __init__(self, address_file: Path) -> None:
        self.backend = Taking()
        self.path = Path(f"{address_file}.sock")
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.socket = CallbackSocket(address_file, self.backend)
        self.call(self.socket.listen())

    def call(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self.loop).result(30)

    def close(self) -> None:
        async def end() -> None:
            self.socket.close()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await others_turn()

        if self.thread.is_alive():
            self.call(end())
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join()
            self.loop.close()


@pytest.fixture
def address_file(tmp_path):
    return tmp_path / "callback"


@pytest.fixture
def side(address_file) -> Iterator[Side]:
    side = Side(address_file)
    yield side
    side.close()


@pytest.fixture(autouse=True)
def no_connections_of_others():
    yield
    while local_link._kept:
        local_link._kept.popitem()[1].close()


@pytest.fixture
def rest():
    """The REST callback of the same manager."""
    callback = Callback()
    yield callback
    callback.shutdown()
    callback.server_close()


def link_to(address_file: Path, callback: str = "http://127.0.0.1:9", **more: Any) -> LocalLink:
    fields = {"job": JOB, "experiment": "exp", "trial": "Xy12z", "command": "true", "directory": "/x", "token": TOKEN}
    return link_of(parse({**fields, "callback": callback, "callback_file": str(address_file), **more}))


def test_a_batch_is_taken_and_answered(side, address_file):
    link = link_to(address_file)
    answer = link.post([METRIC])
    assert (answer.status, answer.metrics, answer.cancel) == (200, 1, False)
    assert [event.value for event in side.backend.taken] == [0.5]


def test_the_next_attempt_of_the_process_goes_on_with_the_connection(side, address_file):
    link_to(address_file).post([])
    connection = local_link._kept[str(side.path)]
    link_to(address_file).post([METRIC])
    assert local_link._kept[str(side.path)] is connection


@pytest.mark.parametrize(
    ("refusal", "status", "metrics"),
    [
        (FencedConflict("given up"), 410, None),
        (GapConflict(CallbackAnswer(False, 3, {"stdout": 7})), 409, 3),
        (StoreError("the disk is full"), 503, None),
        (RuntimeError("a fault"), 500, None),
    ],
)
def test_refusals_are_those_of_the_rest_callback(side, address_file, refusal, status, metrics):
    side.backend.refusal = refusal
    answer = link_to(address_file).post([METRIC])
    assert (answer.status, answer.metrics) == (status, metrics)
    side.backend.refusal = None
    assert link_to(address_file).post([METRIC]).status == 200


@pytest.mark.parametrize(
    "fields", [{"token": "wrong"}, {"token": ""}, {"job": "nni-exp-other-0"}, {"job": "x" * 300}, {"token": "\ud800é"}]
)
def test_a_token_opens_its_own_job_only(side, address_file, fields):
    assert link_to(address_file, **fields).post([METRIC]).status == 401
    assert side.backend.taken == []


def ask(side: Side, line: bytes) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as answers:
        connection.settimeout(20)
        connection.connect(str(side.path))
        with suppress(BrokenPipeError):  # it is answered before its end
            connection.sendall(line)
        answer: dict[str, Any] = json.loads(answers.readline())
        return answer


@pytest.mark.parametrize("name", ["\\ud800", "a\\u0000b", "\\u00e4", "../x", ""])
def test_a_job_that_no_trial_has_is_refused_without_a_word_in_the_log(side, name, caplog):
    caplog.set_level(logging.INFO)
    for _ in range(5):
        assert ask(side, f'{{"job":"{name}","token":"x","events":[]}}\n'.encode())["status"] == 401
    assert caplog.records == []


@pytest.mark.parametrize("failure", [FencedConflict("given up"), RuntimeError("a fault")])
def test_refused_batches_of_a_trial_with_its_token_are_logged_once_a_minute(side, failure, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    side.backend.refusal = failure
    line = json.dumps({"job": JOB, "token": TOKEN, "events": []}).encode() + b"\n"
    for _ in range(20):
        assert ask(side, line)["status"] in (410, 500)
    assert len(caplog.records) == 1
    monkeypatch.setattr("nnilite._logging.sparse_log.TELL_EVERY_S", 0.0)
    ask(side, line)
    assert "19 more like this since the last such line" in caplog.text


@pytest.mark.parametrize("begin", [b"x" * 5000, b'{"job":"a","token":"b","events":["' + b"x" * 5000])
def test_a_long_line_is_refused_by_its_begin(side, begin):
    assert ask(side, begin)["status"] == 401


def test_a_report_larger_than_the_rest_callback_takes_is_refused(side):
    line = f'{{"job":"{JOB}","token":"{TOKEN}","events":["{"x" * BODY_MAX}"]}}\n'
    assert ask(side, line.encode())["status"] == 413


def test_the_longest_waiting_without_a_proof_makes_room(side, address_file, monkeypatch):
    monkeypatch.setattr(callback_socket, "UNPROVEN_MOST", 4)
    link = link_to(address_file)
    link.post([])
    with ExitStack() as opened:
        callers = [opened.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(5)]
        for caller in callers:
            caller.connect(str(side.path))
        callers[0].settimeout(20)
        assert callers[0].recv(100) == b""
        assert link.post([METRIC]).status == 200


def test_who_proves_nothing_in_time_is_let_go(tmp_path, monkeypatch):
    monkeypatch.setattr(callback_socket, "_PROOF_S", 0.1)
    side = Side(tmp_path / "callback")
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(20)
        caller.connect(str(side.path))
        caller.sendall(b"{")
        assert caller.recv(100) == b""
    side.close()


def test_the_socket_is_for_its_user_alone_and_goes_with_the_manager(side):
    assert stat.S_IMODE(side.path.stat().st_mode) == 0o600
    side.close()
    assert not side.path.exists()


def test_a_socket_that_a_killed_manager_has_left_is_replaced(side, address_file):
    side.socket._path = Path("/nonexistent")  # so that its file stays
    side.close()
    assert side.path.exists()
    link = link_to(address_file)
    with pytest.raises(LinkDown):
        link.post([])
    again = Side(address_file)
    try:
        assert link.post([METRIC]).status == 200
    finally:
        again.close()


def test_a_kept_connection_to_an_earlier_manager_is_replaced_at_once(side, address_file, rest):
    link = link_to(address_file, rest.url)
    link.post([])
    side.close()
    again = Side(address_file)
    try:
        assert link.post([METRIC]).status == 200
        assert (len(again.backend.taken), rest.requests) == (1, 0)
    finally:
        again.close()


def test_without_a_socket_the_rest_callback_is_used(address_file, rest):
    link = link_to(address_file, rest.url)
    link.prepare()
    assert link.post([METRIC]).metrics == 1
    assert rest.values == [0.5]
    link.close()


@pytest.mark.parametrize("kind", ["file", "folder", "link", "nobody listens"])
def test_what_is_no_socket_of_a_manager_is_left_alone(address_file, rest, kind, tmp_path):
    place = Path(f"{address_file}.sock")
    other = socket.socket(socket.AF_UNIX)
    if kind == "file":
        place.write_text("")
    elif kind == "folder":
        place.mkdir()
    elif kind == "link":
        other.bind(str(tmp_path / "elsewhere"))
        other.listen(1)
        place.symlink_to(tmp_path / "elsewhere")
    else:
        other.bind(str(place))
    link = link_to(address_file, rest.url)
    assert link.post([METRIC]).status == 200
    assert rest.values == [0.5]
    link.close()
    other.close()


def test_another_users_socket_gets_nothing(side, address_file, rest, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    link = link_to(address_file, rest.url)
    assert link.post([METRIC]).status == 200
    assert (side.backend.taken, rest.values) == ([], [0.5])
    link.close()


@pytest.mark.parametrize(
    "answer",
    [b"", b"junk\n", b"[]\n", b'{"status": "200"}\n', b'{"status": 200', b"\xff\n", b"x" * 2_000_000],
    ids=["nothing", "junk", "list", "no number", "half", "no text", "endless"],
)
def test_an_answer_that_is_none_is_not_believed(address_file, rest, answer):
    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                try:
                    connection.sendall(answer)
                except OSError:
                    continue

    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"{address_file}.sock")
    listening.listen(5)
    thread = threading.Thread(target=serve)
    thread.start()
    link = link_to(address_file, rest.url)
    assert link.post([METRIC]).status == 200
    assert rest.values == [0.5]
    link.close()
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


def test_a_manager_that_does_not_answer_in_time_is_asked_over_rest(side, address_file, rest, monkeypatch):
    monkeypatch.setattr(local_link, "_TIMEOUT_S", 0.2)

    async def hold() -> None:
        side.backend.hold = asyncio.Event()

    side.call(hold())
    link = link_to(address_file, rest.url)
    assert link.post([METRIC]).status == 200
    assert rest.values == [0.5]
    link.close()


def test_too_many_connections_leave_the_rest_callback(side, address_file, rest):
    side.socket._most = 1
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(str(side.path))
        other.sendall(json.dumps({"job": JOB, "token": TOKEN, "events": []}).encode() + b"\n")
        other.recv(1000)
        link = link_to(address_file, rest.url)
        assert link.post([METRIC]).status == 200
        assert (side.backend.taken, rest.values) == ([], [0.5])
        link.close()


def test_long_paths_work(tmp_path):
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    side = Side(folder / "callback")
    try:
        assert link_to(folder / "callback").post([METRIC]).status == 200
    finally:
        side.close()


def test_a_place_where_there_can_be_no_socket_is_told_and_nothing_else(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    side = Side(tmp_path / "gone" / "callback")
    side.close()
    assert "over HTTP" in caplog.text


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.binary(max_size=200),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
            lambda one: (
                st.lists(one, max_size=4) | st.dictionaries(st.sampled_from(["job", "token", "events", "type"]), one)
            ),
        ).map(lambda value: json.dumps(value).encode()),
        st.lists(
            st.dictionaries(st.sampled_from(list(METRIC)), st.none() | st.integers() | st.text(max_size=5)), max_size=3
        ).map(lambda events: json.dumps({"job": JOB, "token": TOKEN, "events": events}).encode()),
    )
)
def test_no_request_harms_others(side, line):
    line = line.replace(b"\n", b" ")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(side.path))
        connection.sendall(line + b"\n")
        with connection.makefile("rb") as answers:
            assert json.loads(answers.readline())["status"] in (200, 400, 401, 409, 413)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(side.path))
        connection.sendall(json.dumps({"job": JOB, "token": TOKEN, "events": []}).encode() + b"\n")
        with connection.makefile("rb") as answers:
            assert json.loads(answers.readline())["status"] == 200


@pytest.mark.process
def test_a_keeper_goes_on_over_rest_when_the_socket_goes_and_back(tmp_path):
    """The trial reports in between; each report arrives once, whichever way."""
    with Bench(tmp_path) as bench:
        address = tmp_path / "callback"
        address.write_text(bench.callback.url)
        side = Side(address)
        try:
            keeper = bench.start(
                'for i in 1 2 3 4; do echo "final $i" >> "$NNILITE_METRICS"; touch at$i; '
                "while [ ! -e go$i ]; do sleep 0.02; done; done",
                callback_file=str(address),
            )
            until(lambda: side.backend.taken)
            side.close()
            (bench.folder / "go1").touch()
            until(lambda: len(bench.callback.values) >= 2)
            for number in (2, 3, 4):
                (bench.folder / f"go{number}").touch()
            assert keeper.wait(60) == 0
            assert bench.callback.values == [1, 2, 3, 4]
            assert bench.callback.doubled == 0
        finally:
            side.close()
