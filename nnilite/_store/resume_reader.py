"""Reads back what the manager needs to continue: at a start, or when a keeper connects again."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from nnilite._engine import messages
from nnilite._store.contents import check_experiment_limits, read_moment
from nnilite._store.database_file import DatabaseFile
from nnilite._store.rows import ATTEMPT_COLUMNS, TRIAL_COLUMNS, call_from, make_attempt, make_trial
from nnilite._store.store_errors import translated_on_read
from nnilite._store.stored_values import read_stored_value
from nnilite.records import DRILLED, UNSTARTED, Attempt, ExperimentState, JobState, Json, Trial, TrialState
from nnilite.tuner import Call

_UNENDED = "('WAITING', 'RUNNING', 'UNKNOWN')"
_ATTEMPTS = f"SELECT {ATTEMPT_COLUMNS} FROM attempts a WHERE a.trial = ? "


class ResumeReader:
    """Answers questions of those who write a database. All methods block, and one thread at a time may call them."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file

    def find_revision(self) -> int:
        """Return the number of the last write that changed a trial."""
        with translated_on_read(self._file.path):
            return int(self._file.one("SELECT COALESCE(MAX(revision), 0) FROM trials"))

    def find_next_numbers(self) -> tuple[int, int]:
        """Return the next trial's sequence and parameter id."""
        # Each maximum has a query of its own: SQLite takes a single one from its index, and else reads all rows.
        with translated_on_read(self._file.path):
            return (
                int(self._file.one("SELECT COALESCE(MAX(sequence) + 1, 0) FROM trials")),
                int(self._file.one("SELECT COALESCE(MAX(parameter_id) + 1, 0) FROM trials")),
            )

    def settings(self, defaults: messages.Settings) -> messages.Settings:
        """Return the limits of the config, with the user's later changes."""
        with translated_on_read(self._file.path):
            return replace(defaults, **check_experiment_limits(self._file.meta("limits")))

    def moment(self, key: str) -> float | None:
        """Return `created` or `ended`, in seconds since the epoch."""
        with translated_on_read(self._file.path):
            return read_moment(self._file.meta(key))

    def snapshot(self, maximize: bool) -> messages.Snapshot:
        """Return what the rules need to continue."""
        with translated_on_read(self._file.path):
            counts = self._file.db.execute("SELECT state, COUNT(*) FROM trials GROUP BY state").fetchall()
            next_sequence, next_parameter_id = self.find_next_numbers()
            return messages.Snapshot(
                state=ExperimentState(self._file.meta("state") or "INITIALIZED"),
                reason=self._file.meta("reason") or "",
                duration_s=float(self._file.meta("duration_s") or 0.0),
                next_sequence=next_sequence,
                next_parameter_id=next_parameter_id,
                calls=int(self._file.one("SELECT COALESCE(MAX(number), 0) FROM calls")),
                counts={TrialState(state): number for state, number in counts},
                best=find_best(self._rows, maximize),
                spent=dict(self._sum_spent()),
                live=tuple(self._live()),
                removals=tuple(self._removals()),
            )

    def _rows(self, query: str, *values: Any) -> list[Any]:
        return self._file.db.execute(query, values).fetchall()

    def _live(self) -> Iterator[messages.LiveTrial]:
        db = self._file.db
        query = f"SELECT {TRIAL_COLUMNS} FROM trials WHERE state IN {_UNENDED} ORDER BY sequence"
        for trial in [make_trial(row) for row in db.execute(query).fetchall()]:
            rows = db.execute(_ATTEMPTS + "ORDER BY a.number", (trial.sequence,)).fetchall()
            attempts = [make_attempt(trial.id, row) for row in rows]
            last, intermediates = self._last_intermediate(trial)
            yield messages.LiveTrial(
                trial,
                attempts[-1] if attempts else None,
                last,
                intermediates,
                # A drill's own interruptions, and starts that failed before the command ran, use up no retries.
                lost=sum(a.state is JobState.LOST and not a.message.startswith((DRILLED, UNSTARTED)) for a in attempts),
                unstarted=sum(a.state is JobState.LOST and a.message.startswith(UNSTARTED) for a in attempts),
                failed=tuple(a.exit_code for a in attempts if a.state is JobState.FAILED),
                tried=tuple(a.service for a in attempts if a.service and a.number < trial.attempt),
            )

    def ended_trials(self) -> list[tuple[str, int]]:
        """Return the ended trials, in the order of their ends, and the number of the latest attempt of each."""
        query = f"SELECT id, attempt FROM trials WHERE state NOT IN {_UNENDED} ORDER BY ended, sequence"
        with translated_on_read(self._file.path):
            return [(str(trial), int(attempt)) for trial, attempt in self._file.db.execute(query)]

    def _sum_spent(self) -> Iterator[tuple[str, float]]:
        """Yield what the attempts of each service have cost."""
        query = "SELECT service, SUM(cost) FROM attempts WHERE cost IS NOT NULL GROUP BY service"
        yield from ((str(service), float(cost)) for service, cost in self._file.db.execute(query))

    def _removals(self) -> Iterator[Attempt]:
        query = (
            f"SELECT t.id, {ATTEMPT_COLUMNS} FROM removals r "
            "JOIN attempts a ON a.trial = r.trial AND a.number = r.number "
            "JOIN trials t ON t.sequence = r.trial ORDER BY r.trial, r.number"
        )
        for trial, *row in self._file.db.execute(query).fetchall():
            yield make_attempt(trial, tuple(row))

    def _last_intermediate(self, trial: Trial) -> tuple[Json, int]:
        """Return the last intermediate result of the current attempt (None if there is none), and their number."""
        where = "FROM metrics WHERE trial = ? AND attempt = ? AND final = 0"
        at = (trial.sequence, trial.attempt)
        last = self._file.one(f"SELECT value {where} ORDER BY idx DESC LIMIT 1", *at)
        return read_stored_value(last), int(self._file.one(f"SELECT COUNT(*) {where}", *at))

    def attempt(self, trial: str, number: int, *, retried: bool = False) -> tuple[Trial, Attempt, int] | None:
        """Return a trial, its attempt with that number, and how many reports that has made; None if missing.

        `retried`: the caller tries until it works.
        """
        with translated_on_read(self._file.path, retried=retried):
            row = self._file.db.execute(f"SELECT {TRIAL_COLUMNS} FROM trials WHERE id = ?", (trial,)).fetchone()
            if row is None:
                return None
            found = make_trial(row)
            at = (found.sequence, number)
            row = self._file.db.execute(_ATTEMPTS + "AND a.number = ?", at).fetchone()
            if row is None:
                return None
            counts = [
                int(
                    self._file.one(
                        f"SELECT COALESCE(MAX(idx) + 1, 0) FROM {table} WHERE trial = ? AND attempt = ?", *at
                    )
                )
                for table in ("metrics", "attributes")
            ]
            return found, make_attempt(trial, row), max(counts)

    def calls(self, until: int) -> list[Call]:
        """Return the first `until` calls of the tuner, in order."""
        with translated_on_read(self._file.path, retried=True):
            return list_calls(self._file.db, until=until)

    def last_space(self) -> Json:
        """Return the search space as the user last changed it; None if it was never changed."""
        with translated_on_read(self._file.path):
            return read_stored_value(
                self._file.one("SELECT value FROM calls WHERE kind = 'space' ORDER BY number DESC LIMIT 1")
            )

    def busy_s(self) -> float:
        """Return for how long at least one trial was running, in seconds."""
        query = "SELECT started, COALESCE(ended, started) FROM attempts WHERE started IS NOT NULL ORDER BY started"
        busy, until = 0.0, 0.0
        with translated_on_read(self._file.path):
            # Trials that run side by side count once: only what lies after the last end so far is added.
            for start, end in self._file.db.execute(query):
                busy += max(0.0, end - max(start, until))
                until = max(until, end)
        return busy

    def histories(self) -> list[messages.History]:
        """Return (trial, attempt, intermediate results, ended, succeeded) of each trial with such results, in order."""
        query = (
            "SELECT t.id, t.attempt, t.state, m.value FROM trials t "
            "JOIN metrics m ON m.trial = t.sequence AND m.attempt = t.attempt "
            "WHERE m.final = 0 ORDER BY t.sequence, m.idx"
        )
        found: dict[str, messages.History] = {}
        with translated_on_read(self._file.path, retried=True):
            for trial, attempt, state, value in self._file.db.execute(query):
                ended = TrialState(state).ended
                entry = found.setdefault(trial, (trial, attempt, [], ended, state == "SUCCEEDED"))
                entry[2].append(read_stored_value(value))
        return list(found.values())


def find_best(rows: Callable[..., list[Any]], maximize: bool, without: str = "") -> Trial | None:
    """Return the best trial but this one. `rows(query, *values)` reads from the database."""
    order = "DESC" if maximize else "ASC"
    found = rows(
        f"SELECT {TRIAL_COLUMNS} FROM trials WHERE state = 'SUCCEEDED' AND score IS NOT NULL AND violates = '' "
        # The first of equal trials is the best one, as in the rules.
        f"AND id <> ? ORDER BY score {order}, sequence LIMIT 1",
        without,
    )
    return make_trial(found[0]) if found else None


def list_calls(db: sqlite3.Connection, after: int = 0, until: int = sys.maxsize) -> list[Call]:
    """Return the tuner's calls behind number `after`, up to number `until`, in order."""
    query = (
        "SELECT c.kind, c.parameter_id, c.trial, t.parameters, c.value, c.success, c.customized FROM calls c "
        "LEFT JOIN trials t ON t.id = c.trial WHERE c.number > ? AND c.number <= ? ORDER BY c.number"
    )
    return [call_from(row) for row in db.execute(query, (after, until))]
