"""The live stream: what is told, to whom, and that a slow reader cannot fill the memory."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from manager.fake_backend import filled
from manager.rest_server import Client, serving
from nnilite._answers.changes import Reset
from nnilite._rest import Changes, ServerOptions
from nnilite.records import Metric, MetricKind, Trial
from waiting import eventually_async as until

TOKEN = "manager-token-1234"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving(filled(tmp_path, TOKEN), ServerOptions(stream_interval_s=0.01, streams_max=2)) as client:
        yield client


def in_time(coroutine: Any) -> Any:
    async def bounded() -> Any:
        return await asyncio.wait_for(coroutine, 20)

    return asyncio.run(bounded())


async def connect(client: Client, query: str = "", **headers: str) -> WebSocketClientConnection:
    url = f"ws://127.0.0.1:{client.port}/api/v1/stream{query}"
    return await websocket_connect(HTTPRequest(url, headers={"Authorization": f"Bearer {TOKEN}", **headers}))


async def leave(connection: WebSocketClientConnection) -> None:
    """Close, and read until the other end has closed too: else the socket is left to the garbage collector."""
    connection.close()
    while await connection.read_message() is not None:
        pass


UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec_WebSocket_Key": "x" * 22 + "==",
    "Sec_WebSocket_Version": "13",
}


async def told(connection: WebSocketClientConnection) -> list[dict[str, Any]]:
    message = await connection.read_message()
    assert isinstance(message, str)
    return json.loads(message)["changes"]


def report(client: Client) -> None:
    event = {"type": "metric", "index": 0, "kind": "FINAL", "sequence": 0, "value": "Infinity", "time": 1.0}
    assert client.callback("Run01", [event]).status == 200


def test_changes_are_told_as_they_happen(client: Client) -> None:
    async def watch() -> list[dict[str, Any]]:
        connection = await connect(client)
        await asyncio.to_thread(report, client)
        changes: list[dict[str, Any]] = []
        while len(changes) < 2:
            changes += await told(connection)
        await leave(connection)
        return changes

    metric, trial = in_time(watch())
    assert (metric["type"], metric["metric"]["value"]) == ("metric", "Infinity")
    assert (trial["type"], trial["trial"]["value"]) == ("trial", "Infinity")


@pytest.mark.parametrize("query", ["", "?metrics=false"])
def test_where_nothing_changes_the_stream_says_so(tmp_path: Path, query: str) -> None:
    async def watch(client: Client) -> list[list[dict[str, Any]]]:
        connection = await connect(client, query)
        heard = [await told(connection) for _ in range(3)]
        await leave(connection)
        return heard

    with serving(filled(tmp_path, TOKEN), ServerOptions(stream_interval_s=0.01, stream_silence_s=0.02)) as client:
        assert in_time(watch(client)) == [[], [], []]


def test_metrics_can_be_left_out(client: Client) -> None:
    async def watch() -> list[dict[str, Any]]:
        connection = await connect(client, "?metrics=false")
        await asyncio.to_thread(report, client)
        changes = await told(connection)
        await leave(connection)
        return changes

    assert [change["type"] for change in in_time(watch())] == ["trial"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer x"}, 401),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 403),
    ],
)
def test_a_stranger_gets_no_stream(client: Client, headers: dict[str, str], status: int) -> None:
    assert client.get("/stream", **UPGRADE, **headers).status == status


def test_the_own_page_gets_the_stream(client: Client) -> None:
    async def watch() -> None:
        connection = await connect(client, Origin=f"http://127.0.0.1:{client.port}")
        await until(lambda: client.application.context.streams.open == 1)
        await leave(connection)

    in_time(watch())


def test_a_wrong_query_is_refused(client: Client) -> None:
    assert client.get("/stream?metrics=1", **UPGRADE).status == 400


def test_an_ordinary_request_is_told_to_speak_websocket(client: Client) -> None:
    assert client.get("/stream").status == 426
    assert client.application.context.streams.open == 0


def test_streams_are_counted_and_given_back(client: Client) -> None:
    async def open_and_close() -> int:
        connections = [await connect(client) for _ in range(2)]
        await until(lambda: client.application.context.streams.open == 2)
        refused = await asyncio.to_thread(client.get, "/stream", **UPGRADE)
        for connection in connections:
            await leave(connection)
        await until(lambda: client.application.context.streams.open == 0)
        await leave(await connect(client))
        return refused.status

    assert in_time(open_and_close()) == 503


def test_of_many_that_come_at_once_no_more_are_let_in(client: Client) -> None:
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in UPGRADE.items())
    request = f"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n{head}\r\n"
    with ExitStack() as stack:
        links = [stack.enter_context(closing(socket.create_connection(("127.0.0.1", client.port)))) for _ in range(12)]
        for link in links:
            link.settimeout(20)
            link.sendall(request.encode())
        answers = [link.recv(1000)[9:12] for link in links]
        assert client.application.context.streams.open == len(client.backend.changes._subscriptions) == 2
    assert set(answers) <= {b"101", b"503"}


def test_a_reader_that_left_is_forgotten(client: Client) -> None:
    async def come_and_go() -> None:
        await leave(await connect(client))
        await until(lambda: not client.backend.changes._subscriptions)

    in_time(come_and_go())


TRIAL = Trial("T", 0, {})


def metric(index: int) -> Metric:
    return Metric("T", 0, index, MetricKind.PERIODICAL, index, 0.5, 1.0)


def test_only_the_latest_state_of_a_trial_waits_for_a_slow_reader() -> None:
    async def run() -> list[Any]:
        changes = Changes()
        subscription = changes.subscribe()
        for number in range(100):
            changes.publish(replace(TRIAL, attempt=number))
        return list(await subscription.next())

    assert in_time(run()) == [replace(TRIAL, attempt=99)]


def test_a_metric_is_told_before_the_trials_later_end() -> None:
    async def run() -> list[Any]:
        changes = Changes()
        subscription = changes.subscribe()
        for change in (TRIAL, metric(0), replace(TRIAL, value=0.5)):
            changes.publish(change)
        return list(await subscription.next())

    assert in_time(run()) == [metric(0), replace(TRIAL, value=0.5)]


def test_a_reader_too_far_behind_is_told_to_read_afresh() -> None:
    async def run() -> tuple[list[Any], list[Any]]:
        changes = Changes(pending_max=10)
        subscription = changes.subscribe()
        for index in range(25):
            changes.publish(metric(index))
        first = list(await subscription.next())
        changes.publish(metric(25))
        return first, list(await subscription.next())

    first, second = in_time(run())
    assert first[0] == Reset()
    assert len(first) <= 11
    assert second == [metric(25)]


def test_a_closed_subscription_gets_nothing() -> None:
    async def run() -> None:
        changes = Changes()
        subscription = changes.subscribe()
        subscription.close()
        subscription.close()
        changes.publish(TRIAL)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(subscription.next(), 0.05)

    in_time(run())
