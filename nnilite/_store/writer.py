"""The experiment's SQLite database: one writer thread, a few readers, WAL mode.

The engine hands over all records of one round; they are committed together (group commit), with an fsync, before
anything follows from them. Readers see only committed data. `score` is the finite number of a final metric, kept with
it for sorting; `revision` counts the writes, so that a client can ask for later changes.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nnilite._engine import messages
from nnilite._store.columns import ATTEMPTS, TRIALS
from nnilite._store.contents import check_objects
from nnilite._store.database_schema import MIGRATIONS, SCHEMA, SCHEMA_VERSION
from nnilite._store.notices import NOTICES
from nnilite._store.place import PlaceOf
from nnilite._store.recall import Recall
from nnilite._store.trouble import translated, understood
from nnilite.errors import StoreError
from nnilite.records import (
    Attempt,
    CallKind,
    MetricKind,
    Trial,
    storable,
)
from nnilite.tuner import scalar

log = logging.getLogger(__name__)

FILE_NAME = "nnilite.sqlite"
_APPLICATION_ID = 0x6E6E696C  # "nnil" in ASCII: by this nnilite recognizes its own files
_SECRET = re.compile("[0-9a-f]{64}")


class Store(Recall):
    """The writing side. All methods block and must be called in one thread at a time, never on the event loop."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._place: PlaceOf | None = None
        self._revision = 0
        self._claim = ""
        # Records that were committed while the file was not in its place.
        self._committed: Sequence[messages.Record] | None = None

    @classmethod
    def create(cls, path: Path, experiment: str, created: float) -> Store:
        """Make a new database. Raises: StoreError if the file exists or cannot be written."""
        if path.exists():
            raise StoreError(f"{path} exists already; each experiment has a database of its own.")
        store = cls(path)
        with contextlib.ExitStack() as if_it_fails, translated(path):
            if_it_fails.callback(store.close)
            store._db = store._connect()
            # In one transaction: it is there as a whole or not at all, and the disk is waited for once.
            numbers = f"PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION}"
            store._db.executescript(f"BEGIN; {numbers}; {SCHEMA}")
            meta = {"id": experiment, "created": repr(created)}
            store._db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            store._db.execute("COMMIT")
            store._place = PlaceOf(path)
            if_it_fails.pop_all()
        return store

    def open(self) -> None:
        """Open an existing database, and migrate an older one. Raises: StoreError if nnilite has not made it."""
        if not self.path.is_file():
            raise StoreError(f"there is no database {self.path}.")
        try:
            with understood(self.path):
                self._db = self._connect()
                self._check_origin()
                self._place = PlaceOf(self.path)
                self._revision = int(self._one("SELECT COALESCE(MAX(revision), 0) FROM trials"))
        except StoreError:
            self.close()
            raise

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _connect(self) -> sqlite3.Connection:
        # One thread at a time uses the connection, but not always the same one.
        # If another program holds the lock for longer, the write fails as busy, and the engine tries again.
        db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=2.0)
        with contextlib.ExitStack() as if_it_fails:
            if_it_fails.callback(db.close)
            # The file may come from a stranger, and its schema must not call functions of this process.
            db.execute("PRAGMA trusted_schema = OFF")
            db.execute("PRAGMA journal_mode = WAL")
            # Acknowledged events must be on the disk, even after a power cut.
            db.execute("PRAGMA synchronous = FULL")
            if_it_fails.pop_all()
        return db

    def _check_origin(self) -> None:
        if self._one("PRAGMA application_id") != _APPLICATION_ID:
            raise StoreError(f"{self.path} is not an experiment of nnilite but some other database.")
        version = self._read_version()
        check_objects(self._use(), self.path)
        # Each step commits with its number: after a crash the next start goes on where this one stopped.
        while version < SCHEMA_VERSION:
            version = self._migrate()

    def _read_version(self) -> int:
        version = int(self._one("PRAGMA user_version"))
        if version > SCHEMA_VERSION:
            raise StoreError(f"{self.path} was written by a newer nnilite (schema {version}); update nnilite.")
        return version

    def _migrate(self) -> int:
        """Make the next step, and return the version after it."""
        db = self._use()
        db.execute("BEGIN IMMEDIATE")
        # Another process may make the same steps at the same time, so only what is read under the lock counts.
        old = self._read_version()
        if old == SCHEMA_VERSION:
            db.execute("ROLLBACK")
            return old
        # `executescript` would commit first, and so let go of the lock.
        for statement in MIGRATIONS[old].split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {old + 1}")
        db.execute("COMMIT")
        return old + 1

    # ------------------------------------------------------------ writing

    def write(self, records: Sequence[messages.Record]) -> int:
        """Commit records together; returns the new revision.

        Raises: StoreError, and then the records are not written, or not to the file at the path. The caller may hand in
        the same sequence again until it succeeds.
        """
        if records is not self._committed:
            self._write(records)
            self._committed = records
        self.keep_place()
        self._committed = None
        return self._revision

    def _write(self, records: Sequence[messages.Record]) -> None:
        trials: dict[str, Trial] = {}
        attempts: dict[tuple[str, int], Attempt] = {}
        metrics: list[tuple[Any, ...]] = []
        attributes: list[tuple[Any, ...]] = []
        calls: list[tuple[Any, ...]] = []
        removals: dict[tuple[str, int], bool] = {}
        experiment: messages.SaveExperiment | None = None
        for record in records:
            if isinstance(record, messages.SaveMetric):
                m = record.metric
                final = m.kind is MetricKind.FINAL
                metrics.append((m.trial, m.attempt, m.index, final, m.sequence, json.dumps(m.value), m.time))
            elif isinstance(record, messages.SaveAttribute):
                a = record.attribute
                attributes.append((a.trial, a.attempt, a.index, a.name, json.dumps(a.value), a.time))
            elif isinstance(record, messages.SaveTrial):
                trials[record.trial.id] = record.trial
            elif isinstance(record, messages.SaveAttempt):
                attempts[record.attempt.trial, record.attempt.number] = record.attempt
            elif isinstance(record, messages.SaveCall):
                calls.append(_call_row(record))
            elif isinstance(record, messages.SaveRemoval):
                removals[record.trial, record.attempt] = record.pending
            else:
                experiment = record
        self._commit(
            [[*TRIALS.row(t), scalar(t.value)] for t in trials.values()],
            [[a.trial, *ATTEMPTS.row(a)] for a in attempts.values()],
            metrics,
            attributes,
            calls,
            removals,
            experiment,
        )

    def _commit(
        self,
        trials: list[list[Any]],
        attempts: list[list[Any]],
        metrics: list[tuple[Any, ...]],
        attributes: list[tuple[Any, ...]],
        calls: list[tuple[Any, ...]],
        removals: dict[tuple[str, int], bool],
        experiment: messages.SaveExperiment | None,
    ) -> None:
        db, revision = self._use(), self._revision + 1
        with translated(self.path):
            db.execute("BEGIN IMMEDIATE")
            try:
                # The write lock is held, so no other manager can take over between this check and the commit.
                self._check_claim()
                db.executemany(_PUT_TRIAL, [(*row, revision) for row in trials])
                db.executemany(_PUT_ATTEMPT, attempts)
                db.executemany(_ADD_METRIC, metrics)
                db.executemany(_ADD_ATTRIBUTE, attributes)
                db.executemany(_ADD_CALL, calls)
                db.executemany(_ADD_REMOVAL, [key for key, pending in removals.items() if pending])
                db.executemany(_DROP_REMOVAL, [key for key, pending in removals.items() if not pending])
                if experiment is not None:
                    db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", _make_experiment_rows(experiment))
                db.execute("COMMIT")
            except (sqlite3.Error, StoreError):
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        self._revision = revision

    # ------------------------------------------------------------ its owner, and its place

    def claim(self) -> None:
        """Make this the only manager that can write: from now on, those of an earlier one are refused.

        The lock of the experiment keeps managers apart; this still does so if the lock has been removed.
        """
        self._claim = secrets.token_hex(16)
        self._put_meta("manager", self._claim)

    def _check_claim(self) -> None:
        if self._claim and self.meta("manager") != self._claim:
            raise StoreError(f"{self.path} has been taken over by another manager; this one ends.")

    def secret(self) -> str:
        """Return the secret for the tokens of callbacks, which is made if missing, as in a loaded copy."""
        found = self.meta("secret")
        if found is None or not _SECRET.fullmatch(found):
            found = secrets.token_hex(32)
            self._put_meta("secret", found)
        return found

    def keep_place(self) -> None:
        """Check that the database is where it was opened, and write it back with all its content if it was deleted.

        Raises: StoreError (busy) while that cannot be done.
        """
        if self._place is None:
            return
        with translated(self.path):
            try:
                if self._db is not None:
                    if self._place.is_kept():
                        return
                    self._place.write_back(self._db)
                    # It is closed before the new file is opened: SQLite removes the log of what it closes by its name.
                    self.close()
                self._db = self._connect()
            except OSError as error:
                raise StoreError(f"{self.path} cannot be found ({error.strerror})", busy=True) from error
            self._place = PlaceOf(self.path)
        log.error(
            "%s was removed or replaced while the experiment ran; it is written back, with all results", self.path
        )

    def add_remarks(self, sentences: Sequence[str]) -> None:
        """Keep sentences on how the experiment was started, which everything that shows it shows, too."""
        self._put_meta(NOTICES, json.dumps(sentences))

    def _put_meta(self, key: str, value: str) -> None:
        with translated(self.path):
            self._use().execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


_ONCE = ("sequence", "id", "parameter_id", "parameters", "source", "created")
"""The columns of a trial that never change."""
# A trial is written many times. An update does not touch the columns of `_ONCE`, nor the index of the ids.
_PUT_TRIAL = (
    f"INSERT INTO trials ({TRIALS.selected()}, score, revision) VALUES (?, ?{', ?' * len(TRIALS.fields)}) "
    "ON CONFLICT (sequence) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in TRIALS.columns if name not in _ONCE)
)
_PUT_ATTEMPT = (
    f"INSERT OR REPLACE INTO attempts (trial, {ATTEMPTS.selected()}) "
    f"VALUES ((SELECT sequence FROM trials WHERE id = ?){', ?' * len(ATTEMPTS.fields)})"
)
_ADD_METRIC = (
    "INSERT INTO metrics (trial, attempt, idx, final, sequence, value, time) "
    "VALUES ((SELECT sequence FROM trials WHERE id = ?), ?, ?, ?, ?, ?, ?)"
)
_ADD_ATTRIBUTE = (
    "INSERT INTO attributes (trial, attempt, idx, name, value, time) "
    "VALUES ((SELECT sequence FROM trials WHERE id = ?), ?, ?, ?, ?, ?)"
)
_ADD_CALL = (
    "INSERT INTO calls (number, kind, trial, parameter_id, value, success, customized) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_ADD_REMOVAL = "INSERT OR IGNORE INTO removals VALUES ((SELECT sequence FROM trials WHERE id = ?), ?)"
_DROP_REMOVAL = "DELETE FROM removals WHERE trial = (SELECT sequence FROM trials WHERE id = ?) AND number = ?"


def _call_row(record: messages.SaveCall) -> tuple[Any, ...]:
    c = record.call
    value = None if c.value is None else json.dumps(c.value)
    return (record.number, CallKind(c.kind).value, c.trial_job_id, c.parameter_id, value, c.success, c.customized)


def _make_experiment_rows(record: messages.SaveExperiment) -> Iterable[tuple[str, str]]:
    yield "state", record.state.value
    yield "reason", storable(record.reason)
    yield "duration_s", repr(record.duration_s)
    yield "ended", json.dumps(record.ended)
    yield "limits", json.dumps(asdict(record.settings.limits))


def open_store(directory: Path, new: bool, now: float) -> Store:
    """Open the experiment's database, or make it if the experiment is new. Raises: StoreError."""
    path = directory / FILE_NAME
    if new:
        return Store.create(path, directory.name, now)
    store = Store(path)
    store.open()
    return store
