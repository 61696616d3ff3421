"""Questions of the REST handlers and answers of the manager, as frozen records. Times are epoch seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from nnilite.records import COUNT, ExperimentLimits, ExperimentState, Host, Json, Metric, MetricKind, Trial, TrialState
from nnilite.records.shapes import HIDDEN, TIME, Form, Key


@dataclass(frozen=True)
class Waiting:
    """`count` trials wait for the same `reason`."""

    reason: str
    count: Annotated[int, COUNT]


@dataclass(frozen=True)
class Backlog:
    """What one tracker or webhook has not got yet."""

    name: Annotated[str, "such as `mlflow (tracker)` or `webhook 1`"]
    trials: Annotated[int, COUNT, "that have changed since a tracker got them"] = 0
    results: Annotated[int, COUNT, "that a tracker has not got"] = 0
    messages: Annotated[int, COUNT, "that a webhook has not got; no more than 1000 are counted"] = 0

    @property
    def is_any(self) -> bool:
        return bool(self.trials or self.results or self.messages)


@dataclass(frozen=True)
class ServiceState:
    """A training service of the experiment, in its present state."""

    name: str
    platform: str
    state: Annotated[str, "up, or aside: it failed, and gets no trials until it answers again"] = "up"
    reason: Annotated[str, "why it is set aside"] = ""
    trials: Annotated[int, COUNT, "that it has now"] = 0
    slots: Annotated[int | None, COUNT, "how many it may have at once; null: no limit"] = None
    weight: float = 1.0
    cost: Annotated[float | None, "per hour and slot; null: nothing is known of it"] = None
    spent: Annotated[float | None, "what its attempts have cost, running ones included"] = None


@dataclass(frozen=True)
class Profile:
    """The experiment as shown to people. The secrets in `config` are hidden already."""

    id: str
    name: str
    state: ExperimentState
    config: Annotated[Mapping[str, Json], "as in the YAML, with what was changed since, and secrets hidden"]
    space: Annotated[Json, Key("searchSpace")]
    platforms: Sequence[str]
    directory: str
    version: str
    created: Annotated[float, TIME]
    limits: ExperimentLimits
    reason: Annotated[str, "why it is in this state, where that needs a reason"] = ""
    started: Annotated[float | None, TIME] = None
    ended: Annotated[float | None, TIME] = None
    duration_s: Annotated[float, Key("duration"), "seconds spent running, over all resumes"] = 0.0
    counts: Annotated[Mapping[TrialState, Annotated[int, COUNT]], "trials by state"] = field(default_factory=dict)
    best: Trial | None = None
    optimize: str = "maximize"
    objectives: Annotated[
        Mapping[str, str], "what is searched for: maximize or minimize, by the name of the number"
    ] = field(default_factory=lambda: {"default": "maximize"})
    hosts: Sequence[Host] = ()
    services: Sequence[ServiceState] = ()
    spent: Annotated[float | None, "what all attempts have cost; null: nothing has a price"] = None
    waiting: Sequence[Waiting] = ()
    owed: Annotated[Sequence[Backlog], "what trackers and webhooks have not got yet"] = ()
    without_effect: Annotated[Sequence[str], "a sentence for each option that was set and has no effect"] = ()
    tuner_choice: Annotated[str, "which algorithm the tuner uses now, and why; empty where it does not say so"] = ""
    notices: Annotated[Sequence[str], "sentences on its results that a person should know"] = ()
    port: Annotated[int, COUNT] = 0
    url: str = ""
    pid: Annotated[int, COUNT] = 0
    read_only: bool = False
    cannot_resume: Annotated[str, "why it cannot be resumed here; empty: it can be"] = ""
    next_sequence: Annotated[int, COUNT] = 0
    # It grows with every change of any trial or of the experiment.
    revision: Annotated[int, COUNT] = 0


@dataclass(frozen=True)
class TrialUsage:
    """What the processes of a running trial use, as its keeper last reported."""

    trial: str
    attempt: Annotated[int, COUNT]
    time: Annotated[float, TIME]
    processors: Annotated[float, "busy on average in the seconds before; 1.5 is one and a half"]
    memory: Annotated[int, COUNT, "resident bytes of all its processes together"]
    gpus: Annotated[Sequence[Mapping[str, Json]], "what `details.gpuUse` of its host contains about its GPUs"] = ()


class TrialSort(str, Enum):
    """Columns to sort trials by. Trials without a value in that column come last."""

    SEQUENCE = "sequence"
    VALUE = "value"
    STARTED = "started"
    ENDED = "ended"
    DURATION = "duration"


@dataclass(frozen=True)
class TrialQuery:
    """Which trials are wanted, and in which order. Without states, all trials are."""

    states: tuple[TrialState, ...] = ()
    sort: TrialSort = TrialSort.SEQUENCE
    descending: bool = False
    offset: int = 0
    limit: int = 100
    id_prefix: str = ""
    after_revision: int = 0  # only trials changed after this revision
    tags: tuple[str, ...] = ()  # only trials with all of these


@dataclass(frozen=True)
class TrialPage:
    """One page of trials. `total` counts all that match; `revision` is the store's at the time of the answer.

    `latest` has, by trial id, the latest intermediate result of those that have no final one.
    """

    trials: Sequence[Trial]
    total: int
    revision: int
    latest: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialRemarks:
    """What people have written about a trial. The latest remarks of all trials have the highest `revision`."""

    trial: str
    tags: Sequence[str] = ()
    note: str = ""
    revision: Annotated[int, COUNT, "the one to be named with a change; 0: nothing was written yet"] = 0


@dataclass(frozen=True)
class RemarksQuery:
    """Which remarks are wanted, by revision: of these trials or of all, and at most `limit` of them."""

    trials: Sequence[str] | None = None
    after: int = 0  # only those of a later revision
    limit: int | None = None


@dataclass(frozen=True)
class MetricQuery:
    """Which metrics are wanted, in the order in which they arrived. `after`: the `next` of the page before."""

    trial: str | None = None
    kind: MetricKind | None = None
    attempt: int | None = None
    after: int = 0
    limit: int = 1000
    # Bytes of values, at most about so many; then a short page need not be the last one.
    size: int | None = None
    current: bool = False  # only metrics of each trial's current attempt
    last: bool = False  # only the last intermediate result of each attempt


@dataclass(frozen=True)
class MetricPage:
    """One page of metrics. `next` continues after it, even after the last page, when more metrics have come.

    `parameter_ids` has the id of each metric's trial.
    """

    metrics: Sequence[Metric]
    next: Annotated[int, COUNT]
    parameter_ids: Annotated[Sequence[int | None], HIDDEN] = ()


@dataclass(frozen=True)
class Piece:
    """Bytes `offset` to `offset + len(data)` of a text that has `total` bytes now."""

    data: bytes
    offset: int
    total: int


@dataclass(frozen=True)
class FileEntry:
    """One file of a trial: its path below the trial's folder, with slashes."""

    path: str
    size: Annotated[int, COUNT, "bytes"]
    modified: Annotated[float, TIME]
    here: Annotated[bool, "whether it is on the manager's machine as it is listed"] = True


@dataclass(frozen=True)
class NonFileEntry:
    """An entry in a trial's folder that is not a file: a link, with its target as text, or a pipe or device.

    None is copied.
    """

    path: str
    kind: str
    target: str = ""


@dataclass(frozen=True)
class FileListing:
    """What is in a trial's folder. `note`: a sentence on what is missing in this list, "" if nothing is."""

    files: Sequence[FileEntry]
    others: Sequence[NonFileEntry] = ()
    note: str = ""


@dataclass(frozen=True)
class Listed:
    """One experiment of this machine, from the registry."""

    id: str
    name: str
    state: str
    port: Annotated[int | None, COUNT] = None
    url: str = ""
    pid: Annotated[int | None, COUNT] = None
    directory: str = ""
    platform: str = ""
    started: Annotated[float | None, TIME] = None
    ended: Annotated[float | None, TIME] = None


_OUTPUT = Form(
    {
        "type": "object",
        "properties": {stream: {"type": "integer", "minimum": 0} for stream in ("stdout", "stderr")},
        "required": ["stdout", "stderr"],
    },
    write=lambda known: {"stdout": 0, "stderr": 0, **known},
)


@dataclass(frozen=True)
class CallbackAnswer:
    """What the manager has of an attempt after the commit of a batch. The keeper sets its cursors from it."""

    cancel: Annotated[bool, "the keeper must end its trial"] = False
    # The index of the next metric that it expects.
    metrics: Annotated[int, COUNT, "number of metrics the manager has"] = 0
    # How many bytes of each stream it has.
    output: Annotated[Mapping[str, int], _OUTPUT] = field(default_factory=dict)
