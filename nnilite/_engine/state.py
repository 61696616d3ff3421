"""The rules' knowledge of an experiment, and what follows from it. Nothing here adds a record or an action.

Only trials that have not ended, and removals that are pending, are kept in memory.
"""

from __future__ import annotations

from nnilite._engine import messages
from nnilite._engine.known_workers import KnownWorkers
from nnilite._engine.live_trial import ActiveTrial, Removal
from nnilite._engine.spending import Spending
from nnilite.records import ExperimentState, Trial, TrialState
from nnilite.tuner import scalar

_ACTIVE = (ExperimentState.RUNNING, ExperimentState.NO_MORE_TRIAL, ExperimentState.TUNER_NO_MORE_TRIAL)
# For this long, a manager keeps asking for removals after the last trial has ended.
_LAST_REMOVALS_S = 10.0
_DELIVERING_S = 3.0  # keepers with more to send do so several times a second
_STOPS = (ExperimentState.STOPPING, ExperimentState.STOPPED)
_OVER = (*_STOPS, ExperimentState.ERROR)


class State:
    """The state of the experiment. The rules and their parts share one, and nothing else changes it."""

    def __init__(self, settings: messages.Settings, snapshot: messages.Snapshot, now: float) -> None:
        self.settings = settings
        self.state = ExperimentState.INITIALIZED
        self.reason = ""
        self.duration_s = self.saved_duration_s = snapshot.duration_s
        self.counts = {state: snapshot.counts.get(state, 0) for state in TrialState}
        self.best = snapshot.best
        self.ended: float | None = None
        self.stopped = now
        self.next_sequence = snapshot.next_sequence
        self.calls = snapshot.calls
        self.live = {known.trial.id: ActiveTrial.restored(known, now, settings) for known in snapshot.live}
        self.removals = {(a.trial, a.number): Removal(a, due=now) for a in snapshot.removals}
        self.abandoned: tuple[str, ...] = ()
        self.spending = Spending(settings.prices, snapshot.spent)
        self.workers = KnownWorkers()
        self.now = now
        # Seconds in which this manager could receive reports. The silence of a trial is measured in them, not in time.
        self.lived = 0.0
        self.next_parameter_id = snapshot.next_parameter_id
        # Of the tuner: whether it runs, is being asked for parameters, and has none left to propose.
        self.ready = self.asking = self.exhausted = False
        # Whether the tuner wants intermediate results. Until it is ready, this is unknown, and they are kept for it.
        self.hears = True

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop, or has stopped."""
        return self.state in _STOPS

    @property
    def is_over(self) -> bool:
        """Whether no further attempt begins, because it stops, has stopped or has failed."""
        return self.state in _OVER

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do: the experiment is STOPPED, and its platforms have freed what they held.

        They get a moment for that: a job whose end stopped the experiment is often still being ended there, and after
        the manager only a resume would ask again.
        """
        if self.state is not ExperimentState.STOPPED:
            return False
        return not self.removals or self.now - self.stopped > _LAST_REMOVALS_S

    @property
    def ended_trials(self) -> int:
        return sum(number for state, number in self.counts.items() if state.ended)

    def current(self, trial: str, attempt: int) -> ActiveTrial | None:
        """Return the trial if it has not ended and this attempt is its latest."""
        live = self.live.get(trial)
        return live if live is not None and live.trial.attempt == attempt else None

    def pass_time(self, now: float) -> None:
        """Move the clock on, never back. Time counts as the experiment's duration while trials may run."""
        if self.state in _ACTIVE:
            self.duration_s += max(now - self.now, 0.0)
        self.now = max(self.now, now)

    def free(self) -> None:
        """Let the trials be submitted now that the service refused for lack of room: a slot may be free."""
        for live in self.live.values():
            if live.busy:
                live.not_before, live.busy = self.now, False

    def note_best(self, trial: Trial) -> None:
        """Keep the trial as the best one if it is."""
        score = scalar(trial.value)
        if trial.state is not TrialState.SUCCEEDED or score is None or trial.violates:
            return
        best = scalar(self.best.value) if self.best else None
        if best is None or (score > best if self.settings.maximize else score < best):
            self.best = trial

    def stuck(self) -> list[ActiveTrial]:
        """Return the trials that have waited in the queue of one service for longer than `moveAfter`."""
        limit = self.settings.move_after_s
        if limit is None:
            return []
        return [live for live in self.live.values() if live.may_move and self.lived - live.queued_since > limit]

    def record_life(self, trial: str, attempt: int) -> None:
        """Count this moment as a sign of life of the attempt."""
        live = self.current(trial, attempt)
        if live is not None:
            live.seen = self.lived

    def is_delivering(self, live: ActiveTrial) -> bool:
        """Return whether new events of this trial, but not its end, came in the manager's last few active seconds."""
        return live.end is None and live.delivered is not None and self.lived - live.delivered < _DELIVERING_S

    def affordable(self, limit: float) -> float:
        """Return how many further trials the budget allows."""
        ended = self.ended_trials
        expected = self.spending.expected(self.live.values(), self.now, ended)
        return self.spending.affordable(limit, expected, ended)

    def limit(self) -> str | None:
        """Return why no further trials are wanted, or None."""
        most = self.settings.max_trials
        if most is not None and self.next_sequence >= most:
            return f"maxTrialNumber ({most}) is reached"
        if self.settings.max_duration_s is not None and self.duration_s >= self.settings.max_duration_s:
            return f"maxExperimentDuration ({self.settings.max_duration_s:.0f} s) is over"
        if self.settings.max_cost is not None and not self.affordable(self.settings.max_cost):
            return f"maxCost ({self.settings.max_cost:g}) is reached"
        if self._is_good_enough():
            return f"stopAtValue ({self.settings.stop_at_value:.12g}) is reached"
        return None

    def _is_good_enough(self) -> bool:
        wanted, best = self.settings.stop_at_value, scalar(self.best.value) if self.best else None
        if wanted is None or best is None:
            return False
        return best >= wanted if self.settings.maximize else best <= wanted
