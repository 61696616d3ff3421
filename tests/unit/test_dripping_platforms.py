"""A platform that sends a byte of its answers now and then, and never the last one, to the libraries of platforms."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from nnilite.platform_http import LibraryCalls, Outage, Problem, library_calls, make_abortable
from nnilite.testing.bench import eventually
from nnilite_kubernetes._api import ApiError, Cluster
from waiting import pause

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"


class Foo(LibraryCalls):
    def translate(self, what: str, error: Exception) -> Problem:
        return Outage(f"no {what}: {error}")


class Platform:
    """Its answers begin with `head`, and then drip until it is `well`."""

    def __init__(self, server: socket.socket, head: bytes) -> None:
        self.url = f"http://127.0.0.1:{server.getsockname()[1]}"
        self.well = threading.Event()
        self._server, self._head = server, head

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._drip, args=[self._server.accept()[0]], daemon=True).start()

    def _drip(self, link: socket.socket) -> None:
        with link, contextlib.suppress(OSError):
            link.sendall(self._head)
            while not self.well.is_set():
                link.sendall(b"x")
                pause(0.01, "a platform that takes its time")


@pytest.fixture(params=[b"", HEAD], ids=["head", "body"])
def platform(request: pytest.FixtureRequest) -> Iterator[Platform]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = Platform(server, request.param)
        threading.Thread(target=found.serve, daemon=True).start()
        yield found
        found.well.set()
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def is_none_held() -> Callable[[], bool]:
    """Whether no thread is left of those in which this test has called a library."""
    before = set(threading.enumerate())
    return lambda: "blocking" not in {one.name for one in set(threading.enumerate()) - before}


async def test_it_holds_no_thread_where_the_connections_can_be_ended(
    platform: Platform, is_none_held: Callable[[], bool]
) -> None:
    with requests.Session() as session:
        for adapter in session.adapters.values():
            make_abortable(adapter.poolmanager)
        for _ in range(3):
            with pytest.raises(Outage):
                await Foo("Foo", 0.2).run("jobs", lambda: session.get(platform.url, timeout=60), patience_s=0)
        await asyncio.to_thread(eventually, is_none_held)


def ask_plainly(url: str) -> bytes:
    with contextlib.closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)) as link:
        link.request("GET", "/")
        return link.getresponse().read()


async def test_it_holds_some_threads_at_most_where_they_cannot(
    platform: Platform, is_none_held: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_calls, "MOST_HELD", 2)
    foo = Foo("Foo", 0.2)
    for _ in range(2):
        with pytest.raises(Outage, match="has not answered within"):
            await foo.run("jobs", lambda: ask_plainly(platform.url), patience_s=0)
    await asyncio.to_thread(eventually, lambda: foo._held == 2)
    with pytest.raises(Outage, match=r"^Foo has not finished its answers to 2 earlier calls \(jobs\)"):
        await foo.run("jobs", lambda: ask_plainly(platform.url), patience_s=0)
    platform.well.set()
    await asyncio.to_thread(eventually, is_none_held)
    assert await foo.run("jobs", lambda: "here", patience_s=0) == "here"


def test_a_call_of_kubernetes_ends(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubernetes.client.configuration import Configuration

    credentials: Any = SimpleNamespace(configuration=Configuration(host=platform.url), headers=dict)
    cluster = Cluster(credentials)
    monkeypatch.setattr("nnilite_kubernetes._api._ANSWER_S", 0.2)
    with pytest.raises(ApiError, match="cannot be reached"):
        cluster.call("GET", "/api")
    cluster.close()
