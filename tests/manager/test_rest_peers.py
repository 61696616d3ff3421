"""On a machine of several users: the own user and root need no token, everybody else does."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from manager.fake_backend import filled
from manager.rest_server import Client, serving
from nnilite._rest import Options, peers
from nnilite._rest.peers import Peers, users_of
from nnilite.testing import eventually
from other_user import STRANGER, ask_at, known_user
from waiting import pause

pytestmark = pytest.mark.skipif(not peers.TABLES[0].exists(), reason="the kernel lists no sockets here")

WEBSOCKET = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + "x" * 22
EVERYTHING = [("GET", "/api/v1/experiment", ""), ("GET", "/", ""), ("GET", "/api/v1/stream", WEBSOCKET + "==\r\n")]
STOP = "Content-Type: application/json\r\nContent-Length: 2\r\n"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving(filled(tmp_path), Options(own_user=True)) as client:
        yield client


def ask(client: Client, method: str, path: str, headers: str = "", body: str = "", user: str | None = None) -> str:
    """The status line that a program of this user gets; None: this program's own user."""
    return ask_at(("AF_INET", "127.0.0.1", client.port), method, path, headers, body, user=user)


@pytest.mark.parametrize(("method", "path", "headers"), EVERYTHING, ids=["rest", "page", "stream"])
def test_the_own_user_needs_no_token(client: Client, method: str, path: str, headers: str) -> None:
    assert ask(client, method, path, headers).split()[1] in ("200", "101")


@pytest.mark.parametrize(("method", "path", "headers"), EVERYTHING, ids=["rest", "page", "stream"])
def test_another_user_needs_one(client: Client, method: str, path: str, headers: str) -> None:
    assert ask(client, method, path, headers, user=STRANGER).split()[1] == "401"
    token = f"Authorization: Bearer {client.backend.token}\r\n"
    assert ask(client, method, path, token + headers, user=STRANGER).split()[1] in ("200", "101")


def test_another_user_cannot_change_anything(client: Client) -> None:
    assert ask(client, "POST", "/api/v1/experiment/stop", STOP, "{}", user=STRANGER).split()[1] == "401"
    assert not client.backend.stopped
    assert ask(client, "POST", "/api/v1/experiment/stop", STOP, "{}").split()[1] == "202"


def test_another_users_browser_is_let_in_by_a_link(client: Client) -> None:
    path = client.post("/sign-in-links", {}).json["path"]
    assert ask(client, "GET", path, user=STRANGER).split()[1] == "303"


def test_root_and_the_own_user_need_none_where_the_manager_is_not_roots(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.application.site.gate, "_peers", Peers({0, known_user(STRANGER).pw_uid}))
    assert ask(client, "GET", "/api/v1/experiment", user=STRANGER).split()[1] == "200"
    assert ask(client, "GET", "/api/v1/experiment").split()[1] == "200"
    assert ask(client, "GET", "/api/v1/experiment", user="daemon").split()[1] == "401"


def test_a_user_who_hangs_up_at_once_is_not_taken_for_root(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed socket is listed as root's."""
    looks = slowly(monkeypatch)
    place = ("AF_INET", "127.0.0.1", client.port)
    for _ in range(5):
        ask_at(place, "POST", "/api/v1/experiment/stop", STOP, "{}", user=STRANGER, leave=True)
    eventually(lambda: len(looks) == 5)
    assert (looks, client.backend.stopped) == ([None] * 5, False)


def user_of(ends: peers.Ends) -> int | None:
    return users_of([ends]).get(ends)


def slowly(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """Look only after who asked has left; what was found."""
    found: list[int | None] = []

    def late(wanted: list[peers.Ends]) -> dict[peers.Ends, int]:
        pause(0.3, "whoever asked has left by then")
        users = users_of(wanted)
        found.extend(users.get(ends) for ends in wanted)
        return users

    monkeypatch.setattr(peers, "users_of", late)
    return found


@pytest.mark.parametrize(
    "header", ["X-Forwarded-For: 10.0.0.1", "Forwarded: for=10.0.0.1", "Via: 1.1 x", "X-Real-IP: x"]
)
def test_a_proxy_that_says_so_is_not_the_own_user(client: Client, header: str) -> None:
    assert ask(client, "GET", "/api/v1/experiment", header + "\r\n").split()[1] == "401"


def test_a_kept_connection_is_looked_up_once_and_one_with_a_token_never(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[peers.Ends] = []
    monkeypatch.setattr(peers, "users_of", lambda wanted: looked.extend(wanted) or users_of(wanted))
    with client.keeping() as line:
        assert line.get("/experiment").status == 200
        assert looked == []
        assert [line.get("/experiment", Authorization="").status for _ in range(5)] == [200] * 5
    assert len(looked) == 1


def test_where_the_kernel_tells_nothing_a_token_is_asked_for(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "TABLES", (Path("/no/such/tcp"), Path("/no/such/tcp6")))
    assert client.get("/experiment", Authorization="").status == 401
    assert client.get("/experiment").status == 200


def test_without_the_option_the_own_user_needs_a_token_too(tmp_path: Path) -> None:
    with serving(filled(tmp_path)) as client:
        assert ask(client, "GET", "/api/v1/experiment").split()[1] == "401"


@pytest.mark.parametrize(("user", "status"), [(None, "200"), (STRANGER, "401")])
def test_an_ipv6_socket_that_reaches_the_ipv4_address_is_known(client: Client, user: str | None, status: str) -> None:
    place = ("AF_INET6", "::ffff:127.0.0.1", client.port)
    assert ask_at(place, "GET", "/api/v1/experiment", user=user).split()[1] == status


def test_root_in_a_user_namespace_of_ones_own_is_not_root(client: Client) -> None:
    before = ("unshare", "--user", "--map-root-user")
    known_user(STRANGER)
    probe = subprocess.run([*before, "true"], user=STRANGER, capture_output=True, cwd="/", check=False)
    if probe.returncode:
        pytest.skip(f"no user namespace can be made here: {probe.stderr.decode()}")
    place = ("AF_INET", "127.0.0.1", client.port)
    assert ask_at(place, "GET", "/api/v1/experiment", user=STRANGER, before=before).split()[1] == "401"


@pytest.fixture
def connected() -> Iterator[Callable[[str], tuple[socket.socket, socket.socket]]]:
    """Makes connections over loopback: their other end, and ours."""
    with ExitStack() as stack:

        def connect(address: str) -> tuple[socket.socket, socket.socket]:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                server = stack.enter_context(socket.create_server((address, 0), family=family))
            except OSError as error:
                pytest.skip(f"{address} is not there: {error}")
            theirs = stack.enter_context(socket.create_connection(server.getsockname()[:2]))
            return theirs, stack.enter_context(server.accept()[0])

        yield connect


def ends_of(ours: socket.socket) -> peers.Ends:
    return ours.getpeername()[:2], ours.getsockname()[:2]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.5.6.7", "::1"])
def test_the_user_of_a_connection_is_found(connected: Any, address: str) -> None:
    _, ours = connected(address)
    assert user_of(ends_of(ours)) == os.geteuid()


def test_a_connection_whose_other_end_is_closed_is_nobodys(connected: Any) -> None:
    theirs, ours = connected("127.0.0.1")
    ends = ends_of(ours)
    theirs.close()
    assert user_of(ends) is None
    ours.close()
    assert user_of(ends) is None


def test_the_overflow_user_is_anybody_where_not_all_users_have_a_number(
    connected: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, ours = connected("127.0.0.1")
    (tmp_path / "overflow").write_text(f"{os.geteuid()}\n")
    (tmp_path / "map").write_text("         0       1000          1\n")
    monkeypatch.setattr(peers, "_OVERFLOW", tmp_path / "overflow")
    assert user_of(ends_of(ours)) == os.geteuid()
    monkeypatch.setattr(peers, "_UID_MAP", tmp_path / "map")
    assert user_of(ends_of(ours)) is None
