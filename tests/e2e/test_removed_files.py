"""Files of an experiment that somebody deletes or replaces while its manager runs."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import psutil
import pytest

from nnilite._cli.nnictl import run
from nnilite._experiments import registry
from nnilite._running import launch, managers
from nnilite.errors import NniliteError
from nnilite.testing import eventually

STEPS = 40
SLOW = f"""
import time, nnilite
p = nnilite.get_next_parameter()
for i in range({STEPS}):
    nnilite.report_intermediate_result(i)
    time.sleep(0.1)
nnilite.report_final_result(p["x"])
"""
SUFFIXES = ("", "-wal", "-shm")


def stored(running: Any) -> dict[str, list[float]]:
    """What a program that opens the file at its path finds of intermediate results, by trial."""
    found: dict[str, list[float]] = {}
    with contextlib.closing(sqlite3.connect(running.directory / "nnilite.sqlite")) as db:
        for trial, value in db.execute("SELECT trial, value FROM metrics WHERE final = 0 ORDER BY trial, idx"):
            found.setdefault(trial, []).append(float(value))
    return found


def begun(running: Any) -> None:
    running.wait_for(lambda: len(list(running.client.metrics(kind="PERIODICAL"))) > 4)


def log_of(running: Any) -> str:
    return str((running.directory / "log" / "manager.log").read_text())


@pytest.mark.parametrize(
    "gone",
    [SUFFIXES, ("",), *(pytest.param((suffix,), marks=pytest.mark.long) for suffix in ("-wal", "-shm"))],
    ids=["all", "file", "wal", "shm"],
)
def test_a_database_that_is_deleted_is_written_back_and_nothing_is_lost(start: Any, gone: tuple[str, ...]) -> None:
    running = start(SLOW, maxTrialNumber=2)
    begun(running)
    path = running.directory / "nnilite.sqlite"
    for suffix in gone:
        path.with_name(path.name + suffix).unlink()
    running.wait("DONE")
    running.kill_manager()
    assert list(stored(running).values()) == [list(range(STEPS))] * 2
    assert "it is written back" in log_of(running)
    again = running.resume()
    assert len(again.trials(states=["SUCCEEDED"])) == 2


def test_a_database_that_is_replaced_holds_up_results_until_the_other_file_is_gone(start: Any) -> None:
    running = start(SLOW, maxTrialNumber=1)
    begun(running)
    path = running.directory / "nnilite.sqlite"
    foreign = running.directory / "foreign"
    foreign.write_bytes(b"an older copy")
    foreign.replace(path)
    running.wait_for(lambda: "was replaced by another file" in running.client.profile()["reason"])
    assert path.read_bytes() == b"an older copy"
    path.unlink()
    running.wait("DONE")
    assert list(stored(running).values()) == [list(range(STEPS))]


def test_without_its_lock_file_a_manager_is_still_the_only_one_and_can_be_stopped(start: Any) -> None:
    running = start(SLOW, maxTrialNumber=1)
    (running.directory / "lock").unlink()
    with pytest.raises(NniliteError, match="has a manager already"):
        launch.resume(running.entry, options=launch.ManagerOptions(port=0))
    running.wait_for((running.directory / "lock").exists)
    managers.stop(registry.find(running.entry.id))
    assert not registry.is_alive(running.directory)


NO_FOLDER_LOCKS = """
import errno, fcntl, os, stat
lock = fcntl.flock
def flock(file, operation):
    if stat.S_ISDIR(os.fstat(file).st_mode):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return lock(file, operation)
fcntl.flock = flock
"""


@pytest.fixture
def no_folder_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Managers find a file system such as NFS, which locks no folders."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(NO_FOLDER_LOCKS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))


def suspended_between_commits(pid: int, directory: Path) -> psutil.Process:
    """In the middle of one it would hold the database's lock, and rightly keep everybody else out."""
    process = psutil.Process(pid)

    def suspended() -> bool:
        process.suspend()
        with contextlib.closing(sqlite3.connect(directory / "nnilite.sqlite", timeout=0, isolation_level=None)) as db:
            try:
                db.execute("BEGIN IMMEDIATE")
                db.execute("ROLLBACK")
            except sqlite3.OperationalError:
                process.resume()
                return False
        return True

    eventually(suspended)
    return process


@pytest.mark.usefixtures("no_folder_locks")
def test_the_first_of_two_managers_commits_nothing_more_and_ends(start: Any) -> None:
    running = start(SLOW, maxTrialNumber=2)
    begun(running)
    first = suspended_between_commits(running.entry.pid, running.directory)
    (running.directory / "lock").unlink()
    second = running.resume()
    first.resume()
    running.wait_for(lambda: _has_ended(first))
    second.wait("DONE")
    assert list(stored(second).values()) == [list(range(STEPS))] * 2
    assert "over" in log_of(second)


def _has_ended(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    return True


def test_what_others_find_a_manager_by_is_made_again(start: Any) -> None:
    running = start(SLOW, maxTrialNumber=1)
    names = ("manager.json", "token", "callback", "config.json", "keeper.pyz", "lock", "log/manager.log")
    (running.directory / "manager.json").write_text('{"port": "abc"}')
    for name in names[1:]:
        (running.directory / name).unlink()
    registry.find_path(running.entry.id).write_text("{}")
    running.wait_for(lambda: all((running.directory / name).exists() for name in names))
    running.wait_for(lambda: registry.find(running.entry.id).url == running.entry.url)
    managers.stop(registry.find(running.entry.id))


def test_a_log_that_was_rotated_by_a_move_is_continued_in_a_new_file(start: Any) -> None:
    running = start(SLOW, maxTrialNumber=1)
    former = (running.directory / "log" / "manager.log").rename(running.directory / "log" / "manager.log.1")
    running.wait_for(lambda: (running.directory / "log" / "manager.log").exists())
    running.wait_for(lambda: "was removed or moved while the manager runs" in log_of(running))
    assert former.read_text()


def test_trials_start_without_the_keeper_that_was_deleted(start: Any) -> None:
    running = start(maxTrialNumber=1)
    running.wait("DONE")
    (running.directory / "keeper.pyz").unlink()
    shutil.rmtree(running.directory / "log")
    running.client.update(maxTrialNumber=4)
    running.wait_for(lambda: len(running.trials(states=["SUCCEEDED"])) == 4)
    assert {trial["attempt"] for trial in running.trials()} == {0}


def test_a_resume_makes_the_folders_and_the_keeper_again(start: Any) -> None:
    running = start(maxTrialNumber=1)
    running.wait("DONE")
    running.stop()
    for name in ("log", "trials", "code", "checkpoint"):
        shutil.rmtree(running.directory / name)
    (running.directory / "keeper.pyz").unlink()
    again = running.resume()
    again.client.update(maxTrialNumber=2)
    again.wait_for(lambda: len(again.trials(states=["SUCCEEDED"])) == 2)


def test_a_manager_whose_folder_is_deleted_ends(start: Any) -> None:
    running = start(SLOW, maxTrialNumber=2)
    begun(running)
    manager = psutil.Process(running.entry.pid)
    # The manager may make some of it again, its log as well, while other files are still to be deleted.
    running.wait_for(lambda: shutil.rmtree(running.directory, ignore_errors=True) or not running.directory.exists())
    running.wait_for(lambda: _has_ended(manager))
    running.client.close()
    _check_damaged(running.entry.id)


def test_a_manager_whose_folder_is_gone_at_once_ends_and_its_log_says_why(start: Any, tmp_path: Path) -> None:
    running = start(SLOW, maxTrialNumber=2)
    begun(running)
    manager = psutil.Process(running.entry.pid)
    log_file = (running.directory / "log" / "manager.log").open()
    running.directory.rename(tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone", ignore_errors=True)  # a trial may write there meanwhile
    running.wait_for(lambda: _has_ended(manager))
    running.client.close()
    with log_file:
        assert "is gone (deleted, moved or not mounted)" in log_file.read()
    _check_damaged(running.entry.id)


def _check_damaged(experiment: str) -> None:
    entry = registry.entry(experiment)
    assert entry is not None
    assert entry.state == "DAMAGED"


def test_output_that_was_removed_is_not_taken_for_no_output(start: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ("import sys, nnilite", "nnilite.get_next_parameter()", "print('warned', file=sys.stderr)")
    trial = "\n".join((*lines, "nnilite.report_final_result(1)"))
    running = start(trial, maxTrialNumber=2)
    running.wait("DONE")
    first, second = (running.directory / "trials" / trial["id"] for trial in running.trials())
    (first / "0" / "trial.stdout").unlink()
    shutil.rmtree(second)

    def asked(folder: Path, stream: str) -> tuple[int, str]:
        code = run(["log", stream, running.entry.id, "--trial", folder.name])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    for has_manager in (True, False):
        if not has_manager:
            running.kill_manager()
        for folder in (first, second):
            code, message = asked(folder, "stdout")
            assert code
            assert f"{folder / '0' / 'trial.stdout'} was moved or removed" in message
        assert asked(first, "stderr") == (0, "warned\n")
        code, both = asked(first, "trial")
        assert code == 3
        assert "warned\n" in both
        assert f"{first / '0' / 'trial.stdout'} was moved or removed" in both
