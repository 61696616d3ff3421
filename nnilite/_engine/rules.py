"""The rules of an experiment: a synchronous state machine without I/O, clock or randomness.

One input goes in, the records to commit and the actions to take come out. Only trials that have not ended are kept
in memory. These hold in any order of inputs: an attempt ends once, a result reaches the tuner before the end of its
trial, every waiting trial has a reason, and a message about an attempt that is no longer current changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from nnilite._engine import messages as s
from nnilite._engine.ends import INTERRUPTED
from nnilite._engine.live_trial import Live, Phase, retry_delay_s
from nnilite._engine.reports import Reports
from nnilite._engine.state import OVER
from nnilite.records import (
    Attempt,
    CallKind,
    Exited,
    ExperimentState,
    Json,
    Trial,
    TrialState,
)
from nnilite.tuner import Call

_BUSY_PAUSE_S = 1.0
# A canceled trial is submitted up to so many times more, to learn from the answer whether its service has it.
_CANCEL_TRIES = 3
# A refusal that hardly passes by itself is final after so many in a row, which takes two minutes.
_LASTING_TRIES = 8
# So many parameters are asked for at once: the first of a thousand trials need not wait for the last one's.
_MOST_ASKED = 50
_SAVE_DURATION_EVERY_S = 10.0
# A platform has so long to say why it ended an attempt: more than the 40 s that the end of a pod may take.
_PLATFORM_WORD_S = 60.0


class Rules(Reports):
    """`step` takes one input and returns its outcome; the public attributes say where the experiment stands."""

    abandoned: tuple[str, ...] = ()  # trials whose platforms did not confirm their end in time

    def step(self, message: s.Input) -> s.Outcome:
        """Take one input. The caller must commit the records that come back, in order, and take the actions."""
        self._out = s.Outcome()
        self._pass_time(getattr(message, "now", self._now))
        _HANDLERS[type(message)](self, message)
        # A job that has not ended frees no slot. A poll brings thousands of these, and the rest looks at all trials.
        if isinstance(message, s.Polled) and not message.status.state.ended:
            return self._out
        # An ending experiment needs no parameters; its last trials may still need a submission (`_CANCEL_TRIES`).
        if self.state not in OVER:
            self._ask()
        if self.state is not ExperimentState.STOPPED:
            self._submit()
        self._settle()
        return self._out

    # ------------------------------------------------------------ tuner

    def _tuner_ready(self, message: s.TunerReady) -> None:
        self._ready = True
        self._hears = message.hears

    def _tuner_failed(self, message: s.TunerFailed) -> None:
        self._asking = False
        self._fail(message.reason)

    def _proposed(self, message: s.Proposed) -> None:
        self._asking = False
        # These parameters will never run. They are not recorded, so a rebuilt tuner does not know of them either.
        if self.state in OVER:
            return
        # A tuner that has learned something since it was asked may have new proposals: it is not exhausted yet.
        heard_more = self.calls > self._asked_after + message.asked
        self._exhausted = len(message.proposals) < message.asked and not heard_more
        for number, (parameter_id, trial_id, parameters) in enumerate(message.proposals, self._asked_after + 1):
            call = Call(CallKind.GENERATE, parameter_id, trial_id, parameters)
            self._out.records.append(s.SaveCall(number, call))
            self._create(trial_id, parameters, parameter_id)

    def _ask(self) -> None:
        # One request at a time: the tuner host answers its calls one after the other anyway.
        if not self._ready or self._asking or self._exhausted or self._limit() is not None:
            return
        wanted = min(self.settings.concurrency - len(self.live), _MOST_ASKED)
        if self.settings.max_trials is not None:
            wanted = min(wanted, self.settings.max_trials - self.next_sequence)
        if self.settings.max_cost is not None:
            wanted = int(min(wanted, self._affordable(self.settings.max_cost)))
        if wanted <= 0:
            return
        ids = tuple(range(self._next_parameter_id, self._next_parameter_id + wanted))
        self._next_parameter_id += wanted
        self._asking = True
        self._asked_after = self.calls
        # Calls are numbered in the order in which the tuner gets them; a rebuilt tuner gets them in the same order.
        self.calls += wanted
        self._out.actions.append(s.Ask(ids, self._asked_after))

    def _assessed(self, message: s.Assessed) -> None:
        # An advisor may propose because of an intermediate result.
        if self._hears:
            self._exhausted = False
        live = self._current(message.trial, message.attempt)
        # A trial that is canceled already keeps the state for which it was canceled.
        if live and not message.good and live.cancel is None:
            who = "assessor" if self.settings.assess else "advisor"
            self._cancel(live, TrialState.EARLY_STOPPED, f"stopped early by the {who}")

    # ------------------------------------------------------------ trials come

    def _customized(self, message: s.Customized) -> None:
        self._create(message.trial, message.parameters, None)

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
        self.live[trial_id] = Live(trial, seen=self._lived)
        self._out.records.append(s.SaveTrial(trial))

    def _rerun(self, message: s.Rerun) -> None:
        trial = message.trial
        # Two requests may cross: the trial may be running again already.
        if trial.id in self.live or not trial.state.ended:
            return
        live = Live(trial, seen=self._lived)
        self.live[trial.id] = live
        self._again(live, "run again by the user", 0.0)

    def _submit(self) -> None:
        slots = self.settings.concurrency - sum(live.phase is not Phase.QUEUED for live in self.live.values())
        for live in [x for x in self.live.values() if x.phase is Phase.QUEUED]:
            # The delay before a further attempt is not over.
            if live.not_before > self._now:
                continue
            # A canceled trial is submitted without a free slot: only the service's answer says whether it has the job.
            if slots <= 0 and live.cancel is None:
                self._wait(live, f"waiting for a free slot: trialConcurrency is {self.settings.concurrency}")
                continue
            slots -= 1
            self._start(live)

    def _start(self, live: Live) -> None:
        live.phase = Phase.SUBMITTING
        new = live.attempt is None
        live.attempt = live.attempt or Attempt(live.trial.id, live.trial.attempt)
        self._out.records.append(s.SaveAttempt(live.attempt))
        self._wait(live, "being submitted")
        self._out.actions.append(s.Submit(live.trial, live.attempt, new))

    def _asked(self, message: s.Asked) -> None:
        live = self._current(message.trial, message.attempt)
        # The trial was abandoned meanwhile (`_abandon`): nobody may be asked to take it any more.
        if live is None or live.phase is not Phase.SUBMITTING:
            self._out.too_late = True
            return
        live.seen = self._lived
        self._update(live, service=message.service)

    def _submitted(self, message: s.Submitted) -> None:
        live = self._current(message.trial, message.attempt)
        # The trial was abandoned while the service was asked (`_abandon`).
        if live is None or live.attempt is None:
            return
        live.phase = Phase.SUBMITTED
        live.seen = live.queued_since = self._lived
        live.refusals = 0
        # A member of a hybrid service is known already.
        service = live.attempt.service or message.service
        self._update(live, service=service, handle=message.handle)
        self._set(live, service=service)
        if live.trial.state is TrialState.WAITING:
            self._wait(live, f"submitted to {service}, waiting for its start")
        if live.unanswered and live.end is not None and live.end.never_began:
            self._forget_end(live, live.end.message)
        # A short trial may have ended before the service answered; its end waited for the handle.
        if live.end is not None:
            self._heard_of_end(live)
        # The cancellation came while the service was asked, when there was no handle to cancel by.
        elif live.cancel is not None:
            self._out.actions.append(s.Cancel(live.attempt))

    def _refused(self, message: s.SubmitRefused) -> None:
        live = self._current(message.trial, message.attempt)
        # The answer may come late, to a trial that has ended or has moved on.
        if live is None or live.phase is not Phase.SUBMITTING:
            return
        live.phase = Phase.QUEUED
        # With neither a yes nor a clear no, the service may have taken the job.
        live.unanswered = not (message.busy or message.final)
        live.refusals += live.unanswered
        enough = not live.unanswered or live.refusals >= _CANCEL_TRIES
        final = message.final or (message.lasting and live.refusals >= _LASTING_TRIES)
        # Its keeper has reported the end, and the service has nothing to free: it does not know the job any more.
        if live.end is not None and not live.unanswered:
            self._heard_of_end(live)
            return
        # Trying again cannot help, or the trial is canceled and its service most likely does not have it.
        if final or (live.cancel is not None and enough):
            live.end = live.end or Exited(self._now, None, message.reason)
            self._end(live)
        elif message.busy:
            live.not_before, live.busy = self._now + _BUSY_PAUSE_S, True
            self._wait(live, message.reason)
        else:
            delay_s = retry_delay_s(live.refusals)
            live.not_before = self._now + delay_s
            self._wait(live, f"{message.reason} (trying again in {delay_s:.0f} s)")

    # ------------------------------------------------------------ asked for by people, or by time

    def _cancel_trial(self, message: s.CancelTrial) -> None:
        live = self.live.get(message.trial)
        if live is not None:
            self._cancel(live, TrialState.USER_CANCELED, message.reason)

    def _changed(self, message: s.Changed) -> None:
        self.settings = message.settings
        if message.space is not None:
            self._tell(Call(CallKind.SPACE, value=message.space))
        self._save()

    def _imported(self, message: s.Imported) -> None:
        self._tell(Call(CallKind.IMPORT, value=message.data))

    def _tick(self, message: s.Tick) -> None:
        self._lived = max(self._lived, message.lived)
        # The duration is saved now and then, so that a manager that dies loses little of it.
        if self.duration_s - self._saved_duration_s >= _SAVE_DURATION_EVERY_S:
            self._save()
        for live in list(self.live.values()):
            self._check_time(live)
        self._check_cost()
        self._remove_again(self._now)

    def _check_time(self, live: Live) -> None:
        limit = self.settings.max_trial_duration_s
        running = live.trial.state is TrialState.RUNNING
        if limit is not None and running and self._now - live.running_since > limit:
            self._cancel(live, TrialState.SYS_CANCELED, f"ran longer than maxTrialDuration ({limit:.0f} s)")
        elif live.held is not None and live.end is not None:
            # The platform has not said in time why it ended the attempt. It may never do so.
            if self._lived - live.held > _PLATFORM_WORD_S:
                self._lose(live, live.end.message or INTERRUPTED)
        elif self._lived - live.seen > self.settings.silence_s:
            self._check_silence(live, self._lived - live.seen)

    def _check_cost(self) -> None:
        """End what runs if it costs more than was to be expected: the limit may be passed by one trial at most."""
        limit = self.settings.max_cost
        if limit is None or not self.live:
            return
        spent = self.spending.total(self.live.values(), self._now)
        if spent > limit + self.spending.mean(self._ended_trials()):
            for live in list(self.live.values()):
                self._cancel(live, TrialState.SYS_CANCELED, f"{spent:.2f} is spent, and maxCost is {limit:g}")

    def _check_silence(self, live: Live, silent_s: float) -> None:
        if live.phase is Phase.SUBMITTED and live.attempt is not None:
            self._out.actions.append(s.Cancel(live.attempt))
            self._lose(live, f"no sign of life for {silent_s:.0f} s")
        # Only the member of a hybrid service that was asked knows whether it has the job. A further attempt may go to
        # another one; if it turns out that this one has the job, its keeper is told that the attempt is fenced.
        elif live.is_with_silent_member() and live.lost < self.settings.retries_lost:
            service = live.attempt.service if live.attempt is not None else ""
            # The keeper's word of the end stands, although nothing can be freed at that member.
            if live.end is not None:
                self._heard_of_end(live)
                return
            self._lose(live, f"{service} did not tell for {silent_s:.0f} s whether it has the trial")

    def _stop(self, message: s.Stop) -> None:
        if self.state is ExperimentState.STOPPED:
            return
        # The reason of an experiment that was over before stays: it says more than that somebody stopped it.
        over = self.state in (ExperimentState.DONE, ExperimentState.ERROR)
        self._become(ExperimentState.STOPPING, self.reason if over else message.reason)
        for live in list(self.live.values()):
            self._cancel(live, TrialState.USER_CANCELED, message.reason)
        # Removals that wait for their next try are tried now: there is not much time left for them.
        self._remove_again(math.inf)

    def _abandon(self, message: s.Abandon) -> None:
        if self.state is ExperimentState.STOPPING:
            placed = [live.trial.id for live in self.live.values() if live.is_placed]
            self.abandoned = (*self.abandoned, *placed)
            for live in list(self.live.values()):
                self._charge(live, self._now - live.running_since)
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
        if self.settings.max_cost is not None and not self._affordable(self.settings.max_cost):
            return f"maxCost ({self.settings.max_cost:g}) is reached"
        return None

    def _settle(self) -> None:
        # A stop is complete when the last trial has ended.
        if self.state is ExperimentState.STOPPING and not self.live:
            self._become(ExperimentState.STOPPED, self.reason)
            self._stopped = self._now
        if self.state in OVER:
            return
        limit = self._limit()
        # A further answer of the tuner may still bring parameters; only after it the tuner counts as exhausted.
        if limit is None and self._exhausted and not self._asking:
            limit = "the tuner has no more parameters to propose"
            self._become(ExperimentState.TUNER_NO_MORE_TRIAL if self.live else ExperimentState.DONE, limit)
        # The experiment is not done while the tuner is being asked: it will not propose those parameters again.
        elif limit is not None:
            more = self.live or self._asking
            self._become(ExperimentState.NO_MORE_TRIAL if more else ExperimentState.DONE, limit)
        else:
            self._become(ExperimentState.RUNNING if self._ready else ExperimentState.INITIALIZED, "")


_HANDLERS: dict[type, Callable[[Rules, Any], None]] = {
    s.TunerReady: Rules._tuner_ready,
    s.Proposed: Rules._proposed,
    s.TunerFailed: Rules._tuner_failed,
    s.Customized: Rules._customized,
    s.Asked: Rules._asked,
    s.Submitted: Rules._submitted,
    s.SubmitRefused: Rules._refused,
    s.LiveEvents: Rules._live_events,
    s.LateEvents: Rules._late_events,
    s.Polled: Rules._polled,
    s.Removed: Rules._removed,
    s.Move: Rules._move,
    s.Assessed: Rules._assessed,
    s.CancelTrial: Rules._cancel_trial,
    s.Interrupt: Rules._interrupt,
    s.Rerun: Rules._rerun,
    s.Changed: Rules._changed,
    s.Imported: Rules._imported,
    s.Tick: Rules._tick,
    s.Stop: Rules._stop,
    s.Abandon: Rules._abandon,
}
