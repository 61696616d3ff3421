"""`Auto`, the assessor for those who do not want to choose: it stops trials that would end behind, and says why."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from nnilite.assessor import Assessor, AssessResult
from nnilite.tuner import scalar
from nnilite.tuning.class_args import one_of

_FEWEST = 4
"""So many trials complete before any is judged."""

_MOST = 64
"""So many of the latest completed trials are remembered."""

_LEADERS = 1 / 3
"""This share of the completed trials are the best ones."""

_FIRST_JUDGED = 1 / 20
"""No trial is judged before this share of the results of the longest completed trial, nor by its first one alone."""

_DOUBT = 2.0
"""The largest gain of so few completed trials says little: it counts as larger by so many parts of their number."""

_LATELY = 3 / 4
"""The pace of a trial is measured over this share of its results."""


class AutoAssessor(Assessor):
    """Stops a trial that is behind, and could not catch up by as much as any completed trial did, nor at its own pace.

    Three things must be true after a result, by the best results so far of trials. All of the best third of the
    completed trials were ahead of this one after as many results. No completed trial, whether good or poor, gained
    enough from there until its end to bring this one to the best of all; of few trials the largest gain is enlarged.
    And the trial would not get there by gaining until its end as fast as lately. So curves that cross late, jump by
    chance or are slow and steady make it stop less. Results without a finite number are left out.

    Args:
        optimize_mode: "maximize" or "minimize".

    Raises: ConfigError
    """

    def __init__(self, optimize_mode: str = "maximize") -> None:
        self._sign = 1.0 if one_of("optimize_mode", optimize_mode, ("maximize", "minimize")) == "maximize" else -1.0
        self._running: dict[str, list[float]] = {}  # the best so far after each result; more is better
        self._completed: deque[list[float]] = deque(maxlen=_MOST)
        self._best = -math.inf  # best result of all completed trials
        self._reason = ""

    def assess_trial(self, trial_job_id: str, trial_history: list[Any]) -> AssessResult:
        curve = self._running.setdefault(trial_job_id, [])
        if len(trial_history) <= len(curve):  # it has begun again
            curve.clear()
        # Only what is new is looked at: a trial may report many thousands of results.
        for place in range(len(curve), len(trial_history)):
            number = scalar(trial_history[place])
            best = curve[-1] if curve else -math.inf
            curve.append(best if number is None else max(best, self._sign * number))
        self._reason = self._find_reason(curve)
        return AssessResult(not self._reason)

    def explain_stop(self) -> str:
        return self._reason

    def trial_end(self, trial_job_id: str, success: bool) -> None:
        curve = self._running.pop(trial_job_id, None)
        if success and curve and math.isfinite(curve[-1]):
            self._completed.append(curve)
            self._best = max(self._best, curve[-1])

    def _find_reason(self, curve: list[float]) -> str:
        """Return why a trial with these best results should end; "" if it should not."""
        count = len(curve)
        rivals = [rival for rival in self._completed if len(rival) >= count]
        if count < 2 or len(rivals) < _FEWEST or not math.isfinite(curve[-1]):
            return ""
        whole = max(map(len, rivals))
        if count < whole * _FIRST_JUDGED:
            return ""
        leaders = sorted(rivals, key=lambda rival: rival[-1])[-math.ceil(len(rivals) * _LEADERS) :]
        level = min(leader[count - 1] for leader in leaders)
        gain = max(rival[-1] - rival[count - 1] for rival in rivals) * (1.0 + _DOUBT / len(rivals))
        gain = max(gain, _find_pace(curve) * (whole - count))
        if curve[-1] >= level or curve[-1] + gain >= self._best:
            return ""
        best_ones = f"the best {len(leaders)} of {len(rivals)} completed trials"
        return (
            f"after {count} results its best is {self._show(curve[-1])}; {best_ones} "
            f"had {self._show(level)} or better by then. By what others gained from there, and by its own pace, "
            f"it gains {gain:.4g} more at most, too little for {self._show(self._best)}"
        )

    def _show(self, number: float) -> str:
        return f"{self._sign * number:.4g}"


def _find_pace(curve: list[float]) -> float:
    """Return how much a trial with these best results has gained by each of the last ones."""
    back = max(int(len(curve) * _LATELY), 1)
    return (curve[-1] - curve[-1 - back]) / back
