"""optuna's WilcoxonPruner as an assessor.

One study in memory holds the intermediate results, and the pruner judges a trial after each one. Results that hold no
finite number are left out.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nnilite.assessor import Assessor, AssessResult
from nnilite.tuner import scalar
from nnilite.tuning.class_args import number, one_of, whole_number
from nnilite_optuna._study import import_optuna, quiet

if TYPE_CHECKING:
    import optuna


_MOST_PERMUTED = 13
"""Of so many results at most scipy tries all permutations."""


class WilcoxonAssessor(Assessor):
    """Stops a trial whose results are worse than those of the best trial, by Wilcoxon's signed-rank test.

    For trials that report one result for each of the same problem instances, as the folds of a cross-validation, in
    the same order. A completed trial counts with its mean. Each judgement goes through all results of the trial. Needs
    scipy.

    Args:
        p_threshold: 0 to 1; larger stops more.
        n_startup_steps: number of first results of a trial that are not judged.
        optimize_mode: "maximize" or "minimize".

    Raises: ConfigError
    """

    def __init__(self, p_threshold: float = 0.1, n_startup_steps: int = 2, optimize_mode: str = "maximize") -> None:
        from optuna.pruners import WilcoxonPruner

        one_of("optimize_mode", optimize_mode, ("maximize", "minimize"))
        self._threshold = number("p_threshold", p_threshold, 0.0, 1.0)
        self._startup = max(2, whole_number("n_startup_steps", n_startup_steps, low=0))
        self._sign = 1.0 if optimize_mode == "maximize" else -1.0
        with quiet():
            pruner = WilcoxonPruner(p_threshold=p_threshold, n_startup_steps=n_startup_steps)
        self._study = import_optuna().create_study(direction=optimize_mode, pruner=pruner)
        self._trials: dict[str, optuna.trial.Trial] = {}
        self._shown: dict[str, int] = {}
        self._numbers: dict[str, dict[int, float]] = {}  # results of running trials by step
        self._best: dict[int, float] = {}  # the results of the best completed trial, by step

    def assess_trial(self, trial_job_id: str, trial_history: list[Any]) -> AssessResult:
        if len(trial_history) <= self._shown.get(trial_job_id, 0):  # the trial has started again
            self._forget(trial_job_id)
        if trial_job_id not in self._trials:
            self._trials[trial_job_id] = self._study.ask()
            self._shown[trial_job_id] = 0
            self._numbers[trial_job_id] = {}
        good = True
        for step in range(self._shown[trial_job_id], len(trial_history)):
            good = self._show(trial_job_id, step, scalar(trial_history[step]))
        self._shown[trial_job_id] = len(trial_history)
        return AssessResult(good)

    def _show(self, trial_job_id: str, step: int, value: float | None) -> bool:
        if value is None:
            return True
        trial = self._trials[trial_job_id]
        self._numbers[trial_job_id][step] = value
        with quiet():
            trial.report(value, step)
            return not self._is_poor(trial, self._numbers[trial_job_id])

    def _forget(self, trial_job_id: str) -> None:
        from optuna.trial import TrialState

        self._study.tell(self._trials.pop(trial_job_id), state=TrialState.FAIL)
        del self._numbers[trial_job_id], self._shown[trial_job_id]

    def _is_poor(self, trial: optuna.trial.Trial, numbers: dict[int, float]) -> bool:
        differences = [self._sign * (value - self._best[step]) for step, value in numbers.items() if step in self._best]
        sizes = set(map(abs, differences))
        if len(differences) > _MOST_PERMUTED or (len(sizes) == len(differences) and 0.0 not in sizes):
            return trial.should_prune()
        # With ties scipy tries all permutations, which takes twice as long with each result.
        if len(differences) < self._startup or self._is_as_good(numbers):
            return False
        return chance_of_less(differences) < self._threshold

    def _is_as_good(self, numbers: dict[int, float]) -> bool:
        own, best = list(numbers.values()), list(self._best.values())
        return self._sign * sum(own) / len(own) >= self._sign * sum(best) / len(best)

    def trial_end(self, trial_job_id: str, success: bool) -> None:
        trial = self._trials.pop(trial_job_id, None)
        numbers = list(self._numbers.pop(trial_job_id, {}).values())
        self._shown.pop(trial_job_id, None)
        if trial is None:
            return
        from optuna.trial import TrialState

        if success and numbers:
            self._study.tell(trial, sum(numbers) / len(numbers))
        else:
            self._study.tell(trial, state=TrialState.PRUNED if numbers else TrialState.FAIL)
        with contextlib.suppress(ValueError):  # no trial has completed
            self._best = self._study.best_trial.intermediate_values


def chance_of_less(differences: Sequence[float]) -> float:
    """Return the p-value of Wilcoxon's signed-rank test that differences are below 0, exact also with ties and zeros.

    Half of a zero's rank counts as above 0, and half as below: the method `zsplit` of scipy.
    """
    ascending = sorted(map(abs, differences))
    # Twice the average rank of equal sizes, so that it is a whole number.
    ranks = [bisect_left(ascending, abs(one)) + bisect_right(ascending, abs(one)) + 1 for one in differences]
    above = sum(rank for rank, one in zip(ranks, differences, strict=True) if one > 0)
    sums = {0: 1}  # how many choices of signs have a sum of the ranks above 0
    for rank, one in zip(ranks, differences, strict=True):
        if one != 0:
            sums = _with_either_sign(sums, rank)
    return sum(count for total, count in sums.items() if total <= above) / sum(sums.values())


def _with_either_sign(sums: dict[int, int], rank: int) -> dict[int, int]:
    totals = sums.keys() | {total + rank for total in sums}
    return {total: sums.get(total, 0) + sums.get(total - rank, 0) for total in totals}
