"""Checks an experiment's database that comes from elsewhere, column by column.

SQLite keeps any type in any column, so a stranger's file may hold texts where numbers belong, an unknown state, or a
trial whose id is a path. All code that reads the database later can rely on these checks. Only the values of users
are not checked here: `rows.stored_value` reads them, and reads a bad one as None.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from nnilite._remarks import checked
from nnilite._store.rows import stored_end
from nnilite.errors import ConfigError, StoreError
from nnilite.records import PRIORITY_MAX, RUN_MAX, CallKind, ExperimentLimits, ExperimentState, JobState, TrialState
from nnilite.services.keeper_events import read_value

Check = Callable[[Any], bool]

LARGEST = 2**53 - 1
LAST_TIME_S = 1e11
_TRIAL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def foreign_objects(db: sqlite3.Connection) -> list[str]:
    """Objects that nnilite never makes, and that may run code or hide rows: triggers, views, ..."""
    found = db.execute(
        "SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view') OR sql LIKE 'CREATE VIRTUAL%'"
    )
    return [f"the {'virtual table' if kind == 'table' else kind} {name!r:.80}" for kind, name in found.fetchall()]


def check_schema(db: sqlite3.Connection, schema: str) -> None:
    """Check that tables and indices are exactly those of nnilite. Raises: StoreError."""
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
    for table, checks in _COLUMNS.items():
        for row in db.execute(f"SELECT {', '.join(checks)} FROM {table}"):
            for (column, check), value in zip(checks.items(), row, strict=True):
                if not check(value):
                    raise StoreError(f"in its table {table}, {column} cannot be {value!r:.60}")
    for key, value in db.execute("SELECT key, value FROM meta"):
        if not (_text(key) and _text(value) and _META.get(key, _text)(value)):
            raise StoreError(f"in its table meta, {key!r:.60} cannot be {value!r:.60}")
    for table in ("attempts", "metrics", "remarks"):
        if db.execute(f"SELECT 1 FROM {table} WHERE trial NOT IN (SELECT sequence FROM trials) LIMIT 1").fetchone():
            raise StoreError(f"its table {table} has rows of a trial that there is not")


def checked_limits(text: str | None) -> Mapping[str, Any]:
    """The limits as the user last changed them, named like the rules' settings. Raises: ValueError."""
    limits = json.loads(text or "{}")
    if not isinstance(limits, dict) or not all(name in _LIMITS and _LIMITS[name](v) for name, v in limits.items()):
        raise ValueError(f"limits cannot be {limits!r:.100}")
    return limits


def moment_of(text: str | None) -> float | None:
    """A time of the table `meta`. Raises: ValueError."""
    value = json.loads(text or "null")
    if not _maybe(_time)(value):
        raise ValueError(f"{value!r:.60} is no time")
    return None if value is None else float(value)


def _objects(db: sqlite3.Connection) -> dict[str, tuple[str, str, str]]:
    rows = db.execute("SELECT name, type, tbl_name, sql FROM sqlite_master").fetchall()
    return {str(name): (kind, table, " ".join(str(sql).split())) for name, kind, table, sql in rows}


def _maybe(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _one_of(*values: str) -> Check:
    return lambda value: value in values


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST


def _time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= LAST_TIME_S


def _number(value: Any) -> bool:
    return type(value) in (int, float)


def _cost(value: Any) -> bool:
    return _number(value) and 0 <= value <= LARGEST


def _truth(value: Any) -> bool:
    return type(value) is int and value in (0, 1)


def _limit(value: Any) -> bool:
    return _number(value) and 0 < value <= LARGEST


def _id(value: Any) -> bool:
    return isinstance(value, str) and _TRIAL_ID.fullmatch(value) is not None


def _object(value: Any) -> bool:
    return isinstance(value, str) and isinstance(read_value(value)[0], dict)


def _tags(value: Any) -> bool:
    return isinstance(value, str) and _remarked(read_value(value)[0], "")


def _note(value: Any) -> bool:
    return _remarked([], value)


def _remarked(tags: Any, note: Any) -> bool:
    try:
        checked("", tags, note)
    except ConfigError:
        return False
    return True


def _end(value: Any) -> bool:
    try:
        stored_end(value)
    except (ValueError, TypeError):
        return False
    return True


def _meta_time(text: str) -> bool:
    value, problem = read_value(text)
    return not problem and _maybe(_time)(value)


def _meta_limits(text: str) -> bool:
    try:
        checked_limits(text)
    except (ValueError, RecursionError):
        return False
    return True


_LIMITS: dict[str, Check] = {
    **{limit.name: _maybe(_limit) for limit in fields(ExperimentLimits)},  # the durations
    "concurrency": lambda value: _whole(value) and value > 0,
    "max_trials": _maybe(lambda value: _whole(value) and value > 0),
    "max_cost": _maybe(_cost),
    "max_slots": _maybe(lambda value: _whole(value) and value > 0),
    "priority": _maybe(lambda value: type(value) is int and abs(value) <= PRIORITY_MAX),
}
_META: dict[str, Check] = {
    "created": _meta_time,
    "ended": _meta_time,
    "duration_s": _meta_time,
    "state": _one_of(*(state.value for state in ExperimentState)),
    "limits": _meta_limits,
}
_COLUMNS: dict[str, dict[str, Check]] = {
    "trials": {
        "sequence": _whole,
        "id": _id,
        "parameter_id": _maybe(_whole),
        "parameters": _text,
        "source": _one_of("algorithm", "customized"),
        "state": _one_of(*(state.value for state in TrialState)),
        "reason": _text,
        "attempt": _whole,
        "created": _time,
        "started": _maybe(_time),
        "ended": _maybe(_time),
        "value": _maybe(_text),
        "score": _maybe(_number),
        "revision": _whole,
        "service": _text,
        "cost": _maybe(_cost),
    },
    "attempts": {
        "number": _whole,
        "service": _text,
        "handle": _maybe(_object),
        "state": _one_of(*(state.value for state in JobState)),
        "started": _maybe(_time),
        "ended": _maybe(_time),
        "exit_code": _maybe(lambda value: type(value) is int),
        "message": _text,
        "host": _text,
        "url": _text,
        "cancel": _one_of("", *(state.value for state in TrialState)),
        "reported_end": _maybe(_end),
        "cost": _maybe(_cost),
        "run": lambda value: isinstance(value, str) and len(value) <= RUN_MAX,
    },
    "metrics": {
        "attempt": _whole,
        "idx": _whole,
        "final": _truth,
        "sequence": _whole,
        "value": _text,
        "time": _time,
    },
    "calls": {
        "number": _whole,
        "kind": _one_of(*(kind.value for kind in CallKind)),
        "trial": _maybe(_id),
        "parameter_id": _maybe(_whole),
        "value": _maybe(_text),
        "success": _maybe(_truth),
        "customized": _truth,
    },
    "removals": {"trial": _whole, "number": _whole},
    "remarks": {"tags": _tags, "note": _note, "revision": _whole},
}
