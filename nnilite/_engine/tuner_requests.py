"""How the tuner is asked for parameters, and its answers."""

from __future__ import annotations

from nnilite._engine import messages
from nnilite._engine.ends import Ends
from nnilite._engine.recorder import Recorder
from nnilite._engine.state import State
from nnilite._engine.submissions import Submissions
from nnilite.records import CallKind, TrialState
from nnilite.tuner import Call

# Sets of parameters in one question: the first of a thousand trials need not wait for those of the last.
_MOST_ASKED = 50


class TunerRequests:
    """The part of the rules for the tuner."""

    def __init__(self, state: State, recorder: Recorder, ends: Ends, submissions: Submissions) -> None:
        self._state = state
        self._recorder = recorder
        self._ends = ends
        self._submissions = submissions
        # The number of the last call of the tuner before the request for parameters.
        self._asked_after = 0

    def handle(self, message: messages.FromTuner) -> None:
        match message:
            case messages.Proposed():
                self._proposed(message)
            case messages.Assessed():
                self._take_assessed(message)
            case messages.TunerReady():
                self._take_tuner_ready(message)
            case messages.TunerFailed():
                self._take_tuner_failed(message)
            case messages.Imported():
                self._imported(message)
            case _:
                messages.assert_never(message)

    def ask(self) -> None:
        """Ask for as many parameters as may be tried now."""
        state = self._state
        # One request at a time: the tuner host answers its calls one after the other anyway.
        if not state.ready or state.asking or state.exhausted or state.limit() is not None:
            return
        wanted = min(state.settings.concurrency - len(state.live), _MOST_ASKED)
        if state.settings.max_trials is not None:
            wanted = min(wanted, state.settings.max_trials - state.next_sequence)
        if state.settings.max_cost is not None:
            wanted = int(min(wanted, state.affordable(state.settings.max_cost)))
        if wanted <= 0:
            return
        ids = tuple(range(state.next_parameter_id, state.next_parameter_id + wanted))
        state.next_parameter_id += wanted
        state.asking = True
        self._asked_after = state.calls
        # Calls are numbered in the order in which the tuner gets them; a rebuilt tuner gets them in the same order.
        state.calls += wanted
        self._recorder.act(messages.Ask(ids, self._asked_after))

    def _take_tuner_ready(self, message: messages.TunerReady) -> None:
        self._state.ready = True
        self._state.hears = message.hears

    def _take_tuner_failed(self, message: messages.TunerFailed) -> None:
        self._state.asking = False
        self._ends.fail(message.reason)

    def _proposed(self, message: messages.Proposed) -> None:
        self._state.asking = False
        # These parameters will never run. They are not recorded, so a rebuilt tuner does not know of them either.
        if self._state.is_over:
            return
        # A tuner that has learned something since it was asked may have new proposals: it is not exhausted yet.
        heard_more = self._state.calls > self._asked_after + message.asked
        self._state.exhausted = len(message.proposals) < message.asked and not heard_more
        for number, (parameter_id, trial_id, parameters) in enumerate(message.proposals, self._asked_after + 1):
            call = Call(CallKind.GENERATE, parameter_id, trial_id, parameters)
            self._recorder.add(messages.SaveCall(number, call))
            self._submissions.create(trial_id, parameters, parameter_id)

    def _take_assessed(self, message: messages.Assessed) -> None:
        # An advisor may propose because of an intermediate result.
        if self._state.hears:
            self._state.exhausted = False
        live = self._state.current(message.trial, message.attempt)
        # A trial that is canceled already keeps the state for which it was canceled.
        if live and not message.good and live.cancel is None:
            who = "assessor" if self._state.settings.assess else "advisor"
            why = f": {message.reason}" if message.reason else ""
            self._ends.cancel(live, TrialState.EARLY_STOPPED, f"stopped early by the {who}{why}")

    def _imported(self, message: messages.Imported) -> None:
        self._recorder.tell(Call(CallKind.IMPORT, value=message.data))
