"""What the rules know of an experiment, and the small steps that change it: each leaves its record.

Only trials that have not ended, and removals that are owed, are kept in memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nnilite._manager import steps as s
from nnilite._manager.live import Live, Removal
from nnilite.records import Attempt, ExperimentState, Trial, TrialState
from nnilite.tuner import Call, scalar

_ACTIVE = (ExperimentState.RUNNING, ExperimentState.NO_MORE_TRIAL, ExperimentState.TUNER_NO_MORE_TRIAL)
_ENDED = (ExperimentState.DONE, ExperimentState.ERROR, ExperimentState.STOPPED)


class State:
    """The base of `Rules`; the attributes without underscore tell others where the experiment stands."""

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
        self._next_parameter_id = snapshot.next_parameter_id
        self._ready = False
        self._asking = False
        self._asked_after = 0  # the number of the last call before the one that asks
        self._exhausted = False
        self._same_error = ("", 0)
        self._saved_duration_s = snapshot.duration_s
        self._out = s.Outcome()
        self._removals = {(a.trial, a.number): Removal(a, due=now) for a in snapshot.removals}
        for known in snapshot.live:
            self.live[known.trial.id] = Live.restored(known, now)

    def _pass_time(self, now: float) -> None:
        """Time never goes back; it counts as the experiment's while trials may run."""
        if self.state in _ACTIVE:
            self.duration_s += max(now - self._now, 0.0)
        self._now = max(self._now, now)

    def _tell(self, call: Call) -> None:
        self.calls += 1
        self._exhausted = False  # what it learns may give it new ideas
        self._out.records.append(s.SaveCall(self.calls, call))
        self._out.actions.append(s.Tell(self.calls, call))

    def _freed(self) -> None:
        """Something may have become free: who was told that there is no room need not wait out the pause."""
        for live in self.live.values():
            if live.busy:
                live.not_before, live.busy = self._now, False

    def _remove(self, attempt: Attempt | None) -> None:
        """The attempt has ended: its service is to free what it still holds, and owes it until it has."""
        if attempt is not None and attempt.handle is not None:
            self._removals[attempt.trial, attempt.number] = Removal(attempt)
            self._out.records.append(s.SaveRemoval(attempt.trial, attempt.number, owed=True))
            self._out.actions.append(s.Remove(attempt))

    def _remove_again(self, until: float) -> None:
        """Ask once more for the removals that are due."""
        for removal in self._removals.values():
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
        if (state, reason) != (self.state, self.reason):
            self.state, self.reason = state, reason
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
        """What is to be known of a trial that runs: that nothing is heard of it, for example."""
        if live.trial.state is TrialState.RUNNING and live.trial.reason != reason:
            self._set(live, reason=reason)

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
