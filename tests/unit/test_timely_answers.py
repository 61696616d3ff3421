"""Answers of what is no manager, or of one in trouble: slow, endless, cut short, or of another shape."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat

import pytest

from nnilite._running import timely_answer
from nnilite._running.manager_client import Client
from nnilite._running.manager_connection import ManagerError, Unreachable
from nnilite.errors import ConfigError
from stand_in_manager import StandIn, stand_in_manager

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PAUSE_S = 0.02


@pytest.fixture
def manager() -> Iterator[StandIn]:
    with stand_in_manager() as found:
        yield found


@contextmanager
def answering(head: bytes, pieces: Iterator[bytes], pause_s: float = 0.0) -> Iterator[Client]:
    """A client of a server that sends `head`, then the pieces, and hangs up."""
    over = threading.Event()

    def serve() -> None:
        link, _ = server.accept()
        with link:
            link.recv(65536)
            try:
                link.sendall(head)
                for piece in pieces:
                    if over.wait(pause_s):
                        return
                    link.sendall(piece)
            except OSError:
                """The client has seen enough."""

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        with Client(f"http://127.0.0.1:{server.getsockname()[1]}", "secret", timeout_s=0.5) as client:
            yield client
        over.set()
        thread.join(60)


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (HEAD, b"x"),
        (CHUNKED, b"1\r\nx\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nA: ", b"x"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 1000000\r\n\r\n", b"x"),
    ],
)
def test_an_answer_that_drips_is_not_waited_for_without_end(head: bytes, piece: bytes) -> None:
    with answering(head, repeat(piece), PAUSE_S) as client, pytest.raises(Unreachable, match=r"within 0\.5 s"):
        client.profile()


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 500 X\r\n\r\n"])
def test_an_answer_without_end_does_not_fill_the_memory(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timely_answer, "ANSWER_BYTES", 4 << 20)
    with answering(head, repeat(b"x" * 1_000_000)) as client, pytest.raises(Unreachable, match="more than 4 MB"):
        client.profile()


def test_an_answer_that_comes_steadily_may_take_longer_than_its_time() -> None:
    pieces = [b'"', *[b"x" * 1000] * 60, b'"']
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % sum(map(len, pieces))
    with answering(head, iter(pieces), PAUSE_S) as client:
        assert len(client.ask("GET", "/")) == 60_000


@pytest.mark.parametrize(("head", "piece"), [(HEAD, b"x" * 5000), (CHUNKED, b"ff\r\nxx")])
@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.download("a", "model.bin", bytes),
        lambda client: client.export("csv", bytes),
        lambda client: client.log("manager"),
        lambda client: client.profile(),
    ],
)
def test_an_answer_that_is_cut_short_is_not_taken_for_whole(
    head: bytes, piece: bytes, call: Callable[[Client], object]
) -> None:
    with answering(head, iter([piece])) as client, pytest.raises(Unreachable, match="does not answer"):
        call(client)


def test_an_answer_that_sends_elsewhere_is_no_answer_of_a_manager(manager: StandIn) -> None:
    manager.says("POST /experiment/stop", b"", 302, {"Location": "http://127.0.0.1:1/"})
    with Client(manager.url) as client, pytest.raises(ManagerError, match="answered 302"):
        client.stop()


@pytest.mark.parametrize("field", [{"a": 1}, 3, ["x"]])
def test_a_refusal_with_a_field_that_is_none_is_still_a_refusal(manager: StandIn, field: object) -> None:
    manager.says("GET /experiment", {"error": "No.", "field": field}, 400)
    with Client(manager.url) as client, pytest.raises(ConfigError, match=r"^No\.$"):
        client.profile()
