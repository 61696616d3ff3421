"""What is said where a program may open no further file."""

from __future__ import annotations

import contextlib
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnilite._store.store_errors import translated
from nnilite.errors import StoreError, explain_os_error

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


@pytest.mark.process
def test_a_folder_that_is_gone_is_named_as_such(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = f"import os; os.rmdir({str(gone)!r}); from nnilite._cli import main; main()"
    command = [sys.executable, "-c", program, "create", "it's.yaml"]
    done = subprocess.run(command, cwd=gone, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "ERROR: The current folder is gone; change to another one (`cd`).\n")
