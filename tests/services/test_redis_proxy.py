"""The port of a worker of a Redis pool, which everybody on that machine can reach."""

from __future__ import annotations

import asyncio
import http.client
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import pytest

pytest.importorskip("redis")

from crowds import SECONDS, crowd
from nnilite._keeper.proof import ProofSession
from nnilite.testing import eventually
from nnilite.testing.listener import Handler, Listener
from nnilite_redis._mailbox import PoolMessage
from nnilite_redis._relay import put
from nnilite_redis._worker import proxy
from nnilite_redis._worker.proxy import Proxy
from waiting import pause

PATH = "/api/v1/callback/j-1"


class Port:
    """A proxy on a loop of its own, whose manager takes everything."""

    def __init__(self) -> None:
        self.taken: list[PoolMessage] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(20)

    async def _start(self) -> None:
        self._proxy = Proxy(self._take, {"j-1": "secret"}.get)  # type: ignore[arg-type]
        self._proxy.start()
        self.number = int(self._proxy.url.rpartition(":")[2])

    async def _take(self, job: str, message: PoolMessage) -> PoolMessage:
        self.taken.append(message)
        return PoolMessage({"status": 200}, b"{}")

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._proxy.close(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def post(self, path: str, authorization: str, body: bytes = b"{}") -> int:
        with closing(http.client.HTTPConnection("127.0.0.1", self.number, timeout=20)) as connection:
            connection.request("POST", path, body, {"Authorization": authorization})
            return connection.getresponse().status


@pytest.fixture
def port() -> Iterator[Port]:
    port = Port()
    yield port
    port.close()


def signed(body: bytes) -> str:
    return ProofSession("secret").authorization("POST", PATH, body)


@pytest.mark.parametrize("authorization", ["Bearer secret", signed(b"{}")], ids=["version 0.1", "signed"])
def test_what_a_keeper_here_has_signed_goes_to_its_manager(port: Port, authorization: str) -> None:
    assert port.post(PATH, authorization) == 200
    assert [message.data for message in port.taken] == [b"{}"]


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer wrong", "Nnilite a:b:1:c:d", "Nnilite :", signed(b"")[:-1] + "x"],
    ids=["none", "wrong token", "made up", "nothing", "wrong code"],
)
def test_without_the_proof_of_a_job_here_no_body_is_waited_for(port: Port, authorization: str) -> None:
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\nContent-Length: 16000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port.number), timeout=20) as caller:
        caller.sendall(head.encode())
        assert caller.recv(1000).startswith(b"HTTP/1.1 401")
    assert port.taken == []


def test_a_job_that_is_not_here_is_nobodys(port: Port) -> None:
    assert port.post("/api/v1/callback/j-2", "Bearer secret") == 404
    assert port.post("/api/v1/callback/j-2/proof", "Bearer secret") == 403


@pytest.mark.process
@pytest.mark.parametrize("kind", ["silent", "body"])
def test_a_keeper_gets_through_beside_two_thousand_callers_a_second(port: Port, kind: str) -> None:
    head = f"GET {PATH}/proof?nonce={'a' * 32} HTTP/1.1\r\nHost: x\r\n\r\n"
    with crowd(("127.0.0.1", port.number), kind, head, again_a_s=2000):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            eventually(lambda: reported(port))
            pause(0.1, "as a trial would report")


def reported(port: Port) -> bool:
    with suppress(OSError, http.client.HTTPException):
        return port.post(PATH, signed(b"{}")) == 200
    return False


def test_one_without_a_proof_makes_room(port: Port) -> None:
    with ExitStack() as opened:
        callers = [
            opened.enter_context(socket.create_connection(("127.0.0.1", port.number), timeout=20))
            for _ in range(proxy._UNPROVEN_MOST + 1)
        ]
        ended, _, _ = select.select(callers, [], [], 20)
        assert [caller.recv(100) for caller in ended] == [b""]
        assert port.post(PATH, "Bearer secret") == 200


class Manager(Handler):
    """Notes what it is sent in its owner, a list."""

    def do_POST(self) -> None:
        self.owner.append((self.path, dict(self.headers), self.body()))
        self.send(409, "application/json", b'{"stop": true}', X_Nnilite_Proof="abc", Server_Secret="x")

    do_GET = do_POST


Heard = list[tuple[str, dict[str, str], bytes]]


@pytest.fixture
def heard() -> Heard:
    return []


@pytest.fixture
def manager(heard: Heard) -> Iterator[Listener]:
    found = Listener(Manager, heard)
    found.start()
    yield found
    found.stop()


def test_a_keepers_request_comes_to_the_manager_and_its_answer_back(manager: Listener, heard: Heard) -> None:
    headers = {"Authorization": "proof", "Content-Type": "application/json", "Cookie": "session", "X-Nnilite-Job": 5}
    message = PoolMessage({"method": "POST", "path": PATH, "headers": headers}, b'{"events": []}')
    answer = put(lambda: f"{manager.url}/base/", message)
    [(path, sent, body)] = heard
    assert (path, body) == (f"/base{PATH}", message.data)
    assert {name for name in sent if name in headers} == {"Authorization", "Content-Type"}
    assert (answer.head["status"], answer.data) == (409, b'{"stop": true}')
    assert answer.head["headers"] == {"Content-Type": "application/json", "X-Nnilite-Proof": "abc"}


def test_a_manager_that_does_not_answer_now_is_told_as_one_to_be_asked_again(manager: Listener) -> None:
    manager.stop()
    answer = put(lambda: manager.url, PoolMessage({"method": "GET", "path": f"{PATH}/proof?nonce={'0' * 32}"}))
    assert answer.head["status"] == 503
