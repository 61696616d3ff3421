"""From rows of the database to records."""

from __future__ import annotations

import json
from typing import Any

from nnilite.records import Attempt, Metric, MetricKind, Trial, TrialState
from nnilite.tuner import Call

TRIAL_COLUMNS = "sequence, id, parameter_id, parameters, source, state, reason, attempt, created, started, ended, value"
LATEST = (
    "CASE WHEN t.value IS NULL THEN (SELECT m.value FROM metrics m "
    "WHERE m.trial = t.sequence AND m.attempt = t.attempt ORDER BY m.idx DESC LIMIT 1) END"
)
"""Of a row of `trials t` without a final result: the latest intermediate one of its present attempt."""
METRIC_COLUMNS = "t.id, m.attempt, m.idx, m.final, m.sequence, m.value, m.time"


def trial_from(row: tuple[Any, ...]) -> Trial:
    sequence, trial, parameter_id, parameters, source, state, reason, attempt, created, started, ended, value = row
    return Trial(
        id=trial,
        sequence=sequence,
        parameters=json.loads(parameters),
        parameter_id=parameter_id,
        source=source,
        state=TrialState(state),
        reason=reason,
        attempt=attempt,
        created=created,
        started=started,
        ended=ended,
        value=None if value is None else json.loads(value),
    )


def attempt_from(trial: str, row: tuple[Any, ...]) -> Attempt:
    _, number, service, handle, state, started, ended, exit_code, message, host, url, cancel = row
    return Attempt(
        trial=trial,
        number=number,
        service=service,
        handle=None if handle is None else json.loads(handle),
        state=state,
        started=started,
        ended=ended,
        exit_code=exit_code,
        message=message,
        host=host,
        url=url,
        cancel=cancel,
    )


def metric_from(row: tuple[Any, ...]) -> Metric:
    trial, attempt, index, final, sequence, value, time = row
    kind = MetricKind.FINAL if final else MetricKind.PERIODICAL
    return Metric(trial, attempt, index, kind, sequence, json.loads(value), time)


def call_from(row: tuple[Any, ...]) -> Call:
    kind, parameter_id, trial, parameters, value, success, customized = row
    return Call(
        kind=kind,
        parameter_id=parameter_id,
        trial_job_id=trial,
        parameters=None if parameters is None else json.loads(parameters),
        value=None if value is None else json.loads(value),
        success=None if success is None else bool(success),
        customized=bool(customized),
    )
