"""What is said where a program may open no further file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnilite._store.store_errors import translated
from nnilite.errors import NniliteError, StoreError, explain_os_error
from nnilite.search import Search

CURE = r"raise the limit of open files \(`ulimit -n`\)"


@contextlib.contextmanager
def no_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_database_that_cannot_be_opened_for_lack_of_files_says_so(tmp_path: Path) -> None:
    path = tmp_path / "it's.sqlite"
    with pytest.raises(StoreError, match=CURE + ", then try again$"), no_files(), translated(path):
        sqlite3.connect(path)
    with pytest.raises(StoreError, match=CURE + ", then stop and resume"), no_files(), translated(path, retried=True):
        sqlite3.connect(path)


def test_a_file_that_cannot_be_opened_for_lack_of_files_says_so(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Too many open files") as error, no_files():
        (tmp_path / "any").touch()
    assert explain_os_error(error.value).endswith("; raise the limit of open files (`ulimit -n`), then try again.")


def test_a_search_whose_lock_cannot_be_opened_for_lack_of_files_says_so(tmp_path: Path) -> None:
    search = Search({"x": {"_type": "uniform", "_value": [0, 1]}}, "Random", storage=tmp_path / "it's a search")
    with pytest.raises(StoreError, match=CURE) as error, no_files():
        search.ask()
    assert error.value.busy
    assert search.run(lambda parameters: parameters["x"], trials=2).trials[-1].sequence == 1


def test_a_time_limit_while_a_search_waits_is_raised_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = Search({"x": {"_type": "uniform", "_value": [0, 1]}}, "Random", storage=tmp_path / "it's a search")

    def ring(_: object, flags: int) -> None:
        if flags & fcntl.LOCK_EX:
            raise TimeoutError("the time is up")

    monkeypatch.setattr(fcntl, "flock", ring)
    with pytest.raises(TimeoutError, match="the time is up"):
        search.ask()
    monkeypatch.undo()
    assert search.ask().sequence == 0


def test_a_search_lets_go_though_the_system_does_not_unlock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fcntl.flock

    def refuse(file: int, flags: int) -> None:
        if flags & fcntl.LOCK_UN:
            raise OSError(errno.EIO, "Input/output error")
        real(file, flags)

    monkeypatch.setattr(fcntl, "flock", refuse)
    search = Search({"x": {"_type": "uniform", "_value": [0, 1]}}, "Random", storage=tmp_path / "it's a search")
    assert len(search.run(lambda parameters: parameters["x"], trials=2).trials) == 2


def test_a_search_that_cannot_be_listed_names_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NNILITE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/proc/nobody")
    cause = r"search: /proc/nobody.*The home folder '/proc/nobody' does not exist: set HOME to a folder of your own"
    with pytest.raises(NniliteError, match=cause):
        Search({"x": {"_type": "uniform", "_value": [0, 1]}}, "Random", storage=tmp_path / "it's a search")


@pytest.mark.process
def test_a_folder_that_is_gone_is_named_as_such(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = f"import os; os.rmdir({str(gone)!r}); from nnilite._cli import main; main()"
    command = [sys.executable, "-c", program, "create", "it's.yaml"]
    done = subprocess.run(command, cwd=gone, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "ERROR: The current folder is gone; change to another one (`cd`).\n")
