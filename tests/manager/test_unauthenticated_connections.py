"""A thousand callers who have proven nothing: what they take of the manager, and whether its user is answered."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crowds import KINDS, MB, Burden, burden, crowd
from manager.served_apart import TOKEN
from other_user import STRANGER, known_user

pytestmark = pytest.mark.process

TESTS = Path(__file__).parent.parent
HTTP_HEADS = {
    "a batch": "POST /api/v1/callback/{job} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Content-Length: 16000000\r\n\r\n",
    "a proof": "GET /api/v1/callback/{job}/proof?nonce=" + "a" * 32 + " HTTP/1.1\r\nHost: localhost\r\n"
    "Content-Length: 8000000\r\n\r\n",
}


@dataclass(frozen=True)
class Apart:
    """A server in a process of its own."""

    pid: int
    folder: Path
    port: int
    job: str
    token: str

    def ask(self) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request("GET", "/api/v1/version", headers={"Authorization": f"Bearer {TOKEN}"})
            assert connection.getresponse().status == 200

    def report(self, batch: bytes) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as keeper, keeper.makefile("rb") as answers:
            keeper.settimeout(30)
            keeper.connect(str(self.folder / "callback.sock"))
            keeper.sendall(batch)
            answer: dict[str, Any] = json.loads(answers.readline())
            return answer

    def line(self, events: str = "[]") -> bytes:
        return f'{{"job":"{self.job}","token":"{self.token}","events":{events}}}\n'.encode()


@contextmanager
def served(kind: str, folder: Path) -> Iterator[Apart]:
    words = [sys.executable, "-m", "manager.served_apart", kind, str(folder)]
    pipe, env = subprocess.PIPE, {**os.environ, "PYTHONPATH": str(TESTS)}
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, env=env) as process:
        assert process.stdout is not None
        yield Apart(process.pid, folder, **json.loads(process.stdout.readline()))
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


DAILY = {("manager", "head"), ("manager", "body"), ("hub", "silent")}
"""The callers of which most is read, and those of whom nothing is; all of them come with the long tests."""


def check(found: Burden) -> None:
    assert found.megabytes < 20, str(found)
    assert found.answers, str(found)


@pytest.mark.parametrize(
    ("server", "kind"),
    [
        pytest.param(server, kind, marks=() if (server, kind) in DAILY else pytest.mark.long)
        for server in ("manager", "hub")
        for kind in KINDS
    ],
)
def test_a_thousand_strangers_take_little_of_a_server_and_its_user_is_answered(
    tmp_path: Path, server: str, kind: str
) -> None:
    known_user(STRANGER)
    # A hub takes no batch, and some kinds of callers send nothing of the request.
    different = HTTP_HEADS if server == "manager" and kind in ("head", "body") else ("a batch",)
    with served(server, tmp_path) as apart:
        for head in different:
            attack = crowd(("127.0.0.1", apart.port), kind, HTTP_HEADS[head].format(job=apart.job), user=STRANGER)
            check(burden(apart.pid, attack, apart.ask))


@pytest.mark.parametrize(
    "kind", [kind if kind == "body" else pytest.param(kind, marks=pytest.mark.long) for kind in KINDS]
)
def test_a_thousand_callers_of_the_keepers_socket_take_little(tmp_path: Path, kind: str) -> None:
    with served("manager", tmp_path) as apart:
        head = f'{{"job":"{apart.job}","token":"wrong","events":["'
        attack = crowd(str(tmp_path / "callback.sock"), kind, head, family="AF_UNIX")
        check(burden(apart.pid, attack, apart.ask))
        assert apart.report(apart.line())["status"] == 200


def test_a_trial_takes_no_more_with_its_own_token_than_some_batches(tmp_path: Path) -> None:
    with served("manager", tmp_path) as apart:
        attack = crowd(str(tmp_path / "callback.sock"), "body", apart.line('["')[:-4].decode(), family="AF_UNIX")
        found = burden(apart.pid, attack, apart.ask)
    assert found.megabytes < 60, str(found)
    assert found.answers, str(found)


def test_a_long_report_of_a_keeper_is_still_taken(tmp_path: Path) -> None:
    metric = '{"type":"metric","index":%d,"kind":"PERIODICAL","sequence":%d,"value":"%s","time":1.0}'
    with served("manager", tmp_path) as apart:
        events = ",".join(metric % (number, number, "0." + "1" * 900) for number in range(2000))
        line = apart.line(f"[{events}]")
        assert len(line) > MB
        assert apart.report(line)["metrics"] == 2000
