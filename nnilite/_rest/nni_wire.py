"""NNI's JSON, for clients written for NNI 3.0: times in milliseconds, metrics as JSON texts within JSON texts.

NNI knows no attempts: a trial's metrics are those of its latest attempt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nnilite._answers.queries import Listed, Profile
from nnilite._rest.wire import Object
from nnilite.config import nni_form
from nnilite.errors import ConfigError, Place
from nnilite.records import ExperimentState, Json, Metric, MetricKind, Trial, TrialState, strict_json
from nnilite.records.shapes import to_json

# The field of `params` that each update changes, by NNI's name of the update.
UPDATES = {
    "TRIAL_CONCURRENCY": "trialConcurrency",
    "MAX_EXEC_DURATION": "maxExperimentDuration",
    "MAX_TRIAL_NUM": "maxTrialNumber",
    "SEARCH_SPACE": "searchSpace",
}


def milliseconds(time: float) -> int:
    return round(time * 1000)


def status(profile: Profile) -> Object:
    failed = profile.state is ExperimentState.ERROR
    return {"status": profile.state.value, "errors": [profile.reason] if failed else []}


def profile(profile: Profile) -> Object:
    limits = {name: value for name, value in to_json(profile.limits).items() if value is not None}
    begun = profile.created if profile.started is None else profile.started
    found: Object = {
        "params": {**nni_form(profile.config), **limits, "searchSpace": profile.space},
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
    """Return the change that an update requests. Raises: ConfigError."""
    name = UPDATES[update]
    params = body.get("params") if isinstance(body, dict) else None
    if not isinstance(params, dict) or name not in params:
        raise ConfigError(f"the body must be a profile with params.{name}", Place(field=f"params.{name}"))
    return {name: params[name]}


def entry(item: Listed, prefix: str = "") -> Object:
    """Return an entry of NNI's list of experiments."""
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
        "logDir": str(Path(item.directory).parent) if item.directory else "",
        "prefixUrl": prefix or None,
    }


def statistics(counts: Mapping[TrialState, int]) -> list[Object]:
    return [{"trialJobStatus": state.value, "trialJobNumber": count} for state, count in counts.items() if count]


def trial(trial: Trial, directory: str) -> Object:
    """Return a trial in NNI's JSON. `directory` is the experiment's folder."""
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
        "hyperParameters": [strict_json.spell_json(record)],
        "startTime": milliseconds(trial.created if trial.started is None else trial.started),
        "logPath": path,
        "sequenceId": trial.sequence,
    }
    if trial.reason:
        found["message"] = trial.reason
    return {**found, **_end(trial, path)}


def _end(trial: Trial, path: str) -> Object:
    """Return the fields that NNI adds to ended trials. Its final metric has the time of the trial's end."""
    fields: Object = {}
    if trial.ended is not None:
        fields["endTime"] = milliseconds(trial.ended)
    if trial.state is TrialState.FAILED:
        fields["stderrPath"] = f"{path}/trial.stderr"
    if trial.state is TrialState.SUCCEEDED and trial.value is not None:
        final = Metric(trial.id, trial.attempt, 0, MetricKind.FINAL, 0, trial.value, trial.ended or 0.0)
        fields["finalMetricData"] = [metric(final, trial.parameter_id)]
    return fields


def metric(metric: Metric, parameter_id: int | None) -> Object:
    return {
        "timestamp": milliseconds(metric.time),
        "trialJobId": metric.trial,
        "parameterId": "" if parameter_id is None else str(parameter_id),
        "type": metric.kind.value,
        "sequence": metric.sequence,
        "data": json.dumps(write_value(metric.value)),
    }


def exported(trial: Trial) -> Object:
    return {"parameter": trial.parameters, "value": write_value(trial.value), "trialJobId": trial.id}


def imported(pairs: Sequence[tuple[Json, Json]]) -> str:
    """Return the results of one import as NNI keeps them, as one JSON text without spaces."""
    return strict_json.spell_json([{"parameter": parameter, "value": value} for parameter, value in pairs])


def write_value(value: Any) -> str:
    """Return a metric as the JSON text that the trial sent, which may have NaN."""
    return json.dumps(value)
