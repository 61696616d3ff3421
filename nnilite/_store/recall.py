"""Reads back what the manager needs to continue: at a start, or when a keeper connects again."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnilite._engine import messages
from nnilite._store.contents import check_experiment_limits, read_moment
from nnilite._store.rows import ATTEMPT_COLUMNS, TRIAL_COLUMNS, call_from, make_attempt, make_trial
from nnilite._store.stored_values import read_stored_value
from nnilite._store.trouble import understood
from nnilite.errors import StoreError
from nnilite.records import DRILLED, UNSTARTED, Attempt, ExperimentState, JobState, Json, Trial, TrialState
from nnilite.tuner import Call

_UNENDED = "('WAITING', 'RUNNING', 'UNKNOWN')"
_ATTEMPTS = f"SELECT {ATTEMPT_COLUMNS} FROM attempts a WHERE a.trial = ? "


class Recall:
    """The reading half of the store. All methods block and must be called in one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db: sqlite3.Connection | None = None

    def _use(self) -> sqlite3.Connection:
        if self._db is None:
            raise StoreError(f"{self.path} is not open.")
        return self._db

    def _one(self, query: str, *values: Any) -> Any:
        row = self._use().execute(query, values).fetchone()
        return row[0] if row else None

    def meta(self, key: str) -> str | None:
        found = self._one("SELECT value FROM meta WHERE key = ?", key)
        return None if found is None else str(found)

    def settings(self, defaults: messages.Settings) -> messages.Settings:
        """Return the limits of the config, with the user's later changes."""
        with understood(self.path):
            return replace(defaults, **check_experiment_limits(self.meta("limits")))

    def moment(self, key: str) -> float | None:
        """Return `created` or `ended`, in seconds since the epoch."""
        with understood(self.path):
            return read_moment(self.meta(key))

    def snapshot(self, maximize: bool) -> messages.Snapshot:
        """Return what the rules need to continue."""
        with understood(self.path):
            counts = self._use().execute("SELECT state, COUNT(*) FROM trials GROUP BY state").fetchall()
            return messages.Snapshot(
                state=ExperimentState(self.meta("state") or "INITIALIZED"),
                reason=self.meta("reason") or "",
                duration_s=float(self.meta("duration_s") or 0.0),
                next_sequence=int(self._one("SELECT COALESCE(MAX(sequence) + 1, 0) FROM trials")),
                next_parameter_id=int(self._one("SELECT COALESCE(MAX(parameter_id) + 1, 0) FROM trials")),
                calls=int(self._one("SELECT COALESCE(MAX(number), 0) FROM calls")),
                counts={TrialState(state): number for state, number in counts},
                best=self._best(maximize),
                spent=dict(self._sum_spent()),
                live=tuple(self._live()),
                removals=tuple(self._removals()),
            )

    def _best(self, maximize: bool) -> Trial | None:
        order = "DESC" if maximize else "ASC"
        row = (
            self._use()
            .execute(
                f"SELECT {TRIAL_COLUMNS} FROM trials WHERE state = 'SUCCEEDED' AND score IS NOT NULL AND violates = '' "
                # The first of equal trials is the best one, as in the rules.
                f"ORDER BY score {order}, sequence LIMIT 1"
            )
            .fetchone()
        )
        return make_trial(row) if row else None

    def _live(self) -> Iterator[messages.LiveTrial]:
        db = self._use()
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
                failed=sum(a.state is JobState.FAILED for a in attempts),
                tried=tuple(a.service for a in attempts if a.service and a.number < trial.attempt),
            )

    def ended_trials(self) -> list[tuple[str, int]]:
        """Return the ended trials, in the order of their ends, and the number of the latest attempt of each."""
        query = f"SELECT id, attempt FROM trials WHERE state NOT IN {_UNENDED} ORDER BY ended, sequence"
        with understood(self.path):
            return [(str(trial), int(attempt)) for trial, attempt in self._use().execute(query)]

    def _sum_spent(self) -> Iterator[tuple[str, float]]:
        """Yield what the attempts of each service have cost."""
        query = "SELECT service, SUM(cost) FROM attempts WHERE cost IS NOT NULL GROUP BY service"
        yield from ((str(service), float(cost)) for service, cost in self._use().execute(query))

    def _removals(self) -> Iterator[Attempt]:
        query = (
            f"SELECT t.id, {ATTEMPT_COLUMNS} FROM removals r "
            "JOIN attempts a ON a.trial = r.trial AND a.number = r.number "
            "JOIN trials t ON t.sequence = r.trial ORDER BY r.trial, r.number"
        )
        for trial, *row in self._use().execute(query).fetchall():
            yield make_attempt(trial, tuple(row))

    def _last_intermediate(self, trial: Trial) -> tuple[Json, int]:
        """Return the last intermediate result of the current attempt (None if there is none), and their number."""
        where = "FROM metrics WHERE trial = ? AND attempt = ? AND final = 0"
        at = (trial.sequence, trial.attempt)
        last = self._one(f"SELECT value {where} ORDER BY idx DESC LIMIT 1", *at)
        return read_stored_value(last), int(self._one(f"SELECT COUNT(*) {where}", *at))

    def attempt(self, trial: str, number: int) -> tuple[Trial, Attempt, int] | None:
        """Return a trial, its attempt with that number, and how many reports that has made; None if missing."""
        with understood(self.path):
            row = self._use().execute(f"SELECT {TRIAL_COLUMNS} FROM trials WHERE id = ?", (trial,)).fetchone()
            if row is None:
                return None
            found = make_trial(row)
            at = (found.sequence, number)
            row = self._use().execute(_ATTEMPTS + "AND a.number = ?", at).fetchone()
            if row is None:
                return None
            counts = [
                int(self._one(f"SELECT COALESCE(MAX(idx) + 1, 0) FROM {table} WHERE trial = ? AND attempt = ?", *at))
                for table in ("metrics", "attributes")
            ]
            return found, make_attempt(trial, row), max(counts)

    def calls(self, until: int) -> list[Call]:
        """Return the first `until` calls of the tuner, in order."""
        with understood(self.path):
            return list_calls(self._use(), until)

    def last_space(self) -> Json:
        """Return the search space as the user last changed it; None if it was never changed."""
        with understood(self.path):
            return read_stored_value(
                self._one("SELECT value FROM calls WHERE kind = 'space' ORDER BY number DESC LIMIT 1")
            )

    def busy_s(self) -> float:
        """Return for how long at least one trial was running, in seconds."""
        query = "SELECT started, COALESCE(ended, started) FROM attempts WHERE started IS NOT NULL ORDER BY started"
        busy, until = 0.0, 0.0
        with understood(self.path):
            # Trials that run side by side count once: only what lies after the last end so far is added.
            for start, end in self._use().execute(query):
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
        with understood(self.path):
            for trial, attempt, state, value in self._use().execute(query):
                ended = TrialState(state).ended
                entry = found.setdefault(trial, (trial, attempt, [], ended, state == "SUCCEEDED"))
                entry[2].append(read_stored_value(value))
        return list(found.values())


def list_calls(db: sqlite3.Connection, until: int) -> list[Call]:
    """Return the first `until` calls of the tuner, in order."""
    query = (
        "SELECT c.kind, c.parameter_id, c.trial, t.parameters, c.value, c.success, c.customized FROM calls c "
        "LEFT JOIN trials t ON t.id = c.trial WHERE c.number <= ? ORDER BY c.number"
    )
    return [call_from(row) for row in db.execute(query, (until,))]
