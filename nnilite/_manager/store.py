"""The experiment's SQLite database: one writer thread, a few readers, WAL mode.

The engine hands over all records that one round of inputs led to; they are committed together (group commit), with
an fsync, before anybody is told. Readers see only what is committed. `score` is the finite number that a final metric
stands for, kept beside it for sorting; `revision` counts the writes, so that a client can ask for what has changed.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from nnilite._manager import steps as s
from nnilite._manager.rows import TRIAL_COLUMNS, attempt_from, call_from, trial_from
from nnilite.errors import StoreError
from nnilite.records import (
    Attempt,
    ExperimentState,
    Json,
    MetricKind,
    Trial,
    TrialState,
)
from nnilite.tuner import Call, scalar

FILE_NAME = "nnilite.sqlite"
_APPLICATION_ID = 0x6E6E696C  # "nnil": tells our files from other programs'
SCHEMA_VERSION = 2

_REMOVALS = """
CREATE TABLE removals (
  trial INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (trial, number)) WITHOUT ROWID"""
_SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE trials (
  sequence INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, parameter_id INTEGER, parameters TEXT NOT NULL,
  source TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, attempt INTEGER NOT NULL,
  created REAL NOT NULL, started REAL, ended REAL, value TEXT, score REAL, revision INTEGER NOT NULL);
CREATE INDEX trials_state ON trials (state, score);
CREATE INDEX trials_score ON trials (score);
CREATE INDEX trials_revision ON trials (revision);
CREATE TABLE attempts (
  trial INTEGER NOT NULL, number INTEGER NOT NULL, service TEXT NOT NULL, handle TEXT, state TEXT NOT NULL,
  started REAL, ended REAL, exit_code INTEGER, message TEXT NOT NULL, host TEXT NOT NULL, url TEXT NOT NULL,
  cancel TEXT NOT NULL, PRIMARY KEY (trial, number)) WITHOUT ROWID;
CREATE TABLE metrics (
  trial INTEGER NOT NULL, attempt INTEGER NOT NULL, idx INTEGER NOT NULL, final INTEGER NOT NULL,
  sequence INTEGER NOT NULL, value TEXT NOT NULL, time REAL NOT NULL);
CREATE UNIQUE INDEX metrics_place ON metrics (trial, attempt, idx);
CREATE TABLE calls (
  number INTEGER PRIMARY KEY, kind TEXT NOT NULL, trial TEXT, parameter_id INTEGER, value TEXT, success INTEGER,
  customized INTEGER NOT NULL);
{_REMOVALS};
"""

_TRANSIENT = ("full", "disk I/O", "readonly", "unable to open")  # what SQLite says of a disk in trouble

_MIGRATIONS: dict[int, str] = {1: _REMOVALS}
"""From a schema version to the statements that lead to the next one."""


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text:
            raise StoreError(f"{path} is locked by another program; waiting until it is free", busy=True) from error
        busy = any(word in text for word in _TRANSIENT)
        cure = "free some disk space, then it goes on" if busy else "this is not expected to pass"
        raise StoreError(f"{path} cannot be written ({text}); {cure}", busy=busy) from error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path} is damaged or not a database ({error}); restore it from a copy.") from error


class Store:
    """The writing side. All methods block: call them in one thread at a time, never on the event loop."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db: sqlite3.Connection | None = None
        self._revision = 0

    @classmethod
    def create(cls, path: Path, experiment: str, created: float) -> Store:
        """Make a new database. Raises: StoreError if the file exists or cannot be written."""
        if path.exists():
            raise StoreError(f"{path} exists already; each experiment has a database of its own.")
        store = cls(path)
        with _translated(path):
            store._db = store._connect()
            store._db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            store._db.executescript(_SCHEMA)
            store._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            meta = {"id": experiment, "created": repr(created), "secret": secrets.token_hex(32)}
            store._db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        return store

    def open(self) -> None:
        """Open an existing database, migrating it if it is older. Raises: StoreError if it cannot be ours."""
        if not self.path.is_file():
            raise StoreError(f"there is no database {self.path}.")
        try:
            with _translated(self.path):
                self._db = self._connect()
                self._check_origin()
                self._revision = int(self._one("SELECT COALESCE(MAX(revision), 0) FROM trials"))
        except StoreError:
            self.close()
            raise

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _connect(self) -> sqlite3.Connection:
        # one thread at a time uses it, but not always the same one
        db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=2.0)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")  # acknowledged means on disk, power cut included
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _check_origin(self) -> None:
        if self._one("PRAGMA application_id") != _APPLICATION_ID:
            raise StoreError(f"{self.path} is not an experiment of nnilite but some other database.")
        version = int(self._one("PRAGMA user_version"))
        if version > SCHEMA_VERSION:
            raise StoreError(f"{self.path} was written by a newer nnilite (schema {version}); update nnilite.")
        for old in range(version, SCHEMA_VERSION):
            self._migrate(old)

    def _migrate(self, old: int) -> None:
        db = self._use()
        db.executescript(f"BEGIN; {_MIGRATIONS[old]}; PRAGMA user_version = {old + 1}; COMMIT;")

    def _use(self) -> sqlite3.Connection:
        if self._db is None:
            raise StoreError(f"{self.path} is not open.")
        return self._db

    def _one(self, query: str, *values: Any) -> Any:
        row = self._use().execute(query, values).fetchone()
        return row[0] if row else None

    # ------------------------------------------------------------ writing

    def write(self, records: Sequence[s.Record]) -> int:
        """Commit records together; returns the new revision. Raises: StoreError; then nothing is written."""
        trials: dict[str, Trial] = {}
        attempts: dict[tuple[str, int], Attempt] = {}
        metrics: list[tuple[Any, ...]] = []
        calls: list[tuple[Any, ...]] = []
        removals: dict[tuple[str, int], bool] = {}
        experiment: s.SaveExperiment | None = None
        for record in records:
            if isinstance(record, s.SaveMetric):
                m = record.metric
                final = m.kind is MetricKind.FINAL
                metrics.append((m.trial, m.attempt, m.index, final, m.sequence, json.dumps(m.value), m.time))
            elif isinstance(record, s.SaveTrial):
                trials[record.trial.id] = record.trial
            elif isinstance(record, s.SaveAttempt):
                attempts[record.attempt.trial, record.attempt.number] = record.attempt
            elif isinstance(record, s.SaveCall):
                calls.append(_call_row(record))
            elif isinstance(record, s.SaveRemoval):
                removals[record.trial, record.attempt] = record.owed
            else:
                experiment = record
        return self._commit(
            [_trial_row(t) for t in trials.values()],
            [_attempt_row(a) for a in attempts.values()],
            metrics,
            calls,
            removals,
            experiment,
        )

    def _commit(
        self,
        trials: list[tuple[Any, ...]],
        attempts: list[tuple[Any, ...]],
        metrics: list[tuple[Any, ...]],
        calls: list[tuple[Any, ...]],
        removals: dict[tuple[str, int], bool],
        experiment: s.SaveExperiment | None,
    ) -> int:
        db, revision = self._use(), self._revision + 1
        with _translated(self.path):
            db.execute("BEGIN IMMEDIATE")
            try:
                db.executemany(_PUT_TRIAL, [(*row, revision) for row in trials])
                db.executemany(_PUT_ATTEMPT, attempts)
                db.executemany(_ADD_METRIC, metrics)
                db.executemany("INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?)", calls)
                db.executemany(_ADD_REMOVAL, [key for key, owed in removals.items() if owed])
                db.executemany(_DROP_REMOVAL, [key for key, owed in removals.items() if not owed])
                if experiment is not None:
                    db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", _experiment_rows(experiment))
                db.execute("COMMIT")
            except sqlite3.Error:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        self._revision = revision
        return revision

    def put_meta(self, key: str, value: Json) -> None:
        with _translated(self.path):
            self._use().execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))

    # ------------------------------------------------------------ reading back at a start

    def meta(self, key: str) -> str | None:
        found = self._one("SELECT value FROM meta WHERE key = ?", key)
        return None if found is None else str(found)

    def settings(self, defaults: s.Settings) -> s.Settings:
        """The limits as last changed by the user, over those of the config."""
        stored = json.loads(self.meta("limits") or "{}")
        return replace(defaults, **stored)

    def snapshot(self, maximize: bool) -> s.Snapshot:
        """What the rules need to go on."""
        with _translated(self.path):
            counts = self._use().execute("SELECT state, COUNT(*) FROM trials GROUP BY state").fetchall()
            return s.Snapshot(
                state=ExperimentState(self.meta("state") or "INITIALIZED"),
                reason=self.meta("reason") or "",
                duration_s=float(self.meta("duration_s") or 0.0),
                next_sequence=int(self._one("SELECT COALESCE(MAX(sequence) + 1, 0) FROM trials")),
                next_parameter_id=int(self._one("SELECT COALESCE(MAX(parameter_id) + 1, 0) FROM trials")),
                calls=int(self._one("SELECT COALESCE(MAX(number), 0) FROM calls")),
                counts={TrialState(state): number for state, number in counts},
                best=self._best(maximize),
                live=tuple(self._live()),
                removals=tuple(self._removals()),
            )

    def _best(self, maximize: bool) -> Trial | None:
        order = "DESC" if maximize else "ASC"
        row = (
            self._use()
            .execute(
                f"SELECT {TRIAL_COLUMNS} FROM trials WHERE state = 'SUCCEEDED' AND score IS NOT NULL "
                f"ORDER BY score {order}, sequence LIMIT 1"  # of equals the first, as while it runs
            )
            .fetchone()
        )
        return trial_from(row) if row else None

    def _live(self) -> Iterator[s.LiveTrial]:
        db = self._use()
        query = f"SELECT {TRIAL_COLUMNS} FROM trials WHERE state IN ('WAITING', 'RUNNING', 'UNKNOWN') ORDER BY sequence"
        for trial in [trial_from(row) for row in db.execute(query).fetchall()]:
            rows = db.execute("SELECT * FROM attempts WHERE trial = ? ORDER BY number", (trial.sequence,)).fetchall()
            attempts = [attempt_from(trial.id, row) for row in rows]
            last, intermediates = self._last_intermediate(trial)
            yield s.LiveTrial(
                trial,
                attempts[-1] if attempts else None,
                last,
                intermediates,
                lost=sum(a.state == "LOST" for a in attempts),
                failed=sum(a.state == "FAILED" for a in attempts),
            )

    def _removals(self) -> Iterator[Attempt]:
        query = (
            "SELECT t.id, a.* FROM removals r JOIN attempts a ON a.trial = r.trial AND a.number = r.number "
            "JOIN trials t ON t.sequence = r.trial ORDER BY r.trial, r.number"
        )
        for trial, *row in self._use().execute(query).fetchall():
            yield attempt_from(trial, tuple(row))

    def _last_intermediate(self, trial: Trial) -> tuple[Json, int]:
        """The last intermediate result of the current attempt (None if there is none), and how many there are."""
        where = "FROM metrics WHERE trial = ? AND attempt = ? AND final = 0"
        at = (trial.sequence, trial.attempt)
        last = self._one(f"SELECT value {where} ORDER BY idx DESC LIMIT 1", *at)
        return None if last is None else json.loads(last), int(self._one(f"SELECT COUNT(*) {where}", *at))

    def attempt(self, trial: str, number: int) -> tuple[Trial, Attempt, int] | None:
        """A trial, its attempt of that number and how many metrics that has reported; None: no such attempt."""
        with _translated(self.path):
            row = self._use().execute(f"SELECT {TRIAL_COLUMNS} FROM trials WHERE id = ?", (trial,)).fetchone()
            if row is None:
                return None
            found = trial_from(row)
            at = (found.sequence, number)
            row = self._use().execute("SELECT * FROM attempts WHERE trial = ? AND number = ?", at).fetchone()
            if row is None:
                return None
            metrics = self._one("SELECT COALESCE(MAX(idx) + 1, 0) FROM metrics WHERE trial = ? AND attempt = ?", *at)
            return found, attempt_from(trial, row), int(metrics)

    def calls(self, until: int) -> list[Call]:
        """The first `until` calls of the tuner, in order."""
        query = (
            "SELECT c.kind, c.parameter_id, c.trial, t.parameters, c.value, c.success, c.customized FROM calls c "
            "LEFT JOIN trials t ON t.id = c.trial WHERE c.number <= ? ORDER BY c.number"
        )
        with _translated(self.path):
            return [call_from(row) for row in self._use().execute(query, (until,))]

    def last_space(self) -> Json:
        """The search space as the user last changed it, None if never."""
        found = self._one("SELECT value FROM calls WHERE kind = 'space' ORDER BY number DESC LIMIT 1")
        return None if found is None else json.loads(found)

    def histories(self) -> list[tuple[str, int, list[Json], bool, bool]]:
        """(trial, attempt, intermediate results, ended, succeeded) of each trial that has some, in order."""
        query = (
            "SELECT t.id, t.attempt, t.state, m.value FROM trials t "
            "JOIN metrics m ON m.trial = t.sequence AND m.attempt = t.attempt "
            "WHERE m.final = 0 ORDER BY t.sequence, m.idx"
        )
        found: dict[str, tuple[str, int, list[Json], bool, bool]] = {}
        with _translated(self.path):
            for trial, attempt, state, value in self._use().execute(query):
                ended = TrialState(state).ended
                entry = found.setdefault(trial, (trial, attempt, [], ended, state == "SUCCEEDED"))
                entry[2].append(json.loads(value))
        return list(found.values())


_PUT_TRIAL = (
    "INSERT INTO trials (sequence, id, parameter_id, parameters, source, state, reason, attempt, created, started, "
    "ended, value, score, revision) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (sequence) DO UPDATE SET state = excluded.state, reason = excluded.reason, "
    "attempt = excluded.attempt, started = excluded.started, ended = excluded.ended, value = excluded.value, "
    "score = excluded.score, revision = excluded.revision"
)
_PUT_ATTEMPT = (
    "INSERT OR REPLACE INTO attempts VALUES "
    "((SELECT sequence FROM trials WHERE id = ?), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ADD_METRIC = "INSERT INTO metrics VALUES ((SELECT sequence FROM trials WHERE id = ?), ?, ?, ?, ?, ?, ?)"

_ADD_REMOVAL = "INSERT OR IGNORE INTO removals VALUES ((SELECT sequence FROM trials WHERE id = ?), ?)"
_DROP_REMOVAL = "DELETE FROM removals WHERE trial = (SELECT sequence FROM trials WHERE id = ?) AND number = ?"


def _trial_row(t: Trial) -> tuple[Any, ...]:
    value = None if t.value is None else json.dumps(t.value)
    return (
        *(t.sequence, t.id, t.parameter_id, json.dumps(t.parameters), t.source, t.state.value, t.reason),
        *(t.attempt, t.created, t.started, t.ended, value, scalar(t.value)),
    )


def _attempt_row(a: Attempt) -> tuple[Any, ...]:
    handle = None if a.handle is None else json.dumps(dict(a.handle))
    return (
        *(a.trial, a.number, a.service, handle, a.state, a.started, a.ended, a.exit_code),
        *(a.message, a.host, a.url, a.cancel),
    )


def _call_row(record: s.SaveCall) -> tuple[Any, ...]:
    c = record.call
    value = None if c.value is None else json.dumps(c.value)
    return (record.number, c.kind, c.trial_job_id, c.parameter_id, value, c.success, c.customized)


_LIMITS = ("concurrency", "max_trials", "max_duration_s", "max_trial_duration_s")


def _experiment_rows(record: s.SaveExperiment) -> Iterable[tuple[str, str]]:
    yield "state", record.state.value
    yield "reason", record.reason
    yield "duration_s", repr(record.duration_s)
    yield "ended", json.dumps(record.ended)
    limits = {key: value for key, value in asdict(record.settings).items() if key in _LIMITS}
    yield "limits", json.dumps(limits)
