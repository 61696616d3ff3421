"""Reads the rows of an experiment's database that Microsoft NNI wrote, and makes nnilite's records of them.

NNI has three tables. `TrialJobEvent` has a row for each change of a trial, the first with its parameters; `MetricData`
has what trials reported, as JSON text within a JSON text; `ExperimentProfile` has a row for each change of the whole.
Rows of all versions from 2.0 on are understood: columns that a version did not have yet are read as empty.

NNI 3 hands parameters to whichever trial asks first, and records them with another one if two start together. Trials
say in each metric which parameters they got, so this can be seen, and mostly put right.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nnilite._engine import messages
from nnilite._experiments.nni_folders import MIXED_UP, UNCERTAIN, seconds
from nnilite.errors import StoreError
from nnilite.records import Attempt, CallKind, JobState, Json, Metric, MetricKind, Trial, TrialState
from nnilite.records.record_types import TIME_MAX
from nnilite.services.keeper_events import read_value
from nnilite.tuner import Call

_TABLES: dict[str, tuple[str, ...]] = {
    "TrialJobEvent": ("timestamp", "trialJobId", "event", "data", "sequenceId", "message"),
    "MetricData": ("timestamp", "trialJobId", "parameterId", "type", "sequence", "data"),
    "ExperimentProfile": ("params", "id", "execDuration", "startTime", "endTime", "revision"),
}
_STATES = {state.value: state for state in TrialState} | {"USER_TO_CANCEL": TrialState.USER_CANCELED}
_JOBS = {
    TrialState.SUCCEEDED: JobState.SUCCEEDED,
    TrialState.FAILED: JobState.FAILED,
    TrialState.UNKNOWN: JobState.LOST,
}
_LARGEST = 2**53  # the largest number that NNI counts with; the database accepts little more
_NO_END = "NNI ended before this trial did, and did not record its end"


@dataclass(frozen=True)
class NniProfile:
    """What NNI recorded of the experiment itself. `params` is its config."""

    params: Mapping[str, Json]
    started: float | None
    ended: float | None
    duration_s: float

    @property
    def space(self) -> Json:
        """The search space; versions before 2.0 kept it as a text."""
        space = self.params.get("searchSpace")
        return read_value(space)[0] if isinstance(space, str) else space


@dataclass
class _Seen:
    """One trial while its rows are read."""

    id: str
    place: int
    record: Mapping[str, Json] = field(default_factory=dict)
    number: int | None = None  # NNI's own number of the trial
    state: TrialState = TrialState.UNKNOWN
    created: float = 0.0
    started: float | None = None
    ended: float | None = None
    message: str = ""
    metrics: list[Metric] = field(default_factory=list)
    reported: set[str | None] = field(default_factory=set)  # the parameter ids of its metrics


class NniRows:
    """The content of one database. Nothing is written."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def profile(self) -> NniProfile:
        """Return the experiment as NNI recorded it last. Raises: StoreError if there is no such record."""
        found = list(self._rows("ExperimentProfile", "ORDER BY revision DESC, rowid DESC LIMIT 1"))
        params = read_value(str(found[0][0]))[0] if found else None
        if not isinstance(params, dict):
            raise StoreError("NNI recorded no configuration in it")
        _, _, duration, started, ended, _ = found[0]
        spent = float(duration) if isinstance(duration, (int, float)) and 0 <= duration <= TIME_MAX else 0.0
        return NniProfile(params, seconds(started), seconds(ended), spent)

    def records(self) -> list[messages.Record]:
        """Return all trials with their metrics, and the imported results, as the store takes them."""
        trials = self._trials()
        self._read_metrics(trials)
        given = _collect_parameters(trials.values())
        numbers = _numbers(trials.values())
        records: list[messages.Record] = []
        for one in trials.values():
            trial = _trial(one, numbers[one.id], given)
            records.append(messages.SaveTrial(trial))
            records.append(messages.SaveAttempt(_attempt(trial)))
            records.extend(messages.SaveMetric(metric) for metric in one.metrics)
        return [*records, *self._read_imports()]

    def _trials(self) -> dict[str, _Seen]:
        found: dict[str, _Seen] = {}
        for time, trial, event, data, number, message in self._rows("TrialJobEvent"):
            if isinstance(trial, str) and trial and event in {*_STATES, "ADD_RESUMED"}:
                one = found.setdefault(trial, _Seen(trial, len(found), created=seconds(time) or 0.0))
                _apply_event(one, str(event), seconds(time))
                one.record = _read_object(data) or one.record
                one.number = number if type(number) is int and 0 <= number <= _LARGEST else one.number
                one.message = message if isinstance(message, str) else one.message
        return found

    def _read_metrics(self, trials: Mapping[str, _Seen]) -> None:
        for time, trial, parameter, kind, sequence, data in self._rows("MetricData"):
            one = trials.get(trial) if isinstance(trial, str) else None
            if one is None or kind not in ("PERIODICAL", "FINAL"):
                continue
            value = read_value(data)[0] if isinstance(data, str) else None
            value = read_value(value)[0] if isinstance(value, str) else value
            number = sequence if type(sequence) is int and 0 <= sequence <= _LARGEST else 0
            at = seconds(time) or one.created
            one.metrics.append(Metric(one.id, 0, len(one.metrics), MetricKind(kind), number, value, at))
            one.reported.add(_read_parameter_id(parameter))

    def _read_imports(self) -> Iterator[messages.SaveCall]:
        rows = (data for _, _, event, data, _, _ in self._rows("TrialJobEvent") if event == "IMPORT_DATA")
        for number, data in enumerate(rows, 1):
            pairs = read_value(data)[0] if isinstance(data, str) else None
            pairs = pairs if isinstance(pairs, list) else []
            known = [pair for pair in pairs if isinstance(pair, dict) and {"parameter", "value"} <= pair.keys()]
            yield messages.SaveCall(number, Call(CallKind.IMPORT, value=known))

    def _rows(self, table: str, end: str = "ORDER BY rowid") -> Iterator[tuple[Any, ...]]:
        there = {str(row[1]) for row in self._db.execute(f"PRAGMA table_info({table})")}
        if not there:
            raise StoreError(f"it has no table {table}, as each database of NNI has")
        columns = ", ".join(name if name in there else f"NULL AS {name}" for name in _TABLES[table])
        yield from self._db.execute(f"SELECT {columns} FROM {table} {end}")


def _apply_event(one: _Seen, event: str, time: float | None) -> None:
    """Apply one event of a trial; one that was queued again by a resume starts afresh."""
    if event == "ADD_RESUMED":
        one.state, one.started, one.ended = TrialState.WAITING, None, None
        return
    one.state = _STATES[event]
    if one.state is TrialState.RUNNING:
        one.started = time
    if one.state.ended:
        one.ended = time


def _collect_parameters(trials: Any) -> dict[str | None, list[Json]]:
    """Return the different parameters under each parameter id.

    After a resume NNI uses ids twice.
    """
    found: dict[str | None, list[Json]] = {}
    for one in trials:
        same = found.setdefault(_read_parameter_id(one.record.get("parameter_id")), [])
        if one.record.get("parameters") not in same:
            same.append(one.record.get("parameters"))
    return found


def _numbers(trials: Any) -> dict[str, int]:
    """Return NNI's own number of each trial, as far as it is unique.

    After a resume NNI uses numbers twice.
    """
    numbers: dict[str, int] = {}
    used: set[int] = set()
    for one in trials:
        if one.number is not None and one.number not in used:
            numbers[one.id] = one.number
            used.add(one.number)
    free = max(used, default=-1) + 1
    for one in trials:
        if one.id not in numbers:
            numbers[one.id], free = free, free + 1
    return numbers


def _trial(one: _Seen, number: int, given: Mapping[str | None, list[Json]]) -> Trial:
    record = one.record
    customized = record.get("parameter_source") == "customized"
    recorded = record.get("parameter_id")
    trial = Trial(
        id=one.id,
        sequence=number,
        parameters=record.get("parameters"),
        parameter_id=recorded if type(recorded) is int and 0 <= recorded <= _LARGEST else None,
        source="customized" if customized else "algorithm",
        state=one.state if one.state.ended else TrialState.UNKNOWN,
        reason=one.message or ("" if one.state.ended else _NO_END),
        created=one.created,
        started=one.started,
        ended=one.ended,
        value=next((metric.value for metric in one.metrics if metric.kind is MetricKind.FINAL), None),
    )
    return _correct_parameters(trial, one, given)


def _correct_parameters(trial: Trial, one: _Seen, given: Mapping[str | None, list[Json]]) -> Trial:
    """Give a trial the parameters that it reported with, if NNI recorded others."""
    recorded = _read_parameter_id(one.record.get("parameter_id"))
    if one.reported <= {recorded}:
        return trial
    other = next(iter(one.reported)) if len(one.reported) == 1 else None
    known = given.get(other, []) if len(one.reported) == 1 else []
    remark = f"{MIXED_UP} (number {recorded}, while it reported with number {other})"
    if len(known) != 1:
        return replace(trial, reason=f"{remark}; {UNCERTAIN}")
    number = int(other) if other is not None and other.isdecimal() and len(other) < len(str(_LARGEST)) else None
    return replace(trial, parameters=known[0], parameter_id=number, reason=f"{remark}; shown are those it had")


def _attempt(trial: Trial) -> Attempt:
    state = _JOBS.get(trial.state, JobState.CANCELED)
    return Attempt(trial.id, 0, state=state, started=trial.started, ended=trial.ended, message=trial.reason)


def _read_parameter_id(value: Any) -> str | None:
    """Return a parameter id as text: NNI has numbers in records and texts in metrics.

    None: customized, so without one.
    """
    return None if value in (None, "", "null", "None") else str(value)


def _read_object(text: Any) -> Mapping[str, Json] | None:
    value = read_value(text)[0] if isinstance(text, str) else None
    return value if isinstance(value, dict) and "parameters" in value else None
