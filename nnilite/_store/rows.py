"""Makes records from rows of the database. SQLite checks no types, so each row is checked here."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from nnilite._answers.queries import TrialRemarks
from nnilite.records import Attempt, CallKind, Exited, JobState, Json, Metric, MetricKind, Trial, TrialState
from nnilite.services.keeper_events import parse_event, read_value
from nnilite.tuner import Call

TRIAL_COLUMNS = (
    "sequence, id, parameter_id, parameters, source, state, reason, attempt, created, started, ended, value, "
    "service, cost"
)
LATEST = (
    "CASE WHEN t.value IS NULL THEN (SELECT m.value FROM metrics m "
    "WHERE m.trial = t.sequence AND m.attempt = t.attempt ORDER BY m.idx DESC LIMIT 1) END"
)
"""The latest intermediate result of the current attempt, for a row of `trials t` without a final result."""
ATTEMPT_COLUMNS = (
    "a.number, a.service, a.handle, a.state, a.started, a.ended, a.exit_code, a.message, a.host, a.url, a.cancel, "
    "a.reported_end, a.cost, a.run"
)
REMARK_COLUMNS = "t.id, r.tags, r.note, r.revision"
METRIC_COLUMNS = "t.id, m.attempt, m.idx, m.final, m.sequence, m.value, m.time"


_WHOLE, _TIME, _TEXT = (int, type(None)), (int, float), (str, type(None))
_MAYBE_TIME = _MAYBE_COST = (*_TIME, type(None))
_TRIAL_TYPES = (int, str, _WHOLE, str, str, str, str, int, _TIME, _MAYBE_TIME, _MAYBE_TIME, _TEXT, str, _MAYBE_COST)
_ATTEMPT_TYPES = (int, str, _TEXT, str, _MAYBE_TIME, _MAYBE_TIME, _WHOLE, str, str, str, str, _TEXT, _MAYBE_COST, str)
_METRIC_TYPES = (str, int, int, int, int, str, _TIME)
_REMARK_TYPES = (str, str, str, int)
_CALL_TYPES = (str, _WHOLE, _TEXT, _TEXT, _TEXT, _WHOLE, int)


def _check(row: tuple[Any, ...], kinds: tuple[Any, ...]) -> None:
    """Check the types of a row. Raises: ValueError."""
    misfit = _misfit(tuple(map(type, row)), kinds)
    if misfit is not None:
        raise ValueError(f"a row has {row[misfit]!r:.50} where that cannot be")


@lru_cache(maxsize=1000)  # thousands of rows have the same few combinations of types
def _misfit(found: tuple[type, ...], kinds: tuple[Any, ...]) -> int | None:
    """The first column whose value is of a wrong type."""
    pairs = zip(found, kinds, strict=True)
    return next((column for column, (one, kind) in enumerate(pairs) if not issubclass(one, kind)), None)


def stored_value(text: str | None) -> Json:
    """A user's value as it was stored; None if it could not be stored today, as earlier versions accepted more."""
    return None if text is None else read_value(text)[0]


def trial_from(row: tuple[Any, ...]) -> Trial:
    _check(row, _TRIAL_TYPES)
    sequence, trial, parameter_id, parameters, source, state, reason, attempt, *rest = row
    created, started, ended, value, service, cost = rest
    return Trial(
        id=trial,
        sequence=sequence,
        parameters=stored_value(parameters),
        parameter_id=parameter_id,
        source=source,
        state=TrialState(state),
        reason=reason,
        attempt=attempt,
        created=created,
        started=started,
        ended=ended,
        value=stored_value(value),
        service=service,
        cost=cost,
    )


def attempt_from(trial: str, row: tuple[Any, ...]) -> Attempt:
    _check(row, _ATTEMPT_TYPES)
    number, service, handle, state, started, ended, exit_code, message, host, url, cancel, end, cost, run = row
    return Attempt(
        trial=trial,
        number=number,
        service=service,
        handle=None if handle is None else json.loads(handle),
        state=JobState(state),
        started=started,
        ended=ended,
        exit_code=exit_code,
        message=message,
        host=host,
        url=url,
        cost=cost,
        cancel=TrialState(cancel) if cancel else None,
        reported_end=None if end is None else stored_end(end),
        run=run,
    )


def stored_end(text: str) -> Exited:
    """An end that a keeper has reported. Raises: ValueError."""
    fields = read_value(text)[0]
    event = parse_event({**fields, "type": "exit"} if isinstance(fields, dict) else None)
    if not isinstance(event, Exited):
        raise ValueError(f"{text!r:.60} is no end")
    return event


def metric_from(row: tuple[Any, ...]) -> Metric:
    _check(row, _METRIC_TYPES)
    trial, attempt, index, final, sequence, value, time = row
    kind = MetricKind.FINAL if final else MetricKind.PERIODICAL
    return Metric(trial, attempt, index, kind, sequence, stored_value(value), time)


def remarks_from(row: tuple[Any, ...]) -> TrialRemarks:
    _check(row, _REMARK_TYPES)
    trial, tags, note, revision = row
    words = json.loads(tags)
    if not isinstance(words, list):
        raise ValueError(f"tags cannot be {tags!r:.50}")
    _check(tuple(words), (str,) * len(words))
    return TrialRemarks(trial, tuple(words), note, revision)


def call_from(row: tuple[Any, ...]) -> Call:
    _check(row, _CALL_TYPES)
    kind, parameter_id, trial, parameters, value, success, customized = row
    return Call(
        kind=CallKind(kind),
        parameter_id=parameter_id,
        trial_job_id=trial,
        parameters=stored_value(parameters),
        value=stored_value(value),
        success=None if success is None else bool(success),
        customized=bool(customized),
    )
