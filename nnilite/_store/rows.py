"""Makes records from rows of the database. SQLite checks no types, so each row is checked here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nnilite._answers.queries import TrialRemarks
from nnilite._store.columns import ATTEMPTS, TRIALS, check_types
from nnilite._store.stored_values import read_stored_value
from nnilite.records import Attempt, CallKind, Metric, MetricKind, Trial
from nnilite.tuner import Call

TRIAL_COLUMNS = TRIALS.selected()
LATEST = (
    "CASE WHEN t.value IS NULL THEN (SELECT m.value FROM metrics m "
    "WHERE m.trial = t.sequence AND m.attempt = t.attempt ORDER BY m.idx DESC LIMIT 1) END"
)
"""The latest intermediate result of the current attempt, for a row of `trials t` without a final result."""
ATTEMPT_COLUMNS = ATTEMPTS.selected("a.")
REMARK_COLUMNS = "t.id, r.tags, r.note, r.revision"
METRIC_COLUMNS = "t.id, m.attempt, m.idx, m.final, m.sequence, m.value, m.time"

_WHOLE, _TEXT = (int, type(None)), (str, type(None))
_METRIC_TYPES = ((str,), (int,), (int,), (int,), (int,), (str,), (int, float))
_REMARK_TYPES = ((str,), (str,), (str,), (int,))
_CALL_TYPES = ((str,), _WHOLE, _TEXT, _TEXT, _TEXT, _WHOLE, (int,))


def make_trial(row: Sequence[Any]) -> Trial:
    return Trial(*TRIALS.values(row))


def make_attempt(trial: str, row: Sequence[Any]) -> Attempt:
    return Attempt(trial, *ATTEMPTS.values(row))


def make_metric(row: tuple[Any, ...]) -> Metric:
    check_types(row, _METRIC_TYPES)
    trial, attempt, index, final, sequence, value, time = row
    kind = MetricKind.FINAL if final else MetricKind.PERIODICAL
    return Metric(trial, attempt, index, kind, sequence, read_stored_value(value), time)


def make_remarks(row: tuple[Any, ...]) -> TrialRemarks:
    check_types(row, _REMARK_TYPES)
    trial, tags, note, revision = row
    words = json.loads(tags)
    if not isinstance(words, list):
        raise ValueError(f"tags cannot be {tags!r:.50}")
    check_types(words, ((str,),) * len(words))
    return TrialRemarks(trial, tuple(words), note, revision)


def call_from(row: tuple[Any, ...]) -> Call:
    check_types(row, _CALL_TYPES)
    kind, parameter_id, trial, parameters, value, success, customized = row
    return Call(
        kind=CallKind(kind),
        parameter_id=parameter_id,
        trial_job_id=trial,
        parameters=read_stored_value(parameters),
        value=read_stored_value(value),
        success=None if success is None else bool(success),
        customized=bool(customized),
    )
