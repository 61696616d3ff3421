"""What a machine says by its agent's connection, which is foreign: how much of it is kept, and what ends the link."""

from __future__ import annotations

import asyncio
import gc
import logging
import queue
import threading
import time
from typing import Any

import pytest

pytest.importorskip("paramiko")

from nnilite.ssh.errors import MachineError, RemoteFileMissing
from nnilite.testing import eventually
from nnilite.testing.bench import LIMIT_S
from nnilite_remote import _agent_link
from nnilite_remote._agent_link import AgentLink, AgentStream, _parsed
from nnilite_remote._report_relay import ReportRelay
from waiting import others_turn


class Says(AgentStream):
    """A connection by which a machine says some pieces, and takes nothing."""

    def __init__(self, *pieces: bytes) -> None:
        self._pending = b""
        self.pieces = queue.SimpleQueue[bytes]()
        for piece in pieces:
            self.pieces.put(piece)
        self.taken = 0
        self.closed = threading.Event()
        self.channel: Any = self

    def settimeout(self, timeout_s: float | None) -> None:
        """There is none."""

    def read(self) -> bytes:
        piece = self.pieces.get()
        self.taken += 1
        return piece

    def send(self, data: bytes) -> None:
        self.closed.wait(LIMIT_S)

    def shutdown_write(self) -> None:
        """There is nobody to tell."""

    def close(self) -> None:
        self.closed.set()


async def ended(stream: Says, heard: list[Any]) -> None:
    over = asyncio.Event()
    link = AgentLink(stream, over.set, heard.append)
    await asyncio.wait_for(over.wait(), LIMIT_S)
    link.close()


@pytest.mark.parametrize(("mark", "kind"), [(b', "missing": true', RemoteFileMissing), (b"", MachineError)])
def test_what_a_machine_no_longer_has_is_told_from_other_refusals(mark: bytes, kind: type[MachineError]) -> None:
    with pytest.raises(MachineError, match="is gone") as raised:
        Says(b'{"error": "the folder is gone"%s, "nonce": "n"}\n' % mark).read_message("n")
    assert type(raised.value) is kind


@pytest.mark.parametrize(
    "line",
    [
        b"[]\n",
        b"7\n",
        b'{"id": []}\n',
        b'{"id": 1}\n',
        b'{"event": 1}\n',
        b"[" * 2_900_000 + b"\n",
        b'{"event": "much", "more": [' + b"[]," * 900_000 + b"0]}\n",
        b"\xff\n",
    ],
    ids=["list", "number", "odd id", "no answer", "odd event", "deep", "many values", "no text"],
)
def test_what_no_agent_says_ends_the_link(line: bytes) -> None:
    heard: list[Any] = []
    stream = Says(b'{"event": "ended"}\n', line, b'{"event": "more"}\n')
    asyncio.run(ended(stream, heard))
    assert heard == [{"event": "ended"}]
    assert stream.closed.is_set()


def test_a_line_without_an_end_ends_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_agent_link, "_MAX_LINE_BYTES", 100_000)
    stream = Says(*[b"x" * 30_000] * 100)
    asyncio.run(ended(stream, []))
    assert stream.taken < 10


def _long(begin: bytes, unit: bytes, end: bytes) -> bytes:
    return begin + unit * ((_agent_link._MAX_LINE_BYTES - 100) // len(unit)) + end


@pytest.mark.parametrize(
    "line",
    [
        b'{"id": 1, "ok": [' + b"[]," * (_agent_link._MOST_VALUES // 2 - 9) + b"0]}",
        b'{"id": 1, "ok": [' + b'{"a": {}},' * (_agent_link._MOST_VALUES // 3 - 9) + b"0]}",
        _long(b'{"id": 1, "ok": "', b",[]", b'"}'),
        _long(b'{"id": 1, "ok": "', b'\\"', b'"}'),
        _long(b'{"id": 1, "ok": "', b"\\u20ac", b'"}'),
        _long(b'{"id": 1, "ok": 0.', b"1", b"}"),
    ],
    ids=["lists", "objects", "text", "quotes", "escapes", "digits"],
)
def test_no_line_that_is_taken_holds_up_the_manager(line: bytes) -> None:
    gc.collect()
    gc.freeze()  # a collection that walks all objects of the tests so far would be no work of this line
    try:
        assert min(_read_s(line) for _ in range(3)) < 0.2
    finally:
        gc.unfreeze()


def _read_s(line: bytes) -> float:
    begin_s = time.thread_time()
    assert _parsed(line)["id"] == 1
    return time.thread_time() - begin_s


@pytest.mark.parametrize(
    "line",
    [b'{"event": "ended"}\n', b'{"event": "long", "more": "' + b"x" * 1_000_000 + b'"}\n'],
    ids=["short", "long"],
)
async def test_what_a_machine_says_does_not_pile_up_before_a_busy_manager(line: bytes) -> None:
    most = _agent_link._HANDED_OVER_BYTES // max(len(line), _agent_link._LEAST_BYTES) + 1  # the last one has to wait
    over = asyncio.Event()
    stream = Says(*[line] * 3 * most, b"")
    AgentLink(stream, over.set, lambda _: None)
    # The event loop does nothing else meanwhile.
    eventually(lambda: stream.taken >= most)
    stream.closed.wait(0.3)  # it is closed when all has been read
    assert stream.taken == most
    await asyncio.wait_for(over.wait(), LIMIT_S)
    assert stream.taken == 3 * most + 1


async def test_a_machine_that_takes_nothing_is_not_told_without_end() -> None:
    stream = Says()
    link = AgentLink(stream, lambda: None, lambda _: None)
    for number in range(5000):
        link.tell("answer", caller=number, line="")
    waiting = link._outbox.qsize()
    stream.close()
    stream.pieces.put(b"")
    await others_turn()
    assert waiting <= _agent_link._UNSENT_MOST + 1


def test_reports_that_are_none_are_logged_once_a_minute(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    relay = ReportRelay(tmp_path / "none", lambda caller, line: None)
    for _ in range(20):
        relay.pass_on({"event": "report", "caller": "x"})
    assert len(caplog.records) == 1
