"""Whether a database is still the file at its path, and how to write it back there if it is not.

SQLite silently keeps writing to a file that has been deleted or replaced, and what is committed then is lost when the
process ends. So this module compares the inodes of the files. The open connection still has the whole database,
whatever has happened to the names; its content is copied to a new file, which takes the old one's place.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from nnilite.errors import StoreError

_SUFFIXES = ("", "-wal", "-shm")

FileId = tuple[int, int]


def find_file_id(path: Path) -> FileId | None:
    """Return device and inode, None if there is no such file. Raises: OSError if the file cannot be examined."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


class DatabaseIdentity:
    """The identities of the files of one database, as they were when it was opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = [path.with_name(path.name + suffix) for suffix in _SUFFIXES]
        self._known = self._look()

    def is_kept(self) -> bool:
        """Return whether the files are still there. Raises: OSError if they cannot be examined."""
        return self._look() == self._known

    def write_back(self, db: sqlite3.Connection) -> None:
        """Write all that the connection holds to the path again. The caller must then close it and open another one.

        Raises: StoreError if another file is there or the folder is gone, sqlite3.Error, OSError.
        """
        self._check_free()
        draft = self._path.with_name(f".{self._path.name}.new")
        draft.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(draft)) as copy:
            db.backup(copy)
        _sync(draft)
        # SQLite would apply a log that is left to whatever database is in the same place.
        for log in self._files[1:]:
            log.unlink(missing_ok=True)
        self._check_free()
        draft.replace(self._path)
        _sync(self._path.parent)

    def _check_free(self) -> None:
        found = find_file_id(self._path)
        if found is not None and found != self._known[0]:
            raise StoreError(
                f"{self._path} was replaced by another file while the experiment runs; move the other file "
                "away, and the manager writes its results back",
                busy=True,
            )
        if found is None and not self._path.parent.is_dir():
            raise StoreError(f"{self._path.parent}, the experiment's folder, is gone", busy=True)

    def _look(self) -> list[FileId | None]:
        return [find_file_id(file) for file in self._files]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
