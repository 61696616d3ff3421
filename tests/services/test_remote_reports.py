"""Reports that come by the agent: a keeper's line goes to the manager's socket, and the answer comes back to it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("paramiko")

from nnilite.testing import eventually
from nnilite_remote import _report_relay
from nnilite_remote._report_relay import ReportRelay
from nnilite_remote._worker import report_socket
from nnilite_remote._worker.report_socket import ReportSocket


class Way:
    """An agent's socket, a relay and a manager's socket, which answers each line by `answer`."""

    def __init__(self, folder: Path) -> None:
        self.agent, self.manager = folder / "agent.sock", folder / "manager.sock"
        self.heard: list[str] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._server: asyncio.Server | None = None
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.socket = ReportSocket(self.say, lambda job, token: token == f"token-of-{job}")
        self.relay = ReportRelay(self.manager, self.socket.answer)
        self.socket.listen(str(self.agent))

    def say(self, message: dict) -> None:
        self.loop.call_soon_threadsafe(self.relay.pass_on, json.loads(json.dumps(message)))

    def open_manager(self) -> None:
        asyncio.run_coroutine_threadsafe(self._open(), self.loop).result()

    async def _open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.manager)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self.heard.append(line.decode())
                await asyncio.to_thread(self.may_answer.wait)
                writer.write(b"re " + line)
                await writer.drain()
        finally:
            writer.close()

    def close(self) -> None:
        self.may_answer.set()
        self.socket.close()
        asyncio.run_coroutine_threadsafe(self._stop(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _stop(self) -> None:
        self.relay.close()
        if self._server is not None:
            self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.loop.shutdown_default_executor()

    @contextmanager
    def keeper(self) -> Iterator[socket.socket]:
        with socket.socket(socket.AF_UNIX) as keeper:
            keeper.connect(str(self.agent))
            keeper.settimeout(10)
            yield keeper


@pytest.fixture
def way(tmp_path: Path) -> Iterator[Way]:
    way = Way(tmp_path)
    yield way
    way.close()


def answer(keeper: socket.socket, line: str) -> str:
    keeper.sendall(line.encode() + b"\n")
    with keeper.makefile("r") as stream:
        return stream.readline()


def test_each_keeper_gets_the_answers_to_its_own_lines(way):
    way.open_manager()

    def reports(number: int) -> list[str]:
        with way.keeper() as keeper:
            return [answer(keeper, f"{number} {step}") for step in range(20)]

    with ThreadPoolExecutor(30) as pool:
        found = list(pool.map(reports, range(30)))
    assert found == [[f"re {number} {step}\n" for step in range(20)] for number in range(30)]


def test_without_the_managers_socket_the_keeper_is_sent_to_the_tunnel(way):
    with way.keeper() as keeper:
        assert answer(keeper, "one") == ""
    way.open_manager()
    with way.keeper() as keeper:
        assert answer(keeper, "one") == "re one\n"


def test_a_batch_that_would_hold_up_what_else_the_agent_says_goes_through_the_tunnel(way):
    way.open_manager()
    with way.keeper() as keeper:
        with suppress(ConnectionError):
            assert answer(keeper, "x" * 10 * report_socket._MOST_BYTES) == ""
    assert way.heard == []


@pytest.mark.parametrize("late", [_report_relay, report_socket], ids=["the relay", "the agent"])
def test_an_answer_that_comes_too_late_is_nobodys(way, monkeypatch, late):
    way.open_manager()
    monkeypatch.setattr(late, "_ANSWER_S", 0.1)
    way.may_answer.clear()
    with way.keeper() as keeper:
        assert answer(keeper, "one") == ""
    monkeypatch.undo()
    way.may_answer.set()
    with way.keeper() as keeper:
        assert answer(keeper, "two") == "re two\n"


@pytest.mark.parametrize(
    "message",
    [
        {"caller": "1", "line": "x"},
        {"caller": 99},
        {"caller": 99, "line": 'x\n{"job": "other"}'},
        {"caller": 99, "line": "\u00e4"},
        {"caller": 99, "line": ["x"]},
    ],
    ids=["caller", "no line", "two lines", "not ascii", "a list"],
)
def test_what_is_no_report_is_not_passed_on(way, message):
    way.open_manager()
    way.say({"event": "report", **message})
    with way.keeper() as keeper:
        assert answer(keeper, "one") == "re one\n"
    assert way.heard == ["one\n"]


def test_only_this_user_can_open_the_socket(way):
    assert way.agent.stat().st_mode & 0o777 == 0o600


def test_a_socket_that_an_earlier_agent_has_left_is_replaced(way, tmp_path):
    way.open_manager()
    again = ReportSocket(way.say, way.socket._knows)
    way.relay._send_answer = again.answer
    again.listen(str(way.agent))
    with way.keeper() as keeper:
        assert answer(keeper, "one") == "re one\n"
    again.close()


def test_a_name_that_is_too_long_for_a_socket_leaves_the_tunnel(tmp_path):
    ReportSocket(print, lambda job, token: False).listen(str(tmp_path / ("x" * 200)))
    assert list(tmp_path.iterdir()) == []


def test_a_manager_that_takes_no_more_connections_leaves_the_tunnel(way):
    with socket.socket(socket.AF_UNIX) as full, socket.socket(socket.AF_UNIX) as first:
        full.bind(str(way.manager))
        full.listen(0)
        first.connect(str(way.manager))
        with way.keeper() as keeper:
            assert answer(keeper, "one") == ""


def long_line(job: str, token: str, size: int) -> str:
    return f'{{"job":"{job}","token":"{token}","events":["{"x" * size}"]}}'


def test_a_long_line_that_begins_with_the_proof_of_its_job_is_passed_on(way):
    way.open_manager()
    line = long_line("j-1", "token-of-j-1", 50_000)
    with way.keeper() as keeper:
        assert answer(keeper, line) == f"re {line}\n"
        assert answer(keeper, "short") == "re short\n"


@pytest.mark.parametrize("line", [long_line("j-1", "token-of-j-2", 9000), "x" * 9000], ids=["wrong token", "no head"])
def test_of_a_long_line_without_a_proof_no_more_than_its_begin_is_read(way, line):
    way.open_manager()
    with way.keeper() as keeper:
        keeper.sendall(line[:5000].encode())
        with suppress(ConnectionError):
            assert keeper.recv(100) == b""
    assert way.heard == []


def test_a_job_sends_some_long_lines_at_a_time_and_no_more(way):
    begin = long_line("j-1", "token-of-j-1", 9000)[:5000].encode()
    with ExitStack() as opened:
        keepers = [opened.enter_context(way.keeper()) for _ in range(report_socket._MOST_LONG + 1)]
        for keeper in keepers:
            keeper.sendall(begin)
            eventually(lambda: len(way.socket._callers) >= 1)
        with suppress(ConnectionError):
            assert keepers[-1].recv(100) == b""
        assert len(way.socket._callers) == report_socket._MOST_LONG


def test_a_thousand_callers_without_a_line_have_no_thread_and_the_oldest_go(way):
    way.open_manager()
    threads = threading.active_count()
    with ExitStack() as opened:
        keepers = [opened.enter_context(way.keeper()) for _ in range(1000)]
        assert keepers[0].recv(100) == b""
        assert len(way.socket._callers) <= report_socket._MOST_UNPROVEN
        assert answer(keepers[-1], "one") == "re one\n"
        assert threading.active_count() <= threads + 2, "the manager's own answers come from a thread"


def test_who_sends_no_line_in_time_is_let_go(way, monkeypatch):
    monkeypatch.setattr(report_socket, "_PROOF_S", 0.1)
    with way.keeper() as keeper:
        keeper.sendall(b"{")
        assert keeper.recv(100) == b""
