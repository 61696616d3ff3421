"""Turns errors of a database into a StoreError: one sentence with the path, the cause and a cure."""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nnilite.errors import StoreError

_TRANSIENT = ("full", "disk I/O", "readonly", "unable to open")  # words in SQLite's messages about a failing disk
_WRITTEN_AT_ONCE = 65536  # bytes; more than a page of the database, or its frame in the log


_ELSEWHERE = (
    "its file system cannot share memory between programs: keep the experiment on another disk "
    "(experimentWorkingDirectory, or storage of a Search)"
)
RESUME = "stop and resume the experiment"
_AGAIN = "try again"
_FREE_SPACE = "free some disk space, then "


@contextmanager
def translated(path: Path, *, retried: bool = False) -> Iterator[None]:
    """Turn SQLite's errors into StoreError. `retried`: its caller tries again by itself until it works."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text:
            cure = "waiting until it is free" if retried else "try again when it is free"
            raise StoreError(f"{path} is locked by another program; {cure}", busy=True) from error
        if any(word in text for word in _TRANSIENT):
            is_full = "full" in text or _is_full(path)
            rest = ("it continues" if is_full else "retrying") if retried else _AGAIN
            # Python 3.11 has the names of SQLite's codes.
            no_log = not is_full and getattr(error, "sqlite_errorname", "").startswith("SQLITE_IOERR_SHM")
            on_disk = _ELSEWHERE if no_log and not retried else (_FREE_SPACE if is_full else "") + rest
            limit = _cure_size(path) or _cure_files()
            cure = f"{limit}, then {RESUME if retried else _AGAIN}" if limit else on_disk
            raise StoreError(f"{path} cannot be written ({text}); {cure}", busy=True) from error
        # A table is missing, for example, or a text is not UTF-8.
        raise _make_damaged(path, error) from error
    except sqlite3.DatabaseError as error:
        raise _make_damaged(path, error) from error


@contextmanager
def translated_on_read(path: Path, *, retried: bool = False) -> Iterator[None]:
    """Do the same, also for rows that nnilite does not write, such as a text that is not JSON. For reading only."""
    try:
        with translated(path, retried=retried):
            yield
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        text = f"{type(error).__name__}: {error}"
        raise StoreError(
            f"{path} contains data that nnilite does not write ({text:.200}). If a newer nnilite has written it, update"
            " nnilite; if not, restore it from a copy."
        ) from error


def cure_size_limit() -> str:
    """Return what to do where a file would exceed the limit of sizes."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return f"no file may exceed {limit} bytes here: raise that limit (`ulimit -f`)"


def _cure_size(path: Path) -> str:
    """Return what to do if this database, or its log, is as large as this process may make a file; "" if not."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit == resource.RLIM_INFINITY:
        return ""
    size = 0
    for file in (path, path.with_name(f"{path.name}-wal")):
        with suppress(OSError):  # the log may not exist
            size = max(size, file.stat().st_size)
    return "" if size + _WRITTEN_AT_ONCE < limit else cure_size_limit()


def _cure_files() -> str:
    """Return what to do if this process cannot open another file, which SQLite does not say; "" if it can."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EMFILE:
            return "raise the limit of open files (`ulimit -n`)"
    return ""


def _is_full(path: Path) -> bool:
    """Return whether the disk has no room. SQLite calls that an I/O error where it concerns the index of its log."""
    try:
        facts = os.statvfs(path.parent)
    except OSError:
        return False
    return facts.f_bavail * facts.f_frsize < _WRITTEN_AT_ONCE


def closed(path: Path) -> StoreError:
    """Return the error for a request that comes while the manager ends: it may be repeated."""
    sentence = f"this manager is ending and no longer uses {path}; try again in a moment"
    return StoreError(sentence, busy=True)


def _make_damaged(path: Path, error: Exception) -> StoreError:
    return StoreError(f"{path} is damaged or not a database ({error}); restore it from a copy.")
