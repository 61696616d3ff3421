"""The REST client, against a stand-in for the manager."""

from __future__ import annotations

import http.client
import json
import math
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from interrupts import is_interrupted_at
from nnilite._answers.late_request import is_late
from nnilite._network.socket_lists import spell_as_listed, users_at
from nnilite._running.manager_client import Client
from nnilite._running.manager_connection import ManagerError, Unreachable
from nnilite.errors import ConfigError, Conflict, NotFound, ServiceError
from other_user import STRANGER, known_user, shared_python
from stand_in_manager import StandIn, stand_in_manager


@pytest.fixture
def manager() -> Iterator[StandIn]:
    with stand_in_manager() as found:
        yield found


@pytest.fixture
def client(manager: StandIn) -> Iterator[Client]:
    with Client(manager.url, "secret", timeout_s=5) as found:
        yield found


def _trial(number: int, value: object = None) -> dict[str, object]:
    return {"id": f"T{number}", "sequence": number, "parameters": {"x": number}, "value": value}


def test_the_token_and_a_json_content_type_go_with_every_change(client: Client, manager: StandIn) -> None:
    manager.says("PATCH /experiment", {"id": "abc"})
    client.update(trialConcurrency=3)
    asked = manager.asked[0]
    assert json.loads(asked.body) == {"trialConcurrency": 3}
    assert asked.headers["Authorization"] == "Bearer secret"
    assert asked.headers["Content-Type"] == "application/json"
    assert not is_late(asked.headers["X-Nnilite-Until"])


def test_a_change_that_a_tuner_has_to_take_may_take_longer(manager: StandIn) -> None:
    manager.says("PATCH /experiment", {"id": "abc"})
    manager.says("GET /experiment", {})
    manager.thinks_s = 0.3
    with Client(manager.url, "secret", timeout_s=0.1) as hasty:
        assert hasty.update(searchSpace={"x": 1}) == {"id": "abc"}
        with pytest.raises(Unreachable, match=r"did not answer within 0\.1 s"):
            hasty.profile()


def test_one_connection_serves_many_questions(client: Client, manager: StandIn) -> None:
    manager.says("GET /version", {"version": "1"})
    assert [client.version() for _ in range(3)] == [{"version": "1"}] * 3
    assert manager.connections == 1


def test_a_signal_handler_may_ask_and_close_while_a_question_is_asked(client: Client, manager: StandIn) -> None:
    manager.says("GET /version", {"version": "1"})
    manager.says("POST /experiment/stop", {})
    answers: list[Any] = []

    def handle() -> None:
        client.close()
        client.stop()
        answers.append(client.version())

    def ask() -> None:
        answers.append(client.version())

    def interrupt_everywhere() -> None:
        while is_interrupted_at(len(answers) * 3 + 1, handle, ask):
            pass

    # In a thread, so that a lock that is never released fails the test instead of stopping it.
    thread = threading.Thread(target=interrupt_everywhere, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert len(answers) > 40
    assert all(answer == {"version": "1"} for answer in answers)


@pytest.mark.process
def test_a_forked_process_has_a_connection_of_its_own(client: Client, manager: StandIn) -> None:
    manager.says("GET /version", {"version": "1"})
    client.version()
    child = os.fork()
    if not child:
        os._exit(client.version() != {"version": "1"})
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    client.version()
    assert manager.connections == 2  # that of the child, and the first one


def test_a_question_that_an_exception_of_a_handler_ends_leaves_no_answer_behind(
    client: Client, manager: StandIn
) -> None:
    manager.says("GET /version", {"version": "1"})
    manager.says("GET /experiment", {"id": "abc"})

    def end() -> None:
        raise ZeroDivisionError

    for line in count(1, step=11):
        client.version()
        try:
            if not is_interrupted_at(line, end, client.version):
                break
        except ZeroDivisionError:
            assert client.profile() == {"id": "abc"}
    assert line > 30


def test_the_time_limit_of_a_program_is_not_taken_for_the_managers_silence(client: Client, manager: StandIn) -> None:
    manager.says("GET /version", {"version": "1"})

    def end() -> None:
        raise TimeoutError("the program's own")

    client.version()
    lines = count(1, step=11)
    for _ in range(3):
        with pytest.raises(TimeoutError, match="the program's own"):
            is_interrupted_at(next(lines), end, client.version)
        client.version()


def test_a_question_is_asked_again_when_the_kept_connection_was_closed(client: Client, manager: StandIn) -> None:
    manager.says("GET /version", {"version": "1"})
    client.version()
    manager.hang_up_next = True
    assert client.version() == {"version": "1"}
    assert len(manager.asked) == 3


def test_a_change_is_never_sent_twice(client: Client, manager: StandIn) -> None:
    manager.says("GET /version", {})
    manager.says("POST /trials", _trial(0))
    client.version()
    manager.hang_up_next = True
    with pytest.raises(Unreachable, match="does not answer"):
        client.add_trial({"x": 1})
    assert [one.method for one in manager.asked] == ["GET", "POST"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ConfigError),
        (404, NotFound),
        (409, Conflict),
        (503, ServiceError),
        (500, ManagerError),
        (401, ManagerError),
    ],
)
def test_a_refusal_becomes_the_error_that_it_is_with_the_managers_sentence(
    client: Client, manager: StandIn, status: int, kind: type[Exception]
) -> None:
    manager.says("GET /experiment", {"error": "No, because."}, status)
    with pytest.raises(kind, match=r"No, because\."):
        client.profile()


def test_a_refused_field_is_named(client: Client, manager: StandIn) -> None:
    manager.says("PATCH /experiment", {"error": "must be a whole number from 1", "field": "trialConcurrency"}, 400)
    with pytest.raises(ConfigError, match="trialConcurrency: must be a whole number from 1"):
        client.update(trialConcurrency=0)


def test_what_is_no_manager_at_all_is_said_so(client: Client, manager: StandIn) -> None:
    manager.says("GET /experiment", b"<html>hello</html>")
    with pytest.raises(ManagerError, match="does not answer as a manager"):
        client.profile()
    manager.says("GET /experiment", b"<html>oh</html>", 502)
    with pytest.raises(ManagerError, match="answered 502"):
        client.profile()


@pytest.mark.parametrize(
    ("process", "reason"), [(None, "Connection refused"), (1, "starting or ending. Try again in a moment")]
)
def test_nobody_there_is_unreachable_and_a_manager_at_work_has_not_begun_to_listen(
    process: int | None, reason: str
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(Unreachable, match=reason):
            Client(f"http://127.0.0.1:{taken.getsockname()[1]}", process=process).profile()


def test_a_manager_that_hangs_is_unreachable_after_the_time_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.1)
        with client, pytest.raises(Unreachable, match=r"within 0\.1 s"):
            client.profile()


LISTEN = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    link, _ = server.accept()
    server.close()  # what listens is gone before anything is sent
    print("ready", flush=True)
    sys.stdout.write(link.recv(65536).decode())
"""


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the kernel lists no sockets here")
def test_a_program_of_another_user_at_the_managers_port_gets_no_token() -> None:
    account = known_user(STRANGER)
    command = [shared_python(), "-I", "-S", "-c", LISTEN]
    who: dict[str, Any] = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": [], "cwd": "/"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **who) as stranger:
        assert stranger.stdout is not None
        url = f"http://127.0.0.1:{int(stranger.stdout.readline())}"
        with Client(url, "secret", timeout_s=20, users=[12345]) as client:
            with pytest.raises(Unreachable, match="a program of another user listens there, which gets nothing"):
                client.profile()
        assert stranger.stdout.read() == "ready\n"


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the kernel lists no sockets here")
def test_who_has_accepted_a_connection_is_known_when_nobody_listens_any_more() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        ends = ours.getpeername(), ours.getsockname()
        assert users_at(*ends) == {os.geteuid()}
        with server.accept()[0]:
            server.close()
            assert users_at(*ends) == {os.geteuid()}


def test_who_listens_beside_the_program_that_has_accepted_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        ends = ours.getpeername(), ours.getsockname()
        anywhere = spell_as_listed("::", ends[0][1], wide=True)
        (tmp_path / "tcp6").write_text(f"head\n 0: {anywhere} {anywhere} 0A 0:0 00:0 0 4242 0 7 1\n")
        monkeypatch.setattr("nnilite._network.socket_lists.TABLES", (Path("/proc/net/tcp"), tmp_path / "tcp6"))
        assert users_at(*ends) == {os.geteuid(), 4242}
        with server.accept()[0]:
            assert users_at(*ends) == {os.geteuid()}


def test_a_kept_connection_that_ends_is_not_replaced_unseen(client: Client, manager: StandIn) -> None:
    manager.says("GET /version", {})
    client.version()
    (link,) = client._idle
    assert link._connection is not None
    link._connection.close()
    with pytest.raises(http.client.NotConnected):
        link._connection.request("GET", "/")
    assert client.version() == {}


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8080", "ftp://there", "http://", "http://h:x", "http://h:99999", "http://[::1"]
)
def test_an_address_of_no_manager_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(ConfigError, match="looks like http"):
        Client(url)


def test_a_prefix_of_the_address_is_kept(manager: StandIn) -> None:
    manager.says("GET /version", {"version": "1"})
    with Client(manager.url + "/a/b/") as client:
        client.version()
    assert manager.asked[0].path == "/a/b/api/v1/version"


def test_trials_are_fetched_page_by_page(client: Client, manager: StandIn) -> None:
    common = "GET /trials?sort=sequence&descending=false&offset"
    first = [_trial(number) for number in range(1000)]
    manager.says(f"{common}=0&limit=1000", {"trials": first, "total": 1001})
    manager.says(f"{common}=1000&limit=1000", {"trials": [_trial(1000)], "total": 1001})
    assert [trial["sequence"] for trial in client.trials()] == list(range(1001))


def test_no_more_trials_are_asked_for_than_are_wanted(client: Client, manager: StandIn) -> None:
    query = "sort=value&descending=true&state=FAILED&state=SUCCEEDED&offset=0&limit=1"
    manager.says(f"GET /trials?{query}", {"trials": [_trial(7)], "total": 9})
    found = list(client.trials(states=["FAILED", "SUCCEEDED"], sort="value", descending=True, limit=1))
    assert [trial["id"] for trial in found] == ["T7"]


def test_metrics_go_on_where_the_page_before_ended(client: Client, manager: StandIn) -> None:
    page = [{"trial": "T", "value": 1.0}] * 1000
    manager.says("GET /metrics?kind=FINAL&after=0&limit=1000", {"metrics": page, "next": 4711})
    manager.says("GET /metrics?kind=FINAL&after=4711&limit=1000", {"metrics": [], "next": 4711})
    assert len(list(client.metrics(kind="FINAL"))) == 1000


def test_numbers_that_json_cannot_carry_come_back_as_numbers(client: Client, manager: StandIn) -> None:
    manager.says("GET /trials/a", _trial(0, {"default": "NaN", "loss": "-Infinity", "note": "fine"}))
    value = client.trial("a")["value"]
    assert math.isnan(value["default"])
    assert value["loss"] == -math.inf
    assert value["note"] == "fine"


def test_numbers_that_json_cannot_carry_are_sent_as_text(client: Client, manager: StandIn) -> None:
    manager.says("POST /import", {"imported": 1, "known": 0, "warning": ""})
    client.import_data([{"parameter": {"x": math.inf}, "value": -math.inf}])
    assert json.loads(manager.asked[0].body) == [{"parameter": {"x": "Infinity"}, "value": "-Infinity"}]


@pytest.mark.parametrize("hostile", ["../etc", "a b?x=1#y", "ä'\"\n", "%2e%2e"])
def test_an_id_stays_one_part_of_the_path(client: Client, manager: StandIn, hostile: str) -> None:
    with pytest.raises(NotFound):
        client.trial(hostile)
    path = manager.asked[0].path.removeprefix("/api/v1/trials/")
    assert "/" not in path
    assert "?" not in path


@pytest.mark.parametrize("dots", ["", ".", ".."])
def test_dots_are_no_id(client: Client, manager: StandIn, dots: str) -> None:
    with pytest.raises(NotFound):
        client.trial(dots)
    assert manager.asked == []


def test_output_tells_where_the_next_piece_begins(client: Client, manager: StandIn) -> None:
    manager.says("GET /trials/a/output/stdout?offset=3&limit=10", b"lo", headers={"X-Next-Offset": "5"})
    assert client.output("a", "stdout", 3, limit=10) == (b"lo", 5)


def test_a_download_that_cannot_be_written_leaves_the_client_usable(client: Client, manager: StandIn) -> None:
    manager.says("GET /trials/a/files/big", b"x" * 3_000_000)
    manager.says("GET /version", {"version": "1"})

    def full_disk(piece: bytes) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        client.download("a", "big", full_disk)
    assert client.version() == {"version": "1"}


@pytest.mark.process
def test_the_client_needs_nothing_but_the_standard_library() -> None:
    others = "m for m in sys.modules if m.split('.')[0] in ('tornado', 'rich', 'yaml')"
    code = f"import sys, nnilite._running.manager_client; print([{others}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
