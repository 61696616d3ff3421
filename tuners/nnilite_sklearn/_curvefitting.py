"""Stop a trial whose fitted learning curve predicts that it will not reach the best result."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from nnilite.assessor import Assessor, AssessResult
from nnilite.tuner import scalar
from nnilite.tuning.class_args import number, one_of, whole_number
from nnilite_sklearn._surrogate import need_sklearn

_FEWEST = 4  # results that a fit needs
_MOST = 64  # results in a fit: of a longer curve, so many at equal distances, so that each fit takes as long


class CurvefittingAssessor(Assessor):
    """NNI's Curvefitting (Domhan et al., 2015): extrapolates learning curves.

    Several families of curves are fitted to the results so far by least squares; the better a family fits, the more its
    forecast for the last epoch counts. A trial is stopped if the forecast is clearly worse than the best completed one,
    unless it is as good as that one was at the same epoch.
    Results without a finite number are left out.

    Args:
        epoch_num: how many intermediate results a whole trial reports.
        start_step: no trial is stopped before it has reported this many results.
        threshold: 0 to 1: the forecast must reach this part of the best result (of its distance from 0).
        gap: number of results from one judgement to the next.
        optimize_mode: "maximize" or "minimize".

    Raises: ConfigError, PluginError
    """

    def __init__(
        self,
        epoch_num: int = 20,
        start_step: int = 6,
        threshold: float = 0.95,
        gap: int = 1,
        optimize_mode: str = "maximize",
    ) -> None:
        need_sklearn()
        self._last = whole_number("epoch_num", epoch_num, low=1)
        self._start = whole_number("start_step", start_step, low=0)
        self._threshold = number("threshold", threshold, 0.0, 1.0)
        self._gap = whole_number("gap", gap, low=1)
        self._sign = 1.0 if one_of("optimize_mode", optimize_mode, ("maximize", "minimize")) == "maximize" else -1.0
        self._curves: dict[str, list[tuple[int, float]]] = {}  # curves of running trials: (epoch, signed result)
        self._lengths: dict[str, int] = {}
        self._best: float | None = None  # best result of completed trials
        self._course: dict[int, float] = {}  # the results of the best trial, by epoch

    def assess_trial(self, trial_job_id: str, trial_history: list[Any]) -> AssessResult:
        if len(trial_history) <= self._lengths.get(trial_job_id, 0):  # the trial has started again
            self._forget(trial_job_id)
        curve = self._curves.setdefault(trial_job_id, [])
        known = self._lengths.get(trial_job_id, 0)
        for step in range(known, len(trial_history)):
            value = scalar(trial_history[step])
            if value is not None:
                curve.append((step + 1, self._sign * value))
        self._lengths[trial_job_id] = len(trial_history)
        if not self._due(len(trial_history)) or self._best is None or len(curve) < _FEWEST:
            return AssessResult.Good
        # At this point the best trial was no better, whatever the forecast says.
        epoch, value = curve[-1]
        if epoch in self._course and value >= self._course[epoch]:
            return AssessResult.Good
        forecast = forecast_at(self._last, _thin_out(curve))
        wanted = self._best - (1.0 - self._threshold) * abs(self._best)
        return AssessResult(forecast is None or max(forecast, curve[-1][1]) >= wanted)

    def _due(self, count: int) -> bool:
        return self._start <= count < self._last and (count - self._start) % self._gap == 0

    def trial_end(self, trial_job_id: str, success: bool) -> None:
        curve = self._forget(trial_job_id)
        if success and curve and (self._best is None or curve[-1][1] > self._best):
            self._best, self._course = curve[-1][1], dict(curve)

    def _forget(self, trial_job_id: str) -> list[tuple[int, float]]:
        self._lengths.pop(trial_job_id, None)
        return self._curves.pop(trial_job_id, [])


def _thin_out(curve: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return at most `_MOST` points of a curve, the first and the last one among them."""
    if len(curve) <= _MOST:
        return curve
    return [curve[round(k * (len(curve) - 1) / (_MOST - 1))] for k in range(_MOST)]


def forecast_at(epoch: int, curve: list[tuple[int, float]]) -> float | None:
    """Return what rising curves, fitted to (epoch, result) points, predict for an epoch; None if no curve fits."""
    import numpy as np

    x = np.array([point[0] for point in curve], dtype=float)
    y = np.array([point[1] for point in curve])
    largest = float(np.max(np.abs(y))) or 1.0
    y /= largest  # the difference of two large results is not a float
    low, spread = float(np.min(y)), float(np.max(y) - np.min(y))
    if spread <= 1e-12:
        return curve[-1][1]
    level = (y - low) / spread
    late = 0.5 + x / x[-1]  # later results say more about the end
    total, weight = 0.0, 0.0
    for family, start in _list_families():
        found = _fit(family, start, x, level, late)
        if found is None:
            continue
        error = float(np.mean((late * (family(x, *found) - level)) ** 2))
        expected = float(family(np.array([float(epoch)]), *found)[0])
        if np.isfinite(expected) and -1.0 <= expected <= 3.0:
            share = 1.0 / (error + 1e-4)
            total, weight = total + share * expected, weight + share
    return None if weight == 0.0 else largest * (low + spread * total / weight)


def _fit(family: Callable[..., Any], start: list[float], x: Any, level: Any, late: Any) -> Any:
    from scipy.optimize import curve_fit

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fits whose uncertainty cannot be estimated
            found, _ = curve_fit(family, x, level, p0=start, sigma=1.0 / late, maxfev=400)
    except RuntimeError:  # the fit has not converged
        return None
    return found


def _list_families() -> list[tuple[Callable[..., Any], list[float]]]:
    """Return families of learning curves, each with a start for the fit. All but the logarithm saturate."""
    import numpy as np

    def power(x: Any, top: float, scale: float, slope: float) -> Any:
        return top - scale * np.power(x, -np.abs(slope))

    def exponential(x: Any, top: float, scale: float, rate: float) -> Any:
        return top - scale * np.exp(-np.abs(rate) * x)

    def saturation(x: Any, top: float, scale: float, half: float) -> Any:
        return top - scale / (1.0 + x / (np.abs(half) + 1e-6))

    def weibull(x: Any, top: float, scale: float, rate: float, shape: float) -> Any:
        return top - scale * np.exp(-np.power(np.abs(rate) * x, np.clip(np.abs(shape), 0.1, 5.0)))

    def compute_inverse_log(x: Any, top: float, scale: float) -> Any:
        return top - scale / np.log(x + 1.0)

    return [
        (power, [1.0, 1.0, 0.5]),
        (exponential, [1.0, 1.0, 0.3]),
        (saturation, [1.0, 1.0, 2.0]),
        (weibull, [1.0, 1.0, 0.3, 1.0]),
        (compute_inverse_log, [1.0, 1.0]),
    ]
