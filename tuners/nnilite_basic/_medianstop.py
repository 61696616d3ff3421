"""Stop a trial whose best result so far is worse than the median of the others' running averages at the same step."""

from __future__ import annotations

import bisect
from typing import Any

from nnilite.assessor import Assessor, AssessResult
from nnilite.tuner import scalar
from nnilite.tuning.class_args import one_of, whole_number


class MedianstopAssessor(Assessor):
    """NNI's Medianstop: the median stopping rule of Google Vizier (Golovin et al., 2017).

    A trial is compared, after each result from the `start_step`-th on (counting from 0), with the trials that
    completed: its best result so far must be at least as good as the median of their running averages at that step.
    Results without a finite number (NaN, missing `default`) are left out of averages and bests.

    Args:
        optimize_mode: "maximize" or "minimize".
        start_step: no trial is stopped before it has reported more than this many results; 0 or more.

    Raises: ConfigError
    """

    def __init__(self, optimize_mode: str = "maximize", start_step: int = 0) -> None:
        self._sign = 1.0 if one_of("optimize_mode", optimize_mode, ("maximize", "minimize")) == "maximize" else -1.0
        self._start_step = whole_number("start_step", start_step, low=0)
        self._running: dict[str, list[float | None]] = {}
        self._averages: list[list[float]] = []  # by step: of the completed trials, in ascending order

    def assess_trial(self, trial_job_id: str, trial_history: list[Any]) -> AssessResult:
        known = self._running.setdefault(trial_job_id, [])
        known.extend(self._signed(value) for value in trial_history[len(known) :])
        step = len(known) - 1
        best = max((value for value in known if value is not None), default=None)
        if step < self._start_step or best is None:
            return AssessResult.Good
        rivals = self._averages[step] if step < len(self._averages) else []
        return AssessResult(not rivals or best >= _median(rivals))

    def trial_end(self, trial_job_id: str, success: bool) -> None:
        history = self._running.pop(trial_job_id, None)
        if not success or not history:
            return
        for step, average in enumerate(_running_averages(history)):
            if step == len(self._averages):
                self._averages.append([])
            if average is not None:
                bisect.insort(self._averages[step], average)

    def _signed(self, value: Any) -> float | None:
        number = scalar(value)
        return None if number is None else self._sign * number


def _median(ascending: list[float]) -> float:
    count = len(ascending)
    return (ascending[(count - 1) // 2] + ascending[count // 2]) / 2


def _running_averages(history: list[float | None]) -> list[float | None]:
    averages: list[float | None] = []
    total, count = 0.0, 0
    for value in history:
        if value is not None:
            total, count = total + value, count + 1
        averages.append(total / count if count else None)
    return averages
