"""The part of the rules that handles reports of trials, and what their platforms say of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nnilite._engine import messages
from nnilite._engine.ends import INTERRUPTED, Ends
from nnilite._engine.live_trial import ActiveTrial, Phase
from nnilite._engine.recorder import Recorder, joined
from nnilite._engine.state import State
from nnilite.records import (
    DRILLED,
    Attempt,
    Attribute,
    Attributed,
    Exited,
    JobState,
    Metric,
    MetricKind,
    Reported,
    Started,
    Trial,
    TrialState,
    set_within_limits,
)

_NOT_KEPT = "was not kept"
_SEVERAL = "it reported more than one final result; the first one counts (of several processes, let only rank 0 report)"


class Reports:
    """The part of the rules for the reports of trials and the statuses of their jobs."""

    def __init__(self, state: State, recorder: Recorder, ends: Ends) -> None:
        self._state = state
        self._recorder = recorder
        self._ends = ends

    def handle(self, message: messages.Report) -> None:
        match message:
            case messages.LiveEvents():
                self._live_events(message)
            case messages.Polled():
                self._take_polled(message)
            case messages.LateEvents():
                self._keep_late_events(message)
            case _:
                messages.assert_never(message)

    def _live_events(self, message: messages.LiveEvents) -> None:
        live = self._state.current(message.trial, message.attempt)
        # The attempt ended while its events were on their way to here: the gate looks at them again.
        if live is None:
            self._recorder.outcome.too_late = True
            return
        self._note_heard(live, message)
        self._note_run(live, message.run)
        fresh: list[Any] = []
        for event in message.events:
            if isinstance(event, Started):
                self._running(live, event.time, event.host)
            elif isinstance(event, Reported):
                self._reported(live, event, fresh)
            elif isinstance(event, Attributed):
                self._attributed(live, event)
            elif isinstance(event, Exited):
                live.end = event
        # The assessor is asked even if the trial has ended: it learns from these results for other trials.
        if fresh and (self._state.settings.assess or self._state.hears):
            place = (message.trial, message.attempt, live.reported - len(fresh))
            self._recorder.act(messages.Assess(*place, tuple(fresh), self._state.calls, live.trial.parameter_id))
        if live.end is not None:
            self._take_end(live)

    def _note_heard(self, live: ActiveTrial, message: messages.LiveEvents) -> None:
        live.seen = self._state.lived
        if message.events:
            live.delivered = self._state.lived
        if message.missing:
            self._recorder.note_problem(live, message.missing)

    def _note_run(self, live: ActiveTrial, run: str) -> None:
        """Record the run that owns the attempt; the gate takes no other one."""
        if live.attempt is None or not run or live.attempt.run == run:
            return
        # The gate lets a second run in only if the first one could not begin. Its end is not that of the attempt.
        if live.end is not None:
            self._ends.forget_end(live, live.end.message)
        self._recorder.put_attempt(live, run=run)

    def _take_end(self, live: ActiveTrial) -> None:
        if live.phase is Phase.SUBMITTED:
            self._ends.take_end(live)
        # Before the service has answered there is no handle to remove the job by: `_submitted` takes up this end.
        # The keeper learns that it is stored, so the next manager must know of it, too.
        elif live.attempt is not None and live.attempt.reported_end is None:
            self._recorder.put_attempt(live, reported_end=live.end)

    def _reported(self, live: ActiveTrial, event: Reported, fresh: list[Any]) -> None:
        self._recorder.add(messages.SaveMetric(_metric(live.trial, event)))
        if event.refused:
            self._recorder.note_problem(live, _refusal(event))
        if event.kind is MetricKind.PERIODICAL:
            live.last_intermediate = event.value
            live.reported += 1
            fresh.append(event.value)
            return
        live.finals += 1
        if live.finals == 2:
            self._recorder.note_problem(live, _SEVERAL)
        # As in NNI, only the first final result counts.
        if live.trial.value is None:
            self._recorder.put(live, value=event.value)

    def _attributed(self, live: ActiveTrial, event: Attributed) -> None:
        self._recorder.add(messages.SaveAttribute(_attribute(live.trial, event)))
        if self._state.workers.take(event):
            return
        attributes, refused = set_within_limits(live.trial.attributes, event.name, event.value)
        if event.refused or refused:
            self._recorder.note_problem(live, _refusal(event, refused))
        else:
            self._recorder.put(live, attributes=attributes)

    def _keep_late_events(self, message: messages.LateEvents) -> None:
        """Keep the metrics of a trial that has ended; its reported end replaces one that was only assumed."""
        trial = message.trial
        # The trial is being run again: the gate looks at these events again.
        if trial.id in self._state.live:
            self._recorder.outcome.too_late = True
            return
        attempt = replace(message.attempt, run=message.run or message.attempt.run)
        if attempt != message.attempt:
            self._recorder.add(messages.SaveAttempt(attempt))
        if message.missing:
            trial = replace(trial, reason=joined(trial.reason, message.missing))
        for event in message.events:
            if isinstance(event, Reported):
                self._recorder.add(messages.SaveMetric(_metric(trial, event)))
                trial = _add_late(trial, event)
            elif isinstance(event, Attributed):
                self._recorder.add(messages.SaveAttribute(_attribute(trial, event)))
                trial = trial if self._state.workers.take(event) else _add_late_attribute(trial, event)
            # Only the end of a lost attempt was assumed, so it can be corrected. All other ends were reported.
            elif isinstance(event, Exited) and _succeeded_after_loss(trial, attempt, event):
                notes = trial.reason.removeprefix(message.trial.reason).removeprefix("; ")
                self._reverse(trial, attempt, event, notes)
                return
        if trial != message.trial:
            self._recorder.add(messages.SaveTrial(trial))

    def _reverse(self, trial: Trial, attempt: Attempt, end: Exited, notes: str) -> None:
        """Reverse the end of an attempt that was counted as lost, although its command had ended by itself.

        `notes` name what of its late reports was not kept as reported.
        """
        attempt = replace(attempt, state=JobState.SUCCEEDED, ended=end.time, exit_code=0, message=notes)
        live = ActiveTrial(trial, attempt, Phase.SUBMITTED, seen=self._state.lived, complaint=notes)
        self._state.live[trial.id] = live
        self._recorder.add(messages.SaveAttempt(attempt))
        self._ends.finish(live, TrialState.SUCCEEDED, self._ends.flaw(live, end), end.time)

    def _running(self, live: ActiveTrial, started: float, host: str) -> None:
        # The platform may move a job to another host.
        if host and live.attempt and live.attempt.host != host:
            self._recorder.put_attempt(live, host=host)
        # Both keeper and platform report the start; the first report counts.
        if live.trial.state is not TrialState.RUNNING:
            live.running_since = self._state.now
            self._recorder.put(live, state=TrialState.RUNNING, started=started, reason="")
            self._recorder.put_attempt(live, state=JobState.RUNNING, started=started)

    def _take_polled(self, message: messages.Polled) -> None:
        live = self._state.current(message.trial, message.attempt)
        status = message.status
        # The status may be of an attempt that has ended since the poll began.
        if live is None or live.phase is not Phase.SUBMITTED:
            return
        if live.attempt:
            # Every poll may bring these, but only a change is recorded.
            reported = {"host": status.host, "url": status.url, "image": status.image}
            changed = {
                name: value for name, value in reported.items() if value and value != getattr(live.attempt, name)
            }
            if changed:
                self._recorder.put_attempt(live, **changed)
        if status.cost is not None:
            live.reported_cost = status.cost
        if status.state.ended:
            self._end_by_platform(live, message)
            return
        # This is not a sign of life, so that `seen` stays: the attempt is abandoned if it lasts too long.
        if status.state is JobState.UNKNOWN:
            live.hidden = status.reason
            self._recorder.say(live, status.reason)
            self._recorder.wait(live, status.reason or live.trial.reason)
            return
        live.seen = self._state.lived
        if status.state is JobState.RUNNING:
            self._running(live, status.started or self._state.now, status.host)
            self._recorder.say(live, "")
        else:
            self._wait(live, status.reason)
        live.hidden = ""

    def _wait(self, live: ActiveTrial, reason: str) -> None:
        """Show why a trial waits. A reason why its state was hidden goes, also where the platform gives no other."""
        if reason:
            self._recorder.wait(live, reason)
        elif live.hidden and live.trial.reason == live.hidden and live.attempt:
            self._recorder.wait_for_start(live, live.attempt.service)

    def _end_by_platform(self, live: ActiveTrial, message: messages.Polled) -> None:
        status = message.status
        # One that has failed without a code never ran: 0 would make it succeed, any other would be made up.
        code = {JobState.SUCCEEDED: 0, JobState.FAILED: status.exit_code or None}.get(status.state, status.exit_code)
        if status.state is JobState.LOST:
            self._ends.lose(live, status.reason or "its worker was lost")
        # A drill has ended it, unless it has still come to its end.
        elif live.drilled and live.cancel is None and not (code == 0 and live.trial.value is not None):
            self._ends.lose(live, DRILLED)
        # The keeper reported SIGTERM from its platform, whose reason for it was awaited.
        elif live.held is not None:
            self._ends.lose(live, status.reason or INTERRUPTED)
        elif status.state is JobState.CANCELED and live.cancel is None:
            # The experiment has not canceled it: the platform, or a person there, has.
            self._ends.lose(live, status.reason or "canceled on its platform")
        else:
            live.end = Exited(status.ended or self._state.now, code, status.reason)
            self._ends.end(live)


def _succeeded_after_loss(trial: Trial, attempt: Attempt, end: Exited) -> bool:
    """Return whether a trial that failed as its attempt was lost has ended well, as it turns out.

    One that failed after all stays failed, and one that the user canceled stays canceled.
    """
    return attempt.state is JobState.LOST and trial.state is TrialState.FAILED and end.code == 0


def _add_late(trial: Trial, event: Reported) -> Trial:
    """Return an ended trial with one more report."""
    if event.refused:
        trial = replace(trial, reason=joined(trial.reason, _refusal(event)))
    if event.kind is MetricKind.FINAL and trial.value is None:
        trial = replace(trial, value=event.value)
    return trial


def _add_late_attribute(trial: Trial, event: Attributed) -> Trial:
    """Return an ended trial with one more attribute."""
    attributes, refused = set_within_limits(trial.attributes, event.name, event.value)
    if not (event.refused or refused):
        return replace(trial, attributes=attributes)
    # One such sentence is enough, however many of them come.
    return trial if _NOT_KEPT in trial.reason else replace(trial, reason=joined(trial.reason, _refusal(event, refused)))


def _refusal(event: Reported | Attributed, why: str = "") -> str:
    what = f"attribute {event.name!r:.60}" if isinstance(event, Attributed) else f"metric {event.index}"
    return f"{what} {_NOT_KEPT}: {event.refused or why}"


def _metric(trial: Trial, event: Reported) -> Metric:
    return Metric(trial.id, trial.attempt, event.index, event.kind, event.sequence, event.value, event.time)


def _attribute(trial: Trial, event: Attributed) -> Attribute:
    return Attribute(trial.id, trial.attempt, event.index, event.name, event.value, event.time)
