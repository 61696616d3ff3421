"""The inputs and outputs of the rules: plain data.

Inputs are facts ("the trial reported", "the service refused"); each carries all that the rules need, for they have no
clock, no randomness and no I/O. Outputs are of two kinds: *records* to be committed together, in order, and
*actions*: calls of the training service, to be made once the records are committed, and calls of the tuner, in their
order, which need not wait for that.

All of these are named tuples: to make as many dataclasses takes three times as long at each start of a manager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

from nnilite.records import (
    Attempt,
    Attribute,
    ExperimentLimits,
    ExperimentState,
    Json,
    KeeperEvent,
    Metric,
    Trial,
    TrialState,
)
from nnilite.service import Handle, JobStatus
from nnilite.tuner import Call

History = tuple[str, int, list[Json], bool, bool]
"""What an assessor has seen of a trial: trial id, attempt, intermediate results, whether it ended, and whether well."""

# ---------------------------------------------------------------- settings


def _violates_nothing(result: Json) -> str:
    return ""


@dataclass(frozen=True)
class Settings(ExperimentLimits):
    """The part of the config that the rules use: the limits, and what stays as it is."""

    prices: Mapping[str, float] = field(default_factory=dict)  # by service, per hour and slot
    move_after_s: float | None = None  # a trial may leave a queue in which it has waited for this time
    retries_lost: int = 1  # further attempts for a trial whose worker was lost
    retries_failed: int = 0  # further attempts for a trial whose command failed
    retry_exit_codes: frozenset[int] = frozenset()  # these exit codes are treated like a lost worker
    max_failed: int | None = None
    stop_on_same_error: int = 0  # 0: never
    silence_s: float = 900.0  # an attempt without a sign of life for this time counts as lost
    maximize: bool = True
    objectives: tuple[str, ...] = ("default",)  # what a final result must have numbers for
    assess: bool = False  # an assessor is configured
    # Which result constraints a final result breaks; "" for one that is feasible.
    violated: Callable[[Json], str] = field(default=_violates_nothing, compare=False)

    @cached_property
    def limits(self) -> ExperimentLimits:
        """The limits alone."""
        return ExperimentLimits(**{field.name: getattr(self, field.name) for field in fields(ExperimentLimits)})


# ---------------------------------------------------------------- inputs


class TunerReady(NamedTuple):
    """The tuner host runs and has the search space. `hears`: the tuner wants intermediate results."""

    hears: bool = False


class Proposed(NamedTuple):
    """The tuner answered a request: `proposals` are (parameter id, new trial id, parameters)."""

    proposals: tuple[tuple[int, str, Json], ...]
    asked: int
    now: float


class TunerFailed(NamedTuple):
    reason: str


class Customized(NamedTuple):
    """A trial with the user's own parameters."""

    trial: str
    parameters: Json
    now: float


class Asked(NamedTuple):
    """A member of a hybrid service is going to be asked to take the job, once this is committed."""

    trial: str
    attempt: int
    service: str
    now: float


class Submitted(NamedTuple):
    trial: str
    attempt: int
    service: str
    handle: Handle
    now: float


class SubmitRefused(NamedTuple):
    """The service did not take the job: for lack of room (`busy`), temporarily, or permanently (`final`)."""

    trial: str
    attempt: int
    reason: str
    busy: bool
    now: float
    final: bool = False  # trying again cannot help
    lasting: bool = False  # it is unlikely to pass by itself, so it is final after some tries


class LiveEvents(NamedTuple):
    """New events of an attempt's keeper, without duplicates, in order."""

    trial: str
    attempt: int
    events: tuple[KeeperEvent, ...]
    now: float
    # Names the events before these that did not arrive and never will.
    missing: str = ""
    run: str = ""  # the run that they are of; "" if no event has named one yet


class LateEvents(NamedTuple):
    """New events of the latest attempt of a trial that has ended already."""

    trial: Trial
    attempt: Attempt
    events: tuple[KeeperEvent, ...]
    now: float
    missing: str = ""
    run: str = ""


class Polled(NamedTuple):
    """What the platform says of an attempt's job."""

    trial: str
    attempt: int
    status: JobStatus
    now: float


class Removed(NamedTuple):
    """The service was asked to free what an ended attempt held there; `done` says whether it has."""

    trial: str
    attempt: int
    done: bool
    now: float


class Move(NamedTuple):
    """The attempt has waited long in the queue of its service, and another service has room."""

    trial: str
    attempt: int
    reason: str
    now: float


class Assessed(NamedTuple):
    trial: str
    attempt: int
    good: bool
    now: float
    reason: str = ""  # in the assessor's words


class CancelTrial(NamedTuple):
    trial: str
    now: float
    reason: str = "canceled by the user"


class Interrupt(NamedTuple):
    """A drill: end the running attempt as the loss of its machine would, so that the trial is tried again."""

    trial: str
    now: float


class Rerun(NamedTuple):
    """Run an ended trial again, as a new attempt. `best`: the best one of the others, if this was the best of all."""

    trial: Trial
    now: float
    best: Trial | None = None


class Changed(NamedTuple):
    """The user changed limits; `space` is a new search space, or None."""

    settings: Settings
    space: Json = None


class Imported(NamedTuple):
    data: Json


class Tick(NamedTuple):
    """Time has passed. `lived`: the seconds since its start in which this manager could receive reports."""

    now: float
    lived: float


class Stop(NamedTuple):
    now: float
    reason: str = "stopped by the user"


class Abandon(NamedTuple):
    """Stopping takes too long: the rules no longer wait for services that do not answer."""

    now: float


FromTuner = TunerReady | Proposed | TunerFailed | Assessed | Imported
"""Messages about the tuner."""
Submission = Customized | Rerun | Asked | Submitted | SubmitRefused | Move
"""Messages that bring a trial, or an attempt of it, to a service."""
Report = LiveEvents | LateEvents | Polled
"""Messages about a job, from its keeper or from its platform."""
Ending = Removed | CancelTrial | Interrupt
"""Messages that end an attempt, or follow its end."""
Limiting = Changed | Tick | Stop | Abandon
"""Messages about time, and about the limits of the experiment."""
Input = FromTuner | Submission | Report | Ending | Limiting


def assert_never(message: NoReturn) -> NoReturn:
    """Mark the last case of a `match`: mypy refuses it unless the others have handled each kind of message.

    `typing` has it from Python 3.11 on.
    """
    raise AssertionError(f"{message!r} is not handled")


# ---------------------------------------------------------------- outputs: records


class SaveTrial(NamedTuple):
    trial: Trial


class SaveAttempt(NamedTuple):
    attempt: Attempt


class SaveMetric(NamedTuple):
    metric: Metric


class SaveAttribute(NamedTuple):
    attribute: Attribute


class SaveCall(NamedTuple):
    """A call of the tuner, numbered from 1: the history it is rebuilt by. Proposals without a trial leave gaps."""

    number: int
    call: Call


class SaveRemoval(NamedTuple):
    """Whether the service has yet to free what an ended attempt held there."""

    trial: str
    attempt: int
    pending: bool


class SaveExperiment(NamedTuple):
    state: ExperimentState
    reason: str
    duration_s: float
    ended: float | None
    settings: Settings


Record = SaveTrial | SaveAttempt | SaveMetric | SaveAttribute | SaveCall | SaveRemoval | SaveExperiment


# ---------------------------------------------------------------- outputs: actions


class Ask(NamedTuple):
    """Ask the tuner for parameters with these ids. `after`: the number of the last call before this one."""

    parameter_ids: tuple[int, ...]
    after: int


class Tell(NamedTuple):
    """Make a recorded call of the tuner."""

    number: int
    call: Call


class Assess(NamedTuple):
    """Show new intermediate results, oldest first, to the assessor and an advisor.

    `before`: how many of this attempt they have seen already.
    """

    trial: str
    attempt: int
    before: int
    values: tuple[Any, ...]
    after: int
    parameter_id: int | None = None


class AssessEnd(NamedTuple):
    trial: str
    success: bool
    after: int


TunerCall = Ask | Tell | Assess | AssessEnd
"""Requests to the tuner's process, in this order."""


class Submit(NamedTuple):
    trial: Trial
    attempt: Attempt
    # No manager has submitted this attempt before, so nothing of it can have been taken yet.
    new: bool = False


class Cancel(NamedTuple):
    attempt: Attempt


class Remove(NamedTuple):
    """The attempt has ended: its service may free what it still holds."""

    attempt: Attempt


ServiceCall = Submit | Cancel | Remove
"""Requests to the training service."""
Action = TunerCall | ServiceCall


@dataclass
class Outcome:
    """What one input led to."""

    records: list[Record] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    # The events are of an attempt that has ended or been replaced meanwhile. None of them was taken.
    too_late: bool = False


# ---------------------------------------------------------------- state that a restart brings back


@dataclass(frozen=True)
class LiveTrial:
    """A trial that has not ended, as the store knows it."""

    trial: Trial
    attempt: Attempt | None
    last_intermediate: Json = None
    intermediates: int = 0
    lost: int = 0
    failed: tuple[int | None, ...] = ()  # the exit codes of the attempts that failed
    unstarted: int = 0
    tried: tuple[str, ...] = ()  # the services of earlier attempts


@dataclass(frozen=True)
class Snapshot:
    """All that the rules need to continue after a restart of the manager."""

    state: ExperimentState
    reason: str
    duration_s: float
    next_sequence: int
    next_parameter_id: int
    calls: int
    counts: Mapping[TrialState, int]
    best: Trial | None
    live: tuple[LiveTrial, ...]
    removals: tuple[Attempt, ...] = ()  # ended attempts whose removal is pending
    spent: Mapping[str, float] = field(default_factory=dict)  # by service
