"""Checks an experiment's database that comes from elsewhere, column by column.

SQLite keeps any type in any column, so a stranger's file may hold texts where numbers belong, an unknown state, or a
trial whose id is a path. All code that reads the database later can rely on these checks. Only the values of users
are not checked here: `stored_values.read_stored_value` reads them, and reads a bad one as None.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from nnilite._experiments.experiment_remarks import checked
from nnilite._store import stored_values as checks
from nnilite._store.columns import ATTEMPTS, TRIALS
from nnilite._store.notices import NOTICES, are_sentences
from nnilite._store.stored_values import Check
from nnilite.errors import ConfigError, StoreError
from nnilite.records import ATTRIBUTE_NAME_MAX, PRIORITY_MAX, CallKind, ExperimentLimits, ExperimentState
from nnilite.services.keeper_events import read_value

# A generated column, a constraint, a default value, or a comment, which nnilite never writes and which may hide one.
_EXPRESSION = re.compile(r"\b(?:AS|CHECK|GENERATED)\b|\bDEFAULT\s*\(|/\*|--", re.IGNORECASE)
_INDEX = re.compile(
    r"CREATE\s+(?:UNIQUE\s+)?INDEX\s+\w+\s+ON\s+\"?\w+\"?\s*\([\w\s,]+\)(?:\s*WHERE\s+\w+\s*!=\s*'')?", re.IGNORECASE
)


def list_foreign_objects(db: sqlite3.Connection) -> list[str]:
    """Return objects that nnilite never makes, and that may run code, hide rows or compute: triggers, views, ..."""
    return [
        f"the {_name_kind(kind, str(sql))} {name!r:.80}"
        for kind, name, sql in db.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        if kind not in ("table", "index") or _is_virtual(str(sql)) or _computes(kind, str(sql))
    ]


def _name_kind(kind: str, sql: str) -> str:
    if kind in ("table", "index"):
        return "virtual table" if _is_virtual(sql) else f"{kind} with an expression"
    return kind


def _is_virtual(sql: str) -> bool:
    return sql.upper().startswith("CREATE VIRTUAL")


def _computes(kind: str, sql: str) -> bool:
    """Return whether SQLite computes by an expression of this table or index when rows are read or written."""
    return _EXPRESSION.search(sql) is not None if kind == "table" else _INDEX.fullmatch(sql) is None


def check_objects(db: sqlite3.Connection, path: Path) -> None:
    """Check that there are no such objects: a view may compute without end. Raises: StoreError."""
    foreign = list_foreign_objects(db)
    if foreign:
        raise StoreError(
            f"{path} contains {foreign[0]}, which nnilite did not create; "
            "remove it with sqlite3, or restore the file from a copy."
        )


def check_schema(db: sqlite3.Connection, schema: str) -> None:
    """Check that tables and indices are exactly those of nnilite. Raises: StoreError."""
    # SQLite makes the schema to compare with, so both have its own spelling of the statements.
    with sqlite3.connect(":memory:") as fresh:
        fresh.executescript(schema)
        wanted = _objects(fresh)
    fresh.close()
    found = _objects(db)
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            raise StoreError(f"its table or index {name!r:.80} is not as nnilite makes it")


def check_rows(db: sqlite3.Connection) -> None:
    """Check all rows. Raises: StoreError that names table and column of a value that nnilite does not write."""
    for table, columns in _COLUMNS.items():
        for row in db.execute(f"SELECT {', '.join(columns)} FROM {table}"):
            for (column, check), value in zip(columns.items(), row, strict=True):
                if not check(value):
                    raise StoreError(f"in its table {table}, {column} cannot be {value!r:.60}")
    for key, value in db.execute("SELECT key, value FROM meta"):
        if not (checks.text(key) and checks.text(value) and _META.get(key, checks.text)(value)):
            raise StoreError(f"in its table meta, {key!r:.60} cannot be {value!r:.60}")
    for table in ("attempts", "metrics", "attributes", "remarks"):
        if db.execute(f"SELECT 1 FROM {table} WHERE trial NOT IN (SELECT sequence FROM trials) LIMIT 1").fetchone():
            raise StoreError(f"its table {table} has rows of a trial that does not exist")


def check_experiment_limits(text: str | None) -> Mapping[str, Any]:
    """Return the limits as the user last changed them, named like the rules' settings. Raises: ValueError."""
    limits = json.loads(text or "{}")
    if not isinstance(limits, dict) or not all(name in _LIMITS and _LIMITS[name](v) for name, v in limits.items()):
        raise ValueError(f"limits cannot be {limits!r:.100}")
    return limits


def read_moment(text: str | None) -> float | None:
    """Return a time of the table `meta`. Raises: ValueError."""
    value = json.loads(text or "null")
    if not checks.nullable(checks.time)(value):
        raise ValueError(f"{value!r:.60} is not a time")
    return None if value is None else float(value)


def _objects(db: sqlite3.Connection) -> dict[str, tuple[str, str, str]]:
    rows = db.execute("SELECT name, type, tbl_name, sql FROM sqlite_master").fetchall()
    return {str(name): (kind, table, " ".join(str(sql).split())) for name, kind, table, sql in rows}


def _are_tags(value: Any) -> bool:
    return isinstance(value, str) and _can_be_remarks(read_value(value)[0], "")


def _note(value: Any) -> bool:
    return _can_be_remarks([], value)


def _can_be_remarks(tags: Any, note: Any) -> bool:
    try:
        checked("", tags, note)
    except ConfigError:
        return False
    return True


def _is_meta_time(text: str) -> bool:
    value, problem = read_value(text)
    return not problem and checks.nullable(checks.time)(value)


def _are_meta_limits(text: str) -> bool:
    try:
        check_experiment_limits(text)
    except (ValueError, RecursionError):
        return False
    return True


_LIMITS: dict[str, Check] = {
    **{limit.name: checks.nullable(checks.limit) for limit in fields(ExperimentLimits)},  # the durations
    "concurrency": checks.positive,
    "max_trials": checks.nullable(checks.positive),
    "max_cost": checks.nullable(checks.amount),
    "stop_at_value": checks.nullable(checks.finite),
    "max_slots": checks.nullable(checks.positive),
    "priority": checks.nullable(lambda value: type(value) is int and abs(value) <= PRIORITY_MAX),
}
_META: dict[str, Check] = {
    "created": _is_meta_time,
    "ended": _is_meta_time,
    "duration_s": _is_meta_time,
    "state": checks.one_of(*(state.value for state in ExperimentState)),
    "limits": _are_meta_limits,
    NOTICES: are_sentences,
}
_COLUMNS: dict[str, dict[str, Check]] = {
    "trials": TRIALS.checks,
    "attempts": ATTEMPTS.checks,
    "metrics": {
        "attempt": checks.whole,
        "idx": checks.whole,
        "final": checks.truth,
        "sequence": checks.whole,
        "value": checks.text,
        "time": checks.time,
    },
    "attributes": {
        "attempt": checks.whole,
        "idx": checks.whole,
        "name": checks.is_at_most(ATTRIBUTE_NAME_MAX),
        "value": checks.text,
        "time": checks.time,
    },
    "calls": {
        "number": checks.whole,
        "kind": checks.one_of(*(kind.value for kind in CallKind)),
        "trial": checks.nullable(checks.trial_id),
        "parameter_id": checks.nullable(checks.whole),
        "value": checks.nullable(checks.text),
        "success": checks.nullable(checks.truth),
        "customized": checks.truth,
    },
    "removals": {"trial": checks.whole, "number": checks.whole},
    "remarks": {"tags": _are_tags, "note": _note, "revision": checks.whole},
}
