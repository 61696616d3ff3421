"""The nouns of nnilite, as frozen records without behaviour."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from nnilite._states import EndCause, JobState, MetricKind, TrialState
from nnilite.errors import no_attribute
from nnilite.records.shapes import BYTES, HIDDEN, TIME, Form, Key, integer, seconds_since_epoch, text

Json = Any
"""Any JSON value that only passes through, such as the parameters and metrics of users."""

INTEGER_MAX = 2**53 - 1  # exact in JSON everywhere, and far below what SQLite can hold
TIME_MAX = 1e11  # the year 5138; a larger number is a time in milliseconds
EXIT_CODE_MAX = 2**32
HOST_MAX = 255
PROCESSORS_MAX = 1e6
GPUS_MAX = 1024
MESSAGE_MAX = 64 * 1024
RUN_MAX = 64
ATTRIBUTE_NAME_MAX = 100

DRILLED = "interrupted by a drill"
"""How the message of an attempt begins that `nnictl drill` has ended. Such attempts do not count as retries."""

UNSTARTED = "its machine could not start it"
"""How the message of an attempt begins whose command was not started for want of something on its machine."""

COUNT = integer(0)


R = TypeVar("R")


def copy_with(record: R, **changes: Any) -> R:
    """Return a copy of a record in which these fields are changed. Raises: TypeError if it has no such field.

    Each step of a trial changes its records. `dataclasses.replace` takes several times as long, as it calls the
    constructor, which sets the fields of a frozen class one by one. A class with slots or `__post_init__` needs it.
    """
    known = vars(record)
    if not changes.keys() <= known.keys():
        raise TypeError(f"{type(record).__name__} has no field {', '.join(sorted(changes.keys() - known.keys()))}")
    copy = object.__new__(type(record))
    vars(copy).update(known, **changes)
    return copy


def storable(text: str) -> str:
    """Return a text without what some stores cannot keep.

    A lone surrogate has no encoding, and NUL ends strings in C.
    """
    if text.isascii():
        return text.replace("\0", "")
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "")


def _check_json_text(value: Json) -> str:
    if type(value) is not str:
        raise ValueError("must be a string with the JSON text of the metric")
    return value


def _read_processors(value: Json) -> float:
    # NaN is not at least 0, either
    if type(value) not in (int, float) or not 0 <= value <= PROCESSORS_MAX:
        raise ValueError(f"must be a number from 0 to {PROCESSORS_MAX:g}")
    return float(value)


def _gpus(value: Json) -> tuple[int, ...]:
    fits = type(value) is list and len(value) <= GPUS_MAX
    if not fits or not all(type(one) is int and 0 <= one < GPUS_MAX for one in value):
        raise ValueError(f"must be a list of at most {GPUS_MAX} whole numbers from 0 to {GPUS_MAX - 1}")
    return tuple(value)


_PROCESSORS = Form({"type": "number", "minimum": 0, "maximum": PROCESSORS_MAX}, read=_read_processors)
_GPU = {"type": "integer", "minimum": 0, "maximum": GPUS_MAX - 1}
_GPUS = Form({"type": "array", "items": _GPU, "maxItems": GPUS_MAX}, write=list, read=_gpus)
_INTEGER = integer(0, INTEGER_MAX)
_EVENT_TIME = seconds_since_epoch(TIME_MAX)
_EXIT_CODE = integer(-EXIT_CODE_MAX, EXIT_CODE_MAX)
_METRIC_TEXT = Form(
    {"type": "string", "description": "the metric as JSON text; NaN and Infinity may stand in it"},
    read=_check_json_text,
)


def _run(value: Json) -> str:
    if type(value) is not str or len(value) > RUN_MAX or not value.isascii():
        raise ValueError(f"must be a string of at most {RUN_MAX} ASCII characters")
    return value


_RUN = Form({"type": "string", "maxLength": RUN_MAX}, read=_run)
_STREAM_NAME = re.compile(r"stdout|stderr|roles|rank-[1-9][0-9]{0,3}")


def _stream(value: Json) -> str:
    if type(value) is not str or not _STREAM_NAME.fullmatch(value):
        raise ValueError("must be stdout, stderr, roles or rank-N, with N from 1 to 9999")
    return value


_STREAM = Form({"type": "string", "pattern": f"^({_STREAM_NAME.pattern})$"}, read=_stream)
_SECONDS = "seconds; null: no limit"
_AS_CONFIGURED = "instead of what the services' configs say; null: as they say"
PRIORITY_MAX = 10**9


@dataclass(frozen=True)
class ExperimentLimits:
    """Limits that can be changed while the experiment runs. None means no limit. Durations are seconds.

    `max_slots` and `priority` are None as long as each service has those of its own config.
    """

    concurrency: Annotated[int, COUNT, Key("trialConcurrency")]
    max_trials: Annotated[int | None, COUNT, Key("maxTrialNumber")] = None
    max_duration_s: Annotated[int | None, COUNT, Key("maxExperimentDuration"), _SECONDS] = None
    max_trial_duration_s: Annotated[int | None, COUNT, Key("maxTrialDuration"), _SECONDS] = None
    max_cost: Annotated[float | None, "no further trials start once this much is spent; null: no limit"] = None
    stop_at_value: Annotated[float | None, "no further trials start after a result this good; null: no limit"] = None
    max_slots: Annotated[int | None, COUNT, _AS_CONFIGURED] = None
    priority: Annotated[int | None, integer(-PRIORITY_MAX, PRIORITY_MAX), _AS_CONFIGURED] = None


_SUGGESTED = "parameters, and the search space in Search(space)"
_TRIAL_WORDS = {
    **dict.fromkeys(("suggest_float", "suggest_int", "suggest_categorical", "suggest_uniform"), _SUGGESTED),
    "hyperparameters": "parameters",
    "report": "search.report(trial, value)",
    "should_prune": "search.report(trial, value), which returns False if the trial should end",
    "set_user_attr": "search.set_attribute(trial, name, value)",
    "params": "parameters",
    "config": "parameters",
    "number": "sequence",
    "values": "value, which is a dict where there are several objectives",
    "user_attrs": "attributes",
    "datetime_start": "started, in seconds since 1970",
    "datetime_complete": "ended, in seconds since 1970",
    "duration": "ended - started, in seconds",
}
"""What to write for attributes of trials of other libraries."""


@dataclass(frozen=True)
class Trial:
    """One set of parameters, run by the trial command."""

    id: str
    # It counts from 0 over the whole experiment and is never reused.
    sequence: Annotated[int, COUNT]
    parameters: Json
    # The tuner's number of these parameters; None if the user chose them.
    parameter_id: Annotated[int | None, COUNT] = None
    source: Annotated[str, "algorithm, or customized by a person"] = "algorithm"
    state: TrialState = TrialState.WAITING
    reason: Annotated[str, "why it waits, or why it ended as it did"] = ""
    # The number of its latest attempt, counted from 0.
    attempt: Annotated[int, COUNT] = 0
    created: Annotated[float, TIME] = 0.0
    started: Annotated[float | None, TIME] = None
    ended: Annotated[float | None, TIME] = None
    value: Annotated[Json, "the final metric as reported; null: none (yet)"] = None
    service: Annotated[str, "the training service of its latest attempt, empty before one has it"] = ""
    cost: Annotated[float | None, "of its attempts that have ended; null: nothing is known of their price"] = None
    attributes: Annotated[Mapping[str, Json], "what the code of its latest attempt has set"] = field(
        default_factory=dict
    )
    violates: Annotated[str, "the result constraints that its result breaks, with its numbers; empty: none"] = ""

    def _repr_html_(self) -> str:
        """Return what notebooks show."""
        from nnilite._notebook import html

        return html.trial(self)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise no_attribute("'Trial' object", self, name, _TRIAL_WORDS)


@dataclass(frozen=True)
class Attempt:
    """One run of a trial as a job on a training service."""

    trial: str
    number: Annotated[int, COUNT]
    # The name of the training service that has taken the attempt, or that was asked last to take it; "" before.
    service: str = ""
    # Only the service knows what its platform needs to find the job, so this is not shown.
    handle: Annotated[Mapping[str, Json] | None, HIDDEN] = None
    state: JobState = JobState.WAITING
    started: Annotated[float | None, TIME] = None
    ended: Annotated[float | None, TIME] = None
    exit_code: int | None = None
    message: str = ""
    host: str = ""
    url: str = ""
    cost: Annotated[float | None, "once it has ended; null: nothing is known of its price"] = None
    # The state that its trial will have, once its end was requested; None before.
    cancel: Annotated[TrialState | None, HIDDEN] = None
    # The end that its keeper has reported, while the rules cannot act on it yet.
    reported_end: Annotated[Exited | None, HIDDEN] = None
    # The run whose events were taken first; events of other runs are refused. "" before the first event.
    run: Annotated[str, HIDDEN] = ""
    image: Annotated[str, "the container image that ran, with its digest; empty: unknown"] = ""


@dataclass(frozen=True)
class Metric:
    """One reported value. `index` counts all reports of an attempt from 0; (trial, attempt, index) is unique."""

    trial: str
    attempt: Annotated[int, COUNT]
    index: Annotated[int, COUNT, "counts all reports of the attempt"]
    kind: MetricKind
    # NNI's number: it counts intermediate results from 0, and is 0 for a final one.
    sequence: Annotated[int, COUNT, "counts intermediate results"]
    value: Json
    time: Annotated[float, TIME]


@dataclass(frozen=True)
class Attribute:
    """What the code of a trial has set about it. `index` counts all reports, metrics and attributes, of an attempt."""

    trial: str
    attempt: Annotated[int, COUNT]
    index: Annotated[int, COUNT]
    name: str
    value: Json
    time: Annotated[float, TIME]


# The events that a keeper reports of its attempt. The numbers that let the manager drop duplicates follow from the
# files of the trial: `index` is the place of a report in the spool, `offset` that of an output chunk in its stream.
# The start and the exit happen once. `run` says which start of the attempt's command an event is from: should a fault
# start an attempt twice, numbers alone could not separate the two. It is empty if the service read the event itself
# and the platform's log does not say it, and for keepers of earlier versions.


@dataclass(frozen=True)
class Started:
    """The trial command runs."""

    time: Annotated[float, _EVENT_TIME]
    host: Annotated[str, text(HOST_MAX, storable)] = ""
    pid: Annotated[int, _INTEGER] = 0
    run: Annotated[str, _RUN] = ""


@dataclass(frozen=True)
class Reported:
    """The trial reported a metric."""

    index: Annotated[int, _INTEGER]
    kind: MetricKind
    sequence: Annotated[int, _INTEGER]
    # It travels as the text that the trial wrote.
    value: Annotated[Json, _METRIC_TEXT]
    time: Annotated[float, _EVENT_TIME]
    # Why the value cannot be kept; then `value` is None.
    refused: Annotated[str, HIDDEN] = ""
    run: Annotated[str, _RUN] = ""


@dataclass(frozen=True)
class Attributed:
    """The trial set an attribute. Its `index` is among those of the metrics."""

    index: Annotated[int, _INTEGER]
    name: Annotated[str, text(ATTRIBUTE_NAME_MAX, storable)]
    # It travels as the text that the trial wrote.
    value: Annotated[Json, _METRIC_TEXT]
    time: Annotated[float, _EVENT_TIME]
    # Why the value cannot be kept; then `value` is None.
    refused: Annotated[str, HIDDEN] = ""
    run: Annotated[str, _RUN] = ""


@dataclass(frozen=True)
class Output:
    """A piece of the trial's output. `offset` counts bytes from the start of the stream.

    A distributed trial has more streams: `rank-N` is the output of a rank other than 0, and `roles` the records of all
    ranks. They come when the trial has ended.
    """

    stream: Annotated[str, _STREAM]
    offset: Annotated[int, _INTEGER]
    data: Annotated[bytes, BYTES]
    run: Annotated[str, _RUN] = ""


@dataclass(frozen=True)
class Exited:
    """The trial command ended; `code` is negative for a signal, None if it never started.

    `metrics` is how many reports it has made: a log may have lost the last ones.
    """

    time: Annotated[float, _EVENT_TIME]
    code: Annotated[int | None, _EXIT_CODE]
    message: Annotated[str, text(MESSAGE_MAX, storable)] = ""
    cause: EndCause = EndCause.ITSELF
    run: Annotated[str, _RUN] = ""
    metrics: Annotated[int | None, COUNT] = None

    @property
    def never_began(self) -> bool:
        """Whether the command was not started, because of something on the worker."""
        return self.code is None and self.cause in (EndCause.ITSELF, EndCause.MACHINE)


@dataclass(frozen=True)
class Used:
    """What the trial's processes use now. Only the last report counts: it has no number, and is not stored."""

    processors: Annotated[float, _PROCESSORS, "busy on average since the last time; 1.5 is one and a half"]
    memory: Annotated[int, _INTEGER, "resident bytes of all its processes together"]
    gpus: Annotated[tuple[int, ...], _GPUS, "those that it was given, by the numbers of its host"] = ()
    run: Annotated[str, _RUN] = ""


KeeperEvent = Started | Reported | Attributed | Output | Exited | Used
EVENT_TYPES: Mapping[str, type[KeeperEvent]] = {
    "started": Started,
    "metric": Reported,
    "attribute": Attributed,
    "output": Output,
    "exit": Exited,
    "use": Used,
}
"""The `type` of each event in JSON."""


@dataclass(frozen=True)
class Host:
    """A machine, node or cluster of a training service, as shown to people."""

    name: str
    state: str  # "up", "down" or the platform's own word
    reason: str = ""  # the last error
    running: Annotated[int, COUNT] = 0
    details: Mapping[str, Json] = field(default_factory=dict)
