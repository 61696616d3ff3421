"""Trackers and webhooks in a folder that may come from another person, and after a manager that was killed."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nnilite._side_processes import side_process
from nnilite._side_processes.side_process import is_alone
from nnilite._side_processes.supervision import SupervisedProcess, _started
from nnilite_local._fork_server_client import _start_process


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine"
    path.write_text("mine")
    return path


def test_a_link_in_the_place_of_a_lock_is_not_followed(tmp_path: Path, mine: Path) -> None:
    lock = tmp_path / "0.lock"
    lock.symlink_to(mine)
    with pytest.raises(OSError, match="symbolic links"):
        is_alone(lock)
    assert mine.read_text() == "mine"


@pytest.mark.process
@pytest.mark.parametrize("what", ["link", "pipe"])
async def test_what_lies_in_the_place_of_a_log_is_replaced(tmp_path: Path, mine: Path, what: str) -> None:
    log = tmp_path / "tracker-mlflow.log"
    log.symlink_to(mine) if what == "link" else os.mkfifo(log)
    process = await _started(SupervisedProcess("a tracker", ("this",), log))
    assert await process.wait() == 0
    assert "Beautiful is better than ugly." in log.read_text()
    assert mine.read_text() == "mine"


@pytest.mark.process
async def test_a_link_in_the_place_of_the_fork_servers_log_is_replaced(tmp_path: Path, mine: Path) -> None:
    log = tmp_path / "fork-server.log"
    log.symlink_to(mine)
    process, _, writer = await _start_process(tmp_path / "no keeper", log)
    assert await process.wait() != 0
    writer.close()
    assert "no keeper" in log.read_text()
    assert mine.read_text() == "mine"


def test_who_has_the_lock_is_in_the_log_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = iter([False, False, True])
    monkeypatch.setattr(side_process, "is_over", lambda: next(looks))
    with (tmp_path / "0.lock").open("w") as held, caplog.at_level(logging.INFO):
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not is_alone(tmp_path / "0.lock")
    assert caplog.messages == [f"waiting for the end of process {os.getpid()}, which an earlier manager has left"]


@pytest.mark.process
def test_one_that_waits_for_a_tracker_ends_soon_after_a_manager_that_was_killed() -> None:
    """Its lock would keep the process of the next manager waiting for as long as the tracker does not answer."""
    never = "side_process.limit_last_try(); threading.Event().wait()"
    program = f"import threading; from nnilite._side_processes import side_process; side_process._LAST_S = 1; {never}"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == -signal.SIGALRM
