"""The rules of an experiment: a synchronous state machine without I/O, clock or randomness.

One input goes in, the records to commit and the actions to take come out. Only trials that have not ended are kept
in memory. Whatever the order of inputs: an attempt is ended once, a result reaches the tuner before the end of its
trial, every waiting trial has a reason, and a word about an attempt that is no longer current changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nnilite._manager import steps as s
from nnilite._manager.live import Live, Phase, error_kind, retry_delay_s
from nnilite._manager.state import State
from nnilite.records import (
    Attempt,
    Exited,
    ExperimentState,
    Json,
    Metric,
    MetricKind,
    Reported,
    Started,
    Trial,
    TrialState,
)
from nnilite.service import JobState
from nnilite.tuner import Call

_OVER = (ExperimentState.STOPPING, ExperimentState.STOPPED, ExperimentState.ERROR)
_BUSY_PAUSE_S = 1.0
_CANCEL_TRIES = 3  # submissions of a trial that nobody wants any more, to learn whether its service has it
_MOST_ASKED = 50  # at once: the first trials of a thousand need not wait for the last ones' parameters
_SAVE_DURATION_EVERY_S = 10.0


class Rules(State):
    """`step(input)` gives the outcome; the attributes tell the present state."""

    def step(self, given: s.Input) -> s.Outcome:
        """Take one input; what comes back must be committed and done in order."""
        self._out = s.Outcome()
        self._pass_time(getattr(given, "now", self._now))
        _HANDLERS[type(given)](self, given)
        if self.state not in _OVER:
            self._ask()
        if self.state is not ExperimentState.STOPPED:
            self._submit()
        self._settle()
        return self._out

    # ------------------------------------------------------------ tuner

    def _tuner_ready(self, given: s.TunerReady) -> None:
        self._ready = True

    def _tuner_failed(self, given: s.TunerFailed) -> None:
        self._asking = False
        self._fail(given.reason)

    def _proposed(self, given: s.Proposed) -> None:
        self._asking = False
        if self.state in _OVER:
            return  # nobody will run them; they are not recorded, so they have not happened
        heard_more = self.calls > self._asked_after + given.asked  # and that may give it new ideas
        self._exhausted = len(given.proposals) < given.asked and not heard_more
        for number, (parameter_id, trial_id, parameters) in enumerate(given.proposals, self._asked_after + 1):
            call = Call("generate", parameter_id, trial_id, parameters)
            self._out.records.append(s.SaveCall(number, call))
            self._create(trial_id, parameters, parameter_id)

    def _ask(self) -> None:
        if not self._ready or self._asking or self._exhausted or self._limit() is not None:
            return
        wanted = min(self.settings.concurrency - len(self.live), _MOST_ASKED)
        if self.settings.max_trials is not None:
            wanted = min(wanted, self.settings.max_trials - self.next_sequence)
        if wanted <= 0:
            return
        ids = tuple(range(self._next_parameter_id, self._next_parameter_id + wanted))
        self._next_parameter_id += wanted
        self._asking = True
        self._asked_after = self.calls
        self.calls += wanted  # calls are numbered in the order in which the tuner gets them, and so are replayed
        self._out.actions.append(s.Ask(ids, self._asked_after))

    def _assessed(self, given: s.Assessed) -> None:
        live = self._current(given.trial, given.attempt)
        if live and not given.good and live.cancel is None:
            self._cancel(live, TrialState.EARLY_STOPPED, "stopped early by the assessor")

    # ------------------------------------------------------------ trials come

    def _customized(self, given: s.Customized) -> None:
        self._create(given.trial, given.parameters, None)

    def _create(self, trial_id: str, parameters: Json, parameter_id: int | None) -> None:
        trial = Trial(
            id=trial_id,
            sequence=self.next_sequence,
            parameters=parameters,
            parameter_id=parameter_id,
            source="algorithm" if parameter_id is not None else "customized",
            reason="waiting to be submitted",
            created=self._now,
        )
        self.next_sequence += 1
        self.counts[TrialState.WAITING] += 1
        self.live[trial_id] = Live(trial, seen=self._now)
        self._out.records.append(s.SaveTrial(trial))

    def _rerun(self, given: s.Rerun) -> None:
        trial = given.trial
        if trial.id in self.live or not trial.state.ended:
            return
        live = Live(trial, seen=self._now)
        self.live[trial.id] = live
        self._again(live, "run again by the user", 0.0)

    def _submit(self) -> None:
        slots = self.settings.concurrency - sum(live.phase is not Phase.QUEUED for live in self.live.values())
        for live in [x for x in self.live.values() if x.phase is Phase.QUEUED]:
            if live.not_before > self._now:
                continue
            if slots <= 0 and live.cancel is None:
                self._wait(live, f"waiting for a free slot: trialConcurrency is {self.settings.concurrency}")
                continue
            slots -= 1
            self._start(live)

    def _start(self, live: Live) -> None:
        live.phase = Phase.SUBMITTING
        live.attempt = live.attempt or Attempt(live.trial.id, live.trial.attempt)
        self._out.records.append(s.SaveAttempt(live.attempt))
        self._wait(live, "being submitted")
        self._out.actions.append(s.Submit(live.trial, live.attempt))

    def _submitted(self, given: s.Submitted) -> None:
        live = self._current(given.trial, given.attempt)
        if live is None or live.attempt is None:
            return
        live.phase = Phase.SUBMITTED
        live.seen = self._now
        live.refusals = 0
        self._update(live, service=given.service, handle=given.handle)
        if live.trial.state is TrialState.WAITING:
            self._wait(live, f"submitted to {given.service}, waiting for its start")
        if live.end is not None:
            self._end(live)
        elif live.cancel is not None:
            self._out.actions.append(s.Cancel(live.attempt))

    def _refused(self, given: s.Refused) -> None:
        live = self._current(given.trial, given.attempt)
        if live is None or live.phase is not Phase.SUBMITTING:
            return
        live.phase = Phase.QUEUED
        live.unanswered = not (given.busy or given.final)
        live.refusals += live.unanswered
        enough = not live.unanswered or live.refusals >= _CANCEL_TRIES
        if given.final or (live.cancel is not None and enough):
            live.end = Exited(self._now, None, given.reason)
            self._end(live)
        elif given.busy:
            live.not_before, live.busy = self._now + _BUSY_PAUSE_S, True
            self._wait(live, given.reason)
        else:
            delay_s = retry_delay_s(live.refusals)
            live.not_before = self._now + delay_s
            self._wait(live, f"{given.reason} (trying again in {delay_s:.0f} s)")

    # ------------------------------------------------------------ trials report

    def _told(self, given: s.Told) -> None:
        live = self._current(given.trial, given.attempt)
        if live is None:
            return
        live.seen = self._now
        fresh: list[Any] = []
        for event in given.events:
            if isinstance(event, Started):
                self._running(live, event.time, event.host)
            elif isinstance(event, Reported):
                self._reported(live, event, fresh)
            elif isinstance(event, Exited):
                live.end = event
        if fresh and self.settings.assess:  # even if it has ended: the assessor learns from it
            before = live.reported - len(fresh)
            self._out.actions.append(s.Assess(given.trial, given.attempt, before, tuple(fresh), self.calls))
        if live.end is not None and live.phase is Phase.SUBMITTED:
            self._end(live)

    def _reported(self, live: Live, event: Reported, fresh: list[Any]) -> None:
        self._out.records.append(s.SaveMetric(_metric(live.trial, event)))
        if event.kind is MetricKind.PERIODICAL:
            live.last_intermediate = event.value
            live.reported += 1
            fresh.append(event.value)
        elif live.trial.value is None:  # the first final result counts
            self._set(live, value=event.value)

    def _late(self, given: s.Late) -> None:
        """Metrics are kept; and a true end wins over one that was only assumed."""
        trial = given.trial
        for event in given.events:
            if isinstance(event, Reported):
                self._out.records.append(s.SaveMetric(_metric(trial, event)))
                if event.kind is MetricKind.FINAL and trial.value is None:
                    trial = replace(trial, value=event.value)
            elif isinstance(event, Exited) and given.attempt.state == JobState.LOST.value:
                self._reverse(trial, given.attempt, event)
                return
        if trial != given.trial:
            self._out.records.append(s.SaveTrial(trial))

    def _reverse(self, trial: Trial, attempt: Attempt, end: Exited) -> None:
        """A trial that was given up for lost had ended by itself."""
        if trial.state is not TrialState.FAILED or end.code != 0:
            return
        attempt = replace(attempt, state=JobState.SUCCEEDED.value, ended=end.time, exit_code=0, message="")
        live = Live(trial, attempt, Phase.SUBMITTED, seen=self._now)
        self.live[trial.id] = live
        self._out.records.append(s.SaveAttempt(attempt))
        self._finish(live, TrialState.SUCCEEDED, "", end.time)

    def _running(self, live: Live, started: float, host: str) -> None:
        if host and live.attempt and live.attempt.host != host:
            self._update(live, host=host)
        if live.trial.state is not TrialState.RUNNING:
            live.running_since = self._now
            self._set(live, state=TrialState.RUNNING, started=started, reason="")
            self._update(live, state=JobState.RUNNING.value, started=started)

    def _seen(self, given: s.Seen) -> None:
        live = self._current(given.trial, given.attempt)
        status = given.status
        if live is None or live.phase is not Phase.SUBMITTED:
            return
        if live.attempt and (status.url or status.host):
            host, url = status.host or live.attempt.host, status.url or live.attempt.url
            if (host, url) != (live.attempt.host, live.attempt.url):
                self._update(live, host=host, url=url)
        if status.state.ended:
            self._ended_by_platform(live, given)
            return
        if status.state is JobState.UNKNOWN:
            self._say(live, status.reason)
            return
        live.seen = self._now
        if status.state is JobState.RUNNING:
            self._running(live, status.started or self._now, status.host)
            self._say(live, "")
        elif live.trial.state is TrialState.WAITING and status.reason:
            self._wait(live, status.reason)

    def _ended_by_platform(self, live: Live, given: s.Seen) -> None:
        status = given.status
        code = {JobState.SUCCEEDED: 0, JobState.FAILED: status.exit_code or 1}.get(status.state, status.exit_code)
        if status.state is JobState.LOST:
            self._lose(live, status.reason or "its worker was lost")
            return
        if status.state is JobState.CANCELED and live.cancel is None:  # by somebody else
            live.cancel = TrialState.SYS_CANCELED
            live.cancel_reason = status.reason or "canceled on its platform"
        live.end = Exited(status.ended or self._now, code, status.reason)
        self._end(live)

    # ------------------------------------------------------------ trials go

    def _end(self, live: Live) -> None:
        """The attempt has ended with `live.end`: by itself, or because somebody asked."""
        end = live.end or Exited(self._now, None)
        code = end.code
        failed = JobState.CANCELED if live.cancel else JobState.FAILED
        state = JobState.SUCCEEDED if code == 0 else failed
        self._update(live, state=state.value, ended=end.time, exit_code=code, message=end.message)
        if live.cancel and not (code == 0 and live.trial.value is not None):
            self._finish(live, live.cancel, live.cancel_reason, end.time)
        elif code == 0:
            self._finish(live, TrialState.SUCCEEDED, live.flaw(self.settings.objectives), end.time)
        elif self.state not in _OVER and live.may_retry(code, self.settings):
            self._again(live, f"attempt {live.trial.attempt + 1} failed: {live.failure(end)}")
        else:
            self._finish(live, TrialState.FAILED, live.failure(end), end.time)
            self._count_failure(live.failure(end))

    def _lose(self, live: Live, reason: str) -> None:
        """The attempt's worker is gone: try again elsewhere, or give up."""
        self._update(live, state=JobState.LOST.value, ended=self._now, message=reason)
        if live.cancel:
            self._finish(live, live.cancel, live.cancel_reason, self._now)
        elif live.lost < self.settings.retries_lost and self.state not in _OVER:
            live.lost += 1
            self._again(live, f"attempt {live.trial.attempt + 1} was lost: {reason}")
        else:
            self._finish(live, TrialState.FAILED, f"lost: {reason}", self._now)

    def _again(self, live: Live, reason: str, delay_s: float | None = None) -> None:
        self._remove(live.attempt)
        delay_s = retry_delay_s(live.lost + live.failed) if delay_s is None else delay_s
        live.reset(not_before=self._now + delay_s)
        self._count(live.trial.state, TrialState.WAITING)
        live.trial = replace(
            live.trial,
            state=TrialState.WAITING,
            reason=f"{reason}; trying again",
            attempt=live.trial.attempt + 1,
            started=None,
            ended=None,
            value=None,
        )
        self._out.records.append(s.SaveTrial(live.trial))
        self._freed()

    def _finish(self, live: Live, state: TrialState, reason: str, ended: float) -> None:
        self._set(live, state=state, reason=reason, ended=max(ended, live.trial.started or ended))
        trial = live.trial
        del self.live[trial.id]
        self._freed()
        value = trial.value
        if value is None and state is TrialState.EARLY_STOPPED:
            value = live.last_intermediate  # what it had reached informs the tuner too
        known = Call("result", trial.parameter_id, trial.id, trial.parameters, value)
        known = replace(known, customized=trial.parameter_id is None)
        if value is not None:
            self._tell(known)
        self._tell(replace(known, kind="end", value=None, success=state is TrialState.SUCCEEDED))
        if self.settings.assess and live.reported:
            self._out.actions.append(s.AssessEnd(trial.id, state is TrialState.SUCCEEDED, self.calls))
        self._note_best(trial)
        if state is TrialState.SUCCEEDED:
            self._same_error = ("", 0)
        self._remove(live.attempt)

    def _removed(self, given: s.Removed) -> None:
        removal = self._removals.get((given.trial, given.attempt))
        if removal is None:
            return
        if given.done:
            del self._removals[given.trial, given.attempt]
            self._out.records.append(s.SaveRemoval(given.trial, given.attempt, owed=False))
        else:
            removal.failed(self._now)

    def _count_failure(self, message: str) -> None:
        kind = error_kind(message)
        last, times = self._same_error
        self._same_error = (kind, times + 1 if kind == last else 1)
        limit = self.settings.stop_on_same_error
        failed = self.counts[TrialState.FAILED]
        if limit and self._same_error[1] >= limit:
            self._fail(f"{limit} trials in a row failed with the same error: {message}")
        elif self.settings.max_failed is not None and failed >= self.settings.max_failed:
            self._fail(f"{failed} trials have failed (maxFailedTrials); the last one: {message}")

    # ------------------------------------------------------------ asked for by people, or by time

    def _cancel_trial(self, given: s.CancelTrial) -> None:
        live = self.live.get(given.trial)
        if live is not None:
            self._cancel(live, TrialState.USER_CANCELED, given.reason)

    def _cancel(self, live: Live, state: TrialState, reason: str) -> None:
        if live.phase is Phase.QUEUED and not live.unanswered:
            self._finish(live, state, reason, self._now)
            return
        if live.cancel is None:
            live.cancel, live.cancel_reason = state, reason
            live.not_before = self._now  # to learn at once whether its service has it
            self._update(live, cancel=state.value)
            if live.phase is Phase.SUBMITTED and live.attempt is not None:
                self._out.actions.append(s.Cancel(live.attempt))

    def _changed(self, given: s.Changed) -> None:
        self.settings = given.settings
        if given.space is not None:
            self._tell(Call("space", value=given.space))
        self._save()

    def _imported(self, given: s.Imported) -> None:
        self._tell(Call("import", value=given.data))

    def _tick(self, given: s.Tick) -> None:
        if self.duration_s - self._saved_duration_s >= _SAVE_DURATION_EVERY_S:
            self._save()
        for live in list(self.live.values()):
            self._check_time(live)
        self._remove_again(self._now)

    def _check_time(self, live: Live) -> None:
        limit = self.settings.max_trial_duration_s
        running = live.trial.state is TrialState.RUNNING
        if limit is not None and running and self._now - live.running_since > limit:
            self._cancel(live, TrialState.SYS_CANCELED, f"ran longer than maxTrialDuration ({limit:.0f} s)")
        elif live.phase is Phase.SUBMITTED and self._now - live.seen > self.settings.silence_s:
            if live.attempt is not None:
                self._out.actions.append(s.Cancel(live.attempt))
            self._lose(live, f"no sign of life for {self._now - live.seen:.0f} s")

    def _stop(self, given: s.Stop) -> None:
        if self.state is ExperimentState.STOPPED:
            return
        over = self.state in (ExperimentState.DONE, ExperimentState.ERROR)
        self._become(ExperimentState.STOPPING, self.reason if over else given.reason)
        for live in list(self.live.values()):
            self._cancel(live, TrialState.USER_CANCELED, given.reason)
        self._remove_again(math.inf)  # the last chance until a resume

    def _abandon(self, given: s.Abandon) -> None:
        if self.state is ExperimentState.STOPPING:
            for live in list(self.live.values()):
                reason = "the experiment was stopped; its platform did not confirm the end"
                self._finish(live, live.cancel or TrialState.USER_CANCELED, reason, self._now)

    # ------------------------------------------------------------ the experiment

    def _limit(self) -> str | None:
        """Why no further trials are wanted, or None."""
        most = self.settings.max_trials
        if most is not None and self.next_sequence >= most:
            return f"maxTrialNumber ({most}) is reached"
        if self.settings.max_duration_s is not None and self.duration_s >= self.settings.max_duration_s:
            return f"maxExperimentDuration ({self.settings.max_duration_s:.0f} s) is over"
        return None

    def _settle(self) -> None:
        if self.state is ExperimentState.STOPPING and not self.live:
            self._become(ExperimentState.STOPPED, self.reason)
        if self.state in _OVER:
            return
        limit = self._limit()
        if limit is None and self._exhausted and not self._asking:
            limit = "the tuner has no more parameters to propose"
            self._become(ExperimentState.TUNER_NO_MORE_TRIAL if self.live else ExperimentState.DONE, limit)
        elif limit is not None:  # what the tuner was asked for before still runs: it will not propose it again
            more = self.live or self._asking
            self._become(ExperimentState.NO_MORE_TRIAL if more else ExperimentState.DONE, limit)
        else:
            self._become(ExperimentState.RUNNING if self._ready else ExperimentState.INITIALIZED, "")

    def _fail(self, reason: str) -> None:
        if self.state in _OVER:
            return
        self._become(ExperimentState.ERROR, reason)
        for live in [x for x in self.live.values() if x.phase is Phase.QUEUED]:
            self._cancel(live, TrialState.SYS_CANCELED, "the experiment ended with an error")


def _metric(trial: Trial, event: Reported) -> Metric:
    return Metric(trial.id, trial.attempt, event.index, event.kind, event.sequence, event.value, event.time)


_HANDLERS: dict[type, Callable[[Rules, Any], None]] = {
    s.TunerReady: Rules._tuner_ready,
    s.Proposed: Rules._proposed,
    s.TunerFailed: Rules._tuner_failed,
    s.Customized: Rules._customized,
    s.Submitted: Rules._submitted,
    s.Refused: Rules._refused,
    s.Told: Rules._told,
    s.Late: Rules._late,
    s.Seen: Rules._seen,
    s.Removed: Rules._removed,
    s.Assessed: Rules._assessed,
    s.CancelTrial: Rules._cancel_trial,
    s.Rerun: Rules._rerun,
    s.Changed: Rules._changed,
    s.Imported: Rules._imported,
    s.Tick: Rules._tick,
    s.Stop: Rules._stop,
    s.Abandon: Rules._abandon,
}
