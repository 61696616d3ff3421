"""A stranger at the manager's address: it gets nothing of the trial, ends no trial, and nothing is lost by it."""

from __future__ import annotations

import http.client
import io
import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import pytest

from impostor import BELIEVE_ME, Reply, impostor, insistent
from keeper_bench import JOB, TOKEN, Bench, Callback, until
from nnilite._keeper import link as links
from nnilite._keeper.link import LinkDown, RestLink
from nnilite._keeper.proof import HEADER, ProofSession, code
from nnilite._keeper.spec import parse

SECRET_VALUE = "0.1234567890123"
TRIAL = f'echo up; echo "intermediate {SECRET_VALUE}" >> "$NNILITE_METRICS"; while ! test -e go; do sleep 0.02; done'


def mirror(request: BaseHTTPRequestHandler, body: bytes) -> Reply:
    """Sends the keeper's own words back as proofs."""
    nonce = request.path.rpartition("=")[2]
    return 200, {**BELIEVE_ME, "nonce": nonce, "proof": nonce * 2}, {HEADER: nonce * 2}


def other_trials(request: BaseHTTPRequestHandler, body: bytes) -> Reply:
    """One who has a token, but that of another trial."""
    return 200, {"nonce": "1.1", "proof": code("another", "manager", request.path.rpartition("=")[2], "1.1")}, {}


@pytest.mark.process
@pytest.mark.parametrize(
    "answer", [insistent(200), insistent(409), insistent(410), insistent(401), mirror, other_trials]
)
def test_a_stranger_on_the_managers_port_gets_nothing_and_ends_nothing(tmp_path, answer):
    with Bench(tmp_path) as bench:
        with impostor(answer) as stranger:
            keeper = bench.start(TRIAL, callback=f"http://127.0.0.1:{stranger.server_port}")
            pid = bench.wait_for_start()
            until(lambda: len(stranger.heard) > 3)
        assert (keeper.poll(), bench.inner("started")["pid"], bench.inner("exit")) == (None, pid, None)
        said = "".join(stranger.heard)
        assert [word for word in (TOKEN, SECRET_VALUE, "POST", "Authorization") if word in said] == []
        bench.callback = Callback(stranger.server_port)
        (bench.folder / "go").touch()
        assert keeper.wait(60) == 0
        assert bench.callback.values == [float(SECRET_VALUE)]


def hand_on(
    manager: Callback, change: Callable[[str, Reply], Reply]
) -> Callable[[BaseHTTPRequestHandler, bytes], Reply]:
    """Somebody in the middle, who changes answers on their way."""

    def answer(request: BaseHTTPRequestHandler, body: bytes) -> Reply:
        onward = http.client.HTTPConnection("127.0.0.1", manager.server_port, timeout=60)
        onward.request(request.command, request.path, body or None, dict(request.headers))
        response = onward.getresponse()
        proof = {HEADER: response.headers[HEADER]} if HEADER in response.headers else {}
        reply = response.status, json.loads(response.read()), proof
        onward.close()
        return change(request.command, reply)

    return answer


def cancel(command: str, reply: Reply) -> Reply:
    return (reply[0], {**reply[1], "cancel": True}, reply[2]) if command == "POST" else reply


def fence(command: str, reply: Reply) -> Reply:
    return (410, *reply[1:]) if command == "POST" else reply


def unsigned(command: str, reply: Reply) -> Reply:
    return (reply[0], {**reply[1], "cancel": True}, {}) if command == "POST" else reply


@pytest.mark.process
@pytest.mark.parametrize("change", [cancel, fence, unsigned])
def test_an_answer_that_was_changed_on_its_way_is_not_believed(tmp_path, change):
    with Bench(tmp_path) as bench:
        changes = [change]
        answer = hand_on(bench.callback, lambda command, reply: changes[0](command, reply))
        with impostor(answer) as middle:
            keeper = bench.start(TRIAL, callback=f"http://127.0.0.1:{middle.server_port}", heartbeat_s=0.1)
            bench.wait_for_start()
            until(lambda: len(middle.heard) > 6)
            assert (keeper.poll(), bench.inner("exit")) == (None, None)
            changes[0] = lambda command, reply: reply
            (bench.folder / "go").touch()
            assert keeper.wait(60) == 0
        assert bench.callback.values == [float(SECRET_VALUE)]


def test_a_stranger_that_dribbles_its_answer_does_not_hold_the_keeper_back(monkeypatch):
    monkeypatch.setattr(links, "_TIMEOUT_S", 0.3)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def dribble() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\n")
                while not over.wait(0.05):
                    connection.send(b"X")

        threading.Thread(target=dribble, daemon=True).start()
        with pytest.raises(LinkDown):
            rest_link(server.getsockname()[1]).post([])
        over.set()


def rest_link(port: int) -> RestLink:
    spec = {"job": JOB, "experiment": "exp", "trial": "T", "command": "true", "directory": "/x", "token": TOKEN}
    return RestLink(parse({**spec, "callback": f"http://127.0.0.1:{port}"}))


def test_a_code_package_that_was_changed_on_its_way_is_not_taken():
    manager = Callback()
    manager.package = b'"right"'
    with impostor(hand_on(manager, lambda command, reply: (200, "wrong", reply[2]) if reply[2] else reply)) as middle:
        with pytest.raises(LinkDown, match="not what the manager has sent"):
            rest_link(middle.server_port).download("a" * 64, io.BytesIO())
        rest_link(manager.server_port).download("a" * 64, io.BytesIO())
    manager.shutdown()
    manager.server_close()


def test_a_batch_costs_no_further_round_trip_on_a_kept_connection():
    manager = Callback()
    asked: list[str] = []
    with impostor(hand_on(manager, lambda command, reply: asked.append(command) or reply)) as middle:
        link = rest_link(middle.server_port)
        for _ in range(5):
            assert link.post([]).status == 200
        link.close()
    assert asked == ["GET", *["POST"] * 5]
    manager.shutdown()
    manager.server_close()


def test_an_earlier_answer_proves_nothing_later():
    session = ProofSession(TOKEN)
    session.meet({"nonce": "1.1", "proof": code(TOKEN, "manager", session.nonce, "1.1")})
    session.authorization("POST", "/x")
    answer = code(TOKEN, "answer", session.nonce, "1.1", 1, 200, "content")
    assert session.proves(answer, 200, "content")
    session.authorization("POST", "/x")
    assert not session.proves(answer, 200, "content")


@pytest.mark.parametrize("theirs", ["", "a\nb", "a:b", "x" * 101, None, 7, ["1.1"]])
def test_a_nonce_that_could_be_misread_is_refused(theirs):
    session = ProofSession(TOKEN)
    assert not session.meet({"nonce": theirs, "proof": code(TOKEN, "manager", session.nonce, theirs)})
    assert not session.open
