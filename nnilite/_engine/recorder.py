"""The small steps that change the state of an experiment, each with the records and actions that it leads to."""

from __future__ import annotations

from typing import Any

from nnilite._engine import messages
from nnilite._engine.live_trial import ActiveTrial, Removal
from nnilite._engine.state import State
from nnilite.records import DRILLED, Attempt, ExperimentState, TrialState, copy_with
from nnilite.tuner import Call

_AND_MORE = ", and others after it"
_ENDED = (ExperimentState.DONE, ExperimentState.ERROR, ExperimentState.STOPPED)


class Recorder:
    """Changes the state and writes down in `outcome` what the current input has led to."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.outcome = messages.Outcome()

    def begin(self) -> messages.Outcome:
        """Take the next input: what follows is written down in a new outcome."""
        self.outcome = messages.Outcome()
        return self.outcome

    def add(self, record: messages.Record) -> None:
        self.outcome.records.append(record)

    def act(self, action: messages.Action) -> None:
        self.outcome.actions.append(action)

    # ------------------------------------------------------------ a trial

    def put(self, live: ActiveTrial, **changes: Any) -> None:
        """Change the trial and save it."""
        self.count(live.trial.state, changes.get("state", live.trial.state))
        live.trial = copy_with(live.trial, **changes)
        self.add(messages.SaveTrial(live.trial))

    def put_attempt(self, live: ActiveTrial, **changes: Any) -> None:
        """Change the current attempt, if there is one, and save it."""
        if live.attempt is not None:
            live.attempt = copy_with(live.attempt, **changes)
            self.add(messages.SaveAttempt(live.attempt))

    def count(self, old: TrialState, new: TrialState) -> None:
        """Count a trial under its new state."""
        self._state.counts[old] -= 1
        self._state.counts[new] += 1

    def wait(self, live: ActiveTrial, reason: str) -> None:
        """Show why a trial waits."""
        if live.trial.state is TrialState.WAITING and live.trial.reason != reason:
            self.put(live, reason=reason)

    def wait_for_start(self, live: ActiveTrial, service: str) -> None:
        """Show that a trial waits in the queue of its service, which says no more."""
        self.wait(live, f"submitted to {service}, waiting for its start")

    def say(self, live: ActiveTrial, reason: str) -> None:
        """Show a remark at a running trial: that its platform cannot be reached, for example."""
        reason = joined(reason, live.complaint)
        if live.trial.state is TrialState.RUNNING and live.trial.reason != reason:
            self.put(live, reason=reason)

    def note_problem(self, live: ActiveTrial, what: str) -> None:
        """Show at the trial that something which it reported was not kept as reported.

        Only the first complaint is kept in full: a trial that reports a thousand odd values does so for one reason.
        """
        if not live.complaint:
            live.complaint = what
        elif not live.complaint.endswith(_AND_MORE):
            live.complaint += _AND_MORE
        else:
            return
        self.put_attempt(live, message=joined(DRILLED if live.drilled else "", live.complaint))
        self.say(live, "")

    def charge(self, live: ActiveTrial, seconds: float) -> None:
        """Note what the current attempt has cost, once it has ended after that many seconds."""
        if live.attempt is None or live.attempt.cost is not None:
            return
        spending = self._state.spending
        cost = spending.price(live, seconds if live.attempt.started is not None else 0.0)
        if cost is not None:
            spending.settle(live.attempt.service, cost)
            self.put_attempt(live, cost=cost)
            live.trial = copy_with(live.trial, cost=(live.trial.cost or 0.0) + cost)

    # ------------------------------------------------------------ what its platform still holds

    def remove(self, attempt: Attempt | None) -> None:
        """Ask the service to free what it still holds for an attempt that has ended, again and again until it has."""
        if attempt is not None and attempt.handle is not None:
            self._state.removals[attempt.trial, attempt.number] = Removal(attempt)
            self.add(messages.SaveRemoval(attempt.trial, attempt.number, pending=True))
            self.act(messages.Remove(attempt))

    def remove_again(self, until: float) -> None:
        """Ask again for the removals that are due."""
        for removal in self._state.removals.values():
            # A removal without a due time was asked for, and its answer is awaited.
            if removal.due is not None and removal.due <= until:
                removal.due = None
                self.act(messages.Remove(removal.attempt))

    # ------------------------------------------------------------ the experiment

    def tell(self, call: Call) -> None:
        """Make a call of the tuner that a rebuilt tuner gets, too."""
        state = self._state
        state.calls += 1
        # The tuner may have new proposals after what it learns by this call.
        state.exhausted = False
        self.add(messages.SaveCall(state.calls, call))
        self.act(messages.Tell(state.calls, call))

    def become(self, wanted: ExperimentState, reason: str) -> None:
        """Bring the experiment to a state. This is called after every input, but only a change is recorded."""
        state = self._state
        if (wanted, reason) != (state.state, state.reason):
            state.state, state.reason = wanted, reason
            # An experiment that continues after DONE, because its limits were raised, has no end yet. If it is stopped
            # then, it has ended before.
            if wanted in _ENDED:
                state.ended = state.now if state.ended is None else state.ended
            elif wanted is not ExperimentState.STOPPING:
                state.ended = None
            self.save()

    def save(self) -> None:
        """Save the state of the experiment."""
        state = self._state
        state.saved_duration_s = state.duration_s
        self.add(messages.SaveExperiment(state.state, state.reason, state.duration_s, state.ended, state.settings))


def joined(*sentences: str) -> str:
    """Join the sentences that are shown in one place; empty ones are left out."""
    return "; ".join(sentence for sentence in sentences if sentence)
