"""optuna's pruners whose rule needs few numbers of each trial, as assessors.

The rules and arguments are those of optuna. What it keeps in a study, and goes through at each report, is kept here as
running figures: so a judgement takes as long after 100,000 results as after ten.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from nnilite.assessor import Assessor, AssessResult
from nnilite.errors import ConfigError, Place
from nnilite.tuner import scalar
from nnilite.tuning.class_args import number, one_of, whole_number

_Figures = TypeVar("_Figures")


class StepAssessor(Assessor, Generic[_Figures]):
    """An assessor that is shown each result once, with the figures of its trial, which `begin` makes.

    A trial that begins again gets new figures.
    """

    def __init__(self, begin: Callable[[], _Figures]) -> None:
        self._begin = begin
        self._trials: dict[str, _Figures] = {}
        self._counts: dict[str, int] = {}

    def assess_trial(self, trial_job_id: str, trial_history: list[Any]) -> AssessResult:
        if len(trial_history) <= self._counts.get(trial_job_id, 0):
            self._leave(self._trials.pop(trial_job_id))
            del self._counts[trial_job_id]
        if trial_job_id not in self._trials:
            self._trials[trial_job_id] = self._begin()
        trial, poor = self._trials[trial_job_id], False
        for step in range(self._counts.get(trial_job_id, 0), len(trial_history)):
            poor = self._is_poor(trial, step, scalar(trial_history[step]))
        self._counts[trial_job_id] = len(trial_history)
        return AssessResult(not poor)

    def trial_end(self, trial_job_id: str, success: bool) -> None:
        self._counts.pop(trial_job_id, None)
        trial = self._trials.pop(trial_job_id, None)
        if trial is not None and success:
            self._complete(trial)

    def _is_poor(self, trial: _Figures, step: int, value: float | None) -> bool:
        """Judge a trial by its next result; None: one without a finite number. Steps count from 0."""
        raise NotImplementedError

    def _complete(self, trial: _Figures) -> None:
        """Keep what later judgements need of a trial that has succeeded."""

    def _leave(self, trial: _Figures) -> None:
        """Forget a trial that begins again."""


@dataclass(frozen=True)
class _Intervals:
    """Which results are judged: of each `length` from `first` on the first one."""

    first: int
    length: int

    def includes(self, step: int, before: int) -> bool:
        """Return whether the result at `step` is judged if the one before it was at `before`."""
        return step >= self.first and before < step - (step - self.first) % self.length


@dataclass
class _ResultsByStep:
    """A trial's results, so far as they are numbers: higher ones are better."""

    numbers: list[tuple[int, float]] = field(default_factory=list)  # with their steps
    best: float = -math.inf

    @property
    def last_step(self) -> int:
        return self.numbers[-1][0] if self.numbers else -1

    def add(self, step: int, value: float) -> None:
        self.numbers.append((step, value))
        self.best = max(self.best, value)


class PercentileAssessor(StepAssessor[_ResultsByStep]):
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
        self._sign = _sign_of(optimize_mode)
        self._percentile = 100.0 - number("percentile", percentile, 0.0, 100.0)
        self._fewest_trials = whole_number("n_startup_trials", n_startup_trials, low=0)
        self._intervals = _make_intervals(n_warmup_steps, interval_steps)
        self._fewest_rivals = whole_number("n_min_trials", n_min_trials, low=1)
        self._completed = 0
        self._rivals: list[list[float]] = []  # by step: the results of completed trials, in ascending order
        super().__init__(_ResultsByStep)

    def _is_poor(self, trial: _ResultsByStep, step: int, value: float | None) -> bool:
        if value is None:
            return False
        before = trial.last_step
        trial.add(step, self._sign * value)
        rivals = self._rivals[step] if step < len(self._rivals) else []
        if self._completed < self._fewest_trials or len(rivals) < self._fewest_rivals:
            return False
        return self._intervals.includes(step, before) and trial.best < find_percentile(rivals, self._percentile)

    def _complete(self, trial: _ResultsByStep) -> None:
        self._completed += bool(trial.numbers)
        self._rivals += [[] for _ in range(len(self._rivals), trial.last_step + 1)]
        for step, value in trial.numbers:
            insort(self._rivals[step], value)


def find_percentile(ascending: Sequence[float], percentile: float) -> float:
    """Return a percentile as numpy does, interpolated between two neighbours."""
    place = (len(ascending) - 1) * percentile / 100.0
    low = min(math.floor(place), len(ascending) - 1)
    left, right = ascending[low], ascending[min(low + 1, len(ascending) - 1)]
    share = place - low
    # Computed from the nearer side, so that equal neighbours give exactly their value.
    return right - (right - left) * (1.0 - share) if share >= 0.5 else left + (right - left) * share


@dataclass
class _Rungs:
    """What a trial had at the rungs that it has reached, and how many results it has."""

    values: list[float] = field(default_factory=list)
    count: int = 0


class SuccessiveHalvingAssessor(StepAssessor[_Rungs]):
    """ASHA, the variant that stops (Li et al., 2020): at results 1, eta, eta^2 ... only the best 1/eta continue.

    Args:
        optimize_mode: "maximize" or "minimize".
        min_resource: results of a trial before it is first judged; "auto": a hundredth of a completed trial's.
        reduction_factor: eta; 2 or more.
        min_early_stopping_rate: number of first judgements to skip.
        bootstrap_count: number of trials that must reach a judgement before any passes it; not with "auto".

    Raises: ConfigError
    """

    def __init__(
        self,
        optimize_mode: str = "maximize",
        min_resource: int | str = 1,
        reduction_factor: int = 4,
        min_early_stopping_rate: int = 0,
        bootstrap_count: int = 0,
    ) -> None:
        self._sign = _sign_of(optimize_mode)
        self._resource = None if min_resource == "auto" else whole_number("min_resource", min_resource, low=1)
        if self._resource is None and bootstrap_count:
            raise ConfigError(
                "cannot be used with min_resource: auto; give a number there", Place(field="classArgs.bootstrap_count")
            )
        self._eta = whole_number("reduction_factor", reduction_factor, low=2)
        self._skipped = whole_number("min_early_stopping_rate", min_early_stopping_rate, low=0)
        self._bootstrap = whole_number("bootstrap_count", bootstrap_count, low=0)
        self._longest = 0  # results of a completed trial
        self._rungs: list[list[float]] = []  # what all trials had there, in ascending order
        super().__init__(_Rungs)

    def _is_poor(self, trial: _Rungs, step: int, value: float | None) -> bool:
        if value is None:
            return False
        trial.count = step + 1
        if self._resource is None and self._longest:
            self._resource = max(1, self._longest // 100)
        while self._reaches_next(trial):
            if not self._passes_next(trial, self._sign * value):
                return True
        return False

    def _reaches_next(self, trial: _Rungs) -> bool:
        power = self._skipped + len(trial.values)
        return self._resource is not None and trial.count >= self._resource * self._eta**power

    def _passes_next(self, trial: _Rungs, value: float) -> bool:
        if len(trial.values) == len(self._rungs):
            self._rungs.append([])
        rung = self._rungs[len(trial.values)]
        trial.values.append(value)
        insort(rung, value)
        # With fewer than eta trials, the best one passes.
        return len(rung) > self._bootstrap and value >= rung[-max(1, len(rung) // self._eta)]

    def _complete(self, trial: _Rungs) -> None:
        self._longest = max(self._longest, trial.count)

    def _leave(self, trial: _Rungs) -> None:
        for rung, value in zip(self._rungs, trial.values, strict=False):
            del rung[bisect_left(rung, value)]


@dataclass
class _Before:
    """The step of the result before; -1: there is none."""

    step: int = -1


class ThresholdAssessor(StepAssessor[_Before]):
    """Stops a trial whose result is below `lower`, above `upper`, or no finite number.

    Args:
        lower, upper: at least one of them.
        n_warmup_steps: number of first results of a trial that are not judged.
        interval_steps: number of results from one judgement to the next.
        optimize_mode: accepted as by other assessors, but has no effect.

    Raises: ConfigError
    """

    def __init__(
        self,
        lower: float | None = None,
        upper: float | None = None,
        n_warmup_steps: int = 0,
        interval_steps: int = 1,
        optimize_mode: str | None = None,
    ) -> None:
        if lower is None and upper is None:
            raise ConfigError("set lower, upper or both", Place(field="classArgs.lower"))
        self._lower = -math.inf if lower is None else number("lower", lower)
        self._upper = math.inf if upper is None else number("upper", upper, low=None if lower is None else lower)
        self._intervals = _make_intervals(n_warmup_steps, interval_steps)
        _sign_of(optimize_mode or "maximize")
        super().__init__(_Before)

    def _is_poor(self, trial: _Before, step: int, value: float | None) -> bool:
        before, trial.step = trial.step, step
        if not self._intervals.includes(step, before):
            return False
        return value is None or not self._lower <= value <= self._upper


@dataclass
class _Recent:
    """A trial's last results, and the best one of those before them; higher ones are better.

    `last` has only those results, with their numbers, after which no better one came: the others never count again. So
    its first one is the best, and a judgement costs the same for any patience.
    """

    last: deque[tuple[int, float]]
    count: int = 0
    best: float = -math.inf


class PatientAssessor(StepAssessor[_Recent]):
    """Stops a trial whose last `patience` + 1 results are all worse than its best one, by more than `min_delta`.

    Args:
        patience: 0 or more.
        min_delta: 0 or more.
        optimize_mode: "maximize" or "minimize".

    Raises: ConfigError
    """

    def __init__(self, patience: int, min_delta: float = 0.0, optimize_mode: str = "maximize") -> None:
        self._sign = _sign_of(optimize_mode)
        self._delta = number("min_delta", min_delta, low=0.0)
        self._count = whole_number("patience", patience, low=0) + 1
        super().__init__(lambda: _Recent(deque()))

    def _is_poor(self, trial: _Recent, step: int, value: float | None) -> bool:
        if value is None:
            return False
        better = self._sign * value
        while trial.last and trial.last[-1][1] <= better:
            trial.last.pop()
        trial.last.append((trial.count, better))
        trial.count += 1
        if trial.last[0][0] < trial.count - self._count:
            trial.best = max(trial.best, trial.last.popleft()[1])
        return trial.best - self._delta > trial.last[0][1]


def _sign_of(optimize_mode: str) -> float:
    return 1.0 if one_of("optimize_mode", optimize_mode, ("maximize", "minimize")) == "maximize" else -1.0


def _make_intervals(n_warmup_steps: int, interval_steps: int) -> _Intervals:
    return _Intervals(
        whole_number("n_warmup_steps", n_warmup_steps, low=0), whole_number("interval_steps", interval_steps, low=1)
    )
