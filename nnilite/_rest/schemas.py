"""JSON Schemas of what travels: the counterpart of `nnilite._rest.wire`, for the OpenAPI document."""

from __future__ import annotations

from nnilite._rest.events import EVENTS_MAX, EXIT_CODE_MAX, HOST_MAX, INTEGER_MAX, MESSAGE_MAX, TIME_MAX
from nnilite._rest.experiment import COUNT_MAX, IMPORT_MAX
from nnilite._rest.route import Schema
from nnilite._rest.trials import RERUN_MAX, WORKERS_MAX
from nnilite.records import ExperimentState, Json, MetricKind, TrialState
from nnilite.units import MAX_CONCURRENCY

ANYTHING: Schema = {"description": "any JSON value, with NaN and infinities as strings"}
TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
TIME: Schema = {"type": "number", "description": "seconds since the epoch"}
MAYBE_TIME: Schema = {"type": ["number", "null"], "description": "seconds since the epoch"}
MAYBE_COUNT: Schema = {"type": ["integer", "null"], "minimum": 0}
TRIAL_STATES = [state.value for state in TrialState]
ENDED_STATES = [state.value for state in TrialState if state.ended]
EXPERIMENT_STATES = [state.value for state in ExperimentState]
METRIC_KINDS = [kind.value for kind in MetricKind]
SORTS = ["sequence", "value", "started", "ended", "duration"]


def record(**properties: Schema) -> Schema:
    """An object of which every property is there."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def choice(values: list[str], **more: Json) -> Schema:
    return {"type": "string", "enum": values, **more}


def array(items: Schema, **more: Json) -> Schema:
    return {"type": "array", "items": items, **more}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


_TRIAL: dict[str, Schema] = {
    "id": TEXT,
    "sequence": COUNT,
    "state": choice(TRIAL_STATES),
    "reason": {"type": "string", "description": "why it waits, or why it ended as it did"},
    "parameters": ANYTHING,
    "parameterId": MAYBE_COUNT,
    "source": {"type": "string", "description": "algorithm, or customized by a person"},
    "attempt": COUNT,
    "created": TIME,
    "started": MAYBE_TIME,
    "ended": MAYBE_TIME,
    "value": {**ANYTHING, "description": "the final metric as reported; null: none (yet)"},
}
_LATEST: Schema = {**ANYTHING, "description": "the latest intermediate result, where there is no final one (yet)"}
_WARNING: Schema = {"type": "string", "description": "what is odd about the parameters, which are run all the same"}
_ATTEMPT: dict[str, Schema] = {
    "trial": TEXT,
    "number": COUNT,
    "service": TEXT,
    "state": TEXT,
    "started": MAYBE_TIME,
    "ended": MAYBE_TIME,
    "exitCode": {"type": ["integer", "null"]},
    "message": TEXT,
    "host": TEXT,
    "url": TEXT,
}
_METRIC: dict[str, Schema] = {
    "trial": TEXT,
    "attempt": COUNT,
    "index": {"type": "integer", "minimum": 0, "description": "counts all reports of the attempt"},
    "kind": choice(METRIC_KINDS),
    "sequence": {"type": "integer", "minimum": 0, "description": "counts intermediate results"},
    "value": ANYTHING,
    "time": TIME,
}
_LIMITS: dict[str, Schema] = {
    "trialConcurrency": COUNT,
    "maxTrialNumber": MAYBE_COUNT,
    "maxExperimentDuration": {**MAYBE_COUNT, "description": "seconds; null: no limit"},
    "maxTrialDuration": {**MAYBE_COUNT, "description": "seconds; null: no limit"},
}
_EXPERIMENT: dict[str, Schema] = {
    "id": TEXT,
    "name": TEXT,
    "state": choice(EXPERIMENT_STATES),
    "reason": TEXT,
    "config": {"type": "object", "description": "as in the YAML, with secrets hidden"},
    "searchSpace": ANYTHING,
    "platforms": array(TEXT),
    "directory": TEXT,
    "version": TEXT,
    "created": TIME,
    "started": MAYBE_TIME,
    "ended": MAYBE_TIME,
    "duration": {"type": "number", "description": "seconds spent running, over all resumes"},
    "limits": ref("Limits"),
    "counts": {"type": "object", "description": "trials by state", "additionalProperties": COUNT},
    "best": either(ref("Trial"), {"type": "null"}),
    "optimize": TEXT,
    "hosts": array(ref("Host")),
    "waiting": array(record(reason=TEXT, count=COUNT)),
    "port": COUNT,
    "url": TEXT,
    "pid": COUNT,
    "readOnly": FLAG,
    "nextSequence": COUNT,
    "revision": COUNT,
}
_LISTED: dict[str, Schema] = {
    "id": TEXT,
    "name": TEXT,
    "state": TEXT,
    "port": MAYBE_COUNT,
    "url": TEXT,
    "pid": MAYBE_COUNT,
    "directory": TEXT,
    "platform": TEXT,
    "started": MAYBE_TIME,
    "ended": MAYBE_TIME,
}
_CALLBACK_ANSWER: dict[str, Schema] = {
    "cancel": {"type": "boolean", "description": "the keeper must end its trial"},
    "metrics": {"type": "integer", "minimum": 0, "description": "number of metrics the manager has"},
    "output": record(stdout=COUNT, stderr=COUNT),
}
_INTEGER: Schema = {"type": "integer", "minimum": 0, "maximum": INTEGER_MAX}
_EVENT_TIME: Schema = {"type": "number", "minimum": 0, "maximum": TIME_MAX}
_HOST_NAME: Schema = {"type": "string", "maxLength": HOST_MAX}
_MESSAGE: Schema = {"type": "string", "maxLength": MESSAGE_MAX}
_EXIT_CODE: Schema = {"type": ["integer", "null"], "minimum": -EXIT_CODE_MAX, "maximum": EXIT_CODE_MAX}
_BASE64: Schema = {"type": "string", "contentEncoding": "base64"}
_METRIC_TEXT: Schema = {"type": "string", "description": "the metric as JSON text; NaN and Infinity may stand in it"}


def _event(kind: str, required: list[str], /, **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": {"type": {"const": kind}, **properties},
        "required": ["type", *required],
    }


_EVENTS = [
    _event("started", ["time", "pid"], time=_EVENT_TIME, host=_HOST_NAME, pid=_INTEGER),
    _event(
        "metric",
        ["index", "kind", "sequence", "value", "time"],
        index=_INTEGER,
        kind=choice(METRIC_KINDS),
        sequence=_INTEGER,
        value=_METRIC_TEXT,
        time=_EVENT_TIME,
    ),
    _event(
        "output",
        ["stream", "offset", "data"],
        stream=choice(["stdout", "stderr"]),
        offset=_INTEGER,
        data=_BASE64,
    ),
    _event("exit", ["time"], time=_EVENT_TIME, code=_EXIT_CODE, message=_MESSAGE),
]

COMPONENTS: dict[str, Schema] = {
    "Error": {
        "type": "object",
        "properties": {"error": TEXT, "field": TEXT},
        "required": ["error"],
    },
    "Trial": record(**_TRIAL),
    "TrialDetails": record(**_TRIAL, attempts=array(ref("Attempt"))),
    "NewTrial": record(**_TRIAL, warning=_WARNING),
    "TrialPage": record(trials=array(record(**_TRIAL, latest=_LATEST)), total=COUNT, revision=COUNT),
    "Attempt": record(**_ATTEMPT),
    "Metric": record(**_METRIC),
    "MetricPage": record(metrics=array(ref("Metric")), next=COUNT),
    "Limits": record(**_LIMITS),
    "Host": record(name=TEXT, state=TEXT, reason=TEXT, running=COUNT, details=OBJECT),
    "Experiment": record(**_EXPERIMENT),
    "Listed": record(**_LISTED),
    "File": record(path=TEXT, size=COUNT, modified=TIME),
    "Event": either(*_EVENTS),
    "CallbackAnswer": record(**_CALLBACK_ANSWER),
}

# Bodies of requests

EMPTY: Schema = {"type": "object", "additionalProperties": False}
_MAYBE_FROM_1: Schema = {"type": ["integer", "null"], "minimum": 1, "maximum": COUNT_MAX}
_DURATION: Schema = either(_MAYBE_FROM_1, {"type": "string", "minLength": 1, "maxLength": 40})
CHANGES: Schema = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": False,
    "properties": {
        "trialConcurrency": {"type": "integer", "minimum": 1, "maximum": MAX_CONCURRENCY},
        "maxTrialNumber": _MAYBE_FROM_1,
        "maxExperimentDuration": _DURATION,
        "maxTrialDuration": _DURATION,
        "searchSpace": OBJECT,
    },
}
NEW_TRIAL: Schema = {**record(parameters=OBJECT), "additionalProperties": False}
WORKERS: Schema = {
    **record(workers={"type": "integer", "minimum": 1, "maximum": WORKERS_MAX}),
    "additionalProperties": False,
}
RERUN: Schema = either(
    {
        **record(ids=array(TEXT, minItems=1, maxItems=RERUN_MAX)),
        "additionalProperties": False,
    },
    {**record(state=choice(ENDED_STATES)), "additionalProperties": False},
)
IMPORT: Schema = array(record(parameter=OBJECT, value=ANYTHING), maxItems=IMPORT_MAX)
BATCH: Schema = record(events=array(ref("Event"), maxItems=EVENTS_MAX))
