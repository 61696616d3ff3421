"""The end of a tunnel: whose requests it lets through, and what callers take who have proven nothing."""

from __future__ import annotations

import http.client
import io
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("paramiko")

from paramiko.ssh_exception import SSHException

from crowds import burden
from manager.fake_backend import filled
from manager.rest_server import Client, serving
from nnilite._keeper.link import RestLink
from nnilite._keeper.proof import ProofSession
from nnilite._keeper.spec import parse
from nnilite._network import unauthenticated_callers
from nnilite.testing import Receiver, eventually
from nnilite_remote import _tunnel
from nnilite_remote._tunnel import TunnelGate
from nnilite_remote._tunnel_request import TunnelRefused, parse_head
from services.ssh_tunnel import tunnel, tunnel_end, worker

log = logging.getLogger(__name__)
log.setLevel(logging.INFO)

SPEC = {"experiment": "x", "trial": "t", "command": "true", "directory": "/x"}
BATCH = "POST /api/v1/callback/{job} HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
CALLERS = 1000


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Client]:
    with serving(filled(tmp_path)) as manager:
        yield manager


@pytest.fixture
def end(manager: Client) -> Iterator[Callable[[], Any]]:
    """Opens a connection at the tunnel's end on the worker."""
    with tunnel(TunnelGate("box", lambda: f"http://127.0.0.1:{manager.port}")) as far:
        yield lambda: tunnel_end(far)


def batch(manager: Client, body: str = '{"events": []}', token: str = "", length: int | None = None) -> bytes:
    job = manager.backend.find_job("Run01")
    head = BATCH.format(job=job, token=token or manager.backend.callbacks.callback_token(job))
    return f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n{body}".encode()


def status(caller: Any) -> int:
    answer = http.client.HTTPResponse(caller)  # it asks for no more than `makefile`
    answer.begin()
    answer.read()
    return answer.status


def is_closed(caller: Any) -> bool:
    try:
        return caller.recv(1000) == b""
    except OSError:
        return True


@pytest.mark.parametrize(
    "text",
    [
        "GET /api/v1/experiment HTTP/1.1",
        "POST /api/v1/callback/../experiment/stop HTTP/1.1",
        "POST /api/v1/callback/x?y HTTP/1.1",
        "POST /api/v1/callback/x HTTP/1.1\r\nTransfer-Encoding: chunked",
        "POST /api/v1/callback/x HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2",
        "POST /api/v1/callback/x HTTP/1.1\r\nContent-Length: -1",
        "POST /api/v1/callback/x HTTP/1.1\r\nContent-Length: 16000001",
        "GET /api/v1/keeper.pyz HTTP/1.1\r\nContent-Length: 1",
        "POST /api/v1/callback/x HTTP/1.1\r\n folded: x",
        "POST /api/v1/callback/x HTTP/1.1\r\n" + "A: b\r\n" * 100,
        "GET http://elsewhere/api/v1/keeper.pyz HTTP/1.1",
    ],
)
def test_the_gate_refuses_what_keepers_do_not_ask(text: str) -> None:
    with pytest.raises(TunnelRefused):
        parse_head(text.encode())


def test_of_a_keepers_request_nothing_of_its_other_headers_is_handed_on() -> None:
    request = parse_head(b"POST /api/v1/callback/j%2D1 HTTP/1.1\r\nAuthorization: Bearer t\r\nCookie: c\r\nHost: x")
    assert (request.headers, request.job) == ({"Authorization": "Bearer t"}, "j-1")


def test_a_refused_caller_gets_a_status_and_no_more(end: Callable[[], Any]) -> None:
    caller = end()
    caller.sendall(b"GET /api/v1/experiment HTTP/1.1\r\n\r\n")
    assert status(caller) == 403
    assert is_closed(caller)


def test_a_keeper_of_version_0_1_proves_itself_by_its_token(manager: Client, end: Callable[[], Any]) -> None:
    caller = end()
    for _ in range(3):
        caller.sendall(batch(manager))
        assert status(caller) == 200


def test_the_body_of_a_caller_with_a_wrong_token_is_not_waited_for(manager: Client, end: Callable[[], Any]) -> None:
    caller = end()
    caller.sendall(batch(manager, "", "wrong", 16_000_000))
    assert status(caller) == 401
    assert is_closed(caller)


def test_a_keeper_proves_the_manager_through_the_tunnel(tmp_path: Path) -> None:
    receiver, package = Receiver(), tmp_path / "package"
    package.write_bytes(b"code" * 300_000)
    receiver.packages["a" * 64] = package
    received = receiver.expect("j-1", "secret")
    receiver.start()
    with tunnel(TunnelGate("box", lambda: receiver.url)) as far, forwarded(far, 2) as address:
        link = RestLink(parse({**SPEC, "job": "j-1", "token": "secret", "callback": address}))
        assert [link.post([]).status for _ in range(3)] == [200] * 3
        received.cancel = True
        assert link.post([]).cancel
        link.close()
        fetched = io.BytesIO()
        link.download("a" * 64, fetched)
    receiver.stop()
    assert fetched.getvalue() == package.read_bytes()


@contextmanager
def forwarded(far: Any, connections: int) -> Iterator[str]:
    """The address of a port that is forwarded, as sshd does it, for some connections."""

    def pump(read: Callable[[int], bytes], write: Callable[[bytes], object], over: Callable[[], object]) -> None:
        with suppress(OSError, EOFError, SSHException):
            while data := read(65536):
                write(data)
        with suppress(OSError, EOFError, SSHException):
            over()

    def accept() -> None:
        for _ in range(connections):
            link, channel = server.accept()[0], tunnel_end(far)
            channel.settimeout(None)
            sides = [(link.recv, channel.sendall, channel.close), (channel.recv, link.sendall, link.close)]
            for side in sides:
                threading.Thread(target=pump, args=side, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join(20)


def test_a_large_batch_goes_through_piece_by_piece(manager: Client, end: Callable[[], Any]) -> None:
    metric = {"type": "metric", "kind": "PERIODICAL", "value": "0." + "1" * 900, "time": 1.0}
    body = json.dumps({"events": [{**metric, "index": number, "sequence": number} for number in range(2000)]})
    assert len(body) > 20 * _tunnel.WINDOW_BYTES
    caller = end()
    caller.sendall(batch(manager, body))
    assert status(caller) == 200


def test_a_body_that_comes_byte_by_byte_has_an_end_in_time(
    manager: Client, end: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_tunnel, "_BODY_S", 0.5)
    caller = end()
    caller.sendall(batch(manager, "", length=1000))

    def drip() -> bool:
        try:
            caller.sendall(b"x")
        except OSError:
            return True
        return caller.closed

    eventually(drip)


def test_who_does_not_prove_himself_in_time_is_let_go(end: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tunnel, "_PROOF_S", 0.3)
    caller = end()
    caller.sendall(b"POST /api/v1/call")
    assert is_closed(caller)


def test_some_without_a_proof_make_room_and_a_keeper_stays(
    manager: Client, end: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    keeper = end()
    keeper.sendall(batch(manager))
    assert status(keeper) == 200
    callers = [end() for _ in range(3 * _tunnel._UNPROVEN_MOST)]
    eventually(lambda: sum(not each.closed for each in callers) <= _tunnel._UNPROVEN_MOST)
    keeper.sendall(batch(manager))
    assert status(keeper) == 200
    assert len([record for record in caplog.records if record.name == _tunnel.__name__]) == 1


def test_a_job_has_some_connections_and_no_more(manager: Client, end: Callable[[], Any]) -> None:
    callers = [end() for _ in range(_tunnel._JOB_MOST + 1)]
    for caller in callers:
        caller.sendall(batch(manager))
        assert status(caller) == 200
    assert is_closed(callers[0])
    callers[-1].sendall(batch(manager))
    assert status(callers[-1]) == 200


def test_refusals_at_the_tunnel_are_logged_once_a_minute(
    end: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(20):
        caller = end()
        caller.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert status(caller) == 403
    assert len([record for record in caplog.records if record.name == _tunnel.__name__]) == 1


def test_a_manager_that_is_away_is_tried_again_by_the_keeper() -> None:
    with tunnel(TunnelGate("box", lambda: "http://127.0.0.1:9")) as far:
        caller = tunnel_end(far)
        caller.sendall(b"GET /api/v1/callback/x/proof?nonce=" + b"a" * 32 + b" HTTP/1.1\r\n\r\n")
        assert status(caller) == 503


@pytest.mark.process
@pytest.mark.parametrize(
    "sent", [*(pytest.param(sent, marks=pytest.mark.long) for sent in ("", "half a head")), "a body"]
)
def test_a_thousand_callers_of_the_tunnel_take_little(manager: Client, tmp_path: Path, sent: str) -> None:
    texts = {"": b"", "half a head": b"POST /api/v1/callback/x HT", "a body": batch(manager, "", "wrong", 16_000_000)}
    with apart(tmp_path, f"http://127.0.0.1:{manager.port}") as (pid, far):
        found = burden(pid, calling(far, texts[sent]), lambda: manager.get("/version"))
    assert found.megabytes < 20, str(found)
    assert found.threads < 8, str(found)
    assert found.answers, str(found)


@pytest.mark.process
@pytest.mark.parametrize("sent", ["", "a head"])
def test_a_keeper_gets_through_beside_as_many_callers_as_come(manager: Client, tmp_path: Path, sent: str) -> None:
    """Each new report has a connection of its own, so it has to get through without having proven itself before."""
    head = f"GET /api/v1/callback/x/proof?nonce={'a' * 32} HTTP/1.1\r\n\r\n".encode() if sent else b""
    with apart(tmp_path, f"http://127.0.0.1:{manager.port}") as (_, far), flood(far, head) as made:
        eventually(lambda: made[0] > 2 * _tunnel._UNPROVEN_MOST)
        for _ in range(2):
            began, before = time.monotonic(), made[0]
            eventually(lambda: reported(manager, far))
            took_s = time.monotonic() - began
            log.info("%.2f s beside %.0f callers a second", took_s, (made[0] - before) / took_s)


def reported(manager: Client, far: Any) -> bool:
    """Whether a keeper that connects for it gets a report to its manager."""
    job = manager.backend.find_job("Run01")
    session, body = ProofSession(manager.backend.callbacks.callback_token(job)), b'{"events": []}'
    path = f"/api/v1/callback/{job}"
    with suppress(OSError, EOFError, SSHException, http.client.HTTPException), closing(tunnel_end(far)) as keeper:
        keeper.sendall(f"GET {path}/proof?nonce={session.nonce} HTTP/1.1\r\n\r\n".encode())
        answer = http.client.HTTPResponse(keeper)
        answer.begin()
        assert session.meet(json.loads(answer.read()))
        signed = f"Authorization: {session.authorization('POST', path, body)}\r\nContent-Type: application/json"
        keeper.sendall(f"POST {path} HTTP/1.1\r\n{signed}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        return status(keeper) == 200
    return False


@contextmanager
def flood(far: Any, head: bytes) -> Iterator[list[int]]:
    """Callers who come one after the other, up to 1,000 a second, and stay; how many have come.

    They pause for as long as it took them to connect: they share an interpreter with the manager and its keeper, which
    they would starve on a slow machine before any of them is at the gate.
    """
    made, over = [0], threading.Event()

    def call() -> None:
        callers: deque[Any] = deque(maxlen=2000)
        began = time.monotonic()
        while not over.is_set():
            called = time.monotonic()
            with suppress(OSError, EOFError, SSHException):
                caller = tunnel_end(far)
                callers.append(caller)
                caller.sendall(head)
                made[0] += 1
            now = time.monotonic()
            over.wait(max(now - called, began + made[0] / 1000 - now))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        over.set()
        for thread in threads:
            thread.join(30)


@contextmanager
def calling(far: Any, head: bytes) -> Iterator[None]:
    """Callers who send a head and then, where that announces one, as much of a body as is taken."""
    callers = []
    for _ in range(CALLERS):
        caller = tunnel_end(far)
        caller.setblocking(False)
        callers.append(caller)
        with suppress(OSError):
            caller.sendall(head)
            while head.endswith(b"\r\n\r\n") and caller.send(b"x" * 30_000):
                continue
    yield
    for caller in callers:
        caller.close()


@contextmanager
def apart(folder: Path, manager: str) -> Iterator[tuple[int, Any]]:
    """The manager's side in a process of its own, and the worker's side here."""
    tests, pipe = Path(__file__).parent.parent, subprocess.PIPE
    place = str(folder / "sshd.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen(1)
        words = [sys.executable, "-m", "services.ssh_tunnel", place, manager]
        env = {**os.environ, "PYTHONPATH": str(tests)}
        with subprocess.Popen(words, stdin=pipe, stdout=pipe, env=env) as process:
            far = worker(listening.accept()[0])
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process.pid, far
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(60) == 0
        far.close()


class SilentChannel:
    """A caller that says nothing."""

    def __init__(self) -> None:
        self.in_buffer = SimpleNamespace(set_event=lambda event: None)
        self.is_closed = threading.Event()

    def settimeout(self, limit_s: float) -> None:
        pass

    def recv(self, most: int) -> bytes:
        raise TimeoutError

    def close(self) -> None:
        self.is_closed.set()


def test_a_caller_that_goes_before_its_first_turn_is_closed_by_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the garbage collector closes it, in paramiko's thread while it sends: that one then waits for itself."""
    monkeypatch.setattr(_tunnel, "_UNPROVEN_MOST", 4)
    monkeypatch.setattr(unauthenticated_callers.random, "choice", lambda older: older[-1])
    gate, goes_on = TunnelGate("box", lambda: "http://127.0.0.1:1"), threading.Event()
    with closing(gate):
        first = [SilentChannel() for _ in range(4)]
        for channel in first:
            gate.admit(channel)
        eventually(lambda: len(gate._unproven) == 4)
        gate._get_running_loop().call_soon_threadsafe(goes_on.wait)
        later = [SilentChannel() for _ in range(4)]  # the last one of these displaces the first
        for channel in later:
            gate.admit(channel)
        goes_on.set()
        assert later[0].is_closed.wait(60)
        assert not later[-1].is_closed.is_set()
    assert all(channel.is_closed.wait(60) for channel in first + later)
