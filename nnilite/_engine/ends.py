"""How attempts and trials end: retries, failures that are counted, and what is freed then."""

from __future__ import annotations

from dataclasses import replace

from nnilite._engine import messages
from nnilite._engine.live_trial import ActiveTrial, Phase, find_error_kind, retry_delay_s
from nnilite._engine.recorder import Recorder, joined
from nnilite._engine.state import State
from nnilite.records import DRILLED, UNSTARTED, CallKind, EndCause, Exited, ExperimentState, JobState, TrialState
from nnilite.tuner import Call

# With the growing pauses between them these take about three minutes.
_UNSTARTED_MAX = 8
INTERRUPTED = "it received SIGTERM on its platform, not from this experiment"
# Why the attempt was lost if its keeper ended it for a reason that is neither the trial's nor this experiment's.
_LOST = {
    EndCause.CANCELED: "it was canceled on its platform, not by this experiment",
    EndCause.INTERRUPTED: INTERRUPTED,
    EndCause.ORPHANED: "its keeper ended it",
    EndCause.FENCED: "another run of the same attempt also reports; both are ended",
    EndCause.MACHINE: UNSTARTED,
}


class Ends:
    """Rules for the end of attempts, trials and the experiment."""

    def __init__(self, state: State, recorder: Recorder) -> None:
        self._state = state
        self._recorder = recorder
        # The kind of the latest failure, and how many trials in a row failed so.
        self._same_error = ("", 0)

    def handle(self, message: messages.Ending) -> None:
        match message:
            case messages.Removed():
                self._removed(message)
            case messages.CancelTrial():
                self._cancel_trial(message)
            case messages.Interrupt():
                self._interrupt(message)
            case _:
                messages.assert_never(message)

    def _removed(self, message: messages.Removed) -> None:
        removal = self._state.removals.get((message.trial, message.attempt))
        # A reversed end (`_reverse`) asks for the removal a second time; the first answer has settled it.
        if removal is None:
            return
        if message.done:
            del self._state.removals[message.trial, message.attempt]
            self._recorder.add(messages.SaveRemoval(message.trial, message.attempt, pending=False))
        else:
            removal.failed(self._state.now, last=self._state.is_stopping)

    def _cancel_trial(self, message: messages.CancelTrial) -> None:
        live = self._state.live.get(message.trial)
        if live is not None:
            self.cancel(live, TrialState.USER_CANCELED, message.reason)

    def _interrupt(self, message: messages.Interrupt) -> None:
        live = self._state.live.get(message.trial)
        # It may have ended since it was looked at, and an experiment that ends begins no further attempts.
        if live is None or live.attempt is None or not live.may_be_drilled or self._state.is_over:
            return
        live.drilled = True
        # The next manager must know of it, too.
        self._recorder.put_attempt(live, message=DRILLED)
        self._recorder.act(messages.Cancel(live.attempt))

    def take_end(self, live: ActiveTrial) -> None:
        """Take up how the command ended, which its keeper has reported.

        If the keeper has ended it, and not because the experiment had canceled the attempt or limited its time, the
        attempt is lost. One cause is a SIGTERM from the platform: a node is drained, a job is preempted, a host shuts
        down. Then the platform has some time to say why. A trial that still reported its result has ended well.
        """
        end = live.end
        if end is None:
            return
        if end.cause is EndCause.DURATION and live.cancel is None:
            live.cancel, live.cancel_reason = TrialState.SYS_CANCELED, end.message
        well = end.code == 0 and live.trial.value is not None
        if live.drilled and live.cancel is None and not well:
            self.lose(live, DRILLED)
        elif end.cause not in _LOST or well or live.cancel is not None:
            self.end(live)
        elif end.cause is not EndCause.INTERRUPTED or live.phase is not Phase.SUBMITTED:
            self.lose(live, ": ".join(filter(None, [_LOST[end.cause], end.message])))
        elif live.held is None:
            live.held = self._state.lived
            # The keeper learns that its report is stored.
            self._recorder.put_attempt(live, reported_end=end)
            self._recorder.say(live, f"{INTERRUPTED}; waiting for the report of its platform")

    def forget_end(self, live: ActiveTrial, why: str) -> None:
        """Drop the end that a keeper reported as it could not begin. Its service did not answer, and was asked again.

        It may have begun another one since, which runs the command now: the service knows, and its status shows it. So
        the attempt belongs to no run until one reports.
        """
        live.end = None
        self._recorder.put_attempt(live, reported_end=None, run="")
        self._recorder.note_problem(live, f"the keeper of this attempt could not start: {why}")

    def end(self, live: ActiveTrial) -> None:
        """End the attempt with `live.end`, as its command ended or was canceled."""
        end = live.end or Exited(self._state.now, None)
        code = end.code
        failed = JobState.CANCELED if live.cancel else JobState.FAILED
        state = JobState.SUCCEEDED if code == 0 else failed
        message = joined(end.message, live.complaint)
        self._recorder.charge(live, end.time - live.begun(end.time))
        self._recorder.put_attempt(live, state=state, ended=end.time, exit_code=code, message=message)
        # A trial that reached its result before the cancellation reached it has succeeded.
        if live.cancel and not (code == 0 and live.trial.value is not None):
            self.finish(live, live.cancel, live.cancel_reason, end.time)
        elif code == 0:
            self.finish(live, TrialState.SUCCEEDED, self.flaw(live, end), end.time)
        # An experiment that ends begins no further attempts.
        elif not self._state.is_over and live.may_retry(code, self._state.settings):
            self.again(live, f"attempt {live.trial.attempt + 1} failed: {live.failure(end)}")
        else:
            self.finish(live, TrialState.FAILED, live.failure(end), end.time)
            self._count_failure(live.failure(end))

    def flaw(self, live: ActiveTrial, end: Exited) -> str:
        """Return what is wrong with the result of a command that succeeded, with what its keeper says of it."""
        flaw = live.flaw(self._state.settings.objectives)
        return joined(flaw, end.message) if flaw else ""

    def lose(self, live: ActiveTrial, reason: str) -> None:
        """Abandon the attempt, whose worker is gone: make a further one, or let the trial fail."""
        reason = DRILLED if live.drilled else reason
        message = joined(reason, live.complaint)
        self._recorder.charge(live, self._state.now - live.running_since)
        # The clock may have been set back meanwhile.
        ended = max(self._state.now, (live.attempt.started if live.attempt else None) or 0.0)
        self._recorder.put_attempt(live, state=JobState.LOST, ended=ended, message=message)
        if live.cancel:
            self.finish(live, live.cancel, live.cancel_reason, self._state.now)
        elif not self._state.is_over and self._may_lose(live, reason):
            self.again(live, f"attempt {live.trial.attempt + 1} was lost: {reason}")
        else:
            self.finish(live, TrialState.FAILED, f"lost: {reason}", self._state.now)

    def _may_lose(self, live: ActiveTrial, reason: str) -> bool:
        """Count a lost attempt; true if there may be a further one.

        The attempts that the user has allowed are for real losses. A drill uses up none of them, and neither does a
        machine that cannot start anything for a while, on a full disk perhaps: nothing has run yet.
        """
        if live.drilled:
            return True
        if reason.startswith(UNSTARTED) and live.unstarted < _UNSTARTED_MAX:
            live.unstarted += 1
            return True
        live.lost += 1
        return live.lost <= self._state.settings.retries_lost

    def again(self, live: ActiveTrial, reason: str, delay_s: float | None = None) -> None:
        """Prepare a further attempt; without `delay_s`, after a time that grows with the failures so far."""
        self._recorder.remove(live.attempt)
        delay_s = retry_delay_s(live.lost + live.failed + live.unstarted) if delay_s is None else delay_s
        live.reset(not_before=self._state.now + delay_s)
        self._recorder.count(live.trial.state, TrialState.WAITING)
        live.trial = replace(
            live.trial,
            state=TrialState.WAITING,
            reason=f"{reason}; trying again",
            attempt=live.trial.attempt + 1,
            started=None,
            ended=None,
            value=None,
            service="",
            attributes={},
            violates="",
        )
        self._recorder.add(messages.SaveTrial(live.trial))
        self._state.free()

    def finish(self, live: ActiveTrial, state: TrialState, reason: str, ended: float) -> None:
        """End the trial in this state."""
        reason = joined(reason, live.complaint)
        value = live.trial.value
        broken = self._state.settings.violated(value) if state is TrialState.SUCCEEDED and value is not None else ""
        ended = max(ended, live.trial.started or ended)
        self._recorder.put(live, state=state, reason=reason, ended=ended, violates=broken)
        trial = live.trial
        del self._state.live[trial.id]
        self._state.free()
        # The tuner learns from a trial that was stopped early, too: from its last intermediate result.
        if value is None and state is TrialState.EARLY_STOPPED:
            value = live.last_intermediate
        known = Call(CallKind.RESULT, trial.parameter_id, trial.id, trial.parameters, value)
        known = replace(known, customized=trial.parameter_id is None)
        # Tuners expect the result before the end of its trial.
        if value is not None:
            self._recorder.tell(known)
        self._recorder.tell(replace(known, kind=CallKind.END, value=None, success=state is TrialState.SUCCEEDED))
        # The assessor knows only trials whose intermediate results it saw.
        if self._state.settings.assess and live.reported:
            self._recorder.act(messages.AssessEnd(trial.id, state is TrialState.SUCCEEDED, self._state.calls))
        self._state.note_best(trial)
        if state is TrialState.SUCCEEDED:
            self._same_error = ("", 0)
        self._recorder.remove(live.attempt)

    def _count_failure(self, message: str) -> None:
        kind = find_error_kind(message)
        last, times = self._same_error
        self._same_error = (kind, times + 1 if kind == last else 1)
        limit = self._state.settings.stop_on_same_error
        failed = self._state.counts[TrialState.FAILED]
        # The same error in trial after trial is the code's or the setup's: further trials would only cost money.
        if limit and self._same_error[1] >= limit:
            self.fail(f"{limit} trials in a row failed with the same error: {message}")
        elif self._state.settings.max_failed is not None and failed >= self._state.settings.max_failed:
            self.fail(f"{failed} trials have failed (maxFailedTrials); the last one: {message}")

    def fail(self, reason: str) -> None:
        """End the experiment with an error."""
        # The first reason counts, and an experiment that is being stopped is not turned into a failed one.
        if self._state.is_over:
            return
        self._recorder.become(ExperimentState.ERROR, reason)
        # Running trials may continue to their results; those that wait would never start.
        for live in [x for x in self._state.live.values() if x.phase is Phase.QUEUED]:
            self.cancel(live, TrialState.SYS_CANCELED, "the experiment ended with an error")

    def cancel(self, live: ActiveTrial, state: TrialState, reason: str) -> None:
        """Have the trial end, in this state unless it succeeds before that."""
        # No service has the trial, so it ends at once.
        if live.phase is Phase.QUEUED and not live.unanswered:
            self.finish(live, state, reason, self._state.now)
            return
        # The first cancellation decides the state in which the trial ends.
        if live.cancel is None:
            live.cancel, live.cancel_reason = state, reason
            # Where the service may have the job, it is asked again at once.
            live.not_before = self._state.now
            self._recorder.put_attempt(live, cancel=state)
            # The command has ended already. Why its platform ended it does not matter any more.
            if live.held is not None:
                self.end(live)
            elif live.phase is Phase.SUBMITTED and live.attempt is not None:
                self._recorder.act(messages.Cancel(live.attempt))
