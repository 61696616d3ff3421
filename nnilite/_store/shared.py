"""A database that several processes write in turn, as those of a search do; the caller keeps the turns apart."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnilite._engine import messages
from nnilite._store.contents import check_rows, check_schema
from nnilite._store.database_file import DatabaseFile
from nnilite._store.database_schema import SCHEMA
from nnilite._store.resume_reader import ResumeReader, list_calls
from nnilite._store.rows import (
    ATTEMPT_COLUMNS,
    METRIC_COLUMNS,
    TRIAL_COLUMNS,
    make_attempt,
    make_metric,
    make_trial,
)
from nnilite._store.statements import write_records
from nnilite._store.store_errors import translated_on_read
from nnilite.errors import StoreError
from nnilite.records import Attempt, Json, Metric, Trial
from nnilite.tuner import Call


@dataclass(frozen=True)
class SharedCursor:
    """What a process has seen: trials until this revision, calls until this number, metrics until this row."""

    revision: int = 0
    call: int = 0
    metric: int = 0


@dataclass(frozen=True)
class SharedChanges:
    """What came after a cursor: changed trials, calls of the tuner and metrics, each in order."""

    trials: list[Trial]
    calls: list[Call]
    metrics: list[Metric]


class SharedStore:
    """The store of one of the processes. Between two of its turns others may have written."""

    def __init__(self, file: DatabaseFile) -> None:
        self.file = file
        self.resume_reader = ResumeReader(file)

    @classmethod
    def open(cls, path: Path) -> SharedStore:
        """Open an existing database, and migrate an older one. Raises: StoreError if nnilite has not made it."""
        return cls(DatabaseFile.open(path))

    @property
    def path(self) -> Path:
        return self.file.path

    def close(self) -> None:
        self.file.close()

    def write(self, records: Sequence[messages.Record]) -> None:
        """Commit records together. Raises: StoreError, and then they are not written, or not to the path."""
        with self.file.transaction() as db:
            write_records(db, records, self.resume_reader.find_revision() + 1)
        self._check_place()

    def check(self) -> None:
        """Check all of the database, as it may come from anywhere. Raises: StoreError."""
        with translated_on_read(self.path):
            try:
                check_schema(self.file.db, SCHEMA)
                check_rows(self.file.db)
            except StoreError as error:
                raise StoreError(f"{self.path} is damaged: {error}; restore it from a copy.") from error

    def cursor(self) -> SharedCursor:
        """Return the end of all that is written by now. Raises: StoreError."""
        with translated_on_read(self.path):
            return SharedCursor(
                self.resume_reader.find_revision(),
                int(self.file.one("SELECT COALESCE(MAX(number), 0) FROM calls")),
                int(self.file.one("SELECT COALESCE(MAX(rowid), 0) FROM metrics")),
            )

    def after(self, seen: SharedCursor) -> SharedChanges:
        """Return what was written after this. Raises: StoreError."""
        with translated_on_read(self.path):
            return SharedChanges(
                list(self._trials(seen)), list_calls(self.file.db, after=seen.call), list(self._metrics(seen))
            )

    def running(self) -> list[tuple[Trial, Attempt]]:
        """Return the trials that have not ended, with their latest attempts."""
        query = f"SELECT {ATTEMPT_COLUMNS} FROM attempts a WHERE a.trial = ? AND a.number = ?"  # uses the primary key
        open_ = f"SELECT {TRIAL_COLUMNS} FROM trials WHERE state IN ('WAITING', 'RUNNING', 'UNKNOWN') ORDER BY sequence"
        with translated_on_read(self.path):
            found: list[tuple[Trial, Attempt]] = []
            for trial in [_check_sound(make_trial(row)) for row in self.file.db.execute(open_).fetchall()]:
                row = self.file.db.execute(query, (trial.sequence, trial.attempt)).fetchone()
                attempt = Attempt(trial.id, trial.attempt) if row is None else make_attempt(trial.id, row)
                found.append((trial, attempt))
            return found

    def _trials(self, seen: SharedCursor) -> Iterator[Trial]:
        query = f"SELECT {TRIAL_COLUMNS} FROM trials WHERE revision > ? ORDER BY sequence"
        yield from (_check_sound(make_trial(row)) for row in self.file.db.execute(query, (seen.revision,)))

    def _metrics(self, seen: SharedCursor) -> Iterator[Metric]:
        query = (
            f"SELECT {METRIC_COLUMNS} FROM metrics m JOIN trials t ON t.sequence = m.trial "
            "WHERE m.rowid > ? AND m.final = 0 ORDER BY m.rowid"
        )
        yield from (make_metric(row) for row in self.file.db.execute(query, (seen.metric,)))

    def _check_place(self) -> None:
        # It is not written back: that could only be done by one process, and the others would keep the removed file.
        try:
            kept = self.file.is_in_place()
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read ({error.strerror})", busy=True) from error
        if not kept:
            raise StoreError(f"{self.path} was removed or replaced while the search runs; restore it from a copy.")


def _check_sound(trial: Trial) -> Trial:
    parameters: Json = trial.parameters
    if parameters is None:
        raise ValueError(f"the parameters of trial {trial.id} cannot be read")
    return trial


def create(path: Path, experiment: str, created: float) -> None:
    """Make a new database, whole or not at all. Raises: StoreError, OSError."""
    draft = path.with_name(f".{path.name}.new")
    for suffix in ("", "-wal", "-shm"):
        draft.with_name(draft.name + suffix).unlink(missing_ok=True)
    with contextlib.closing(DatabaseFile.create(draft, experiment, created)) as file:
        file.fold_log()
    draft.replace(path)
