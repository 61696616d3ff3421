"""The nouns of nnilite, as frozen records without behaviour. Times are seconds since the epoch (float)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

Json = Any
"""Any JSON value passing through: parameters and metrics of users are theirs, not ours."""


class ExperimentState(str, Enum):
    """NNI's experiment states."""

    INITIALIZED = "INITIALIZED"  # the tuner is not ready yet
    RUNNING = "RUNNING"
    NO_MORE_TRIAL = "NO_MORE_TRIAL"  # a limit is reached; the last trials run out
    TUNER_NO_MORE_TRIAL = "TUNER_NO_MORE_TRIAL"  # the tuner has no more to propose; the last trials run out
    DONE = "DONE"
    ERROR = "ERROR"  # cannot go on; `reason` says why
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    VIEWED = "VIEWED"  # opened read-only


class TrialState(str, Enum):
    """NNI's trial states."""

    UNKNOWN = "UNKNOWN"
    WAITING = "WAITING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    USER_CANCELED = "USER_CANCELED"  # killed by a person, or by stopping the experiment
    SYS_CANCELED = "SYS_CANCELED"  # went over maxTrialDuration, or its platform removed it for good
    EARLY_STOPPED = "EARLY_STOPPED"  # stopped by the assessor

    @property
    def ended(self) -> bool:
        return self not in (TrialState.WAITING, TrialState.RUNNING, TrialState.UNKNOWN)


class MetricKind(str, Enum):
    """NNI's names of the two kinds of metric."""

    PERIODICAL = "PERIODICAL"  # an intermediate result
    FINAL = "FINAL"


@dataclass(frozen=True)
class Trial:
    """One set of parameters, run by the trial command."""

    id: str
    sequence: int  # counts from 0 over the whole experiment, never reused
    parameters: Json
    parameter_id: int | None = None  # the tuner's number; None: customised by the user
    source: str = "algorithm"  # or "customized"
    state: TrialState = TrialState.WAITING
    reason: str = ""  # why it waits, or why it ended as it did
    attempt: int = 0  # number of its latest attempt, counting from 0
    created: float = 0.0
    started: float | None = None
    ended: float | None = None
    value: Json = None  # the final metric as reported; None: none (yet)


@dataclass(frozen=True)
class Attempt:
    """One run of a trial as a job on a training service."""

    trial: str
    number: int
    service: str = ""  # name of the training service, "" until one has taken it
    handle: Mapping[str, Json] | None = None
    state: str = "WAITING"  # a nnilite.service.JobState value
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    message: str = ""
    host: str = ""
    url: str = ""
    cancel: str = ""  # the TrialState its end was asked for, "" while nobody asked


@dataclass(frozen=True)
class Metric:
    """One reported value. `index` counts all reports of an attempt from 0; (trial, attempt, index) is unique."""

    trial: str
    attempt: int
    index: int
    kind: MetricKind
    sequence: int  # NNI's: counts intermediate results from 0; 0 for a final one
    value: Json
    time: float


# What a keeper tells of its attempt. The numbering that lets the manager drop duplicates follows from the files
# of the trial: `index` is the place of a metric in the spool, `offset` that of an output chunk in its stream;
# started and exited happen once.


@dataclass(frozen=True)
class Started:
    """The trial command runs."""

    time: float
    host: str = ""
    pid: int = 0


@dataclass(frozen=True)
class Reported:
    """The trial reported a metric."""

    index: int
    kind: MetricKind
    sequence: int
    value: Json
    time: float


@dataclass(frozen=True)
class Output:
    """A piece of the trial's output. `offset` counts bytes from the start of the stream."""

    stream: str  # "stdout" or "stderr"
    offset: int
    data: bytes


@dataclass(frozen=True)
class Exited:
    """The trial command ended; `code` is negative for a signal, None if it never started."""

    time: float
    code: int | None
    message: str = ""


KeeperEvent = Started | Reported | Output | Exited


@dataclass(frozen=True)
class Host:
    """A machine, node or cluster of a training service, as shown to people."""

    name: str
    state: str  # "up", "down" or what the platform says
    reason: str = ""  # last error
    running: int = 0
    details: Mapping[str, Json] = field(default_factory=dict)
