"""The folder of a search that a Python program makes (`Search(storage=...)`), as other programs see it.

It is the folder of an experiment without a manager. `search.json` says so, and has the last state of the search. Each
process that works at the search holds the lock of a file of its own in `processes/` meanwhile; the system releases the
lock of a killed process, so its file is not mistaken for a process at work.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
from pathlib import Path

from nnilite._experiments.documents import is_folder, read_document, write_json
from nnilite._experiments.locking import is_locked
from nnilite.errors import UnreadableFile
from nnilite.records import ExperimentState

PROCESSES = "processes"
FILE = "search.json"

_CURE = "remove it, and the next process of the search writes it again"
_TOKEN = re.compile("[0-9a-f]{16}")


def is_search(directory: Path) -> bool:
    """Return whether a Python program, and not a manager, makes this experiment. Raises: UnreadableFile."""
    return is_folder(directory / PROCESSES)


def is_running(directory: Path) -> bool:
    """Return whether any process works at the search now. Raises: UnreadableFile if that is unknown now."""
    folder = directory / PROCESSES
    try:
        found = list(folder.iterdir())  # `glob` finds nothing in a folder that cannot be read
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise UnreadableFile(folder, error.strerror) from error
    return any(is_locked(path) for path in found if path.suffix == ".lock")


def write_state(directory: Path, state: ExperimentState, ended: float | None) -> None:
    """Write the state of the search, and when it ended. Raises: OSError."""
    write_json(directory / FILE, {"state": state.value, "ended": ended})


def read_state(directory: Path) -> tuple[ExperimentState, float | None]:
    """Return the state of the search, and when it ended. Raises: DamagedFile, UnreadableFile."""
    if is_running(directory):
        return ExperimentState.RUNNING, None
    try:
        document = read_document(directory / FILE, _CURE)
    except FileNotFoundError:
        return ExperimentState.STOPPED, None
    state = document.text("state")
    if state not in (ExperimentState.RUNNING.value, ExperimentState.DONE.value):
        raise document.wrong("state", "RUNNING or DONE")
    # The process that ran it has ended in the middle.
    return (ExperimentState.DONE if state == "DONE" else ExperimentState.STOPPED), document.time("ended")


def explain_no_resume_of_search(experiment: str, directory: Path) -> str:
    """Return the message for an attempt to resume a search with a manager."""
    return (
        f"{experiment} is a search of a Python program; only that program can continue it: "
        f"Search(..., storage={str(directory)!r}). `nnictl view {experiment}` shows it, also while it runs."
    )


class Presence:
    """The sign that this process works at the search, as long as it is not taken back."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / PROCESSES
        self._file = -1
        self.token = secrets.token_hex(8)

    def give(self) -> None:
        """Give the sign. Harmless if it is there already. Raises: OSError."""
        if self._file < 0:
            path = self._directory / f"{self.token}.lock"
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)  # no other process knows this name yet

    def take_back(self) -> None:
        """Take the sign back. Harmless if there is none."""
        if self._file >= 0:
            with contextlib.suppress(FileNotFoundError):
                (self._directory / f"{self.token}.lock").unlink()
            self.forget()

    def forget(self) -> None:
        """Close the file alone: in a forked child, whose parent still has the sign."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def is_given_by(self, token: object) -> bool:
        """Return whether the process with this token still works. Raises: UnreadableFile if that is unknown now."""
        if token == self.token and self._file >= 0:
            return True
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            return False
        return is_locked(self._directory / f"{token}.lock")
