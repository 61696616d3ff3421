"""An attempt's folder as used by programs other than its keeper: services on the same disk, and agents on workers.

    spec.json       the keeper's specification, readable by its owner alone, as it has the trial's token
    job.json        the service's own note on the job, written after the start of its keeper
    .nni/...        the keeper's own files (see `folder`); `tidy` removes them when they are no longer needed

`end_state` derives the state of an ended job, for all services.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
from typing import Any, Dict, List, Mapping, Optional

from . import plain_file
from .folder import Folder
from .trials_folder import make_attempt_folder

_ASKED = ("canceled", "interrupted")
_LOST = ("machine", "fenced")
# The end is removed first and the proof last: wherever this stops, what remains is true, and it can be repeated.
_TIDIED = ("exit", "metrics", "started", "lock", "delivered")
_MAX_BYTES = 100_000_000
TAKEN_CARE_OF = (0, 3, 5, 7)
"""The exit codes of `deliver_command` where it has ended the trial, or found that another keeper does so."""
MOST_DELIVERIES = 30
"""How often `deliver_command` is run for an attempt, while it cannot do its work."""
DELIVERY_S = 30.0
"""How long `deliver_command` may take, in addition to the grace of the trial."""
_LSOF = "/usr/sbin/lsof"


def end_state(exited: Mapping[str, Any]) -> str:
    """Return the state of a job by its keeper's record of the end: "SUCCEEDED", "FAILED", "CANCELED" or "LOST".

    It is lost if its machine could not start the command, or if another run of the same attempt has its place. An
    interrupted keeper has got a SIGTERM; only the manager knows whether the job was to be canceled. Keepers of nnilite
    0.1 record no cause, but their message begins with "canceled".
    """
    cause = exited.get("cause") or ""
    if cause in _ASKED or (not cause and str(exited.get("message") or "").startswith("canceled")):
        return "CANCELED"
    if cause in _LOST:
        return "LOST"
    return "SUCCEEDED" if exited.get("code") == 0 else "FAILED"


class AttemptFiles:
    """One attempt's folder. Nothing is touched before `create`."""

    def __init__(self, path: str) -> None:
        self.folder = Folder(path)
        self.spec_file = os.path.join(path, "spec.json")
        self._lock = os.path.join(self.folder.inner, "lock")

    def create(self, spec: Mapping[str, Any]) -> None:
        """Make the folder with its specification, both for its owner alone. Raises: OSError."""
        make_attempt_folder(self.folder.path)
        write_private(self.spec_file, json.dumps(spec))

    def spec(self) -> Dict[str, Any]:
        """Return the specification; {} if there is none (any more). Raises: OSError if it cannot be read now."""
        return read_json(self.spec_file) or {}

    def read_note(self) -> Optional[Dict[str, Any]]:
        """Return the service's note on the job that was started here, if one was. Raises: OSError."""
        return read_json(os.path.join(self.folder.path, "job.json"))

    def keep_note(self, note: Mapping[str, Any]) -> None:
        """Write the service's note on the job. Raises: OSError."""
        write_private(os.path.join(self.folder.path, "job.json"), json.dumps(note))

    def forget_note(self) -> None:
        """Remove the note. Raises: OSError."""
        try:
            os.unlink(os.path.join(self.folder.path, "job.json"))
        except FileNotFoundError:  # it is gone already, which is what was wanted
            return

    def started(self) -> Optional[Dict[str, Any]]:
        """Return the keeper's record of the trial's start: its process, `time`; None if there is none.

        Raises: OSError.
        """
        return self.folder.read("started")

    def exited(self) -> Optional[Dict[str, Any]]:
        """Return the keeper's record of the end: `code`, `message`, `cause`, `time`; None if none. Raises: OSError."""
        return self.folder.read("exit")

    def was_begun(self) -> bool:
        """Return whether a keeper has ever been at work here. Raises: OSError."""
        return plain_file.is_there(self._lock)

    def has_keeper(self) -> bool:
        """Return whether the locks show a keeper at work here. Raises: OSError if the folder cannot be examined now."""
        return self.is_locked() is True

    def is_locked(self) -> Optional[bool]:
        """Return whether a keeper is at work here; None if this file system has no locks.

        Raises: OSError if the lock cannot be examined now.
        """
        try:
            lock = os.open(self._lock, os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return None
        finally:
            os.close(lock)
        return False

    def waits_for_keeper(self) -> bool:
        """Return whether the attempt is to be run and no keeper has begun. Raises: OSError."""
        return plain_file.is_there(self.spec_file) and not self.was_begun()

    def is_tidied(self) -> bool:
        """Return whether a trial has run here and only its own files are left. Raises: OSError."""
        parameters = os.path.join(self.folder.path, "parameter.cfg")
        has_run = plain_file.is_there(parameters)
        return has_run and not plain_file.is_there(self.spec_file) and not self.was_begun()

    def tidy(self) -> bool:
        """Remove the keeper's own files if the manager has all of their content. Return whether it has.

        Call it when the manager has recorded the end, and no keeper is being started. Other programs' files next to
        these stay, and so does a keeper's log that is not empty. Raises: OSError.
        """
        delivered = self.folder.read("delivered")
        if delivered is None or delivered.get("whole") is not True or self.has_keeper():
            return False
        # The trial may have put a link in the place of the folder, and what it leads to is not ours.
        inner = os.open(self.folder.inner, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for name in _TIDIED:
                _unlink(name, inner)
        finally:
            os.close(inner)
        try:
            os.rmdir(self.folder.inner)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        return True

    def keeper(self) -> int:
        """Return the process id of the keeper at work here, searched among all; 0 if there is none. Raises: OSError."""
        if not self.has_keeper():
            return 0
        wanted = os.path.realpath(self._lock)
        if os.path.exists("/proc/self/stat"):
            return next((pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _opens(pid, wanted)), 0)
        return _find_holder_by_lsof(wanted)


def deliver_command(python: str, keeper: str, files: AttemptFiles) -> List[str]:
    """Return the command that ends the trial of a dead keeper and delivers what is undelivered."""
    return [python, "-I", "-S", keeper, "deliver", files.folder.path, files.spec_file]


def fetch_command(python: str, keeper: str, archive: str) -> List[str]:
    """Return the command that brings a code package from the shared storage, whose description it reads as JSON.

    It prints why it could not, with exit code 1, and ends by itself where the storage hangs.
    """
    return [python, "-I", "-S", keeper, "fetch", archive]


def read_json(path: str) -> Optional[Dict[str, Any]]:
    """Return the JSON object in a file; None if there is none. Raises: OSError if it cannot be read now."""
    try:
        value = json.loads(plain_file.read(path, _MAX_BYTES).decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def write_private(path: str, text: str) -> None:
    """Write ASCII text, whole or not at all, readable by the owner alone. Raises: OSError."""
    draft = "{}.{}.new".format(path, os.getpid())
    try:
        plain_file.write(draft, text.encode("ascii"))
        os.replace(draft, path)
    except OSError:
        try:
            os.unlink(draft)
        except OSError:  # the file was never made, and the first error says why
            pass
        raise


def _unlink(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:  # a trial that could not be started has not all of them
        return


def _opens(pid: int, path: str) -> bool:
    """Return whether the process has the file open; False for processes of others."""
    folder = "/proc/{}/fd".format(pid)
    try:
        return any(os.path.realpath(os.path.join(folder, name)) == path for name in os.listdir(folder))
    except OSError:
        return False


def _find_holder_by_lsof(path: str) -> int:
    """Return the process that has the file open, on macOS."""
    try:
        found = subprocess.run([_LSOF, "-t", path], stdout=subprocess.PIPE, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    first = found.stdout.split()[:1]
    return int(first[0]) if first and first[0].isdigit() else 0
