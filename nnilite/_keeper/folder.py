"""The files of one attempt, from which any process can learn how far the attempt has come.

    parameter.cfg       the parameters, NNI's record
    trial.stdout, trial.stderr
    code/               the working copy, if the trial has one of its own
    .nni/metrics        the spool: one line for each report
    .nni/started        the process that runs it: pid, start time, host, boot, and the run
    .nni/exit           how it ended, and the run
    .nni/delivered      how much of all this the manager has
    .nni/keeper.log     the keeper's log
    .nni/lock           locked by the keeper at work

Files are written under another name and renamed, so each is whole or absent. The disk space of `.nni/exit` is reserved
at the start, so that the end can be recorded on a full disk, too.

A run is one start of the attempt's command. Its identity is drawn by the keeper that is about to start it, and written
together with the reservation: any later report for this folder is a report for that run.
"""

from __future__ import annotations

import fcntl
import os
import time

from nnilite._cpython import dumps, loads

from . import plain_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

_RESERVED_BYTES = 16384
_LOCK_TRIES, _LOCK_AGAIN_S = 3, 0.01
_MAX_LOG_BYTES = 1_000_000
_MAX_RECORD_BYTES = 1_000_000
MAX_RUN_CHARS = 64
WRITER_SUFFIX = ".attempt"  # suffix of the note next to a checkpoint folder: see `checkpoint_note`


def is_checkpoint_draft(name: str) -> bool:
    """Return whether a file has the name under which `nnilite.checkpoint` writes it."""
    return name.startswith(".") and name.endswith(".new")


class Folder:
    """One attempt's folder. Nothing is touched before `create`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.inner = os.path.join(path, ".nni")
        self.metrics = os.path.join(self.inner, "metrics")
        self.log = os.path.join(self.inner, "keeper.log")
        self.stdout = os.path.join(path, "trial.stdout")
        self.stderr = os.path.join(path, "trial.stderr")
        self.can_lock = True  # False on a file system without locks
        self._held: Optional[int] = None

    def create(self) -> None:
        """Make the folder, which only its user can open. Raises: OSError."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        os.makedirs(self.inner, mode=0o700, exist_ok=True)

    def lock(self) -> bool:
        """Become the keeper of this attempt, until `unlock` or the end of this process.

        Return False if there is another.
        """
        lock = os.open(os.path.join(self.inner, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(lock)
        except BlockingIOError:
            os.close(lock)
            return False
        except OSError as error:  # this file system has no locks
            self.add_to_log("no lock: {}".format(error))
            self.can_lock = False
        self._held = lock
        return True

    def unlock(self) -> None:
        """Stop being this attempt's keeper."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def reserve(self, run: str) -> bool:
        """Reserve disk space for later files, and note the identity of the run in it.

        Return False if an earlier keeper has run this attempt. Raises: OSError.
        """
        if any(plain_file.is_there(os.path.join(self.inner, name)) for name in ("started", "exit", "exit.new")):
            return False
        content = dumps({"run": run}).encode("ascii").ljust(_RESERVED_BYTES)
        for name in ("started", "exit"):
            plain_file.write(self._draft(name), content)
        return True

    def run(self) -> str:
        """Return the identity of the run that was begun here; "" if it is not known.

        Keepers of earlier versions did not write it. Raises: OSError if it cannot be read now.
        """
        for name in ("started", "exit", "started.new", "exit.new"):
            run = (self.read(name) or {}).get("run")
            if isinstance(run, str) and len(run) <= MAX_RUN_CHARS and run.isascii():
                return run
        return ""

    def give_back(self) -> None:
        """Remove the reservation if nothing has begun, so that the next keeper does not misread it."""
        for name in ("started", "exit"):
            try:
                os.unlink(self._draft(name))
            except OSError:
                continue

    def read(self, name: str) -> Optional[Dict[str, Any]]:
        """Return the JSON object in `.nni/<name>`; None if there is none. Raises: OSError if it cannot be read now."""
        try:
            value = loads(plain_file.read(os.path.join(self.inner, name), _MAX_RECORD_BYTES).decode("utf-8"))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except (ValueError, RecursionError):  # the trial may have written to it
            return None
        return value if isinstance(value, dict) else None

    def write(self, name: str, value: Dict[str, Any]) -> bool:
        """Write the JSON object to `.nni/<name>`. A failure goes to the log and returns False."""
        draft = self._draft(name)
        try:
            self._fill(draft, dumps(value).encode("utf-8"))
            os.replace(draft, os.path.join(self.inner, name))
        except OSError as error:
            self.add_to_log("{} cannot be written: {}".format(name, error))
            return False
        return True

    def write_parameters(self, parameters: Any) -> None:
        """Write parameter.cfg. Raises: OSError."""
        path = os.path.join(self.path, "parameter.cfg")
        self._fill(path + ".new", dumps(parameters).encode("utf-8"))
        os.replace(path + ".new", path)

    def is_disk_full(self) -> bool:
        """Return whether there is no space left for the trial's files."""
        try:
            disk = os.statvfs(self.path)
        except OSError:
            return False
        return disk.f_bavail * disk.f_frsize < _RESERVED_BYTES

    def add_to_log(self, text: str) -> None:
        """Add a line to the keeper's log, if possible: a failure here must not affect the trial."""
        line = "{} {}\n".format(time.strftime("%Y-%m-%d %H:%M:%S"), text)
        try:
            with open(self.log, "ab", opener=_open_private) as file:
                if file.tell() < _MAX_LOG_BYTES:
                    file.write(line.encode("utf-8", "replace"))
        except OSError:
            return

    def _draft(self, name: str) -> str:
        return os.path.join(self.inner, name + ".new")

    def _fill(self, path: str, data: bytes) -> None:
        """Write over the reserved content, which has its disk space already."""
        plain_file.write(path, data, flags=0, cut_at=len(data))


def is_gone(path: str) -> bool:
    """Return whether a path has been deleted; a network file system that fails for a while does not count."""
    try:
        return not plain_file.is_there(path)
    except OSError:
        return False


def _lock(file: int) -> None:
    """Lock the file.

    Raises: BlockingIOError if another process keeps its lock; one that only looks has it for a moment.
    """
    for _ in range(_LOCK_TRIES):
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_AGAIN_S)
    return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK, 0o600)
