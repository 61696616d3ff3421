"""What handlers and manager tell each other: questions and answers as frozen records. Times are epoch seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from nnilite.records import ExperimentState, Host, Json, Metric, MetricKind, Trial, TrialState


@dataclass(frozen=True)
class Limits:
    """What can be changed while the experiment runs. None: no limit. Durations are seconds."""

    trial_concurrency: int
    max_trial_number: int | None = None
    max_experiment_duration_s: int | None = None
    max_trial_duration_s: int | None = None


@dataclass(frozen=True)
class Waiting:
    """`count` trials wait for the same `reason`."""

    reason: str
    count: int


@dataclass(frozen=True)
class Profile:
    """The experiment as shown to people. `config` has its secrets hidden already."""

    id: str
    name: str
    state: ExperimentState
    config: Mapping[str, Json]  # camelCase, as in the YAML
    space: Json
    platforms: Sequence[str]
    directory: str
    version: str
    created: float
    limits: Limits
    reason: str = ""  # why it is in this state, where that needs a reason
    started: float | None = None
    ended: float | None = None
    duration_s: float = 0.0  # time spent running, over all resumes
    counts: Mapping[TrialState, int] = field(default_factory=dict)
    best: Trial | None = None
    optimize: str = "maximize"
    hosts: Sequence[Host] = ()
    waiting: Sequence[Waiting] = ()
    port: int = 0
    url: str = ""
    pid: int = 0
    read_only: bool = False
    next_sequence: int = 0
    revision: int = 0  # grows with every change of any trial or of the experiment


class TrialSort(str, Enum):
    """Columns by which trials can be sorted. Trials without a value in that column come last."""

    SEQUENCE = "sequence"
    VALUE = "value"
    STARTED = "started"
    ENDED = "ended"
    DURATION = "duration"


@dataclass(frozen=True)
class TrialQuery:
    """Which trials, in which order. No states: all of them."""

    states: tuple[TrialState, ...] = ()
    sort: TrialSort = TrialSort.SEQUENCE
    descending: bool = False
    offset: int = 0
    limit: int = 100
    id_prefix: str = ""
    after_revision: int = 0  # only trials changed after this revision


@dataclass(frozen=True)
class TrialPage:
    """One page of trials; `total` counts all that match, `revision` is that of the answer.

    `latest` has, by trial id, the latest intermediate result of those that have no final one.
    """

    trials: Sequence[Trial]
    total: int
    revision: int
    latest: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class MetricQuery:
    """Which metrics, in the order in which they were taken in. `after`: the `next` of the page before."""

    trial: str | None = None
    kind: MetricKind | None = None
    attempt: int | None = None
    after: int = 0
    limit: int = 1000


@dataclass(frozen=True)
class MetricPage:
    """`next` continues after this page, also if it is the last one and more metrics come later."""

    metrics: Sequence[Metric]
    next: int


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
    size: int  # bytes
    modified: float


@dataclass(frozen=True)
class Listed:
    """One experiment of this machine, from the registry."""

    id: str
    name: str
    state: str
    port: int | None = None
    url: str = ""
    pid: int | None = None
    directory: str = ""
    platform: str = ""
    started: float | None = None
    ended: float | None = None


@dataclass(frozen=True)
class CallbackAnswer:
    """What the manager has of an attempt after a batch was committed; the keeper sets its cursors from it."""

    cancel: bool = False
    metrics: int = 0  # number of metrics the manager has: the next index it wants
    output: Mapping[str, int] = field(default_factory=dict)  # bytes it has of "stdout" and "stderr"
