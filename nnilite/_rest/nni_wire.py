"""NNI's JSON, for clients written for NNI 3.0: times in milliseconds, metrics as JSON texts within JSON texts.

NNI knows no attempts: a trial's metrics are those of its latest attempt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nnilite._rest import wire
from nnilite._rest.views import Listed, Profile
from nnilite._rest.wire import Object
from nnilite.errors import ConfigError, Place
from nnilite.records import ExperimentState, Json, Metric, MetricKind, Trial, TrialState

# What an update may change, by NNI's name of the update: the field of `params` that counts.
UPDATES = {
    "TRIAL_CONCURRENCY": "trialConcurrency",
    "MAX_EXEC_DURATION": "maxExperimentDuration",
    "MAX_TRIAL_NUM": "maxTrialNumber",
    "SEARCH_SPACE": "searchSpace",
}


@dataclass(frozen=True)
class Owner:
    """What a metric's record needs of its trial."""

    parameter_id: int | None
    attempt: int


def owner(trial: Trial) -> Owner:
    return Owner(trial.parameter_id, trial.attempt)


def milliseconds(time: float) -> int:
    return round(time * 1000)


def status(profile: Profile) -> Object:
    failed = profile.state is ExperimentState.ERROR
    return {"status": profile.state.value, "errors": [profile.reason] if failed else []}


def profile(profile: Profile) -> Object:
    limits = {name: value for name, value in wire.limits(profile.limits).items() if value is not None}
    begun = profile.created if profile.started is None else profile.started
    found: Object = {
        "params": {**profile.config, **limits, "searchSpace": profile.space},
        "id": profile.id,
        "execDuration": int(profile.duration_s),
        "logDir": profile.directory,
        "startTime": milliseconds(begun),
        "nextSequenceId": profile.next_sequence,
        "revision": profile.revision,
    }
    if profile.ended is not None:
        found["endTime"] = milliseconds(profile.ended)
    return found


def changes(update: str, body: Json) -> Object:
    """The one change that an update means. Raises: ConfigError."""
    name = UPDATES[update]
    params = body.get("params") if isinstance(body, dict) else None
    if not isinstance(params, dict) or name not in params:
        raise ConfigError(f"the body must be a profile with params.{name}", Place(field=f"params.{name}"))
    return {name: params[name]}


def entry(item: Listed, prefix: str = "") -> Object:
    """An entry of NNI's list of experiments."""
    return {
        "id": item.id,
        "port": item.port,
        "startTime": "N/A" if item.started is None else milliseconds(item.started),
        "endTime": "N/A" if item.ended is None else milliseconds(item.ended),
        "status": item.state,
        "platform": item.platform,
        "experimentName": item.name or None,
        "tag": [],
        "pid": item.pid,
        "webuiUrl": [item.url] if item.url else [],
        "logDir": item.directory,
        "prefixUrl": prefix or None,
    }


def statistics(counts: Mapping[TrialState, int]) -> list[Object]:
    return [{"trialJobStatus": state.value, "trialJobNumber": count} for state, count in counts.items() if count]


def trial(trial: Trial, directory: str) -> Object:
    """`directory`: the experiment's."""
    record = {
        "parameter_id": trial.parameter_id,
        "parameter_source": trial.source,
        "parameters": trial.parameters,
        "parameter_index": 0,
    }
    path = f"{directory}/trials/{trial.id}/{trial.attempt}"
    found: Object = {
        "trialJobId": trial.id,
        "status": trial.state.value,
        "hyperParameters": [wire.dumps(record)],
        "startTime": milliseconds(trial.created if trial.started is None else trial.started),
        "logPath": path,
        "sequenceId": trial.sequence,
    }
    if trial.reason:
        found["message"] = trial.reason
    return {**found, **_end(trial, path)}


def _end(trial: Trial, path: str) -> Object:
    """What NNI adds to ended trials. Its final metric bears the time of the trial's end."""
    found: Object = {}
    if trial.ended is not None:
        found["endTime"] = milliseconds(trial.ended)
    if trial.state is TrialState.FAILED:
        found["stderrPath"] = f"{path}/trial.stderr"
    if trial.state is TrialState.SUCCEEDED and trial.value is not None:
        final = Metric(trial.id, trial.attempt, 0, MetricKind.FINAL, 0, trial.value, trial.ended or 0.0)
        found["finalMetricData"] = [metric(final, owner(trial))]
    return found


def metric(metric: Metric, owner: Owner) -> Object:
    return {
        "timestamp": milliseconds(metric.time),
        "trialJobId": metric.trial,
        "parameterId": "" if owner.parameter_id is None else str(owner.parameter_id),
        "type": metric.kind.value,
        "sequence": metric.sequence,
        "data": json.dumps(value_text(metric.value)),
    }


def exported(trial: Trial) -> Object:
    return {"parameter": trial.parameters, "value": value_text(trial.value), "trialJobId": trial.id}


def imported(pair: tuple[Json, Json]) -> str:
    """NNI keeps each imported result as one JSON text without spaces."""
    return wire.dumps({"parameter": pair[0], "value": pair[1]})


def value_text(value: Any) -> str:
    """A metric as the JSON text that the trial sent, in which NaN may stand."""
    return json.dumps(value)
