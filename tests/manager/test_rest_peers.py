"""On a machine of several users: the own user's programs need no token, everybody else does, also through a tunnel."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from manager.fake_backend import filled
from manager.rest_server import Client, serving
from nnilite._keeper.proof import code
from nnilite._network import socket_lists
from nnilite._rest import ServerOptions, forwarders, listen, make_application, peers
from nnilite._rest.page_name import new_page_name
from nnilite._rest.peers import Peers, PeerSocket, sockets_of
from nnilite.errors import Conflict
from nnilite.testing import eventually
from other_user import ASK, STRANGER, ask_at, known_user, shared_python
from page_session import trade

pytestmark = pytest.mark.skipif(not peers.TABLES[0].exists(), reason="the kernel lists no sockets here")

WEBSOCKET = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + "x" * 22
EVERYTHING = [("GET", "/api/v1/experiment", ""), ("GET", "/api/v1/stream", WEBSOCKET + "==\r\n")]
STOP = "Content-Type: application/json\r\nContent-Length: 2\r\n"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving(filled(tmp_path), ServerOptions(own_user=True)) as client:
        yield client


def ask(client: Client, method: str, path: str, headers: str = "", body: str = "", user: str | None = None) -> str:
    """The status line that a program of this user gets; None: this program's own user."""
    return ask_at(("AF_INET", "127.0.0.1", client.port), method, path, headers, body, user=user)


@pytest.mark.process
@pytest.mark.parametrize(("method", "path", "headers"), EVERYTHING, ids=["rest", "stream"])
def test_the_own_user_needs_no_token(client: Client, method: str, path: str, headers: str) -> None:
    assert ask(client, method, path, headers).split()[1] in ("200", "101")


@pytest.mark.process
@pytest.mark.parametrize(("method", "path", "headers"), EVERYTHING, ids=["rest", "stream"])
def test_another_user_needs_one(client: Client, method: str, path: str, headers: str) -> None:
    assert ask(client, method, path, headers, user=STRANGER).split()[1] == "401"
    token = f"Authorization: Bearer {client.backend.token}\r\n"
    assert ask(client, method, path, token + headers, user=STRANGER).split()[1] in ("200", "101")


@pytest.mark.process
def test_another_user_cannot_change_anything(client: Client) -> None:
    assert ask(client, "POST", "/api/v1/experiment/stop", STOP, "{}", user=STRANGER).split()[1] == "401"
    assert not client.backend.stopped
    assert ask(client, "POST", "/api/v1/experiment/stop", STOP, "{}").split()[1] == "202"


@pytest.mark.process
def test_another_users_browser_is_let_in_by_a_link(client: Client) -> None:
    body = json.dumps(trade(client.post("/sign-in-links", {}).json["path"].removeprefix("/#key="))[0])
    headers = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    assert ask(client, "POST", "/api/v1/sessions", headers, body, user=STRANGER).split()[1] == "201"
    assert client.application.context.gate.sign_in._sessions._kept


def test_a_link_makes_no_session_where_none_is_needed(client: Client) -> None:
    link = client.post("/sign-in-links", {}).json["path"].removeprefix("/#key=")
    body, mine = trade(link)
    answer = client.post("/sessions", body, Authorization="").json
    assert answer == {"nonce": "", "proof": code(link, "manager", mine, "")}
    assert not client.application.context.gate.sign_in._sessions._kept
    assert client.post("/sessions", body, Authorization="").status == 401, "it is used up all the same"


@pytest.mark.process
def test_the_own_user_is_who_runs_the_manager(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client.application.context.gate, "_peers", Peers({known_user(STRANGER).pw_uid}))
    assert ask(client, "GET", "/api/v1/experiment", user=STRANGER).split()[1] == "200"
    assert ask(client, "GET", "/api/v1/experiment").split()[1] == "401"
    assert ask(client, "GET", "/api/v1/experiment", user="daemon").split()[1] == "401"


@pytest.mark.process
def test_a_user_who_hangs_up_at_once_is_not_taken_for_root(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed socket is listed as root's."""
    left = threading.Event()
    looks = after(left, monkeypatch)
    place = ("AF_INET", "127.0.0.1", client.port)
    for _ in range(5):
        ask_at(place, "POST", "/api/v1/experiment/stop", STOP, "{}", user=STRANGER, leave=True)
    left.set()
    eventually(lambda: len(looks) == 5)
    assert (looks, client.backend.stopped) == ([None] * 5, False)


def socket_of(ends: peers.Ends) -> PeerSocket | None:
    return sockets_of([ends]).get(ends)


def after(left: threading.Event, monkeypatch: pytest.MonkeyPatch) -> list[PeerSocket | None]:
    """Look only after all who ask have left; what was found."""
    found: list[PeerSocket | None] = []

    def late(wanted: list[peers.Ends]) -> dict[peers.Ends, PeerSocket]:
        assert left.wait(60)
        sockets = sockets_of(wanted)
        found.extend(sockets.get(ends) for ends in wanted)
        return sockets

    monkeypatch.setattr(peers, "sockets_of", late)
    return found


@pytest.mark.process
@pytest.mark.parametrize(
    "header", ["X-Forwarded-For: 10.0.0.1", "Forwarded: for=10.0.0.1", "Via: 1.1 x", "X-Real-IP: x"]
)
def test_a_proxy_that_says_so_is_not_the_own_user(client: Client, header: str) -> None:
    assert ask(client, "GET", "/api/v1/experiment", header + "\r\n").split()[1] == "401"


def test_a_kept_connection_is_looked_up_once_and_one_with_a_token_never(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[peers.Ends] = []
    monkeypatch.setattr(peers, "sockets_of", lambda wanted: looked.extend(wanted) or sockets_of(wanted))
    with client.keeping() as line:
        assert line.get("/experiment").status == 200
        assert looked == []
        assert [line.get("/experiment", Authorization="").status for _ in range(5)] == [200] * 5
    assert len(looked) == 1


def test_where_the_kernel_tells_nothing_a_token_is_asked_for(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "TABLES", (Path("/no/such/tcp"), Path("/no/such/tcp6")))
    assert client.get("/experiment", Authorization="").status == 401
    assert client.get("/experiment").status == 200


@pytest.mark.process
def test_without_the_option_the_own_user_needs_a_token_too(tmp_path: Path) -> None:
    with serving(filled(tmp_path)) as client:
        assert ask(client, "GET", "/api/v1/experiment").split()[1] == "401"


@pytest.mark.process
@pytest.mark.parametrize(("user", "status"), [(None, "200"), (STRANGER, "401")])
def test_an_ipv6_socket_that_reaches_the_ipv4_address_is_known(client: Client, user: str | None, status: str) -> None:
    place = ("AF_INET6", "::ffff:127.0.0.1", client.port)
    assert ask_at(place, "GET", "/api/v1/experiment", user=user).split()[1] == status


@pytest.mark.process
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


def user_of(ends: peers.Ends) -> int | None:
    found = socket_of(ends)
    return None if found is None else found.user


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
    monkeypatch.setattr(socket_lists, "_OVERFLOW", tmp_path / "overflow")
    assert user_of(ends_of(ours)) == os.geteuid()
    monkeypatch.setattr(socket_lists, "_UID_MAP", tmp_path / "map")
    assert user_of(ends_of(ours)) is None


# Programs that forward ports


def through(tmp_path: Path, client: Client, name: str) -> str:
    """What a request gets that a program of this user's with this name passes on."""
    program = tmp_path / name
    shutil.copy(shared_python(), program)
    program.chmod(0o755)
    request = "GET /api/v1/experiment HTTP/1.1\r\nHost: localhost\r\n\r\n"
    words = json.dumps(["AF_INET", "127.0.0.1", client.port, request, False])
    command = [str(program), "-I", "-S", "-c", ASK]
    return subprocess.run(command, input=words, capture_output=True, text=True, timeout=60, check=True).stdout.split()[
        1
    ]


@pytest.mark.process
@pytest.mark.parametrize(
    "name",
    ["sshd", "sshd-session", "ssh", "socat", "kubectl", "systemd-socket-proxyd", "nginx", "qemu-system-x86_64", "tor"],
)
def test_what_a_forwarding_program_passes_on_is_not_the_own_users(tmp_path: Path, client: Client, name: str) -> None:
    assert through(tmp_path, client, name) == "401"


@pytest.mark.process
def test_any_other_program_of_the_own_user_needs_no_token(tmp_path: Path, client: Client) -> None:
    assert through(tmp_path, client, "my sshd reader") == "200"


def test_a_program_that_cannot_be_found_needs_a_token(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is with the processes of sshd where the manager is not root's."""
    monkeypatch.setattr(forwarders, "_open_files", lambda process: iter(()))
    assert client.get("/experiment", Authorization="").status == 401
    assert client.get("/experiment").status == 200


# Browsers


NAME = "nnilite-0123456789abcdef.localhost"


@pytest.fixture
def named(tmp_path: Path) -> Iterator[Client]:
    """A manager with a page name."""
    with serving(filled(tmp_path), ServerOptions(own_user=True, page_name=NAME)) as client:
        yield client


def test_a_page_needs_a_key_unless_it_has_the_name_of_this_start(named: Client) -> None:
    """Any page that was served at this port before may still be open, and has the same origin but for the name."""
    headers = {"Authorization": "", "Sec_Fetch_Site": "same-origin", "Sec_Fetch_Mode": "cors"}
    for host, status in (("127.0.0.1", 401), ("localhost", 401), ("other.localhost", 401), (NAME, 200)):
        origin = f"http://{host}:{named.port}"
        more = {"Host": f"{host}:{named.port}", "Origin": origin}
        assert named.get("/experiment", **headers, **more).status == status, host
        assert (named.post("/experiment/stop", {}, **headers, **more).status == 401) == (status == 401)


@pytest.mark.parametrize("mark", ["Origin", "Sec-Fetch-Site", "Sec-Fetch-Dest", "User-Agent"])
def test_each_mark_of_a_browser_is_enough(named: Client, mark: str) -> None:
    value = {"Origin": f"http://127.0.0.1:{named.port}", "Sec-Fetch-Site": "none", "User-Agent": "Mozilla/5.0 (X11)"}
    headers = {mark.replace("-", "_"): value.get(mark, "empty")}
    assert named.get("/experiment", Authorization="", **headers).status == 401
    assert named.get("/experiment", Authorization="").status == 200, "a script needs no key"


def test_a_page_of_an_earlier_start_is_told_so(named: Client) -> None:
    reply = named.get("/experiment", Host=f"nnilite-{'f' * 16}.localhost:{named.port}")
    assert (reply.status, "restarted" in reply.json["error"]) == (421, True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", f"nnilite-{'f' * 16}.localhost"])
@pytest.mark.parametrize(("user", "own"), [(None, True), (STRANGER, False)])
def test_the_own_users_browser_is_sent_to_the_page_name(named: Client, host: str, user: str | None, own: bool) -> None:
    """Others are not, and from the name of an earlier start they are sent to one that says what to do."""
    if user is not None:
        known_user(user)
        named.application.context.gate._peers = Peers({known_user(user).pw_uid})  # whoever asks here is another user
    reply = named.ask(
        "GET", "/x?y=1", Authorization="", Sec_Fetch_Dest="document", Host=f"{host}:{named.port}", Cookie="nnilite-e=1"
    )
    wanted = NAME if own else "localhost" if host.startswith("nnilite") else None
    there = f"http://{wanted}:{named.port}/x?y=1"
    assert (reply.status, reply.headers["Location"]) == ((303, there) if wanted else (404, None))


async def test_a_server_with_a_page_name_listens_on_both_addresses_of_it(tmp_path: Path) -> None:
    """A browser tries ::1 first: whoever listens there alone would be this page."""
    server = listen(make_application(filled(tmp_path), ServerOptions(page_name=NAME)), "127.0.0.1", 0)
    found = [one.getsockname()[:2] for one in server._sockets.values()]
    server.stop()
    assert {port for _, port in found} == {server.port}
    assert sorted(address for address, _ in found) == ["127.0.0.1", "::1"]


def test_a_port_that_another_has_at_the_other_address_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        with pytest.raises(Conflict, match="is taken"):
            listen(
                make_application(filled(tmp_path), ServerOptions(page_name=NAME)), "127.0.0.1", other.getsockname()[1]
            )


@pytest.mark.parametrize(
    ("bind", "more", "named"),
    [
        *((bind, {}, True) for bind in ("127.0.0.1", "::1", "localhost")),
        *((bind, {}, False) for bind in ("0.0.0.0", "", "127.5.6.7", "10.0.0.1")),
        *(("127.0.0.1", more, False) for more in ({"has_tls": True}, {"prefix": "a"})),
    ],
)
def test_page_names_are_for_plain_servers_of_loopback(bind: str, more: dict[str, Any], named: bool) -> None:
    first, second = new_page_name(bind, **more), new_page_name(bind, **more)
    assert bool(first) is named
    assert (first != second) is named


def test_one_look_finds_the_users_of_all_connections_that_wait_for_it() -> None:
    with ExitStack() as opened:
        links = []
        for family, address in [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")] * 3:
            listening = opened.enter_context(socket.create_server((address, 0), family=family))
            opened.enter_context(socket.create_connection(listening.getsockname()[:2]))
            links.append(opened.enter_context(listening.accept()[0]))
        wanted = [ends_of(link) for link in links]
        found = sockets_of([*wanted, (("127.0.0.1", 1), ("127.0.0.1", 2))])
        assert {ends: one.user for ends, one in found.items()} == dict.fromkeys(wanted, os.geteuid())


def test_a_program_with_many_connections_is_examined_once_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks for one after the other would take the square of their number."""
    examined: list[int] = []
    look = forwarders._open_files
    monkeypatch.setattr(forwarders, "_open_files", lambda process: examined.append(process) or look(process))
    with ExitStack() as opened:
        listening = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        links = []
        for _ in range(20):
            opened.enter_context(socket.create_connection(listening.getsockname()))
            links.append(opened.enter_context(listening.accept()[0]))
        wanted = {ends_of(link) for link in links}
        known = Peers({os.geteuid()})
        assert known._own_among(wanted) == wanted
        assert examined.count(os.getpid()) == 1
        examined.clear()
        assert known._own_among(wanted) == wanted
        assert examined == [os.getpid()]
