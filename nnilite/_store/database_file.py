"""The file of an experiment's database: how it is made, opened, brought up to date and written back to its place.

There is one writer, and there are a few readers, in WAL mode: readers see only what is committed.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nnilite._keeper.plain_file import NotRegularFile, open_regular
from nnilite._store.contents import check_objects
from nnilite._store.database_identity import DatabaseIdentity
from nnilite._store.database_schema import MIGRATIONS, SCHEMA, SCHEMA_VERSION
from nnilite._store.store_errors import translated, translated_on_read
from nnilite.errors import StoreError

FILE_NAME = "nnilite.sqlite"
_APPLICATION_ID = 0x6E6E696C  # "nnil" in ASCII: by this nnilite recognizes its own files
_JOURNAL_MARK = bytes.fromhex("d9d505f920a163d7")  # at the end of a journal that names a further file
# If another program holds the lock for longer, the write fails as busy, and its caller tries again.
_LOCK_TIMEOUT_S = 2.0
# Readers wait only while another program recovers or replaces the log.
_READ_TIMEOUT_S = 10.0


class DatabaseFile:
    """An open database, with one connection. All methods block, and one thread at a time may call them."""

    def __init__(self, path: Path, db: sqlite3.Connection, place: DatabaseIdentity) -> None:
        self.path = path
        self._db: sqlite3.Connection | None = db
        self._place = place

    @classmethod
    def create(cls, path: Path, experiment: str, created: float) -> DatabaseFile:
        """Make a new database. Raises: StoreError if the file exists or cannot be written."""
        if path.exists():
            raise StoreError(f"{path} exists already; each experiment has a database of its own.")
        with translated(path), _close_after_error(_connect(path)) as db:
            # In one transaction: it is there as a whole or not at all, and the disk is waited for once.
            numbers = f"PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION}"
            db.executescript(f"BEGIN; {numbers}; {SCHEMA}")
            db.executemany("INSERT INTO meta VALUES (?, ?)", {"id": experiment, "created": repr(created)}.items())
            db.execute("COMMIT")
            return cls(path, db, DatabaseIdentity(path))

    @classmethod
    def open(cls, path: Path) -> DatabaseFile:
        """Open an existing database, and migrate an older one. Raises: StoreError if nnilite has not made it.

        In a folder that may only be read, it can only be read.
        """
        if not path.is_file():
            raise StoreError(f"there is no database {path}.")
        connect = open_read_only if _is_fixed(path) else _connect
        with translated_on_read(path), _close_after_error(connect(path)) as db:
            _check_origin(path, db)
            return cls(path, db, DatabaseIdentity(path))

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def fold_log(self) -> None:
        """Write what is in the log to the file, which may then be closed and moved alone. Raises: StoreError.

        `close` would do so, but leave in the log, without an error, what cannot be written now.
        """
        with translated(self.path):
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def release(self) -> sqlite3.Connection | None:
        """Return the connection, which now belongs to the caller; None if it is closed."""
        released, self._db = self._db, None
        return released

    @property
    def db(self) -> sqlite3.Connection:
        if self._db is None:
            raise StoreError(f"{self.path} is not open.")
        return self._db

    def one(self, query: str, *values: Any) -> Any:
        """Return the first value of the first row, None if there is no row."""
        return _read_one(self.db, query, *values)

    def meta(self, key: str) -> str | None:
        found = self.one("SELECT value FROM meta WHERE key = ?", key)
        return None if found is None else str(found)

    def put_meta(self, key: str, value: str) -> None:
        """Write a row of the table `meta`. Raises: StoreError."""
        with translated(self.path):
            self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    @contextlib.contextmanager
    def transaction(self, *, retried: bool = False) -> Iterator[sqlite3.Connection]:
        """Begin a transaction, as the function of this name does. Raises: StoreError, and then nothing is written.

        `retried`: the caller tries again by itself until it works.
        """
        with translated(self.path, retried=retried), transaction(self.db) as db:
            yield db

    def is_in_place(self) -> bool:
        """Return whether the file at the path is the one that is open. Raises: OSError if it cannot be examined."""
        return self._db is not None and self._place.is_kept()

    def write_back(self) -> None:
        """Write all content to the path again, and open it there.

        Raises: StoreError (busy) if another file is there or the folder is gone, sqlite3.Error, OSError.
        """
        if self._db is not None:
            self._place.write_back(self._db)
            # It is closed before the new file is opened: SQLite removes the log of what it closes by its name.
            self.close()
        self._db = _connect(self.path)
        self._place = DatabaseIdentity(self.path)


def open_read_only(path: Path) -> sqlite3.Connection:
    """Return a connection that only reads, and that any thread may close. Raises: sqlite3.Error."""
    _refuse_foreign_files(path)
    # Elsewhere SQLite makes two files next to the database, even for reading.
    fixed = "&immutable=1" if _is_fixed(path) else ""
    uri = f"file:{quote(os.fsencode(path))}?mode=ro{fixed}"  # a name of a file need not be UTF-8
    db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=_READ_TIMEOUT_S)
    _distrust_schema(db)
    return db


def _refuse_foreign_files(path: Path) -> None:
    """Refuse files in another person's folder that would make SQLite change or delete files elsewhere.

    Raises: StoreError.
    """
    if path.is_symlink():
        raise StoreError(f"{path} is a link; put the database itself there.")
    refuse_foreign_journal(path)


def refuse_foreign_journal(path: Path) -> None:
    """Refuse a database whose journal names a further file: SQLite deletes that file, wherever it is.

    SQLite writes such a name after a change of several databases at once, which neither nnilite nor NNI makes.
    Raises: StoreError.
    """
    journal = path.with_name(f"{path.name}-journal")
    try:
        with open_regular(os.fspath(journal)) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - len(_JOURNAL_MARK)))
            is_foreign = file.read(len(_JOURNAL_MARK)) == _JOURNAL_MARK
    except (FileNotFoundError, NotADirectoryError):
        return
    except NotRegularFile:
        is_foreign = True
    except OSError as error:
        raise StoreError(f"{journal} cannot be read ({error.strerror}); try again", busy=True) from error
    if is_foreign:
        raise StoreError(f"nnilite did not write {journal}, which leads to another file; remove it.")


def _is_fixed(path: Path) -> bool:
    """Return whether no program changes a database: its folder may only be read, and all have closed it."""
    return not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()


def refuse_newer_database(path: Path) -> None:
    """Refuse an experiment of a newer nnilite, before its config, which may have fields that are not known here.

    Raises: StoreError. Nothing else is checked.
    """
    if path.is_file():
        with translated(path), contextlib.closing(open_read_only(path)) as db:
            _read_version(path, db)


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Keep other writers out while the block runs. What it wrote is then on the disk, or undone after an error."""
    try:
        db.execute("BEGIN IMMEDIATE")
        yield db
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _connect(path: Path) -> sqlite3.Connection:
    _refuse_foreign_files(path)
    # One thread at a time uses the connection, but not always the same one.
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_LOCK_TIMEOUT_S)
    with _close_after_error(db):
        _distrust_schema(db)
        db.execute("PRAGMA journal_mode = WAL")
        # Acknowledged events must be on the disk, even after a power cut.
        db.execute("PRAGMA synchronous = FULL")
    return db


def _distrust_schema(db: sqlite3.Connection) -> None:
    # The file may come from a stranger, and its schema must not call functions of this process.
    db.execute("PRAGMA trusted_schema = OFF")


@contextlib.contextmanager
def _close_after_error(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    try:
        yield db
    except BaseException:
        db.close()
        raise


def _read_one(db: sqlite3.Connection, query: str, *values: Any) -> Any:
    row = db.execute(query, values).fetchone()
    return row[0] if row else None


def _check_origin(path: Path, db: sqlite3.Connection) -> None:
    """Refuse what nnilite has not made, and bring what an earlier version has made up to date. Raises: StoreError."""
    if _read_one(db, "PRAGMA application_id") != _APPLICATION_ID:
        raise StoreError(f"{path} is not an experiment of nnilite but some other database.")
    version = _read_version(path, db)
    check_objects(db, path)
    # Each step commits with its number: after a crash the next start goes on where this one stopped.
    while version < SCHEMA_VERSION:
        version = _migrate(path, db)


def _read_version(path: Path, db: sqlite3.Connection) -> int:
    version = int(_read_one(db, "PRAGMA user_version"))
    if version > SCHEMA_VERSION:
        raise StoreError(f"{path} was written by a newer nnilite (schema {version}); update nnilite.")
    return version


def _migrate(path: Path, db: sqlite3.Connection) -> int:
    """Make the next step, and return the version after it."""
    with transaction(db):
        # Another process may make the same steps at the same time, so only what is read under the lock counts.
        old = _read_version(path, db)
        if old == SCHEMA_VERSION:
            return old
        # `executescript` would commit first, and so let go of the lock.
        for statement in MIGRATIONS[old].split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {old + 1}")
        return old + 1
