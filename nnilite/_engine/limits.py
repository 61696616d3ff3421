"""What limits the experiment and its trials: time, money, silence, and its stop."""

from __future__ import annotations

import math

from nnilite._engine import messages
from nnilite._engine.ends import INTERRUPTED, Ends
from nnilite._engine.live_trial import ActiveTrial, Phase
from nnilite._engine.recorder import Recorder
from nnilite._engine.state import State
from nnilite.records import CallKind, ExperimentState, TrialState
from nnilite.tuner import Call

_SAVE_DURATION_EVERY_S = 10.0
# How long a platform has to say why it ended an attempt: more than the 40 s that the end of a pod may take.
_PLATFORM_WORD_S = 60.0


class Limits:
    """The part of the rules that watches the limits, and stops the experiment."""

    def __init__(self, state: State, recorder: Recorder, ends: Ends) -> None:
        self._state = state
        self._recorder = recorder
        self._ends = ends

    def handle(self, message: messages.Limiting) -> None:
        match message:
            case messages.Tick():
                self._take_tick(message)
            case messages.Changed():
                self._changed(message)
            case messages.Stop():
                self._stop(message)
            case messages.Abandon():
                self._abandon(message)
            case _:
                messages.assert_never(message)

    def settle(self) -> None:
        """Bring the experiment to the state in which the latest input has left it."""
        state = self._state
        # A stop is complete when the last trial has ended.
        if state.state is ExperimentState.STOPPING and not state.live:
            self._recorder.become(ExperimentState.STOPPED, state.reason)
            state.stopped = state.now
        if state.is_over:
            return
        limit = state.limit()
        # A further answer of the tuner may still bring parameters; only after it the tuner counts as exhausted.
        if limit is None and state.exhausted and not state.asking:
            limit = "the tuner has no more parameters to propose"
            self._recorder.become(ExperimentState.TUNER_NO_MORE_TRIAL if state.live else ExperimentState.DONE, limit)
        # The experiment is not done while the tuner is being asked: it will not propose those parameters again.
        elif limit is not None:
            more = state.live or state.asking
            self._recorder.become(ExperimentState.NO_MORE_TRIAL if more else ExperimentState.DONE, limit)
        else:
            self._recorder.become(ExperimentState.RUNNING if state.ready else ExperimentState.INITIALIZED, "")

    def _changed(self, message: messages.Changed) -> None:
        self._state.settings = message.settings
        if message.space is not None:
            self._recorder.tell(Call(CallKind.SPACE, value=message.space))
        self._recorder.save()

    def _take_tick(self, message: messages.Tick) -> None:
        state = self._state
        state.lived = max(state.lived, message.lived)
        # The duration is saved now and then, so that a manager that dies loses little of it.
        if state.duration_s - state.saved_duration_s >= _SAVE_DURATION_EVERY_S:
            self._recorder.save()
        for live in list(state.live.values()):
            self._check_time(live)
        self._check_cost()
        self._recorder.remove_again(state.now)

    def _check_time(self, live: ActiveTrial) -> None:
        state = self._state
        limit = state.settings.max_trial_duration_s
        running = live.trial.state is TrialState.RUNNING
        if limit is not None and running and state.now - live.running_since > limit:
            self._ends.cancel(live, TrialState.SYS_CANCELED, f"ran longer than maxTrialDuration ({limit:.0f} s)")
        elif live.held is not None and live.end is not None:
            # The platform has not said in time why it ended the attempt. It may never do so.
            if state.lived - live.held > _PLATFORM_WORD_S:
                self._ends.lose(live, live.end.message or INTERRUPTED)
        elif state.lived - live.seen > state.settings.silence_s:
            self._check_silence(live, state.lived - live.seen)

    def _check_cost(self) -> None:
        """End what runs if it costs more than was to be expected: the limit may be passed by one trial at most."""
        state = self._state
        limit = state.settings.max_cost
        if limit is None or not state.live:
            return
        spent = state.spending.total(state.live.values(), state.now)
        if spent > limit + state.spending.mean(state.ended_trials):
            for live in list(state.live.values()):
                self._ends.cancel(live, TrialState.SYS_CANCELED, f"{spent:.2f} is spent, and maxCost is {limit:g}")

    def _check_silence(self, live: ActiveTrial, silent_s: float) -> None:
        if live.phase is Phase.SUBMITTED and live.attempt is not None:
            self._recorder.act(messages.Cancel(live.attempt))
            self._ends.lose(live, f"no sign of life for {silent_s:.0f} s")
        # Only the member of a hybrid service that was asked knows whether it has the job. A further attempt may go to
        # another one; if it turns out that this one has the job, its keeper learns that the attempt is fenced.
        elif live.awaits_member_answer() and live.lost < self._state.settings.retries_lost:
            service = live.attempt.service if live.attempt is not None else ""
            # The keeper's report of the end stands, although nothing can be freed at that member.
            if live.end is not None:
                self._ends.take_end(live)
                return
            self._ends.lose(live, f"{service} did not confirm for {silent_s:.0f} s whether it has the trial")

    def _stop(self, message: messages.Stop) -> None:
        state = self._state
        if state.state is ExperimentState.STOPPED:
            return
        # The reason of an experiment that was over before stays: it says more than that it was stopped.
        over = state.state in (ExperimentState.DONE, ExperimentState.ERROR)
        self._recorder.become(ExperimentState.STOPPING, state.reason if over else message.reason)
        for live in list(state.live.values()):
            self._ends.cancel(live, TrialState.USER_CANCELED, message.reason)
        # Removals that wait for their next try are tried now, as the experiment ends soon.
        self._recorder.remove_again(math.inf)

    def _abandon(self, message: messages.Abandon) -> None:
        state = self._state
        if state.state is ExperimentState.STOPPING:
            placed = [live.trial.id for live in state.live.values() if live.is_placed]
            state.abandoned = (*state.abandoned, *placed)
            for live in list(state.live.values()):
                self._recorder.charge(live, state.now - live.running_since)
                reason = "the experiment was stopped; its platform did not confirm the end"
                self._ends.finish(live, live.cancel or TrialState.USER_CANCELED, reason, state.now)
