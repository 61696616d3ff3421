"""How trials come, and how their attempts get to a service."""

from __future__ import annotations

from dataclasses import replace

from nnilite._engine import messages
from nnilite._engine.ends import Ends
from nnilite._engine.live_trial import ActiveTrial, Phase, retry_delay_s
from nnilite._engine.recorder import Recorder
from nnilite._engine.state import State
from nnilite.records import Attempt, Exited, JobState, Json, Trial, TrialState

_BUSY_PAUSE_S = 1.0
# A canceled trial is submitted up to so many times more, to learn from the answer whether its service has it.
_CANCEL_TRIES = 3
# A refusal that is unlikely to pass is final after this many in a row, which takes two minutes.
_LASTING_TRIES = 8


class Submissions:
    """The part of the rules that makes trials and submits them."""

    def __init__(self, state: State, recorder: Recorder, ends: Ends) -> None:
        self._state = state
        self._recorder = recorder
        self._ends = ends

    def handle(self, message: messages.Submission) -> None:
        match message:
            case messages.Submitted():
                self._submitted(message)
            case messages.SubmitRefused():
                self._refused(message)
            case messages.Asked():
                self._asked(message)
            case messages.Customized():
                self._customized(message)
            case messages.Rerun():
                self._rerun(message)
            case messages.Move():
                self._move(message)
            case _:
                messages.assert_never(message)

    def _customized(self, message: messages.Customized) -> None:
        settings, number = self._state.settings, self._state.next_sequence + 1
        if settings.max_trials is not None and settings.max_trials < number:
            # It counts beyond the limit. Were this raised before, the tuner would take the room for a proposal.
            self._state.settings = replace(settings, max_trials=number)
            self._recorder.save()
        self.create(message.trial, message.parameters, None)

    def create(self, trial_id: str, parameters: Json, parameter_id: int | None) -> None:
        """Make a trial; without `parameter_id`, one with the user's own parameters."""
        state = self._state
        trial = Trial(
            id=trial_id,
            sequence=state.next_sequence,
            parameters=parameters,
            parameter_id=parameter_id,
            source="algorithm" if parameter_id is not None else "customized",
            reason="waiting to be submitted",
            created=state.now,
        )
        state.next_sequence += 1
        state.counts[TrialState.WAITING] += 1
        state.live[trial_id] = ActiveTrial(trial, seen=state.lived)
        self._recorder.add(messages.SaveTrial(trial))

    def _rerun(self, message: messages.Rerun) -> None:
        trial = message.trial
        # Two requests may overlap: the trial may already be running again.
        if trial.id in self._state.live or not trial.state.ended:
            return
        # Its result goes, too.
        if self._state.best is not None and self._state.best.id == trial.id:
            self._state.best = message.best
        live = ActiveTrial(trial, seen=self._state.lived)
        self._state.live[trial.id] = live
        self._ends.again(live, "run again by the user", 0.0)

    def submit(self) -> None:
        """Submit the trials for which there is room."""
        state = self._state
        concurrency = state.settings.concurrency
        slots = concurrency - sum(live.phase is not Phase.QUEUED for live in state.live.values())
        for live in [x for x in state.live.values() if x.phase is Phase.QUEUED]:
            # The delay before a further attempt is not over.
            if live.not_before > state.now:
                continue
            # A canceled trial is submitted without a free slot: only the service's answer says whether it has the job.
            if slots <= 0 and live.cancel is None:
                self._recorder.wait(live, f"waiting for a free slot: trialConcurrency is {concurrency}")
                continue
            slots -= 1
            self._start(live)

    def _start(self, live: ActiveTrial) -> None:
        live.phase = Phase.SUBMITTING
        new = live.attempt is None
        live.attempt = live.attempt or Attempt(live.trial.id, live.trial.attempt)
        self._recorder.add(messages.SaveAttempt(live.attempt))
        self._recorder.wait(live, "being submitted")
        self._recorder.act(messages.Submit(live.trial, live.attempt, new))

    def _asked(self, message: messages.Asked) -> None:
        live = self._state.current(message.trial, message.attempt)
        # The trial was abandoned meanwhile (`Limits`): no member may be asked to take it any more.
        if live is None or live.phase is not Phase.SUBMITTING:
            self._recorder.outcome.too_late = True
            return
        live.seen = self._state.lived
        self._recorder.put_attempt(live, service=message.service)

    def _submitted(self, message: messages.Submitted) -> None:
        live = self._state.current(message.trial, message.attempt)
        # The trial was abandoned while the service was asked (`Limits`).
        if live is None or live.attempt is None:
            return
        live.phase = Phase.SUBMITTED
        live.seen = live.queued_since = self._state.lived
        live.refusals = live.lasting = 0
        # A member of a hybrid service is known already.
        service = live.attempt.service or message.service
        self._recorder.put_attempt(live, service=service, handle=message.handle)
        self._recorder.put(live, service=service)
        if live.trial.state is TrialState.WAITING:
            self._recorder.wait_for_start(live, service)
        if live.unanswered and live.end is not None and live.end.never_began:
            self._ends.forget_end(live, live.end.message)
        # A short trial may have ended before the service answered; its end waited for the handle.
        if live.end is not None:
            self._ends.take_end(live)
        # The cancellation came while the service was asked, when there was no handle to cancel by.
        elif live.cancel is not None:
            self._recorder.act(messages.Cancel(live.attempt))

    def _refused(self, message: messages.SubmitRefused) -> None:
        live = self._state.current(message.trial, message.attempt)
        # The answer may come late, to a trial that has ended or has moved on.
        if live is None or live.phase is not Phase.SUBMITTING:
            return
        live.phase = Phase.QUEUED
        # With neither a yes nor a clear no, the service may have taken the job.
        live.unanswered = not (message.busy or message.final)
        live.refusals = live.refusals + 1 if live.unanswered else 0
        # What passed by itself meanwhile, such as an outage, says nothing of what hardly does.
        live.lasting = live.lasting + 1 if message.lasting else 0
        enough = not live.unanswered or live.refusals >= _CANCEL_TRIES
        final = message.final or live.lasting >= _LASTING_TRIES
        # Its keeper has reported the end, and the service has nothing to free: it does not know the job any more.
        if live.end is not None and not live.unanswered:
            self._ends.take_end(live)
            return
        # Trying again cannot help, or the trial is canceled and its service most likely does not have it.
        if final or (live.cancel is not None and enough):
            live.end = live.end or Exited(self._state.now, None, message.reason)
            self._ends.end(live)
        elif message.busy:
            live.not_before, live.busy = self._state.now + _BUSY_PAUSE_S, True
            self._recorder.wait(live, message.reason)
        else:
            delay_s = retry_delay_s(live.refusals)
            live.not_before = self._state.now + delay_s
            self._recorder.wait(live, f"{message.reason} (trying again in {delay_s:.0f} s)")

    def _move(self, message: messages.Move) -> None:
        live = self._state.current(message.trial, message.attempt)
        # It has begun, or its end was asked for, since its service was looked at.
        if live is None or live.attempt is None or not live.may_move:
            return
        self._recorder.act(messages.Cancel(live.attempt))
        self._recorder.charge(live, 0.0)
        self._recorder.put_attempt(live, state=JobState.CANCELED, ended=self._state.now, message=message.reason)
        self._ends.again(live, message.reason, 0.0)
