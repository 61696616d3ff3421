"""The store of a manager, the only one that writes its experiment's database.

The engine hands over all records of one round; they are committed together (group commit), with an fsync, before
anything follows from them.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from nnilite._engine import messages
from nnilite._store.database_file import FILE_NAME, DatabaseFile
from nnilite._store.notices import NOTICES
from nnilite._store.resume_reader import ResumeReader
from nnilite._store.statements import write_records
from nnilite._store.store_errors import translated
from nnilite.errors import StoreError

log = logging.getLogger(__name__)

_SECRET = re.compile("[0-9a-f]{64}")


class Store:
    """Writes to a database; `resume_reader` reads it. All methods block, and one thread at a time may call them."""

    def __init__(self, file: DatabaseFile) -> None:
        self.file = file
        self.resume_reader = ResumeReader(file)
        self._revision = 0
        self._claim = ""
        # Records that were committed while the file was not in its place.
        self._committed: Sequence[messages.Record] | None = None

    @classmethod
    def create(cls, path: Path, experiment: str, created: float) -> Store:
        """Make a new database. Raises: StoreError if the file exists or cannot be written."""
        return cls(DatabaseFile.create(path, experiment, created))

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open an existing database, and migrate an older one. Raises: StoreError if nnilite has not made it."""
        store = cls(DatabaseFile.open(path))
        try:
            store._revision = store.resume_reader.find_revision()
        except StoreError:
            store.close()
            raise
        return store

    @property
    def path(self) -> Path:
        return self.file.path

    def close(self) -> None:
        self.file.close()

    def write(self, records: Sequence[messages.Record], *, retried: bool = False) -> int:
        """Commit records together; returns the new revision. `retried`: the caller tries until it works.

        Raises: StoreError, and then the records are not written, or not to the file at the path. The caller may hand in
        the same sequence again until it succeeds.
        """
        if records is not self._committed:
            self._write(records, retried)
            self._committed = records
        self.keep_place()
        self._committed = None
        return self._revision

    def _write(self, records: Sequence[messages.Record], retried: bool) -> None:
        revision = self._revision + 1
        with self.file.transaction(retried=retried) as db:
            # The write lock is held, so no other manager can take over between this check and the commit.
            self._check_claim()
            write_records(db, records, revision)
        self._revision = revision

    # ------------------------------------------------------------ its owner, and its place

    def claim(self) -> None:
        """Make this the only manager that can write: from now on, those of an earlier one are refused.

        The lock of the experiment keeps managers apart; this still does so if the lock has been removed.
        """
        self._claim = secrets.token_hex(16)
        self.file.put_meta("manager", self._claim)

    def _check_claim(self) -> None:
        if self._claim and self.file.meta("manager") != self._claim:
            raise StoreError(f"{self.path} has been taken over by another manager; this one ends.")

    def secret(self) -> str:
        """Return the secret for the tokens of callbacks, which is made if missing, as in a loaded copy."""
        secret = self.file.meta("secret")
        if secret is None or not _SECRET.fullmatch(secret):
            secret = secrets.token_hex(32)
            self.file.put_meta("secret", secret)
        return secret

    def keep_place(self) -> None:
        """Check that the database is where it was opened, and write it back with all its content if it was deleted.

        Raises: StoreError (busy) while that cannot be done.
        """
        with translated(self.path, retried=True):
            try:
                if self.file.is_in_place():
                    return
                self.file.write_back()
            except OSError as error:
                raise StoreError(f"{self.path} cannot be found ({error.strerror})", busy=True) from error
        log.error(
            "%s was removed or replaced while the experiment ran; it is written back, with all results", self.path
        )

    def add_remarks(self, sentences: Sequence[str]) -> None:
        """Keep sentences on how the experiment was started, which everything that shows it shows, too."""
        self.file.put_meta(NOTICES, json.dumps(sentences))


def open_store(directory: Path, new: bool, now: float) -> Store:
    """Open the experiment's database, or make it if the experiment is new. Raises: StoreError."""
    path = directory / FILE_NAME
    return Store.create(path, directory.name, now) if new else Store.open(path)
