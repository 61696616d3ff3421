"""Stop a trial whose best result so far is worse than the median of the others' running averages at the same step."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nnilite.assessor import Assessor, AssessResult
from nnilite.tuner import scalar
from nnilite.tuning.class_args import one_of, whole_number


class MedianstopAssessor(Assessor):
    """NNI's Medianstop: the median stopping rule of Google Vizier (Golovin et al., 2017).

    A trial is compared, after each result from the `start_step`-th on, with the trials that completed: its best result
    so far must be at least as good as the median of their running averages at that step. Of an even number of averages,
    the worse one of the two in the middle counts, as in NNI. Results without a finite number (NaN, missing `default`)
    are left out of averages and bests. A trial that begins again is judged by its new results alone.

    Args:
        optimize_mode: "maximize" or "minimize".
        start_step: no trial is stopped before it has reported this many results; 0 or more.

    Raises: ConfigError
    """

    def __init__(self, optimize_mode: str = "maximize", start_step: int = 0) -> None:
        self._sign = 1.0 if one_of("optimize_mode", optimize_mode, ("maximize", "minimize")) == "maximize" else -1.0
        self._start_step = whole_number("start_step", start_step, low=0)
        self._running: dict[str, _RunningResults] = {}
        self._averages: list[list[float]] = []  # by step: of the completed trials, in ascending order

    def assess_trial(self, trial_job_id: str, trial_history: list[Any]) -> AssessResult:
        known = self._running.setdefault(trial_job_id, _RunningResults())
        if len(trial_history) <= known.count:
            known = self._running[trial_job_id] = _RunningResults()
        # Only what is new is looked at: a trial may report many thousands of results.
        for place in range(known.count, len(trial_history)):
            known.add(self._sign_number(trial_history[place]))
        if known.count < self._start_step or known.best is None or known.count > len(self._averages):
            return AssessResult.Good
        rivals = self._averages[known.count - 1]
        return AssessResult(not rivals or known.best >= _find_median(rivals))

    def trial_end(self, trial_job_id: str, success: bool) -> None:
        curve = self._running.pop(trial_job_id, None)
        if not success or curve is None:
            return
        for step, average in enumerate(curve.averages):
            if step == len(self._averages):
                self._averages.append([])
            if average is not None:
                bisect.insort(self._averages[step], average)

    def _sign_number(self, value: Any) -> float | None:
        number = scalar(value)
        return None if number is None else self._sign * number


@dataclass
class _RunningResults:
    """The results of a running trial: the best one, and the average of all at each step; None before any number."""

    averages: list[float | None] = field(default_factory=list)
    best: float | None = None
    total: float = 0.0
    numbers: int = 0

    @property
    def count(self) -> int:
        return len(self.averages)

    def add(self, value: float | None) -> None:
        if value is not None:
            self.total, self.numbers = self.total + value, self.numbers + 1
            self.best = value if self.best is None else max(self.best, value)
        # Rounded, the average of equal numbers can be above all of them, and an equal curve would be stopped.
        self.averages.append(None if self.best is None else min(self.total / self.numbers, self.best))


def _find_median(ascending: Sequence[float]) -> float:
    return ascending[(len(ascending) - 1) // 2]
