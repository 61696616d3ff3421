"""The rules of an experiment: a synchronous state machine without I/O, clock or randomness.

One input goes in, the records to commit and the actions to take come out. Only trials that have not ended are kept in
memory. These hold in any order of inputs: an attempt ends once, a result reaches the tuner before the end of its trial,
every waiting trial has a reason, and a message about an earlier attempt changes nothing.

The parts share one `State` and change it through one `Recorder`:

    Ends         how attempts and trials end; the other parts end them through it
    Reports      what trials and their platforms report
    Submissions  how trials come, and how their attempts get to a service
    TunerRequests       how the tuner is asked for parameters, and its answers
    Limits       time, money, silence, and the stop
"""

from __future__ import annotations

from collections.abc import Mapping

from nnilite._engine import messages
from nnilite._engine.ends import Ends
from nnilite._engine.known_workers import KnownWorkers
from nnilite._engine.limits import Limits
from nnilite._engine.live_trial import ActiveTrial
from nnilite._engine.recorder import Recorder
from nnilite._engine.reports import Reports
from nnilite._engine.spending import Spending
from nnilite._engine.state import State
from nnilite._engine.submissions import Submissions
from nnilite._engine.tuner_requests import TunerRequests
from nnilite.records import ExperimentState, Trial, TrialState


class Rules:
    """`step` takes one input and returns its outcome; the public attributes show the state of the experiment."""

    def __init__(self, settings: messages.Settings, snapshot: messages.Snapshot, now: float) -> None:
        self._state = State(settings, snapshot, now)
        self._recorder = Recorder(self._state)
        ends = self._ends = Ends(self._state, self._recorder)
        self._reports = Reports(self._state, self._recorder, ends)
        self._submissions = Submissions(self._state, self._recorder, ends)
        self._asking = TunerRequests(self._state, self._recorder, ends, self._submissions)
        self._limits = Limits(self._state, self._recorder, ends)

    def step(self, message: messages.Input) -> messages.Outcome:
        """Take one input. The caller must commit the records that come back, in order, and take the actions."""
        outcome = self._recorder.begin()
        self._state.pass_time(getattr(message, "now", self._state.now))
        self._handle(message)
        # A job that has not ended frees no slot. A poll brings thousands of these, and the rest looks at all trials.
        if isinstance(message, messages.Polled) and not message.status.state.ended:
            return outcome
        # An ending experiment needs no parameters. Its last trials may still need a submission, by whose answer one
        # learns whether a service has them.
        if not self._state.is_over:
            self._asking.ask()
        if self._state.state is not ExperimentState.STOPPED:
            self._submissions.submit()
        self._limits.settle()
        return outcome

    def _handle(self, message: messages.Input) -> None:
        match message:
            case messages.LiveEvents() | messages.Polled() | messages.LateEvents():
                self._reports.handle(message)
            case (
                messages.Submitted()
                | messages.SubmitRefused()
                | messages.Asked()
                | messages.Customized()
                | messages.Rerun()
                | messages.Move()
            ):
                self._submissions.handle(message)
            case (
                messages.Proposed()
                | messages.Assessed()
                | messages.TunerReady()
                | messages.TunerFailed()
                | messages.Imported()
            ):
                self._asking.handle(message)
            case messages.Removed() | messages.CancelTrial() | messages.Interrupt():
                self._ends.handle(message)
            case messages.Tick() | messages.Changed() | messages.Stop() | messages.Abandon():
                self._limits.handle(message)
            case _:
                messages.assert_never(message)

    # ------------------------------------------------------------ the progress of the experiment

    @property
    def settings(self) -> messages.Settings:
        return self._state.settings

    @property
    def state(self) -> ExperimentState:
        return self._state.state

    @property
    def reason(self) -> str:
        return self._state.reason

    @property
    def duration_s(self) -> float:
        return self._state.duration_s

    @property
    def ended(self) -> float | None:
        """When the experiment ended, in seconds since the epoch; None before that."""
        return self._state.ended

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do: see `State.finished`."""
        return self._state.finished

    @property
    def live(self) -> dict[str, ActiveTrial]:
        """The trials that have not ended, by id."""
        return self._state.live

    @property
    def counts(self) -> Mapping[TrialState, int]:
        return self._state.counts

    @property
    def best(self) -> Trial | None:
        return self._state.best

    @property
    def next_sequence(self) -> int:
        return self._state.next_sequence

    @property
    def calls(self) -> int:
        """How many calls of the tuner there were."""
        return self._state.calls

    @property
    def now(self) -> float:
        """The latest time that an input has brought."""
        return self._state.now

    @property
    def abandoned(self) -> tuple[str, ...]:
        """The trials whose platforms did not confirm their end in time."""
        return self._state.abandoned

    @property
    def spending(self) -> Spending:
        return self._state.spending

    @property
    def workers(self) -> KnownWorkers:
        """The hosts that have said what trials run with there."""
        return self._state.workers

    def spent(self, now: float) -> dict[str, float]:
        """Return what has been spent at each service up to now, running attempts included."""
        return self._state.spending.sum_by_service(self.live.values(), now)

    def stuck(self) -> list[ActiveTrial]:
        """Return the trials that have waited in the queue of one service for longer than `moveAfter`."""
        return self._state.stuck()

    def record_life(self, trial: str, attempt: int) -> None:
        """Count this moment as a sign of life of the attempt."""
        self._state.record_life(trial, attempt)

    def is_delivering(self, live: ActiveTrial) -> bool:
        """Return whether new events of this trial, but not its end, came in the manager's last few active seconds."""
        return self._state.is_delivering(live)
