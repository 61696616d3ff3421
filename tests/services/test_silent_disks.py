"""Where a disk does not say whether a file is there, no trial counts as lost, no work as missing, and nothing goes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("paramiko")
pytest.importorskip("redis")

from nnilite._keeper import attempt_run
from nnilite._keeper.folder import Folder
from nnilite._keeper.spec import parse
from nnilite._keeper.wake import Wake
from nnilite.service import Job, JobState
from nnilite.services.keeper_folder import KeeperFolder, missing_output
from nnilite.services.worker_side import FolderLooks
from nnilite_local._keeper_watch import LocalWatch
from nnilite_redis import RedisConfig
from nnilite_redis._convert import task_of
from nnilite_redis._worker import pool_worker
from nnilite_redis._worker.attempt import WorkerAttempt
from nnilite_redis._worker.task import read_task
from nnilite_remote._worker import agent, checkpoints, transfer
from nnilite_remote._worker.attempt import HostedAttempt
from silent_disk import failing_at

Break = Callable[[Path | str], None]


@pytest.fixture
def fail_at(monkeypatch: pytest.MonkeyPatch) -> Break:
    """Have the disk not say whether this path is there. It is."""
    return lambda path: monkeypatch.setattr(os, "stat", failing_at(path))


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    """The folder of an attempt that has begun."""
    path = tmp_path / "trials" / "T" / "0"
    KeeperFolder(path).create({"token": "secret"})
    (path / ".nni").mkdir()
    (path / ".nni" / "lock").touch()
    return path


def silent() -> Any:
    return pytest.raises(OSError, match="Input/output error")


def test_an_attempt_that_has_begun_is_not_run_again(attempt: Path, fail_at: Break) -> None:
    (attempt / ".nni" / "started").write_text("{}")
    fail_at(attempt / ".nni" / "started")
    with silent():
        Folder(str(attempt)).reserve("run")


def test_a_dead_keepers_events_do_not_count_as_delivered(attempt: Path, fail_at: Break) -> None:
    fail_at(attempt / ".nni")
    spec = {
        "version": 1,
        "job": "nni-e-T-0",
        "experiment": "e",
        "trial": "T",
        "command": "true",
        "directory": str(attempt),
    }
    with silent():
        attempt_run.deliver(parse(spec), Wake())


@pytest.mark.parametrize("ask", ["was_begun", "waits_for_keeper", "is_tidied"])
def test_whether_a_keeper_has_begun_is_not_known(attempt: Path, fail_at: Break, ask: str) -> None:
    (attempt / "parameter.cfg").touch()
    if ask == "is_tidied":
        (attempt / "spec.json").unlink()
    fail_at(attempt / ".nni" / "lock")
    with silent():
        getattr(KeeperFolder(attempt), ask)()


async def test_output_that_is_here_is_not_read_again(attempt: Path, fail_at: Break) -> None:
    async def read(name: str, offset: int) -> bytes:
        raise AssertionError("read again")

    (attempt / "trial.stdout").write_text("line\n")
    fail_at(attempt / "trial.stdout")
    with silent():
        await missing_output(attempt, read)


async def test_a_local_trial_whose_keeper_was_killed_is_not_lost_yet(attempt: Path, fail_at: Break) -> None:
    class Gone:
        def has(self, *_: object) -> bool:
            return False

    fail_at(attempt / "spec.json")
    watch: Any = LocalWatch(FolderLooks(), Gone(), Gone(), "here")  # type: ignore[arg-type]
    (status,) = await watch.statuses([{"directory": str(attempt)}])
    assert (status.state, "cannot be read now: Input/output error" in status.reason) == (JobState.UNKNOWN, True)


def _hosted(attempt: Path) -> Any:
    return HostedAttempt({"directory": str(attempt), "boot": None})


@pytest.mark.parametrize("place", [".nni/", "spec.json"])
def test_a_trial_on_a_host_is_not_lost_yet(attempt: Path, tmp_path: Path, fail_at: Break, place: str) -> None:
    settings = {"experiment": "e", "key": "k", "directory": str(tmp_path), "keeper": "keeper.pyz", "service": "remote"}
    told = agent.Agent(settings)
    fail_at(f"{attempt}/{place}")
    with silent():
        told._status(_hosted(attempt))


def test_a_hosts_folder_that_does_not_answer_is_not_gone(attempt: Path, fail_at: Break) -> None:
    fail_at(attempt)
    with silent():
        transfer.send({"path": str(attempt)}, print)


@pytest.mark.parametrize("place", ["trials/T", "checkpoints/T", "checkpoints/T.from"])
def test_the_checkpoints_of_a_host_are_not_missing(
    attempt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail_at: Break, place: str
) -> None:
    (tmp_path / "checkpoints" / "T").mkdir(parents=True)
    (tmp_path / "checkpoints" / "T" / "step").touch()
    assert checkpoints.trace(str(tmp_path), "T")["checkpoint"] == 0
    fail_at(tmp_path / place)
    monkeypatch.setattr("builtins.open", failing_at(tmp_path / place, open))
    with silent():
        checkpoints.trace(str(tmp_path), "T")


def test_the_outputs_of_a_host_stay(attempt: Path, fail_at: Break) -> None:
    (attempt / "model.bin").touch()
    fail_at(attempt)
    with silent():
        _hosted(attempt).clean(True)
    assert (attempt / "model.bin").exists()


def test_the_folder_of_a_host_stays_while_a_trial_may_run(attempt: Path, tmp_path: Path, fail_at: Break) -> None:
    (tmp_path / "checkpoints" / "T").mkdir(parents=True)
    (tmp_path / "checkpoints" / "T" / "step").touch()
    fail_at(_hosted(attempt).inner(""))
    with silent():
        agent._remove_empty(str(tmp_path), False)
    assert (tmp_path / "checkpoints" / "T" / "step").exists()


def test_the_outputs_of_a_worker_stay(tmp_path: Path, fail_at: Break) -> None:
    job = Job("nni-e-T-0", "e", "T", 0, 0, {})
    task = read_task(task_of(job, RedisConfig("redis://localhost"), "code.tar.gz", "keeper-1"))
    attempt = WorkerAttempt(task, tmp_path, None)
    attempt.path.mkdir(parents=True)
    (attempt.path / "model.bin").touch()
    fail_at(attempt.path)
    with silent():
        attempt.clean()
    assert (attempt.path / "model.bin").exists()


def test_a_worker_keeps_its_name(tmp_path: Path, fail_at: Break) -> None:
    name = pool_worker._name(tmp_path, "")
    fail_at(tmp_path / "name")
    with silent():
        pool_worker._name(tmp_path, "")
    assert (tmp_path / "name").read_text() == name
