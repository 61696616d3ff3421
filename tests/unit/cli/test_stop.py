"""`nnictl stop`: which managers it asks, and what it says of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from nnilite._cli.nnictl import run
from nnilite._experiments import registry
from nnilite._running import managers
from nnilite._running.manager_process import ManagerProcess
from nnilite.errors import NniliteError
from stand_in_manager import PROFILE, Make, StandIn


def test_stop_asks_every_manager_and_waits_for_its_end(
    make: Make, manager: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    make("abxy")
    manager.says("POST /experiment/stop", {"stopping": True}, 202)
    waited: list[str] = []
    monkeypatch.setattr("nnilite._running.managers.wait_until_ended", lambda entry: waited.append(entry.id))
    assert run(["stop", "--all"]) == 0
    assert sorted(waited) == ["abcd", "abxy"]
    assert [one.path for one in manager.asked] == ["/api/v1/experiment/stop"] * 2


def test_stop_takes_a_pattern_a_start_or_a_port(make: Make, monkeypatch: pytest.MonkeyPatch, manager: StandIn) -> None:
    make("abcd")
    make("abxy")
    stopped: list[str] = []
    monkeypatch.setattr("nnilite._running.managers.ask_to_stop", lambda entry: stopped.append(entry.id))
    monkeypatch.setattr("nnilite._running.managers.wait_until_ended", lambda entry: None)
    assert run(["stop", "abx"]) == 0
    assert run(["stop", "ab*"]) == 0
    assert run(["stop", "abc", "--port", manager.url.rpartition(":")[2]]) == 0
    assert (stopped[0], sorted(stopped[1:3]), stopped[3]) == ("abxy", ["abcd", "abxy"], "abcd")


def test_stop_all_is_what_nni_1_had_and_a_port_alone_is_answered(
    make: Make, monkeypatch: pytest.MonkeyPatch, manager: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    make("abxy")
    stopped: list[str] = []
    monkeypatch.setattr("nnilite._running.managers.ask_to_stop", lambda entry: stopped.append(entry.id))
    monkeypatch.setattr("nnilite._running.managers.wait_until_ended", lambda entry: None)
    assert run(["stop", "all"]) == 0
    assert sorted(stopped) == ["abcd", "abxy"]
    port = manager.url.rpartition(":")[2]
    assert run(["stop", port]) == 3
    assert f"did you mean --port {port}?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code"), [(["--all"], 0), (["all"], 0), ([], 3), (["zz*"], 3), (["--port", "1"], 3), (["nosuch"], 3)]
)
def test_stop_with_nothing_to_stop(home: Path, arguments: list[str], code: int) -> None:
    assert run(["stop", *arguments]) == code


def test_one_that_cannot_be_stopped_does_not_save_the_others(
    make: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    make("abxy")

    def stubborn(entry: registry.RegistryEntry) -> None:
        if entry.id == "abcd":
            raise NniliteError("It will not.")

    monkeypatch.setattr("nnilite._running.managers.ask_to_stop", lambda entry: None)
    monkeypatch.setattr("nnilite._running.managers.wait_until_ended", stubborn)
    assert run(["stop", "--all"]) == 1
    captured = capsys.readouterr()
    assert "abxy is stopped" in captured.out
    assert "ERROR: Experiment abcd: It will not." in captured.err


@pytest.mark.parametrize(
    ("reason", "told"),
    [("paused: the disk is full", "it says: paused: the disk is full"), ("", "manager.log may show why")],
)
def test_a_manager_that_does_not_end_is_asked_why(make: Make, manager: StandIn, reason: str, told: str) -> None:
    make("abcd")
    manager.says("GET /experiment", {**PROFILE, "reason": reason})
    with pytest.raises(NniliteError, match=told):
        managers.wait_until_ended(registry.find("abcd"), timeout_s=0.1)


def test_a_manager_that_cannot_stop_now_is_not_waited_for(
    make: Make, manager: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    manager.says("POST /experiment/stop", {"error": "the disk is full"}, 503)
    monkeypatch.setattr(managers, "wait_until_ended", lambda *_: pytest.fail("it is waited for"))
    assert run(["stop"]) == 1
    assert "the disk is full. `nnictl stop --force abcd` ends its manager" in capsys.readouterr().err


def test_a_manager_that_pauses_on_its_way_to_the_end_is_not_waited_for(make: Make, manager: StandIn) -> None:
    make("abcd")
    manager.says("GET /experiment", {**PROFILE, "reason": "paused: the disk is full"})
    with pytest.raises(NniliteError, match=r"cannot end now: paused: the disk is full\. `nnictl stop --force abcd`"):
        managers.wait_until_ended(registry.find("abcd"), timeout_s=60)


STARTING = """
import os, signal, sys, time
from pathlib import Path
from nnilite._experiments.locking import ManagerLock
held = ManagerLock(Path(sys.argv[2]))
held.acquire()
ended = []  # an Event could be set while its lock is held, by the same thread, which would wait for ever

def obey(number, frame):
    # It gets ready just now, which closes the pipe, and then takes a while to end.
    os.write(1, b'{"ready": "yes"}\\n')
    os.close(1)
    ended.append(number)

signal.signal(signal.SIGTERM, obey)
os.write(2, b"listens")
while not ended:
    time.sleep(0.01)
time.sleep(float(sys.argv[3]))
"""


@contextlib.contextmanager
def starting(folder: Path, ends_after_s: float) -> Iterator[subprocess.Popen[bytes]]:
    """A manager that has its lock and has not said yet where it listens."""
    command = [sys.executable, "-c", STARTING, "nnilite._manager", str(folder), str(ends_after_s)]
    with subprocess.Popen(command, stdout=-1, stderr=-1, start_new_session=True, bufsize=0) as process:
        assert process.stderr is not None
        assert process.stderr.read(7) == b"listens"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.process
def test_a_manager_that_is_just_being_started_is_stopped(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make("abcd", running=False)
    (folder / "manager.json").unlink()
    with starting(folder, 0.0) as process:
        assert run(["stop", "abcd"]) == 0
        assert process.wait(60) == 0


@pytest.mark.process
def test_a_manager_that_gets_ready_while_its_start_is_undone_is_waited_for(make: Make) -> None:
    """Else `create` says that it runs while it ends, and its folder stays."""
    folder = make("abcd", running=False)
    with starting(folder, 1.0) as process:
        assert process.stdout is not None
        ManagerProcess(process, process.stdout, BytesIO()).end(lambda: registry.is_alive(folder))
        assert not registry.is_alive(folder)


def test_force_touches_no_process_but_the_manager(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    """The number in manager.json is that of an earlier manager, where the present one could not write it down."""
    make("abcd")  # this process holds its lock, and 1 stands in its manager.json
    assert run(["stop", "--force"]) == 1
    assert "not a process of yours" in capsys.readouterr().err


@contextlib.contextmanager
def manager_in(folder: Path, word: str) -> Iterator[subprocess.Popen[bytes]]:
    """A manager that has the lock of a folder. Its command line has `word`, and does not name the folder."""
    take = "import os; from pathlib import Path; from nnilite._experiments.locking import ManagerLock"
    take += "; ManagerLock(Path(os.environ['HERE'])).acquire(); print('held', flush=True); input()"
    environment = {**os.environ, "HERE": str(folder)}
    command = [sys.executable, "-c", take, word]
    with subprocess.Popen(command, stdin=-1, stdout=-1, bufsize=0, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.process
@pytest.mark.parametrize(
    ("inside", "word"), [(False, "nnilite._manager"), (True, "nnilite._cli"), (False, "/usr/local/bin/nnictl")]
)
def test_force_ends_the_manager_of_this_folder_and_of_no_other(
    make: Make, tmp_path: Path, inside: bool, word: str
) -> None:
    """A manager that stood by at first has nothing of the experiment on its command line."""
    folder = make("abcd", running=False)
    other = (folder / "trials" if inside else tmp_path / "another home") / "abcd"
    other.mkdir(parents=True)
    with manager_in(other, word) as theirs, manager_in(folder, word) as ours:
        managers.kill(registry.find("abcd"))
        assert ours.wait(60) == -signal.SIGKILL
        assert theirs.poll() is None


@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_left_behind_by_a_stop_is_said_and_is_no_success(
    make: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    make("abcd")
    monkeypatch.setattr("nnilite._running.managers.ask_to_stop", lambda entry: None)
    monkeypatch.setattr("nnilite._running.managers.wait_until_ended", lambda entry: None)
    monkeypatch.setattr("nnilite._running.managers.left_behind", lambda entry: "process group 7 still runs")
    assert run(["stop", "abcd", *(["--json"] if as_json else [])]) == 1
    captured = capsys.readouterr()
    assert "WARNING: process group 7 still runs." in captured.err
    assert ('"abcd": "process group 7 still runs"' if as_json else "is stopped, but something is left") in captured.out
