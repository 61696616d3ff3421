"""optuna's pruners as assessors.

One study in memory holds the intermediate results, and the pruner judges a trial after each one. Results that hold no
finite number are left out (Threshold stops on them). A trial that completed counts with its last result.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nnilite.assessor import Assessor, AssessResult
from nnilite.errors import ConfigError, Place
from nnilite.tuner import scalar
from nnilite.tuning.class_args import number, one_of, whole_number
from nnilite_optuna._study import import_optuna, quiet

if TYPE_CHECKING:
    import optuna
    from optuna.pruners import BasePruner


_MOST_PERMUTED = 13
"""Of so many results at most scipy tries all permutations."""


class PrunerAssessor(Assessor):
    """An assessor around an optuna pruner. `first_step` is the number of a trial's first result."""

    first_step = 0
    stops_on_nan = False

    def __init__(self, optimize_mode: str, pruner: BasePruner) -> None:
        one_of("optimize_mode", optimize_mode, ("maximize", "minimize"))
        self._study = import_optuna().create_study(direction=optimize_mode, pruner=pruner)
        self._trials: dict[str, optuna.trial.Trial] = {}
        self._shown: dict[str, int] = {}
        self._numbers: dict[str, dict[int, float]] = {}  # of running trials, by step

    def assess_trial(self, trial_job_id: str, trial_history: list[Any]) -> AssessResult:
        if len(trial_history) <= self._shown.get(trial_job_id, 0):  # it has begun again
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
            return not self.stops_on_nan
        trial = self._trials[trial_job_id]
        self._numbers[trial_job_id][step] = value
        with quiet():
            trial.report(value, step + self.first_step)
            return not self._is_poor(trial, self._numbers[trial_job_id])

    def _is_poor(self, trial: optuna.trial.Trial, numbers: dict[int, float]) -> bool:
        return trial.should_prune()

    def trial_end(self, trial_job_id: str, success: bool) -> None:
        trial = self._trials.pop(trial_job_id, None)
        numbers = list(self._numbers.pop(trial_job_id, {}).values())
        self._shown.pop(trial_job_id, None)
        if trial is None:
            return
        from optuna.trial import TrialState

        if success and numbers:
            self._study.tell(trial, self._summarize(numbers))
        else:
            self._study.tell(trial, state=TrialState.PRUNED if numbers else TrialState.FAIL)

    def _forget(self, trial_job_id: str) -> None:
        from optuna.trial import TrialState

        self._study.tell(self._trials.pop(trial_job_id), state=TrialState.FAIL)
        del self._numbers[trial_job_id], self._shown[trial_job_id]

    def _summarize(self, numbers: list[float]) -> float:
        return numbers[-1]


class PercentileAssessor(PrunerAssessor):
    """Stops a trial whose best result so far is not among the best `percentile` of the others at the same step.

    Args:
        optimize_mode: "maximize" or "minimize".
        percentile: 0 to 100; 25 keeps the best quarter, 50 is the median rule of optuna.
        n_startup_trials: number of trials that must complete first.
        n_warmup_steps: number of first results of a trial that are not judged.
        interval_steps: number of results from one judgement to the next.
        n_min_trials: number of others that must have a result at the step.

    Raises: ConfigError
    """

    def __init__(
        self,
        optimize_mode: str = "maximize",
        percentile: float = 25.0,
        n_startup_trials: int = 5,
        n_warmup_steps: int = 0,
        interval_steps: int = 1,
        n_min_trials: int = 1,
    ) -> None:
        from optuna.pruners import PercentilePruner

        number("percentile", percentile, 0.0, 100.0)
        _whole(n_startup_trials=(n_startup_trials, 0), n_warmup_steps=(n_warmup_steps, 0))
        _whole(interval_steps=(interval_steps, 1), n_min_trials=(n_min_trials, 1))
        pruner = PercentilePruner(
            percentile, n_startup_trials, n_warmup_steps, interval_steps, n_min_trials=n_min_trials
        )
        super().__init__(optimize_mode, pruner)


class SuccessiveHalvingAssessor(PrunerAssessor):
    """ASHA, the variant that stops (Li et al., 2020): at results 1, eta, eta^2 ... only the best 1/eta continue.

    Args:
        optimize_mode: "maximize" or "minimize".
        min_resource: results of a trial before it is first judged; "auto": a hundredth of a completed trial's.
        reduction_factor: eta; 2 or more.
        min_early_stopping_rate: number of first judgements to skip.
        bootstrap_count: number of trials that must reach a judgement before any passes it; not with "auto".

    Raises: ConfigError
    """

    first_step = 1

    def __init__(
        self,
        optimize_mode: str = "maximize",
        min_resource: int | str = 1,
        reduction_factor: int = 4,
        min_early_stopping_rate: int = 0,
        bootstrap_count: int = 0,
    ) -> None:
        from optuna.pruners import SuccessiveHalvingPruner

        if min_resource != "auto":
            whole_number("min_resource", min_resource, low=1)
        elif bootstrap_count:
            raise ConfigError(
                "cannot be used with min_resource: auto; give a number there", Place(field="classArgs.bootstrap_count")
            )
        _whole(reduction_factor=(reduction_factor, 2), min_early_stopping_rate=(min_early_stopping_rate, 0))
        _whole(bootstrap_count=(bootstrap_count, 0))
        pruner = SuccessiveHalvingPruner(min_resource, reduction_factor, min_early_stopping_rate, bootstrap_count)
        super().__init__(optimize_mode, pruner)


class ThresholdAssessor(PrunerAssessor):
    """Stops a trial whose result is below `lower`, above `upper`, or no finite number.

    Args:
        lower, upper: at least one of them.
        n_warmup_steps: number of first results of a trial that are not judged.
        interval_steps: number of results from one judgement to the next.
        optimize_mode: accepted as by other assessors, but has no effect.

    Raises: ConfigError
    """

    stops_on_nan = True

    def __init__(
        self,
        lower: float | None = None,
        upper: float | None = None,
        n_warmup_steps: int = 0,
        interval_steps: int = 1,
        optimize_mode: str | None = None,
    ) -> None:
        from optuna.pruners import ThresholdPruner

        if lower is None and upper is None:
            raise ConfigError("set lower, upper or both", Place(field="classArgs.lower"))
        least = None if lower is None else number("lower", lower)
        number("upper", upper, low=least) if upper is not None else None
        _whole(n_warmup_steps=(n_warmup_steps, 0), interval_steps=(interval_steps, 1))
        super().__init__(optimize_mode or "maximize", ThresholdPruner(lower, upper, n_warmup_steps, interval_steps))


class PatientAssessor(PrunerAssessor):
    """Stops a trial whose last `patience` + 1 results are all worse than its best one, by more than `min_delta`.

    Args:
        patience: 0 or more.
        min_delta: 0 or more.
        optimize_mode: "maximize" or "minimize".

    Raises: ConfigError
    """

    def __init__(self, patience: int, min_delta: float = 0.0, optimize_mode: str = "maximize") -> None:
        from optuna.pruners import PatientPruner

        whole_number("patience", patience, low=0)
        number("min_delta", min_delta, low=0.0)
        with quiet():
            pruner = PatientPruner(None, patience, min_delta)
        super().__init__(optimize_mode, pruner)


class WilcoxonAssessor(PrunerAssessor):
    """Stops a trial whose results are worse than those of the best trial, by Wilcoxon's signed-rank test.

    For trials that report one result for each of the same problem instances, as the folds of a cross-validation, in
    the same order. A completed trial counts with its mean. Needs scipy.

    Args:
        p_threshold: 0 to 1; larger stops more.
        n_startup_steps: number of first results of a trial that are not judged.
        optimize_mode: "maximize" or "minimize".

    Raises: ConfigError
    """

    def __init__(self, p_threshold: float = 0.1, n_startup_steps: int = 2, optimize_mode: str = "maximize") -> None:
        from optuna.pruners import WilcoxonPruner

        number("p_threshold", p_threshold, 0.0, 1.0)
        _whole(n_startup_steps=(n_startup_steps, 0))
        with quiet():
            pruner = WilcoxonPruner(p_threshold=p_threshold, n_startup_steps=n_startup_steps)
        super().__init__(optimize_mode, pruner)
        self._threshold = p_threshold
        self._startup = max(2, n_startup_steps)
        self._sign = 1.0 if optimize_mode == "maximize" else -1.0
        self._best: dict[int, float] = {}  # the results of the best completed trial, by step

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
        super().trial_end(trial_job_id, success)
        with contextlib.suppress(ValueError):  # no trial has completed
            self._best = self._study.best_trial.intermediate_values

    def _summarize(self, numbers: list[float]) -> float:
        return sum(numbers) / len(numbers)


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


def _whole(**given: tuple[int, int]) -> None:
    for name, (value, low) in given.items():
        whole_number(name, value, low=low)
