"""JSON Schemas of requests and answers: the counterpart of `nnilite._rest.wire`, for the OpenAPI document."""

from __future__ import annotations

from nnilite._answers.queries import (
    Backlog,
    CallbackAnswer,
    FileEntry,
    FileListing,
    Listed,
    MetricPage,
    NonFileEntry,
    Profile,
    ServiceState,
    TrialRemarks,
    TrialUsage,
    Waiting,
)
from nnilite._experiments.experiment_remarks import NOTE_MAX, TAG_MAX, TAGS_MAX
from nnilite._rest.events import EVENTS_MAX
from nnilite._rest.experiment_handlers import IMPORT_MAX
from nnilite._rest.route_definition import Schema
from nnilite._rest.trials import RERUN_MAX, WORKERS_MAX
from nnilite.records import (
    EVENT_TYPES,
    Attempt,
    ExperimentLimits,
    Host,
    Json,
    Metric,
    MetricKind,
    Trial,
    TrialState,
)
from nnilite.records.shapes import properties_of, required_of, schema_of

ANYTHING: Schema = {"description": "any JSON value, with NaN and infinities as strings"}
TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
TIME: Schema = {"type": "number", "description": "seconds since the epoch"}
MAYBE_TIME: Schema = {"type": ["number", "null"], "description": "seconds since the epoch"}
TRIAL_STATES = [state.value for state in TrialState]
ENDED_STATES = [state.value for state in TrialState if state.ended]
METRIC_KINDS = [kind.value for kind in MetricKind]
SORTS = ["sequence", "value", "started", "ended", "duration"]


def record(**properties: Schema) -> Schema:
    """Return the schema of an object with all of these properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def choice(values: list[str], **more: Json) -> Schema:
    return {"type": "string", "enum": values, **more}


def line(least: int, most: int, **more: Json) -> Schema:
    """Return the schema of a text of one line, of `least` to `most` characters."""
    # All that ends a line for a schema is named: the dot of Python leaves out less of it.
    return {"type": "string", "pattern": rf"^[^\r\n\u2028\u2029]{{{least},{most}}}$", **more}


def array(items: Schema, **more: Json) -> Schema:
    return {"type": "array", "items": items, **more}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


_LATEST: Schema = {**ANYTHING, "description": "the latest intermediate result, if there is no final one (yet)"}
_WARNING: Schema = {"type": "string", "description": "what is unusual about the parameters, which run anyway"}
_TAGS: Schema = array(TEXT, description="what people have tagged it with")
_NOTE: Schema = {"type": "string", "description": "what people have noted about it"}
_TRIAL = properties_of(Trial)
_REMARKED = {**_TRIAL, "tags": _TAGS, "note": _NOTE}


def _event(kind: str, cls: type) -> Schema:
    return {
        "type": "object",
        "properties": {"type": {"const": kind}, **properties_of(cls)},
        "required": ["type", *required_of(cls)],
    }


COMPONENTS: dict[str, Schema] = {
    "Error": {
        "type": "object",
        "properties": {"error": TEXT, "field": TEXT},
        "required": ["error"],
    },
    **{
        cls.__name__: schema_of(cls)
        for cls in (
            Trial,
            Attempt,
            FileEntry,
            NonFileEntry,
            FileListing,
            Metric,
            MetricPage,
            ExperimentLimits,
            Waiting,
            Host,
            Listed,
            Backlog,
            ServiceState,
            TrialRemarks,
            TrialUsage,
        )
    },
    "TrialDetails": record(
        **_REMARKED, attempts=array(ref("Attempt")), use=either(ref("TrialUsage"), {"type": "null"})
    ),
    "NewTrial": record(**_TRIAL, warning=_WARNING),
    "TrialPage": record(trials=array(record(**_REMARKED, latest=_LATEST)), total=COUNT, revision=COUNT),
    "Experiment": schema_of(Profile),
    "ExportedTrial": record(**_REMARKED),
    "Event": either(*(_event(kind, cls) for kind, cls in EVENT_TYPES.items())),
    "CallbackAnswer": schema_of(CallbackAnswer),
    "Proof": record(nonce=TEXT, proof=TEXT),
}

# Bodies of requests

EMPTY: Schema = {"type": "object", "additionalProperties": False}
NEW_TRIAL: Schema = {**record(parameters=OBJECT), "additionalProperties": False}
WORKERS: Schema = {
    **record(workers={"type": "integer", "minimum": 1, "maximum": WORKERS_MAX}),
    "additionalProperties": False,
}
_TAG = r"^[^\u0000-\u001f]*[^\s\u0000-\u001f][^\u0000-\u001f]*$"  # one line, and not only blanks
REMARKS: Schema = {
    **record(
        tags=array({"type": "string", "maxLength": TAG_MAX, "pattern": _TAG}, maxItems=TAGS_MAX),
        note={"type": "string", "maxLength": NOTE_MAX},
        revision={**COUNT, "description": "of the remarks that this replaces"},
    ),
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
