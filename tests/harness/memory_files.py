"""With `pytest -n` the files of tests are in memory, if that has room: `/dev/shm`.

A disk takes a hundred times as long to sync or to remove a file, which tests do thousands of times. What a failed run
leaves stays until the next run.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ROOM = 8 << 30
"""In bytes: several times what all tests leave, beside the memory of their programs."""
_PREFIX, _LOCK = "nnilite-run-", ".lock"

_SESSION = pytest.StashKey[pytest.Session]()
_FOLDER = pytest.StashKey[Path]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    side_by_side = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if side_by_side and not config.option.basetemp and has_room(MEMORY):
        folder = config.stash[_FOLDER] = take_folder(MEMORY)
        config.option.basetemp = str(folder)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[_SESSION] = session


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the files of a run that has passed."""
    session, folder = config.stash.get(_SESSION, None), config.stash.get(_FOLDER, None)
    if folder is not None and session is not None and session.exitstatus == pytest.ExitCode.OK:
        shutil.rmtree(folder, ignore_errors=True)
        folder.with_suffix(_LOCK).unlink(missing_ok=True)


def has_room(memory: Path) -> bool:
    """Return whether the files of all tests fit in, and programs among them can be started."""
    try:
        place = os.statvfs(memory)
    except OSError:
        return False
    room = min(place.f_bavail * place.f_frsize, _free_memory())
    return os.access(memory, os.W_OK) and not place.f_flag & os.ST_NOEXEC and room >= ROOM


def _free_memory() -> int:
    """Return in bytes what programs can still have."""
    found = re.search(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(found[1]) << 10 if found else 0


def take_folder(memory: Path) -> Path:
    """Return the folder for this run, after removing those of runs that have ended.

    Each run locks a file beside its folder. Its process id says nothing to containers that have this memory, too.
    """
    for lock in memory.glob(f"{_PREFIX}*{_LOCK}"):
        with lock.open("rb") as file:
            if _has_locked(file.fileno()):
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                lock.unlink(missing_ok=True)
    folder = memory / f"{_PREFIX}{secrets.token_hex(4)}"
    _has_locked(os.open(f"{folder}{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    return folder


def _has_locked(file: int) -> bool:
    """Lock a file for as long as it is open in this process. Return whether no other process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
