"""What is said where a program may open no further file."""

from __future__ import annotations

import contextlib
import resource
import sqlite3
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
    with pytest.raises(StoreError, match=CURE), no_files(), translated(path):
        sqlite3.connect(path)


def test_a_file_that_cannot_be_opened_for_lack_of_files_says_so(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Too many open files") as error, no_files():
        (tmp_path / "any").touch()
    assert explain_os_error(error.value).endswith("; raise the limit of open files (`ulimit -n`), then try again.")
