"""Too many connections: who may come in, who has to go, and that those who ask get their answer."""

from __future__ import annotations

import asyncio
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from queue import Queue

import pytest

from manager.fake_backend import filled
from manager.rest_server import Client, serving
from nnilite._network import unauthenticated_callers
from nnilite._rest import ServerOptions, listen, make_application, server_connections
from nnilite._rest.refusal import HttpRefusal
from nnilite._rest.server_connections import room
from nnilite._rest.trial_connections import REST, SHARE
from nnilite.testing import eventually
from nnilite.testing.ports import free_port

MOST = 8


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_connections, "room", lambda limit: MOST)
    # One of the older half is closed by chance; here it is always the oldest, so that the tests know which.
    monkeypatch.setattr(unauthenticated_callers.random, "choice", lambda callers: callers[0])


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving(filled(tmp_path), ServerOptions(head_timeout_s=60)) as client:
        yield client


@pytest.fixture
def silent(client: Client) -> Iterator[Callable[[], socket.socket]]:
    """Makes connections that say nothing."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(closing(socket.create_connection(("127.0.0.1", client.port), timeout=60)))


def is_closed(link: socket.socket, wait_s: float = 0.0) -> bool:
    """Whether the server has closed a connection, or does within the time."""
    link.settimeout(max(wait_s, 0.01))
    try:
        return link.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def test_a_server_knows_whether_a_caller_may_ask_again(client: Client) -> None:
    context = client.application.context
    assert not context.has_callers
    with client.keeping() as kept:
        assert kept.get("/experiment").status == 200
        assert context.has_callers
    eventually(lambda: not context.has_callers)


def test_some_descriptors_are_left_for_others_than_connections() -> None:
    limits = (resource.RLIM_INFINITY, 1 << 20, 1024, 256, 20)
    assert [room(limit) for limit in limits] == [8192, 8192, 768, 128, 10]


def test_who_says_nothing_makes_room_for_those_who_ask(client: Client, silent: Callable[[], socket.socket]) -> None:
    links = [silent() for _ in range(3 * MOST)]
    assert client.get("/experiment").status == 200
    assert is_closed(links[0], 10)
    assert not is_closed(links[-1])
    assert len(client.application.context.connections) <= MOST


def test_a_connection_that_has_asked_outlives_those_that_have_not(
    client: Client, silent: Callable[[], socket.socket]
) -> None:
    with client.keeping() as keeper:
        assert keeper.get("/experiment").status == 200
        kept = keeper.kept.sock  # type: ignore[union-attr]
        links = [silent() for _ in range(3 * MOST)]
        assert is_closed(links[0], 10)
        assert keeper.get("/experiment").status == 200
        assert keeper.kept.sock is kept  # type: ignore[union-attr]


def test_of_those_that_have_asked_the_longest_idle_one_goes(client: Client) -> None:
    with ExitStack() as stack:
        keepers = [stack.enter_context(client.keeping()) for _ in range(MOST + 1)]
        assert [keeper.get("/experiment").status for keeper in keepers] == [200] * (MOST + 1)
        assert is_closed(keepers[0].kept.sock, 10)  # type: ignore[union-attr]
        assert not is_closed(keepers[1].kept.sock)  # type: ignore[union-attr]


def test_a_slow_body_of_somebody_without_a_token_is_no_reason_to_keep_a_connection(
    client: Client, silent: Callable[[], socket.socket]
) -> None:
    slow = silent()
    job = client.backend.find_job("Run01")
    head = f"POST /api/v1/callback/{job} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
    slow.sendall((head + "Content-Type: application/json\r\n\r\n{").encode())
    links = [silent() for _ in range(2 * MOST)]
    assert is_closed(slow, 10)
    assert not is_closed(links[-1])


def begin_report(link: socket.socket, client: Client, trial: str) -> None:
    """Send the head of a report with the trial's token, and nothing of the report."""
    job = client.backend.find_job(trial)
    head = f"POST /api/v1/callback/{job} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n"
    head += f"Content-Type: application/json\r\nAuthorization: Bearer {client.backend.callback_token(job)}\r\n\r\n"
    link.sendall(head.encode())


def begin_change(link: socket.socket, client: Client) -> None:
    """Do the same as the manager's user."""
    head = f"POST /api/v1/trials HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {client.backend.token}\r\n"
    link.sendall((head + "Content-Length: 2\r\nContent-Type: application/json\r\n\r\n").encode())


def test_where_all_are_at_work_newcomers_wait(client: Client, silent: Callable[[], socket.socket]) -> None:
    workers = [silent() for _ in range(MOST)]
    for worker in workers:
        begin_change(worker, client)
    eventually(lambda: len(client.application.context.connections._busy) == MOST)
    newcomer = silent()
    newcomer.sendall(b"GET /api/v1/experiment HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with pytest.raises(TimeoutError):
        recv(newcomer, 0.3)
    workers[0].close()
    assert recv(newcomer, 10).startswith(b"HTTP/1.1 ")
    assert not any(map(is_closed, workers[1:]))


def test_one_trial_does_not_take_the_room_of_all_by_reports_that_do_not_end(
    client: Client, silent: Callable[[], socket.socket]
) -> None:
    links = [silent() for _ in range(MOST)]
    for link in links:
        begin_report(link, client, "Run01")
    busy = client.application.context.connections._busy
    eventually(lambda: len(busy) == MOST // SHARE)
    assert client.get("/experiment").status == 200
    begin_report(other := silent(), client, "End02")
    eventually(lambda: len(busy) == MOST // SHARE + 1)
    assert not is_closed(other)


def test_all_trials_together_leave_some_room(client: Client, silent: Callable[[], socket.socket]) -> None:
    connections = client.application.context.connections
    for number in range(MOST - MOST // REST):
        connections.admit(None, "Run01")
        connections._trials.add(f"{number}", f"job-{number}")  # type: ignore[arg-type]
    with pytest.raises(HttpRefusal):
        connections.admit(None, "Run01")


def test_a_trial_that_has_its_share_loses_an_idle_connection_for_the_next(client: Client) -> None:
    with ExitStack() as stack:
        keepers = [stack.enter_context(client.keeping()) for _ in range(MOST // SHARE + 1)]
        assert [keeper.callback("Run01", []).status for keeper in keepers] == [200] * len(keepers)
        assert is_closed(keepers[0].kept.sock, 10)  # type: ignore[union-attr]
        assert not is_closed(keepers[1].kept.sock)  # type: ignore[union-attr]


def recv(link: socket.socket, wait_s: float) -> bytes:
    link.settimeout(wait_s)
    return link.recv(100)


def test_it_is_told_once_a_minute(
    client: Client, silent: Callable[[], socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    links = [silent() for _ in range(5 * MOST)]
    assert is_closed(links[2 * MOST], 10)
    told = [record for record in caplog.records if record.name == server_connections.__name__]
    assert len(told) == 1
    assert "all of the 8 file descriptors" in told[0].getMessage()


def test_a_connection_that_asks_nothing_is_closed_after_a_while_and_a_kept_one_later(tmp_path: Path) -> None:
    options = ServerOptions(head_timeout_s=0.2, idle_timeout_s=30)
    with serving(filled(tmp_path), options) as client, client.keeping() as keeper:
        assert keeper.get("/experiment").status == 200
        with closing(socket.create_connection(("127.0.0.1", client.port))) as link:
            link.sendall(b"GET /api/v1/experiment HTTP/1.1\r\nHost: loc")
            assert is_closed(link, 10)
        assert not is_closed(keeper.kept.sock, 0.3)  # type: ignore[union-attr]


def test_a_kept_connection_that_asks_no_more_is_closed_too(tmp_path: Path) -> None:
    with serving(filled(tmp_path), ServerOptions(idle_timeout_s=0.2)) as client, client.keeping() as keeper:
        assert keeper.get("/experiment").status == 200
        assert is_closed(keeper.kept.sock, 10)  # type: ignore[union-attr]


async def test_a_server_that_ends_keeps_its_port_and_answers_nobody(tmp_path: Path) -> None:
    """Programs that take it for alive send the token there: nobody else may have the port so long."""
    # no system gives such a port to a program that asks for any
    server = listen(make_application(filled(tmp_path)), "127.0.0.1", free_port())
    server.refuse_connections()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    assert await asyncio.wait_for(reader.read(), 20) == b""
    writer.close()
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("127.0.0.1", server.port))
    server.stop()
    socket.create_server(("127.0.0.1", server.port)).close()


def test_a_request_under_way_at_the_servers_end_is_not_answered_as_a_failure(tmp_path: Path) -> None:
    """The end of the event loop cancels its handler, whose connection is closed by then."""
    backend, begun, port = filled(tmp_path), threading.Event(), Queue[int]()

    async def slow_profile() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def serve() -> None:
        backend.profile = slow_profile  # type: ignore[assignment]
        server = listen(make_application(backend, ServerOptions()), "127.0.0.1", 0)
        port.put(server.port)
        await asyncio.to_thread(begun.wait, 10)
        await server.end()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    with closing(socket.create_connection(("127.0.0.1", port.get(timeout=10)), timeout=10)) as link:
        head = "GET /api/v1/experiment HTTP/1.1\r\nHost: localhost\r\n"
        link.sendall(f"{head}Authorization: Bearer {backend.token}\r\n\r\n".encode())
        assert link.recv(100) == b""
    thread.join(10)
