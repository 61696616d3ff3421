"""How likely a result is to satisfy result constraints, by what others have reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nnilite_optuna._matern import KernelParameters, MaternProcess, likeliest
from nnilite_optuna._success import log_below

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nnilite.tuning.cube import Cube, Matrix, Vector


class Feasible:
    """The chance that a result satisfies all constraints, each by a Gaussian process of its own.

    It weighs the expected improvement (Gardner et al., 2014, "Bayesian Optimization with Inequality Constraints"), and
    is all that counts while nothing is feasible (Gelbart et al., 2014, "Bayesian Optimization with Unknown
    Constraints"). Margins are bent as there the limit is what matters, not how far beyond it others are (Eriksson and
    Poloczek, 2021, "Scalable Constrained Bayesian Optimization").

    margins: a row for each result, a column for each constraint; infinite where the result does not tell.
    """

    def __init__(self, cube: Cube, rows: Matrix, margins: Matrix, scales: Sequence[KernelParameters]) -> None:
        self._cube = cube
        features = cube.features(rows)
        self._limits: list[tuple[MaternProcess, float]] = []
        for column, scale in zip(margins.T, scales, strict=True):
            values, limit = _bend(column)
            self._limits.append((MaternProcess(scale, features, values), limit))
        self.violations: Vector = np.maximum(margins, 0.0).sum(axis=1)  # per row

    def log_chance(self, rows: Matrix) -> Vector:
        """Return the logarithm of the chance of each position row."""
        features, found = self._cube.features(rows), np.zeros(len(rows))
        for process, limit in self._limits:
            mean, deviation = process.predict(features)
            found += log_below((limit - mean) / deviation)
        return found


def fit_scales(cube: Cube, rows: Matrix, margins: Matrix) -> list[KernelParameters]:
    """Return the likeliest hyperparameters of each constraint."""
    features = cube.features(rows)
    return [likeliest(features, _bend(column)[0], cube.groups)[0] for column in margins.T]


def _bend(margins: Vector) -> tuple[Vector, float]:
    """Return margins with mean 0 and variance 1, bent around their limit, and where that lies then."""
    known = np.isfinite(margins)
    worst = max(float(np.max(margins[known], initial=0.0)), 1.0)
    margins = np.where(known, margins, worst)
    largest = float(np.max(np.abs(margins), initial=0.0)) or 1.0
    margins = margins / largest  # the square of a large one is not a float
    width = min(float(np.std(margins)), float(np.median(np.abs(margins)))) or 1.0
    bent = np.sign(margins) * np.log1p(np.abs(margins) / width)
    mean, spread = float(np.mean(bent)), float(np.std(bent))
    if spread <= 1e-12:
        spread = 1.0
    return np.asarray((bent - mean) / spread), -mean / spread
