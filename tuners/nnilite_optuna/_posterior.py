"""What is known of an objective, and the Gaussian process that follows from it."""

from __future__ import annotations

import math
from collections import Counter
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nnilite.tuning.learning import Point, PointState
from nnilite_optuna._feasible import Feasible, fit_scales
from nnilite_optuna._matern import KernelParameters, MaternProcess, likeliest
from nnilite_optuna._success import Success

if TYPE_CHECKING:
    from nnilite.tuning.cube import Cube, Matrix, Vector

_MOST_POINTS = 200  # most points that the process uses: the best and the latest
_LONG_FITS = 80  # results from which on a fit takes long enough to be divided between two proposals
_FEWEST_RANKED = 4  # losses; the median of fewer says little
_PLATEAU = 3  # results with the smallest loss that are no coincidence
_EQUAL = 1e-12  # relative to the largest loss: smaller differences are rounding

Fit = tuple[float, KernelParameters, float]  # the logarithm of the density, the scales, and the power of the losses


class Posterior:
    """The points that have ended, as rows of a cube, and the process given their losses."""

    def __init__(self, cube: Cube) -> None:
        self._cube = cube
        self._ended: list[Point] = []
        self._rows: list[Vector] = []
        self._failed: list[Vector] = []
        self._failures: Counter[bytes] = Counter()  # by row
        self._plain: dict[int, tuple[int, Fit]] = {}  # of objectives, to so many results: with the losses as they are
        self._fits: dict[int, tuple[int, Fit]] = {}  # likewise: the likelier fit, of plain or of transformed losses
        self._limit_fit: tuple[int, list[KernelParameters]] | None = None  # likewise, of each result constraint
        self._chosen: tuple[int, list[int]] | None = None  # of so many points, the numbers of those that count
        self.results = 0

    def learn(self, point: Point) -> Vector:
        """Take a point that has ended, and return its row."""
        row: Vector = self._cube.positions([point.flat or {}])[0]
        if point.state is PointState.FAILED:
            self._failed.append(row)
            self._failures[row.tobytes()] += 1
            return row
        self._ended.append(point)
        self._rows.append(row)
        self.results += point.state is PointState.DONE
        return row

    def is_new_failure(self, row: Vector) -> bool:
        """Return whether the point of this row has failed once, and not more often."""
        return self._failures[row.tobytes()] == 1

    def is_on_plateau(self) -> bool:
        """Return whether several results share the smallest loss, of one objective; infeasible ones do not count."""
        losses = [point.losses for point in self._ended if point.losses and not point.violation]
        return bool(losses) and len(losses[0]) == 1 and losses.count(min(losses)) >= _PLATEAU

    def success(self) -> Success:
        """Return what is known of where points succeed."""
        return Success(self._cube, self._rows, self._failed)

    @property
    def closed(self) -> list[Vector]:
        """Rows of points that need not be tried again: those with a result, and those that failed twice."""
        return [*self._rows, *(row for row in self._failed if not self.is_new_failure(row))]

    @property
    def tried(self) -> Matrix:
        """Rows of all points that have ended."""
        return np.array([*self._rows, *self._failed]).reshape(-1, self._cube.width)

    def process(self, objective: int | None = None) -> tuple[MaternProcess, Matrix]:
        """Return the process of an objective, and the rows that it knows. objective: its place among several.

        Each of several is fitted some results later than the one before it, and half of a long fit is done a result
        earlier than the other half, so that no proposal waits for much of it.
        """
        place, count = objective or 0, len(self._ended)
        divided = objective is not None and count >= _LONG_FITS
        lag = 2 * place + 1 if divided else place
        until = _step(max(count - lag, 2))
        if place not in self._fits or self._fits[place][0] != until:
            fits = (self._fit_plain(until, place), self._fit_bent(until, place))
            self._fits[place] = until, max(fits, key=lambda fit: fit[0])
        if divided:
            self._fit_plain(_step(count - lag + 1), place)
        _, (_, scales, power) = self._fits[place]
        rows, losses = self._known(count, place)
        return MaternProcess(scales, self._cube.features(rows), standardized(losses, power)), rows

    def feasible(self) -> Feasible | None:
        """Return what is known of where results satisfy the constraints; None if there are none."""
        if not any(point.margins for point in self._ended):
            return None
        until = _step(len(self._ended))
        if self._limit_fit is None or self._limit_fit[0] != until:
            self._limit_fit = (until, fit_scales(self._cube, *self._judged(until)))
        return Feasible(self._cube, *self._judged(len(self._ended)), self._limit_fit[1])

    def _judged(self, until: int) -> tuple[Matrix, Matrix]:
        """Return the rows of `_known`, and their margins."""
        chosen = self._choose(until)
        return np.array(self._rows)[chosen], np.array([self._ended[k].margins for k in chosen])

    def _fit_plain(self, until: int, objective: int) -> Fit:
        if objective not in self._plain or self._plain[objective][0] != until:
            self._plain[objective] = until, self._fit(*self._known(until, objective), 1.0)
        return self._plain[objective][1]

    def _fit_bent(self, until: int, objective: int) -> Fit:
        """Return the fit of bent losses, which helps where they span magnitudes, and harms steps."""
        rows, losses = self._known(until, objective)
        return self._fit(rows, losses, likeliest_power(losses))

    def _fit(self, rows: Matrix, losses: Vector, power: float) -> Fit:
        scales, density = likeliest(self._cube.features(rows), standardized(losses, power), self._cube.groups)
        return density + log_jacobian(losses, power), scales, power

    def _known(self, until: int, objective: int) -> tuple[Matrix, Vector]:
        """Return rows and losses of the first `until` results; poor ones count as the worst.

        Of many, the best and the latest are kept. With several objectives, or constraints, the best results may have
        losses of the worse half, so that these count as they are.
        """
        known = [point.losses[objective] for point in self._ended[:until] if point.losses]
        worst = max(known, default=0.0)
        chosen = self._choose(until)
        points = [self._ended[k] for k in chosen]
        losses = np.array([point.losses[objective] if point.losses else worst for point in points])
        alone = not any(point.margins or len(point.losses or ()) > 1 for point in points)
        return np.array(self._rows)[chosen], rank_worse_half(losses) if alone else losses

    def _rank(self, until: int) -> list[tuple[float, float]]:
        """Return the ranks of the first points: by violation, then by loss, of several by how many beat them in all."""
        points = self._ended[:until]
        losses = np.array([point.losses or [math.inf] for point in points if point.losses])
        several = losses.ndim == 2 and losses.shape[1] > 1
        known = iter(find_as_good(losses).sum(axis=0).tolist() if several else losses.ravel().tolist())
        return [(point.violation, next(known) if point.losses else math.inf) for point in points]

    def _choose(self, until: int) -> list[int]:
        """Return the numbers of the points that count, of the first `until`."""
        if until <= _MOST_POINTS:
            return list(range(until))
        if self._chosen is None or self._chosen[0] != until:
            ranks = self._rank(until)
            best = sorted(range(until), key=lambda k: ranks[k])[: _MOST_POINTS // 2]
            self._chosen = until, sorted({*best, *range(until - _MOST_POINTS // 2, until)})
        return self._chosen[1]


def find_as_good(values: Matrix) -> NDArray[np.bool_]:
    """Return whether the row of this number is as good in all columns as that one: as good, or better."""
    found = np.ones((len(values), len(values)), dtype=bool)
    for column in values.T:
        found &= column[:, None] <= column[None, :]
    return found


def _step(count: int) -> int:
    """Return the number of results that hyperparameters are fitted to: all of few, then in steps of a tenth."""
    step = 1
    while step * 20 <= count:
        step *= 2
    return count - count % step


def rank_worse_half(losses: Vector) -> Vector:
    """Return losses with median 0, those above it replaced by normal quantiles of their ranks.

    These are spread as widely as the better half. So trainings that diverged say only that others were better, and
    differences between good ones stay visible (Song et al., 2024, "The Vizier Gaussian Process Bandit Algorithm").
    """
    if len(losses) < _FEWEST_RANKED:
        return losses
    median = np.sort(losses)[(len(losses) - 1) // 2]
    good = losses <= median
    largest = float(np.max(np.abs(losses[good]))) or 1.0
    gaps = median / largest - losses[good] / largest
    widest = float(np.max(gaps))
    level = np.zeros(len(losses))
    spread = 1.0  # spread of the worse half if all better ones are alike
    if widest > _EQUAL:
        level[good] = -gaps / widest
        spread = math.sqrt(float(np.mean(np.square(level[good]))))
    _, places, counts = np.unique(losses, return_inverse=True, return_counts=True)
    shares = (np.cumsum(counts) - 0.5 * counts) / len(losses)  # below each loss; equal ones share a rank
    quantiles = np.array([NormalDist().inv_cdf(share) for share in shares.tolist()])
    return np.where(good, level, spread * quantiles[places])


def standardized(losses: Vector, power: float) -> Vector:
    """Return losses with mean 0 and variance 1, bent by Yeo and Johnson's transformation."""
    level = _bend(_standard(losses), power)
    width = float(np.std(level))
    return np.asarray((level - np.mean(level)) / width) if width > 1e-12 else np.zeros(len(losses))


def _standard(losses: Vector) -> Vector:
    """Return losses with mean 0 and variance 1; zeros if they are all alike."""
    largest = float(np.max(np.abs(losses), initial=0.0)) or 1.0
    losses = losses / largest  # the square of a large loss is not a float
    width = float(np.std(losses))
    if width <= 1e-12:
        return np.zeros(len(losses))
    return np.asarray((losses - np.mean(losses)) / width)


def _bend(level: Vector, power: float) -> Vector:
    """Apply Yeo and Johnson's transformation."""
    far = np.log1p(np.abs(level))
    up = np.expm1(power * far) / power if abs(power) > 1e-9 else far
    down = -np.expm1((2.0 - power) * far) / (2.0 - power) if abs(power - 2.0) > 1e-9 else -far
    return np.where(level >= 0.0, up, down)


def log_jacobian(losses: Vector, power: float) -> float:
    """Return the logarithm of the density that `standardized` adds, so that likelihoods of powers can be compared."""
    level = _standard(losses)
    width = float(np.std(_bend(level, power)))
    if width <= 1e-12:
        return 0.0
    return (power - 1.0) * float(np.sum(np.sign(level) * np.log1p(np.abs(level)))) - len(losses) * math.log(width)


def likeliest_power(losses: Vector) -> float:
    """Return the power that makes losses likeliest to be normal; 1 changes nothing."""
    if len(losses) < 6:
        return 1.0
    return max((k / 8.0 for k in range(-32, 49)), key=lambda power: log_jacobian(losses, power))
