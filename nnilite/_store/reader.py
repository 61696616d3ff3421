"""Runs the queries of the REST interface, each in a thread with a read-only connection of its own."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from nnilite._answers.backend import (
    MetricPage,
    MetricQuery,
    RemarksQuery,
    TrialPage,
    TrialQuery,
    TrialRemarks,
    TrialSort,
)
from nnilite._store.database_file import open_read_only
from nnilite._store.database_identity import find_file_id
from nnilite._store.rows import (
    ATTEMPT_COLUMNS,
    LATEST,
    METRIC_COLUMNS,
    TRIAL_COLUMNS,
    make_attempt,
    make_metric,
    make_trial,
)
from nnilite._store.store_errors import closed, translated_on_read
from nnilite._store.stored_values import read_stored_value
from nnilite._store.trial_remarks import WITH_TAG, find_remarks
from nnilite.errors import NotFound
from nnilite.records import Attempt, Json, MetricKind, Trial

T = TypeVar("T")

# Bounds the memory of an export, however many trials there are.
_EXPORT_CHUNK = 500
_ORDER = {
    TrialSort.SEQUENCE: "sequence",
    TrialSort.VALUE: "score",
    TrialSort.STARTED: "started",
    TrialSort.ENDED: "ended",
    TrialSort.DURATION: "ended - started",
}


_VALUE = 2 + METRIC_COLUMNS.split(", ").index("m.value")
_IS_LAST = (
    "m.idx = (SELECT x.idx FROM metrics x WHERE x.trial = m.trial AND x.attempt = m.attempt AND x.final = 0 "
    "ORDER BY x.idx DESC LIMIT 1)"
)


class Reader:
    """Reads committed data. All methods but `close` are for the event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Two, so that a long query does not delay the short ones.
        self._threads = ThreadPoolExecutor(2, "reader")
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._closed = False

    async def trials(self, query: TrialQuery) -> TrialPage:
        return await self._run(self._trials, query)

    async def trial(self, trial: str) -> tuple[Trial, list[Attempt]]:
        """Return one trial with its attempts. Raises: NotFound."""
        return await self._run(self._trial, trial)

    async def metrics(self, query: MetricQuery) -> MetricPage:
        return await self._run(self._metrics, query)

    async def remarks(self, query: RemarksQuery) -> Sequence[TrialRemarks]:
        return await self._run(find_remarks, self._rows, query)

    async def read_ended(self) -> AsyncIterator[Trial]:
        """Yield all ended trials, by sequence."""
        after = -1
        while True:
            trials = await self._run(self._ended, after)
            for trial in trials:
                yield trial
            if len(trials) < _EXPORT_CHUNK:
                return
            after = trials[-1].sequence

    async def imported(self) -> list[list[tuple[Json, Json]]]:
        """Return the (parameters, value) pairs of each import so far."""
        return await self._run(self._imported)

    async def ask(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run `work(rows, *arguments)` in a thread, where `rows(query, *values)` reads from the database."""
        return await self._run(work, self._rows, *arguments)

    @property
    def path(self) -> Path:
        return self._path

    def close(self) -> None:
        """Finish what is being read. What is asked afterwards raises StoreError."""
        self._closed = True
        self._threads.shutdown(wait=True)
        for db in self._opened:
            db.close()

    # ------------------------------------------------------------ in a thread

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        if self._closed:
            raise closed(self._path)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._guarded, work, *arguments)

    def _guarded(self, work: Callable[..., T], *arguments: Any) -> T:
        with translated_on_read(self._path):
            return work(*arguments)

    def _rows(self, query: str, *values: Any) -> list[Any]:
        return self._cursor(query, *values).fetchall()

    def _cursor(self, query: str, *values: Any) -> sqlite3.Cursor:
        return self._connection().execute(query, values)

    def _connection(self) -> sqlite3.Connection:
        """Return the connection of this thread. Only `close` uses those of other threads, after their end."""
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        place = find_file_id(self._path)
        # While the file is missing, the connection still has all of it; the manager is about to write it back.
        if db is not None and place in (None, self._local.place):
            return db
        fresh = open_read_only(self._path)
        self._opened.append(fresh)
        # The database was written back: this connection still has the deleted file.
        if db is not None:
            self._opened.remove(db)
            db.close()
        self._local.db, self._local.place = fresh, place
        return fresh

    def _trials(self, query: TrialQuery) -> TrialPage:
        where, values = _condition(query)
        column = _ORDER[query.sort]
        # SQLite sorts NULL before all numbers, but trials without a value belong to the end in both directions.
        order = f"{column} DESC" if query.descending else f"{column} IS NULL, {column}"
        if query.sort is TrialSort.SEQUENCE:
            order = f"sequence {'DESC' if query.descending else 'ASC'}"
        total = self._rows(f"SELECT COUNT(*) FROM trials {where}", *values)[0][0]
        # The rows of the page are chosen first: SQLite would otherwise read all rows whole in order to sort them.
        chosen = f"SELECT sequence FROM trials {where} ORDER BY {order}, sequence LIMIT ? OFFSET ?"
        rows = self._rows(
            f"SELECT {LATEST}, {TRIAL_COLUMNS} FROM trials t WHERE sequence IN ({chosen}) ORDER BY {order}, sequence",
            *values,
            query.limit,
            query.offset,
        )
        revision = self._rows("SELECT COALESCE(MAX(revision), 0) FROM trials")[0][0]
        trials = [make_trial(row[1:]) for row in rows]
        latest = {
            trial.id: read_stored_value(text)
            for trial, (text, *_) in zip(trials, rows, strict=True)
            if text is not None
        }
        return TrialPage(trials, total, revision, latest)

    def _trial(self, trial: str) -> tuple[Trial, list[Attempt]]:
        rows = self._rows(f"SELECT {TRIAL_COLUMNS} FROM trials WHERE id = ?", trial)
        if not rows:
            raise NotFound(f"There is no trial {trial!r} in this experiment.")
        found = make_trial(rows[0])
        query = f"SELECT {ATTEMPT_COLUMNS} FROM attempts a WHERE a.trial = ? ORDER BY a.number"
        attempts = self._rows(query, found.sequence)
        return found, [make_attempt(trial, row) for row in attempts]

    def _metrics(self, query: MetricQuery) -> MetricPage:
        conditions, values = ["m.rowid > ?"], [query.after]
        if query.trial is not None:
            conditions.append("m.trial = ?")
            values.append(self._trial(query.trial)[0].sequence)
        if query.kind is not None:
            conditions.append("m.final = ?")
            values.append(int(query.kind is MetricKind.FINAL))
        if query.attempt is not None:
            conditions.append("m.attempt = ?")
            values.append(query.attempt)
        conditions += ["m.attempt = t.attempt"] if query.current else []
        conditions += [_IS_LAST] if query.last else []
        found = self._cursor(
            f"SELECT m.rowid, t.parameter_id, {METRIC_COLUMNS} FROM metrics m JOIN trials t ON t.sequence = m.trial "
            f"WHERE {' AND '.join(conditions)} ORDER BY m.rowid LIMIT ?",
            *values,
            query.limit,
        )
        rows = list(_within(query.size, found))
        metrics = [make_metric(row[2:]) for row in rows]
        return MetricPage(metrics, rows[-1][0] if rows else query.after, [row[1] for row in rows])

    def _ended(self, after: int) -> list[Trial]:
        rows = self._rows(
            f"SELECT {TRIAL_COLUMNS} FROM trials WHERE sequence > ? AND ended IS NOT NULL ORDER BY sequence LIMIT ?",
            after,
            _EXPORT_CHUNK,
        )
        return [make_trial(row) for row in rows]

    def _imported(self) -> list[list[tuple[Json, Json]]]:
        rows = self._rows("SELECT value FROM calls WHERE kind = 'import' ORDER BY number")
        return [[(item["parameter"], item["value"]) for item in json.loads(text)] for (text,) in rows]


def _within(size: int | None, rows: Iterable[Any]) -> Iterator[Any]:
    """Yield rows of metrics until their values have `size` bytes, and at least one row."""
    taken = 0
    for row in rows:
        yield row
        taken += len(row[_VALUE])
        if size is not None and taken >= size:
            return


def _condition(query: TrialQuery) -> tuple[str, list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []
    if query.states:
        conditions.append(f"state IN ({', '.join('?' * len(query.states))})")
        values += [state.value for state in query.states]
    if query.id_prefix:
        # Unlike LIKE, a range uses the index, and is not confused by `_` and `%`.
        conditions.append("id >= ? AND id < ?")
        values += [query.id_prefix, query.id_prefix + "\U0010ffff"]
    if query.after_revision:
        conditions.append("revision > ?")
        values.append(query.after_revision)
    for tag in query.tags:
        conditions.append(WITH_TAG)
        values.append(tag)
    return (f"WHERE {' AND '.join(conditions)}" if conditions else ""), values
