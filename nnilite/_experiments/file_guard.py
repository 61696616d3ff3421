"""Protects the manager's own files, which people may delete or damage while it runs.

The guard restores what it can: folders, logs, the keeper, the small files with the manager's address, and the lock. The
manager has to end if another one has the experiment, or if its whole folder is gone. The database guards itself
(`Store.keep_place`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nnilite import _keeper
from nnilite._experiments import registry
from nnilite._experiments.documents import write_content
from nnilite._experiments.locking import ManagerLock, is_open_as
from nnilite._experiments.new_folders import make_own_folder
from nnilite._logging.log_file import open_log
from nnilite.errors import Conflict, NotFound, ServiceError, describe_os_error
from nnilite.records import Attempt, Trial
from nnilite.service import Job

log = logging.getLogger(__name__)

_GONE_LOOKS = 3
"""The folder counts as gone after so many looks in a row, since a network drive may be away for an instant."""


_Look = tuple[int, int, int]


class KeeperFile:
    """The keeper with which trials are started. The manager builds it, and builds it again if it was changed.

    `parts`: what it has, as for `_keeper.build`.
    """

    def __init__(self, path: Path, **parts: bool) -> None:
        self._path = path
        self._parts = parts
        self._built: _Look | None = None
        self._lock = threading.Lock()
        self.keep()

    def keep(self) -> None:
        """Build the keeper unless its file is there unchanged. Raises: OSError."""
        with self._lock:
            if self._built is None or _look_at(self._path) != self._built:
                self._built = _look_at(_keeper.build(self._path, **self._parts))

    def before(self, make: Callable[[Trial, Attempt], Job]) -> Callable[[Trial, Attempt], Job]:
        """Return a maker of jobs that checks the keeper first: no job can begin without it. Raises: ServiceError."""

        def job(trial: Trial, attempt: Attempt) -> Job:
            try:
                self.keep()
            except OSError as error:
                raise ServiceError(
                    f"the keeper {self._path} cannot be built again: {describe_os_error(error)}"
                ) from error
            return make(trial, attempt)

        return job


@dataclass(frozen=True)
class GuardedFile:
    """One small file. With `exactly` it must have this content; else it only has to exist, as people may change it."""

    content: bytes
    exactly: bool = False


class Guard:
    """Looks after the manager's files. All methods block and may be called in any thread."""

    def __init__(
        self, directory: Path, lock: ManagerLock, keeper: KeeperFile, files: Mapping[Path, GuardedFile]
    ) -> None:
        self._directory = directory
        self._lock = lock
        self._keeper = keeper
        self._files = dict(files)
        self._writing = threading.Lock()
        self._looking = threading.Lock()
        self._is_closed = False
        self._log_file = directory / "log" / "manager.log"
        # A manager that was started by hand writes its log elsewhere.
        self._logs = is_open_as(2, self._log_file)
        self._missed = 0
        self._trouble = ""

    def write(self, path: Path, kept: GuardedFile) -> None:
        """Write one of the files, and keep it so from now on. Raises: OSError."""
        with self._writing:
            self._files[path] = kept
            write_content(path, kept.content)

    def look(self) -> None:
        """Make missing files again. Raises: NotFound or Conflict when the manager has to end."""
        with self._looking:
            if not self._is_closed:
                self._look()

    def close(self) -> None:
        """Wait for the end of a look, and allow no other: once the manager has ended, its folder may go."""
        with self._looking:
            self._is_closed = True

    def _look(self) -> None:
        try:
            self._keep_lock()
            registry.make_folders(self._directory)
            self._keep_log()
            self._keeper.keep()
            self._keep_files()
        except NotFound:  # the folder is unreachable, which may pass
            self._missed += 1
            if self._missed >= _GONE_LOOKS:
                raise
            return
        except OSError as error:
            if str(error) != self._trouble:
                log.error("a file of the experiment cannot be looked after: %s", error)
            self._trouble = str(error)
        else:
            self._trouble = ""
        self._missed = 0

    def _keep_lock(self) -> None:
        """Renew the lock. Raises: NotFound, Conflict, OSError."""
        try:
            if self._lock.renew():
                log.warning("the file `lock` was removed while the manager runs; it is made again")
        except BlockingIOError:
            raise Conflict(f"another manager has taken {self._directory} over; this one ends.") from None

    def _keep_log(self) -> None:
        if self._logs and not is_open_as(2, self._log_file):
            file = open_log(self._log_file)
            try:
                for stream in (1, 2):
                    os.dup2(file, stream)
            finally:
                os.close(file)
            log.warning("%s was removed or moved while the manager runs; it writes a new one", self._log_file)

    def _keep_files(self) -> None:
        with self._writing:
            for path, kept in self._files.items():
                found: bytes | None = None
                with contextlib.suppress(OSError):
                    found = path.read_bytes()
                if found is None or (kept.exactly and found != kept.content):
                    # The folder of all experiments may be gone, too.
                    if path.parent != self._directory:
                        make_own_folder(path.parent, 0o755)
                    write_content(path, kept.content)
                    log.warning("%s was removed or damaged while the manager runs; it is written again", path)


def _look_at(path: Path) -> _Look | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
