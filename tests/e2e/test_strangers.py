"""Other users of the manager's machine: what they may ask, and what they get at its port when it has died."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from impostor import impostor, insistent
from nnilite._experiments import registry
from nnilite._running import launch, managers
from nnilite._running.manager_client import Client
from nnilite.testing import eventually
from nnilite.testing.ports import free_port
from other_user import STRANGER, ask_at, known_user

REPORTS = """
import nnilite, pathlib, time
nnilite.report_intermediate_result(0.125)
while not pathlib.Path(__file__).with_name("heard").exists():
    time.sleep(0.02)
nnilite.report_intermediate_result(0.625)
while not pathlib.Path(__file__).with_name("go").exists():
    time.sleep(0.02)
nnilite.report_final_result(0.875)
"""


def status(url: str, user: str | None = None) -> str:
    """What a program of this user gets that sends no token."""
    parts = urlsplit(url)
    place = ("AF_INET", parts.hostname or "", parts.port or 0)
    return ask_at(place, "GET", f"{parts.path}/api/v1/version", user=user).split()[1]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the kernel lists no sockets here")
def test_on_this_machine_the_own_user_needs_no_token_and_others_do(start: Any) -> None:
    running = start(maxTrialNumber=1)
    assert managers.find_page_address(running.entry) == running.entry.url
    assert status(running.entry.url) == "200"
    assert status(running.entry.url, STRANGER) == "401"


@pytest.mark.parametrize(("always", "prefix"), [(True, ""), (False, "behind/a-proxy")])
def test_where_a_token_is_always_needed_the_address_signs_in(start: Any, always: bool, prefix: str) -> None:
    running = start(maxTrialNumber=1, requireToken=always)
    if prefix:
        running.stop()
        options = launch.ManagerOptions(port=0, url_prefix=prefix)
        running.entry = launch.resume(running.entry, options=options, detach=False)
    assert status(running.entry.url) == "401"
    page = managers.find_page_address(running.entry)
    own_name = running.entry.url if prefix else rf"http://nnilite-[0-9a-f]{{16}}\.localhost:{running.entry.port}"
    assert re.fullmatch(rf"{own_name}/#key=[\w-]{{20,}}", page)


SSHD = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
"""


@pytest.fixture
def tunnel(tmp_path: Path) -> Iterator[Callable[[int], int]]:
    """Makes the far end of `ssh -L` to a port of this machine, through a real sshd, as the user who logs in."""
    known_user(STRANGER)
    if shutil.which("sshd", path="/usr/sbin") is None:
        pytest.skip("there is no sshd here (apt-get install openssh-server)")
    Path("/run/sshd").mkdir(exist_ok=True)
    for name in ("host", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    port = free_port()
    (tmp_path / "sshd").write_text(SSHD.format(port=port, folder=tmp_path))
    with ExitStack() as stack:

        def run(*words: str) -> None:
            program = stack.enter_context(subprocess.Popen(words, stdin=subprocess.DEVNULL))
            stack.callback(program.terminate)

        run("/usr/sbin/sshd", "-D", "-q", "-f", str(tmp_path / "sshd"))
        eventually(lambda: answers(port))

        def forward(target: int) -> int:
            near = free_port()
            options = ["-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null", "-oLogLevel=ERROR"]
            far = f"{near}:127.0.0.1:{target}"
            run(
                "ssh",
                "-N",
                *options,
                "-F",
                "none",
                "-i",
                str(tmp_path / "key"),
                "-p",
                str(port),
                "-L",
                far,
                "127.0.0.1",
            )
            eventually(lambda: answers(near))
            return near

        yield forward


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def test_a_port_forwarded_by_ssh_is_no_way_in_for_other_users_where_it_ends(start: Any, tunnel: Any) -> None:
    """To the manager's machine, the sshd is a program of the user who has logged in."""
    running = start(maxTrialNumber=1)
    near = f"http://127.0.0.1:{tunnel(running.entry.port)}"
    assert status(running.entry.url) == "200"
    assert [status(near, STRANGER), status(near)] == ["401", "401"]
    with Client(near, launch.token(running.entry)) as client:
        assert client.profile()["id"] == running.entry.id


def test_whoever_has_logged_in_by_ssh_is_told_a_link_that_signs_in(start: Any, monkeypatch: Any) -> None:
    running = start(maxTrialNumber=1)
    assert managers.find_page_address(running.entry) == running.entry.url
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 50000 192.0.2.2 22")
    assert "/#key=" in managers.find_page_address(running.entry)


def test_who_takes_a_dead_managers_port_gets_no_result_and_ends_no_trial(start: Any) -> None:
    running = start(REPORTS, maxTrialNumber=1)
    running.wait_for(lambda: list(running.client.metrics()))
    secret = launch.token(running.entry)
    code = Path(running.client.profile()["config"]["trialCodeDirectory"])
    (spec,) = running.directory.glob("trials/*/0/spec.json")
    port = running.entry.port
    running.kill_manager()
    with impostor(insistent(200), port) as stranger:
        (code / "heard").touch()
        running.wait_for(lambda: len(stranger.heard) > 3)
    said = "".join(stranger.heard)
    token = re.search(r'"token": "(\w+)"', spec.read_text())
    assert token is not None
    assert [word for word in (token[1], secret, "0.625", "POST", "Authorization") if word in said] == []
    again = running.resume()
    (code / "go").touch()
    again.wait("DONE")
    assert [metric["value"] for metric in again.client.metrics()] == [0.125, 0.625, 0.875]
    assert [len(again.client.trial(trial["id"])["attempts"]) for trial in again.trials()] == [1]
    again.entry = registry.find(again.entry.id)
    again.stop()
