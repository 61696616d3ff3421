"""The right to be an experiment's only manager.

A manager locks the experiment's folder and the file `lock` in it. If the file is removed, a second manager still cannot
start, since the folder stays locked. Some file systems (NFS) cannot lock folders; there only the file counts, and its
holder restores it as soon as it notices. Unlike a process id, a lock cannot be mistaken for another process's, and it
ends with its process, whatever ends that.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nnilite.errors import NotFound, UnreadableFile

_TRIES = 10
_PAUSE_S = 0.05
_NO_FOLDER_LOCKS = {errno.EBADF, errno.EINVAL, errno.EISDIR, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}

_NO_FILE = {errno.EISDIR, errno.ELOOP, errno.ENXIO}
_NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}

# These errors say nothing about the file: neither that it is missing, nor that it is free.
_NOT_NOW = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE}


class ManagerLock:
    """The lock of one manager. It is taken once, and `renew` must be called now and then."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / "lock"
        self._folder = -1
        self._file = -1

    def acquire(self) -> None:
        """Take the lock. Raises: BlockingIOError if another process has it, OSError if locks do not work here."""
        try:
            self._folder = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _lock(self._folder)
            except BlockingIOError:
                raise
            except OSError as error:
                if error.errno not in _NO_FOLDER_LOCKS:
                    raise
            self._file = self._lock_file()
        except OSError:
            self.release()
            raise

    def renew(self) -> bool:
        """Make the lock's file again if it is not the one that was locked. Return whether that was needed.

        Raises: NotFound if the folder is gone, BlockingIOError if another manager was faster, OSError.
        """
        if not is_open_as(self._folder, self._directory):
            raise NotFound(f"the experiment's folder {self._directory} is gone (deleted, moved or not mounted)")
        if is_open_as(self._file, self._path):
            return False
        old, self._file = self._file, self._lock_file()
        os.close(old)
        return True

    def release(self) -> None:
        for descriptor in (self._file, self._folder):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._folder = -1

    def _lock_file(self) -> int:
        while True:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                _lock(file)
            except OSError:
                os.close(file)
                raise
            if is_open_as(file, self._path):
                return file
            # The file was removed between these lines, so its lock protects nothing.
            os.close(file)


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is made if needed and stays. Raises: BlockingIOError if it is not free soon."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(file)
        yield
    finally:
        os.close(file)


def explain_no_lock(directory: Path, error: OSError, pair: str, elsewhere: str) -> str:
    """Return a sentence on a lock that cannot be taken, what it would keep apart, and the cure.

    `elsewhere` says how to use another disk.
    """
    path = directory / "lock"
    if error.errno in _NO_FILE:
        cure = "remove it, since it must be a file that nnilite makes"
    elif error.errno in _NOT_ALLOWED:
        cure = f"run nnilite as the user who may write in {directory}"
    else:
        cure = f"try again later, or {elsewhere}"
    return f"{path} cannot be locked ({error.strerror}), so nothing would keep two {pair} apart; {cure}."


def is_held(directory: Path) -> bool:
    """Return whether a manager holds the lock of the experiment. Raises: UnreadableFile if that is unknown now."""
    return is_locked(directory, os.O_DIRECTORY) or is_locked(directory / "lock")


def is_open_as(descriptor: int, path: Path) -> bool:
    """Return whether an open file is still the one at its path. Raises: OSError if the path cannot be examined."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False


def _lock(descriptor: int) -> None:
    """Lock a file, with some tries: `is_held` in another process may hold the lock for an instant."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        else:
            return
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(path: Path, flag: int = 0) -> bool:
    """Return whether a process holds a lock of this file. Raises: UnreadableFile if that is unknown now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flag)
    except OSError as error:
        if error.errno in _NOT_NOW:
            raise UnreadableFile(path, error.strerror) from error
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def describe_holder(descriptor: int) -> str:
    """Return who has locked an open file, in words: another machine's processes and systems are not asked."""
    inode = f":{os.fstat(descriptor).st_ino} "
    try:
        lines = Path("/proc/locks").read_text("ascii").splitlines()
        # Those that wait for the lock have an arrow in front.
        number = next(int(line.split()[4]) for line in lines if inode in line and line.split()[1] == "FLOCK")
        state = Path(f"/proc/{number}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except (OSError, ValueError, IndexError, StopIteration):
        return "another process"
    stopped = f" (stopped; `kill -CONT {number}` lets it continue)" if state == "T" else ""
    return f"process {number}{stopped}"
