"""A pod that answers a command as it likes: without end, a byte now and then, or with what was not asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.configuration import Configuration
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from nnilite_kubernetes import _code_pod, _exec
from nnilite_kubernetes._exec import ExecError, Execution
from waiting import pause_async

Answer = Callable[[WebSocketHandler], Awaitable[None]]
Connect = Callable[[Answer], Awaitable[Execution]]


class Pod(WebSocketHandler):
    def initialize(self, answer: Answer) -> None:
        self.answer = answer

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        return subprotocols[0]

    async def open(self, *_: str, **__: str) -> None:
        try:
            await self.answer(self)
        except WebSocketClosedError:
            return

    def on_message(self, message: str | bytes) -> None:
        """The command reads nothing."""


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    servers: list[HTTPServer] = []
    made: list[Execution] = []

    async def connect(answer: Answer) -> Execution:
        listener, port = bind_unused_port()
        servers.append(HTTPServer(Application([("/exec", Pod, {"answer": answer})])))
        servers[-1].add_socket(listener)
        configuration: Any = Configuration()
        configuration.host = f"http://127.0.0.1:{port}"
        made.append(await asyncio.to_thread(Execution, configuration, "/exec", {}))
        return made[-1]

    yield connect
    for execution in made:
        await asyncio.to_thread(execution.close)
    for server in servers:
        server.stop()
        await server.close_all_connections()


async def test_a_line_without_end_is_not_kept(connect: Connect) -> None:
    async def answer(pod: WebSocketHandler) -> None:
        while True:
            await pod.write_message(b"\1" + b"x" * 60_000, binary=True)

    execution = await connect(answer)
    with pytest.raises(ExecError, match="without an end of line"):
        await asyncio.to_thread(execution.line)


async def test_of_complaints_without_end_the_last_words_are_kept(connect: Connect) -> None:
    async def answer(pod: WebSocketHandler) -> None:
        for _ in range(50):
            await pod.write_message(b"\2" + b"x" * 60_000, binary=True)
        await pod.write_message(b"\2 no room", binary=True)
        pod.close()

    execution = await connect(answer)
    with pytest.raises(ExecError, match=r"ended too early: x+ no room"):
        await asyncio.to_thread(execution.line)
    assert len(execution._complaint) == 2000
    await asyncio.to_thread(execution.close)
    assert execution._socket.sock is None


async def test_a_pod_that_sends_a_byte_now_and_then_has_a_minute_in_all(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(pod: WebSocketHandler) -> None:
        while True:
            await pod.write_message(b"\1x", binary=True)
            await pause_async(0.02, "the pod drips")

    execution = await connect(answer)
    monkeypatch.setattr(_exec, "_LIMIT_S", 0.3)
    with pytest.raises(ExecError, match="broke off"):
        await asyncio.to_thread(execution.line)


@pytest.mark.parametrize("wanted", [5, {"a": 1}, ["b"], [["a"]], [None], None])
async def test_a_pod_that_asks_for_what_it_was_not_offered_is_refused(
    connect: Connect, tmp_path: Path, wanted: object
) -> None:
    async def answer(pod: WebSocketHandler) -> None:
        await pod.write_message(b"\1" + json.dumps(wanted).encode() + b"\n", binary=True)

    (tmp_path / "a").write_text("x")
    execution = await connect(answer)
    with pytest.raises(ExecError, match="it answers"):
        await asyncio.to_thread(_code_pod._send, execution, {"a": (tmp_path / "a", "hash")})


async def test_a_file_that_a_pod_asks_for_many_times_is_sent_once(connect: Connect, tmp_path: Path) -> None:
    sent: list[bytes] = []

    async def answer(pod: WebSocketHandler) -> None:
        await pod.write_message(b"\1" + json.dumps(["a"] * 1000).encode() + b"\ndone\n", binary=True)

    (tmp_path / "a").write_text("x")
    execution = await connect(answer)
    real = execution.send

    def send(data: bytes) -> None:
        sent.append(data)
        real(data)

    execution.send = send  # type: ignore[method-assign]
    await asyncio.to_thread(_code_pod._send, execution, {"a": (tmp_path / "a", "hash")})
    assert sent[1:] == [b"x"]


async def test_a_kubelet_that_redirects_does_not_get_the_token_sent_elsewhere() -> None:
    heard: list[bytes] = []

    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    other = await asyncio.start_server(elsewhere, "127.0.0.1", 0)
    place = f"ws://127.0.0.1:{other.sockets[0].getsockname()[1]}".encode()

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: " + place + b"/\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(redirect, "127.0.0.1", 0)
    configuration: Any = Configuration()
    configuration.host = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(ExecError):
        await asyncio.to_thread(Execution, configuration, "/exec", {"authorization": "Bearer secret"})
    assert heard == []
    for each in (server, other):
        each.close()
