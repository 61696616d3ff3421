"""A fork server that says more than expected, such as why a module cannot be preloaded: trials start all the same."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from nnilite.errors import ServiceError
from nnilite_local import _fork_server_client
from nnilite_local._fork_server_client import ForkServerClient

pytestmark = pytest.mark.process

SERVER = """
import json, os, sys
print(json.dumps({"event": "not preloaded", "message": "x" * int(open(sys.argv[0] + ".size").read())}), flush=True)
for line in sys.stdin:
    print(json.dumps({"event": "started", "job": "j", "pid": os.getpid(), "start": "s"}), flush=True)
"""


@pytest.fixture
def server(tmp_path: Path) -> Path:
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    return program


def set_size(server: Path, size: int) -> None:
    server.with_name("server.py.size").write_text(str(size))


async def test_a_long_reason_of_a_preloader_keeps_no_trial_from_its_start(server: Path, tmp_path: Path) -> None:
    set_size(server, 6 * 65536)
    client = ForkServerClient(server, tmp_path / "log", lambda job, delivered: None)
    assert (await client.run("j", tmp_path / "spec"))[1] == "s"
    await client.close()


@pytest.mark.parametrize(
    ("number", "cure"), [(errno.EMFILE, "(`ulimit -n`)"), (errno.EAGAIN, "(`ulimit -u`)"), (errno.ENOMEM, "")]
)
async def test_a_limit_that_keeps_the_fork_server_from_its_start_is_named(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, cure: str
) -> None:
    async def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(_fork_server_client, "_start_process", fails)
    client = ForkServerClient(server, tmp_path / "log", lambda job, delivered: None)
    with pytest.raises(ServiceError, match="no keeper can be started") as caught:
        await client.start()
    assert re.findall(r"\(`ulimit -.`\)", str(caught.value)) == ([cure] if cure else [])


async def test_after_a_line_that_never_ends_there_is_another_fork_server(server: Path, tmp_path: Path) -> None:
    set_size(server, 3_000_000)
    client = ForkServerClient(server, tmp_path / "log", lambda job, delivered: None)
    with pytest.raises(ServiceError, match="the fork server has ended"):
        await client.run("j", tmp_path / "spec")
    set_size(server, 1)
    assert (await client.run("j", tmp_path / "spec"))[1] == "s"
    await client.close()
