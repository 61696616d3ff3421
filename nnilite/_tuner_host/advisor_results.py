"""Passes intermediate results to an advisor of NNI: each one once, those of a trial in their order.

Other tuners receive final results only. A new process gets the stored results with the recorded calls; there the
results of a trial come before its end, or before the proposal that needs them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from nnilite._states import CallKind
from nnilite.errors import NoMoreTrialError
from nnilite.tuner import Call, Tuner


@dataclass
class _TrialResults:
    """The intermediate results of a trial's attempt: all that are known, and how many the advisor has received."""

    attempt: int
    values: list[Any] = field(default_factory=list)
    heard: int = 0


class AdvisorResults:
    """Passes intermediate results to one tuner, if it wants them."""

    def __init__(self, tuner: Tuner) -> None:
        self._tuner = tuner
        self._trials: dict[str, _TrialResults] = {}
        self._ids: dict[str, int | None] = {}  # for trials proposed by the recorded calls

    @property
    def hears(self) -> bool:
        """Whether the tuner wants intermediate results, as an advisor does."""
        return hasattr(self._tuner, "hear_intermediate")

    def remember(self, trial: str, attempt: int, values: list[Any]) -> None:
        """Take the stored results of a trial, which the advisor receives in `replay` or later."""
        self._trials[trial] = _TrialResults(attempt, list(values))

    def tell(self, request: dict[str, Any]) -> bool:
        """Pass on new results. Return whether the trial may continue."""
        trial, before, values = request["trial"], request["before"], request["values"]
        known = self._trials.get(trial)
        if known is None or known.attempt != request["attempt"]:
            # What came before these was received by this process, or belongs to no stored attempt.
            known = self._trials[trial] = _TrialResults(request["attempt"], [None] * before, before)
        known.values[before : before + len(values)] = values
        while known.heard < before + len(values):
            self._hear_next(trial, request["parameter_id"])
        return trial not in getattr(self._tuner, "unwanted", ())

    def before(self, call: Call) -> None:
        """Pass on the remaining results of a trial whose final result or end comes now."""
        if self.hears and call.kind in (CallKind.RESULT, CallKind.END) and call.trial_job_id is not None:
            self._hear_all(call.trial_job_id, call.parameter_id)
        if call.kind == CallKind.END and call.trial_job_id is not None:
            self._trials.pop(call.trial_job_id, None)

    def replay(self, calls: Iterable[Call]) -> None:
        """Make the recorded calls again, with the stored results between them."""
        for call in calls:
            if call.kind == CallKind.GENERATE and call.parameter_id is not None:
                self._propose_again(call.parameter_id)
                self._ids[str(call.trial_job_id)] = call.parameter_id
            else:
                self.before(call)
                self._tuner.apply(call)
        for trial, number in self._ids.items():
            self._hear_all(trial, number)
        self._ids = {}

    def _propose_again(self, number: int) -> None:
        """Replay intermediate results until the advisor proposes this again.

        One of them may have caused the proposal.
        """
        while True:
            try:
                self._tuner.generate_parameters(number)
            except NoMoreTrialError:
                waiting = next((trial for trial in self._ids if self._has_more(trial)), None)
                if waiting is None:
                    return
                self._hear_next(waiting, self._ids[waiting])
            else:
                return

    def _has_more(self, trial: str) -> bool:
        known = self._trials.get(trial)
        return known is not None and known.heard < len(known.values)

    def _hear_all(self, trial: str, number: int | None) -> None:
        while self._has_more(trial):
            self._hear_next(trial, number)

    def _hear_next(self, trial: str, number: int | None) -> None:
        known = self._trials[trial]
        place, known.heard = known.heard, known.heard + 1
        self._tuner.hear_intermediate(number, trial, place, known.values[place])  # type: ignore[attr-defined]
