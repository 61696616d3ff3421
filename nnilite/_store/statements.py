"""Writes the records of the engine: the statements, and the rows that they get.

`score` is the finite number of a final metric, kept with its trial for sorting; `revision` counts the writes, so that a
client can ask for later changes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from nnilite._engine import messages
from nnilite._store.columns import ATTEMPTS, TRIALS
from nnilite.records import CallKind, MetricKind, storable
from nnilite.tuner import scalar

_Row = Sequence[Any]

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
_PUT_META = "INSERT OR REPLACE INTO meta VALUES (?, ?)"


def write_records(db: sqlite3.Connection, records: Iterable[messages.Record], revision: int) -> None:
    """Write records in the transaction that is open. Raises: sqlite3.Error.

    Of several states of the same trial, attempt or removal the last one is written. `revision` is that of this write.
    """
    for statement, rows in _make_statements(records, revision):
        db.executemany(statement, rows)


def _make_statements(records: Iterable[messages.Record], revision: int) -> list[tuple[str, list[_Row]]]:
    """Return each statement with its rows, in the order in which they must run."""
    # Trials come first: the other statements find their sequence by their id.
    trials: dict[str, _Row] = {}
    attempts: dict[tuple[str, int], _Row] = {}
    metrics: list[_Row] = []
    attributes: list[_Row] = []
    calls: list[_Row] = []
    removals: dict[tuple[str, int], bool] = {}
    experiment: list[_Row] = []
    for record in records:
        if isinstance(record, messages.SaveMetric):
            metrics.append(_metric_row(record))
        elif isinstance(record, messages.SaveAttribute):
            attributes.append(_attribute_row(record))
        elif isinstance(record, messages.SaveTrial):
            trial = record.trial
            trials[trial.id] = (*TRIALS.row(trial), scalar(trial.value), revision)
        elif isinstance(record, messages.SaveAttempt):
            attempt = record.attempt
            attempts[attempt.trial, attempt.number] = (attempt.trial, *ATTEMPTS.row(attempt))
        elif isinstance(record, messages.SaveCall):
            calls.append(_call_row(record))
        elif isinstance(record, messages.SaveRemoval):
            removals[record.trial, record.attempt] = record.pending
        else:
            experiment = list(_experiment_rows(record))
    return [
        (_PUT_TRIAL, list(trials.values())),
        (_PUT_ATTEMPT, list(attempts.values())),
        (_ADD_METRIC, metrics),
        (_ADD_ATTRIBUTE, attributes),
        (_ADD_CALL, calls),
        (_ADD_REMOVAL, [key for key, pending in removals.items() if pending]),
        (_DROP_REMOVAL, [key for key, pending in removals.items() if not pending]),
        (_PUT_META, experiment),
    ]


def _metric_row(record: messages.SaveMetric) -> _Row:
    m = record.metric
    return (m.trial, m.attempt, m.index, m.kind is MetricKind.FINAL, m.sequence, json.dumps(m.value), m.time)


def _attribute_row(record: messages.SaveAttribute) -> _Row:
    a = record.attribute
    return (a.trial, a.attempt, a.index, a.name, json.dumps(a.value), a.time)


def _call_row(record: messages.SaveCall) -> _Row:
    c = record.call
    value = None if c.value is None else json.dumps(c.value)
    return (record.number, CallKind(c.kind).value, c.trial_job_id, c.parameter_id, value, c.success, c.customized)


def _experiment_rows(record: messages.SaveExperiment) -> Iterator[_Row]:
    yield "state", record.state.value
    yield "reason", storable(record.reason)
    yield "duration_s", repr(record.duration_s)
    yield "ended", json.dumps(record.ended)
    yield "limits", json.dumps(asdict(record.settings.limits))
