"""With `pytest -n` the files of tests are in memory, if that has room: `/dev/shm`.

A disk takes a hundred times as long to sync or to remove a file, which tests do thousands of times. What a failed run
leaves stays until the next run.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ROOM = 8 << 30
"""In bytes: several times what all tests leave, beside the memory of their programs."""
_PREFIX = "nnilite-tests-"

_SESSION = pytest.StashKey[pytest.Session]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    side_by_side = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if side_by_side and not config.option.basetemp and has_room(MEMORY):
        config.option.basetemp = str(take_folder(MEMORY))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[_SESSION] = session


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the files of a run that has passed."""
    session, folder = config.stash.get(_SESSION, None), config.option.basetemp
    if folder == str(_own_folder(MEMORY)) and session is not None and session.exitstatus == pytest.ExitCode.OK:
        shutil.rmtree(folder, ignore_errors=True)


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
    """Return the folder for this run, after removing those of runs that have ended."""
    for folder in memory.glob(f"{_PREFIX}*"):
        if not Path("/proc", folder.name.removeprefix(_PREFIX)).exists():
            shutil.rmtree(folder, ignore_errors=True)
    return _own_folder(memory)


def _own_folder(memory: Path) -> Path:
    return memory / f"{_PREFIX}{os.getpid()}"
