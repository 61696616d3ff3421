"""What the rules know of an experiment, and the small steps that change it, each of which adds its records.

Only trials that have not ended, and removals that are pending, are kept in memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nnilite._engine import messages as s
from nnilite._engine.live_trial import Live, Removal
from nnilite._engine.spending import Spending
from nnilite.records import DRILLED, Attempt, ExperimentState, Trial, TrialState
from nnilite.tuner import Call, scalar

_ACTIVE = (ExperimentState.RUNNING, ExperimentState.NO_MORE_TRIAL, ExperimentState.TUNER_NO_MORE_TRIAL)
# So long a manager goes on asking for removals after the last trial has ended.
_LAST_REMOVALS_S = 10.0
_AND_MORE = ", and others after it"
STOPS = (ExperimentState.STOPPING, ExperimentState.STOPPED)
OVER = (*STOPS, ExperimentState.ERROR)
_ENDED = (ExperimentState.DONE, ExperimentState.ERROR, ExperimentState.STOPPED)


class State:
    """The base class of `Rules`. The attributes without underscore say where the experiment stands."""

    def __init__(self, settings: s.Settings, snapshot: s.Snapshot, now: float) -> None:
        self.settings = settings
        self.state = ExperimentState.INITIALIZED
        self.reason = ""
        self.duration_s = snapshot.duration_s
        self.counts = {state: snapshot.counts.get(state, 0) for state in TrialState}
        self.best = snapshot.best
        self.ended: float | None = None
        self.next_sequence = snapshot.next_sequence
        self.calls = snapshot.calls
        self.live: dict[str, Live] = {}
        self._now = now
        # Seconds in which this manager could hear its trials. The silence of a trial is measured in them, not in time.
        self._lived = 0.0
        self._next_parameter_id = snapshot.next_parameter_id
        self._ready = False
        self._asking = False
        # The number of the last call of the tuner before the request for parameters.
        self._asked_after = 0
        self._exhausted = False
        # Whether the tuner wants intermediate results; until it is ready, nobody knows, and they are kept for it.
        self._hears = True
        self._same_error = ("", 0)
        self._saved_duration_s = snapshot.duration_s
        self.spending = Spending(settings.prices, snapshot.spent)
        self._out = s.Outcome()
        self._stopped = now
        self._removals = {(a.trial, a.number): Removal(a, due=now) for a in snapshot.removals}
        for known in snapshot.live:
            self.live[known.trial.id] = Live.restored(known, now)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do: the experiment is STOPPED, and its platforms have freed what they held.

        They get a moment for that: a job whose end stopped the experiment is often still being ended there, and after
        the manager only a resume would ask again.
        """
        if self.state is not ExperimentState.STOPPED:
            return False
        return not self._removals or self._now - self._stopped > _LAST_REMOVALS_S

    def spent(self, now: float) -> dict[str, float]:
        """What has been spent at each service up to now, running attempts included."""
        return self.spending.by_service(self.live.values(), now)

    def stuck(self) -> list[Live]:
        """The trials that have waited in the queue of one service for longer than `moveAfter`."""
        limit = self.settings.move_after_s
        if limit is None:
            return []
        return [live for live in self.live.values() if live.may_move and self._lived - live.queued_since > limit]

    def _ended_trials(self) -> int:
        return sum(number for state, number in self.counts.items() if state.ended)

    def _affordable(self, limit: float) -> float:
        """How many further trials the budget allows."""
        ended = self._ended_trials()
        expected = self.spending.expected(self.live.values(), self._now, ended)
        return self.spending.affordable(limit, expected, ended)

    def _charge(self, live: Live, seconds: float) -> None:
        """Note what the current attempt has cost, once it has ended after so many seconds."""
        if live.attempt is None or live.attempt.cost is not None:
            return
        cost = self.spending.of(live, seconds if live.attempt.started is not None else 0.0)
        if cost is not None:
            self.spending.settle(live.attempt.service, cost)
            self._update(live, cost=cost)
            live.trial = replace(live.trial, cost=(live.trial.cost or 0.0) + cost)

    def _pass_time(self, now: float) -> None:
        """Move the clock on, never back. Time counts as the experiment's duration while trials may run."""
        if self.state in _ACTIVE:
            self.duration_s += max(now - self._now, 0.0)
        self._now = max(self._now, now)

    def _tell(self, call: Call) -> None:
        self.calls += 1
        # The tuner may have new proposals after what it learns by this call.
        self._exhausted = False
        self._out.records.append(s.SaveCall(self.calls, call))
        self._out.actions.append(s.Tell(self.calls, call))

    def _freed(self) -> None:
        """A slot may be free: trials that the service refused for lack of room are submitted without further delay."""
        for live in self.live.values():
            if live.busy:
                live.not_before, live.busy = self._now, False

    def _remove(self, attempt: Attempt | None) -> None:
        """Ask the service to free what it still holds for an attempt that has ended, again and again until it has."""
        if attempt is not None and attempt.handle is not None:
            self._removals[attempt.trial, attempt.number] = Removal(attempt)
            self._out.records.append(s.SaveRemoval(attempt.trial, attempt.number, pending=True))
            self._out.actions.append(s.Remove(attempt))

    def _remove_again(self, until: float) -> None:
        """Ask once more for the removals that are due."""
        for removal in self._removals.values():
            # A removal without a due time was asked for, and its answer is awaited.
            if removal.due is not None and removal.due <= until:
                removal.due = None
                self._out.actions.append(s.Remove(removal.attempt))

    def _note_best(self, trial: Trial) -> None:
        score = scalar(trial.value)
        if trial.state is not TrialState.SUCCEEDED or score is None:
            return
        best = scalar(self.best.value) if self.best else None
        if best is None or (score > best if self.settings.maximize else score < best):
            self.best = trial

    def _become(self, state: ExperimentState, reason: str) -> None:
        # This is called after every input, but only a change is recorded.
        if (state, reason) != (self.state, self.reason):
            self.state, self.reason = state, reason
            # An experiment that goes on after DONE, because its limits were raised, has no end yet.
            if state not in _ENDED:
                self.ended = None
            elif self.ended is None:
                self.ended = self._now
            self._save()

    def _save(self) -> None:
        self._saved_duration_s = self.duration_s
        self._out.records.append(s.SaveExperiment(self.state, self.reason, self.duration_s, self.ended, self.settings))

    def _current(self, trial: str, attempt: int) -> Live | None:
        live = self.live.get(trial)
        return live if live is not None and live.trial.attempt == attempt else None

    def _wait(self, live: Live, reason: str) -> None:
        if live.trial.state is TrialState.WAITING and live.trial.reason != reason:
            self._set(live, reason=reason)

    def _say(self, live: Live, reason: str) -> None:
        """Show a remark at a trial that runs: that its platform cannot be reached, for example."""
        reason = joined(reason, live.complaint)
        if live.trial.state is TrialState.RUNNING and live.trial.reason != reason:
            self._set(live, reason=reason)

    def _complain(self, live: Live, what: str) -> None:
        """Show at the trial that something which it reported was not kept as reported.

        Only the first complaint is kept in full: a trial that reports a thousand odd values does so for one reason.
        """
        if not live.complaint:
            live.complaint = what
        elif not live.complaint.endswith(_AND_MORE):
            live.complaint += _AND_MORE
        else:
            return
        self._update(live, message=joined(DRILLED if live.drilled else "", live.complaint))
        self._say(live, "")

    def _set(self, live: Live, **changes: Any) -> None:
        self._count(live.trial.state, changes.get("state", live.trial.state))
        live.trial = replace(live.trial, **changes)
        self._out.records.append(s.SaveTrial(live.trial))

    def _update(self, live: Live, **changes: Any) -> None:
        if live.attempt is not None:
            live.attempt = replace(live.attempt, **changes)
            self._out.records.append(s.SaveAttempt(live.attempt))

    def _count(self, old: TrialState, new: TrialState) -> None:
        self.counts[old] -= 1
        self.counts[new] += 1


def joined(*sentences: str) -> str:
    """Join the sentences that are shown in one place; empty ones are left out."""
    return "; ".join(sentence for sentence in sentences if sentence)
