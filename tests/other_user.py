"""Programs that other users of this machine run, for tests of who may ask what."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
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


def ask_at(place: tuple[str, str, int], method: str, path: str, headers: str = "", body: str = "", **more: Any) -> str:
    request = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n{body}"
    return run_as(more.get("user"), [*place, request, more.get("leave", False)], more.get("before", ()))


def run_as(user: str | None, words: list[Any], before: tuple[str, ...] = ()) -> str:
    who: dict[str, Any] = {}
    if user is not None:
        account = known_user(user)
        who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": [], "cwd": "/"}
    command = [*before, shared_python(), "-I", "-S", "-c", ASK]
    done = subprocess.run(command, input=json.dumps(words), capture_output=True, text=True, timeout=60, **who)
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
