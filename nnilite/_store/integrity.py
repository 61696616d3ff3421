"""Recomputes the invariants of a finished experiment from its database: what `nnictl verify` compares.

The database is only read. Each check yields a `Defect` for each place where two of its facts contradict each other;
a sound database has none, whatever crashes its managers have been through.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnilite._store.contents import check_rows, check_schema, list_foreign_objects
from nnilite._store.database_file import open_read_only
from nnilite._store.database_schema import SCHEMA, SCHEMA_VERSION
from nnilite._store.store_errors import translated_on_read
from nnilite._store.stored_values import read_stored_value
from nnilite.errors import StoreError
from nnilite.records import ExperimentState
from nnilite.tuner import scalar

Rows = Callable[..., list[Any]]

_ENDED = "t.state NOT IN ('WAITING', 'RUNNING', 'UNKNOWN')"
_OVER = (ExperimentState.DONE.value, ExperimentState.STOPPED.value)
_MOST = 20
"""How many places one check names; a damaged table may have millions."""


@dataclass(frozen=True)
class Defect:
    """One contradiction: the place, such as `trial 3 (Xy12z), attempt 0`, and what is wrong there."""

    place: str
    what: str


@dataclass(frozen=True)
class StoredAttempt:
    """What the database has of one attempt, for the comparison with the attempt's folder."""

    trial: str
    number: int
    sequence: int
    parameters: Any
    parameter_id: int | None
    state: str
    exit_code: int | None


class IntegrityCheck:
    """The checks of one database, which no manager may have open.

    `counts` has the number of things that were checked.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None
        self.counts: Mapping[str, int] = {}

    def __enter__(self) -> IntegrityCheck:
        """Open the database. Raises: StoreError if it is not a database of this version of nnilite."""
        if not self._path.is_file():
            raise StoreError(f"there is no database {self._path}; restore it from a copy.")
        with translated_on_read(self._path):
            self._db = open_read_only(self._path)
            version = self._rows("PRAGMA user_version")[0][0]
        if version > SCHEMA_VERSION:
            self.__exit__()
            raise StoreError(f"{self._path} was written by a newer nnilite (schema {version}); update nnilite.")
        if version != SCHEMA_VERSION:
            self.__exit__()
            raise StoreError(
                f"{self._path} has schema {version}, not {SCHEMA_VERSION}; open it "
                "with `nnictl view` of this version, which updates it, then verify it."
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def findings(self, experiment: str) -> Iterator[Defect]:
        """Yield all contradictions. If rows cannot be read at all, that alone. Raises: StoreError."""
        with translated_on_read(self._path):
            broken = list(self._unreadable())
            # The other checks rely on the types and the shape of rows, so they would report nonsense.
            if broken:
                yield from broken
                return
            tables = ("trials", "attempts", "metrics", "attributes", "calls")
            self.counts = {table: self._rows(f"SELECT COUNT(*) FROM {table}")[0][0] for table in tables}
            yield from _identity(self._rows, experiment)
            for check in _CHECKS:
                yield from _limit_findings(check(self._rows))

    def attempts(self) -> Iterator[StoredAttempt]:
        """Yield all attempts that have ended, in order."""
        query = (
            "SELECT t.id, a.number, t.sequence, t.parameters, t.parameter_id, a.state, a.exit_code FROM attempts a "
            "JOIN trials t ON t.sequence = a.trial WHERE a.state NOT IN ('WAITING', 'RUNNING', 'UNKNOWN') "
            "ORDER BY a.trial, a.number"
        )
        with translated_on_read(self._path):
            for trial, number, sequence, parameters, *rest in self._rows(query):
                yield StoredAttempt(trial, number, sequence, read_stored_value(parameters), *rest)

    def metrics(self, attempt: StoredAttempt) -> dict[int, tuple[bool, str]]:
        """Return the attempt's metrics by their index: whether it is the final one, and its value as JSON text."""
        query = "SELECT idx, final, value FROM metrics WHERE trial = ? AND attempt = ?"
        with translated_on_read(self._path):
            rows = self._rows(query, attempt.sequence, attempt.number)
            return {index: (bool(final), json.dumps(read_stored_value(value))) for index, final, value in rows}

    def attributes(self, attempt: StoredAttempt) -> dict[int, tuple[str, str]]:
        """Return what the attempt set by the index of the report: the name, and the value as JSON text."""
        query = "SELECT idx, name, value FROM attributes WHERE trial = ? AND attempt = ?"
        with translated_on_read(self._path):
            rows = self._rows(query, attempt.sequence, attempt.number)
            return {index: (name, json.dumps(read_stored_value(value))) for index, name, value in rows}

    def state(self) -> str:
        """Return the state of the experiment, as last committed."""
        return _read_meta(self._rows).get("state", "")

    def _rows(self, query: str, *values: Any) -> list[Any]:
        if self._db is None:
            raise StoreError(f"{self._path} is not open.")
        return self._db.execute(query, values).fetchall()

    def _unreadable(self) -> Iterator[Defect]:
        if self._db is None:
            raise StoreError(f"{self._path} is not open.")
        foreign = list_foreign_objects(self._db)
        for name in foreign:
            yield Defect("database", f"it contains {name}, which nnilite did not create")
        # To read rows of a view, or of a table that computes its columns, may take for ever; SQLite's check reads them.
        if foreign:
            return
        found = [str(row[0]) for row in self._rows("PRAGMA integrity_check(3)")]
        if found != ["ok"]:
            yield Defect("database", f"its pages or indices are damaged: {'; '.join(found):.300}")
        for check in (lambda db: check_schema(db, SCHEMA), check_rows):
            with _note_defect() as defects:
                check(self._db)
            yield from defects
            if defects:
                return


@contextlib.contextmanager
def _note_defect() -> Iterator[list[Defect]]:
    found: list[Defect] = []
    try:
        yield found
    except StoreError as error:
        found.append(Defect("database", str(error)))


def _limit_findings(findings: Iterator[Defect]) -> Iterator[Defect]:
    for count, finding in enumerate(findings):
        if count == _MOST:
            yield Defect(finding.place, "... and more of the same kind")
            return
        yield finding


def _read_meta(rows: Rows) -> dict[str, str]:
    return dict(rows("SELECT key, value FROM meta"))


def _identity(rows: Rows, experiment: str) -> Iterator[Defect]:
    known = _read_meta(rows)
    if known.get("id") != experiment:
        yield Defect("database", f"it belongs to experiment {known.get('id')!r:.80}")
    if known.get("state") in _OVER:
        for sequence, trial, state in rows(f"SELECT sequence, id, state FROM trials t WHERE NOT ({_ENDED})"):
            yield Defect(_place(sequence, trial), f"it is {state}, and the experiment is {known['state']}")


def _check_trial_numbers(rows: Rows) -> Iterator[Defect]:
    query = "SELECT sequence, id, LAG(sequence, 1, -1) OVER (ORDER BY sequence) FROM trials"
    for sequence, trial, before in rows(f"WITH numbered(a, b, c) AS ({query}) SELECT * FROM numbered WHERE a <> c + 1"):
        missing = f"{before + 1}" if sequence == before + 2 else f"{before + 1} to {sequence - 1}"
        yield Defect(_place(sequence, trial), f"the trials before it are missing: {missing}")


def _check_parameter_ids(rows: Rows) -> Iterator[Defect]:
    query = "SELECT parameter_id, COUNT(*) FROM trials WHERE parameter_id IS NOT NULL GROUP BY parameter_id"
    for number, count in rows(f"{query} HAVING COUNT(*) > 1"):
        yield Defect(f"parameters {number}", f"{count} trials have this number, which belongs to one")


def _check_attempt_numbers(rows: Rows) -> Iterator[Defect]:
    query = (
        "SELECT t.sequence, t.id, t.state, t.attempt, COUNT(a.number), MAX(a.number) FROM trials t "
        "LEFT JOIN attempts a ON a.trial = t.sequence GROUP BY t.sequence"
    )
    for sequence, trial, state, current, count, last in rows(query):
        place = _place(sequence, trial)
        if count and last != count - 1:
            yield Defect(place, f"it has {count} attempts, and the last one is number {last}: some are missing")
        elif (count and last > current) or count < current:
            yield Defect(place, f"it is at attempt {current}, and has {count} attempts")
        elif count == current and state in ("SUCCEEDED", "FAILED"):
            yield Defect(place, f"it is {state}, and its attempt {current} is missing")


def _ends(rows: Rows) -> Iterator[Defect]:
    for sequence, trial, state in rows(f"SELECT sequence, id, state FROM trials t WHERE ({_ENDED}) = (ended IS NULL)"):
        has = "has an end" if state in ("WAITING", "RUNNING", "UNKNOWN") else "has no end"
        yield Defect(_place(sequence, trial), f"it is {state}, and {has}")
    for sequence, trial in rows("SELECT sequence, id FROM trials WHERE started > ended"):
        yield Defect(_place(sequence, trial), "it ended before it started")


def _states(rows: Rows) -> Iterator[Defect]:
    query = (
        "SELECT t.sequence, t.id, t.state, a.number, a.state, a.exit_code FROM trials t "
        "JOIN attempts a ON a.trial = t.sequence AND a.number = t.attempt "
        "WHERE (t.state = 'SUCCEEDED' AND (a.state <> 'SUCCEEDED' OR a.exit_code IS NOT NULL AND a.exit_code <> 0)) "
        "OR (t.state = 'FAILED' AND a.state NOT IN ('FAILED', 'LOST')) "
        f"OR ({_ENDED} AND t.state IN ('SUCCEEDED', 'FAILED') AND a.state IN ('WAITING', 'RUNNING', 'UNKNOWN'))"
    )
    for sequence, trial, state, number, found, code in rows(query):
        actual = found if code is None else f"{found} with exit code {code}"
        yield Defect(_place(sequence, trial, number), f"the trial is {state}, and this attempt is {actual}")


def _check_report_numbers(rows: Rows) -> Iterator[Defect]:
    reports = "(SELECT trial, attempt, idx FROM metrics UNION ALL SELECT trial, attempt, idx FROM attributes)"
    query = (
        f"SELECT t.sequence, t.id, m.attempt, MIN(m.idx), MAX(m.idx), COUNT(*) FROM {reports} m "
        "JOIN trials t ON t.sequence = m.trial GROUP BY m.trial, m.attempt HAVING MIN(m.idx) > 0 "
        "OR MAX(m.idx) <> COUNT(*) - 1"
    )
    for sequence, trial, attempt, _, last, count in rows(query):
        what = f"it has {count} reports, and the last one is number {last}: {last + 1 - count} are missing"
        yield Defect(_place(sequence, trial, attempt), what)
    orphans = (
        f"SELECT DISTINCT t.sequence, t.id, m.attempt FROM {reports} m JOIN trials t ON t.sequence = m.trial "
        "LEFT JOIN attempts a ON a.trial = m.trial AND a.number = m.attempt WHERE a.number IS NULL"
    )
    for sequence, trial, attempt in rows(orphans):
        yield Defect(_place(sequence, trial, attempt), "there are reports of this attempt, but no attempt")


def _values(rows: Rows) -> Iterator[Defect]:
    """Check that the first final metric of the current attempt is the trial's value, as in NNI."""
    first = (
        "SELECT m.value FROM metrics m WHERE m.trial = t.sequence AND m.attempt = t.attempt AND m.final = 1 "
        "AND m.value <> 'null' ORDER BY m.idx LIMIT 1"
    )
    for sequence, trial, value, score, reported in rows(f"SELECT sequence, id, value, score, ({first}) FROM trials t"):
        place = _place(sequence, trial)
        if value != reported:
            yield Defect(place, f"its result is {_shorten(value)}, but it reported {_shorten(reported)}")
        wanted = scalar(read_stored_value(value))
        if score != wanted:
            yield Defect(place, f"its score is {score}, and {wanted} follows from its result")


def _calls(rows: Rows) -> Iterator[Defect]:
    """Check the tuner's calls: the tuner is rebuilt from them, so they must be about the same trials."""
    for number, kind, trial in rows(
        "SELECT number, kind, trial FROM calls WHERE trial IS NOT NULL AND trial NOT IN (SELECT id FROM trials)"
    ):
        yield Defect(f"tuner call {number}", f"it is {kind} for trial {trial}, which is missing")
    # As lists of all calls: there is no index by trial, so a question for each trial would read all calls each time.
    call = "FROM calls WHERE trial IS NOT NULL AND kind"
    known = f"SELECT trial {call} IN ('end', 'import')"  # the latter of trials that ran elsewhere
    proposed = f"SELECT trial, parameter_id {call} = 'generate' AND parameter_id IS NOT NULL"
    asked = f"parameter_id IS NOT NULL AND (id, parameter_id) NOT IN ({proposed})"
    for sequence, trial in rows(f"SELECT sequence, id FROM trials WHERE {asked}"):
        yield Defect(_place(sequence, trial), "its parameters are the tuner's, but no call of the tuner proposed them")
    for sequence, trial in rows(f"SELECT sequence, id FROM trials t WHERE {_ENDED} AND t.id NOT IN ({known})"):
        yield Defect(_place(sequence, trial), "it has ended, but the tuner did not get its result")
    results = (
        "SELECT t.sequence, t.id, t.value, c.value FROM calls c JOIN trials t ON t.id = c.trial "
        "WHERE c.kind = 'result' AND t.state = 'SUCCEEDED' AND c.number IN "
        f"(SELECT MAX(number) {call} = 'result' GROUP BY trial) AND c.value IS NOT t.value"
    )
    for sequence, trial, value, received in rows(results):
        yield Defect(
            _place(sequence, trial), f"its result is {_shorten(value)}, but the tuner got {_shorten(received)}"
        )


_CHECKS: tuple[Callable[[Rows], Iterator[Defect]], ...] = (
    _check_trial_numbers,
    _check_parameter_ids,
    _check_attempt_numbers,
    _ends,
    _states,
    _check_report_numbers,
    _values,
    _calls,
)


def _place(sequence: int, trial: str, attempt: int | None = None) -> str:
    text = f"trial {sequence} ({trial})"
    return text if attempt is None else f"{text}, attempt {attempt}"


def _shorten(value: str | None) -> str:
    return "nothing" if value is None else value if len(value) <= 60 else f"{value[:57]}..."
