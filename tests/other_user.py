"""Programs that other users of this machine run, for tests of who may ask what."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

STRANGER = "nobody"
ASK = r"""
import json, socket, sys
family, host, port, request, leave = json.load(sys.stdin)
with socket.socket(getattr(socket, family), socket.SOCK_STREAM) as link:
    link.settimeout(20)
    link.connect((host, port))
    link.sendall(request.encode())
    if leave:
        sys.exit()
    print(link.recv(65536).decode().splitlines()[0])
"""
ASK_ALL = r"""
import json, socket, sys
family, host, port, requests = json.load(sys.stdin)
for request in requests:
    with socket.socket(getattr(socket, family), socket.SOCK_STREAM) as link:
        link.settimeout(20)
        link.connect((host, port))
        link.sendall(request.encode())
        print(link.recv(65536).decode().splitlines()[0])
"""


def request_to(method: str, path: str, headers: str = "", body: str = "") -> str:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n{body}"


def ask_at(place: tuple[str, str, int], method: str, path: str, headers: str = "", body: str = "", **more: Any) -> str:
    request = request_to(method, path, headers, body)
    return run_as(more.get("user"), [*place, request, more.get("leave", False)], more.get("before", ()))


def ask_all_at(place: tuple[str, str, int], requests: Sequence[str], user: str) -> list[str]:
    """The first line of each answer. One program of the user sends all requests, each over a connection of its own."""
    return run_as(user, [*place, requests], program=ASK_ALL).splitlines()


def run_as(user: str | None, words: list[Any], before: tuple[str, ...] = (), program: str = ASK) -> str:
    who: dict[str, Any] = {}
    if user is not None:
        account = known_user(user)
        who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": [], "cwd": "/"}
    command = [*before, shared_python(), "-I", "-S", "-c", program]
    done = subprocess.run(command, input=json.dumps(words), capture_output=True, text=True, timeout=120, **who)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def known_user(name: str) -> pwd.struct_passwd:
    if os.geteuid() != 0:
        pytest.skip("only root can start a program as another user")
    try:
        return pwd.getpwnam(name)
    except KeyError:
        pytest.skip(f"there is no user {name} here")


def shared_python() -> str:
    """A Python that other users may run, too: this one may lie in a folder that is closed to them."""
    return shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
