"""The words for states and kinds, which `nnilite.records` has, too: many programs need these and none of the records.

A record takes about a millisecond to define.
"""

from __future__ import annotations

from enum import Enum


class ExperimentState(str, Enum):
    """NNI's experiment states."""

    INITIALIZED = "INITIALIZED"  # the tuner is not ready yet
    RUNNING = "RUNNING"
    NO_MORE_TRIAL = "NO_MORE_TRIAL"  # a limit is reached; the last trials still run
    TUNER_NO_MORE_TRIAL = "TUNER_NO_MORE_TRIAL"  # the tuner has no more to propose; the last trials still run
    DONE = "DONE"
    ERROR = "ERROR"  # the experiment cannot continue; `reason` says why
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
    USER_CANCELED = "USER_CANCELED"  # canceled by a person, or by the stop of the experiment
    SYS_CANCELED = "SYS_CANCELED"  # ran longer than maxTrialDuration, or cost more than maxCost leaves
    EARLY_STOPPED = "EARLY_STOPPED"  # stopped by the assessor

    @property
    def ended(self) -> bool:
        return self not in (TrialState.WAITING, TrialState.RUNNING, TrialState.UNKNOWN)


class JobState(str, Enum):
    """The state of a job on its platform. `ended` is true of states in which the job has ended."""

    WAITING = "WAITING"  # accepted, but its command has not started; `reason` says what it waits for
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"  # the trial command ended with exit code 0
    FAILED = "FAILED"  # the trial command ended with another exit code, or could not be started at all
    CANCELED = "CANCELED"  # ended because `cancel` asked for it
    UNKNOWN = "UNKNOWN"  # its host does not answer now, which says nothing about the job
    LOST = "LOST"  # ended without a report: node gone, preempted, removed, keeper killed, unknown to the platform

    @property
    def ended(self) -> bool:
        return self not in (JobState.WAITING, JobState.RUNNING, JobState.UNKNOWN)


class CallKind(str, Enum):
    """Which method of a tuner was called: see `nnilite.tuner.Call`."""

    GENERATE = "generate"
    RESULT = "result"
    END = "end"
    IMPORT = "import"
    SPACE = "space"


class MetricKind(str, Enum):
    """NNI's names of the two kinds of metric."""

    PERIODICAL = "PERIODICAL"  # an intermediate result
    FINAL = "FINAL"


class EndCause(str, Enum):
    """Why a trial command ended, as far as its keeper knows."""

    ITSELF = ""  # it ended by itself, or was killed, but not by its keeper
    CANCELED = "canceled"  # an answer of the manager requested it
    # Its keeper got a SIGTERM: from a service that was asked to cancel the job, or from the platform because a host
    # shuts down, a pod is evicted or a job is preempted. Only the manager knows which.
    INTERRUPTED = "interrupted"
    DURATION = "duration"  # it ran longer than its specification allows
    ORPHANED = "orphaned"  # its manager did not answer for too long, or its experiment was deleted
    # The manager takes no more of this run: a newer attempt or another run has its place, or the experiment is over.
    FENCED = "fenced"
    MACHINE = "machine"  # the machine could not start it: no disk space, no memory, no code package
