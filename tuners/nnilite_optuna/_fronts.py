"""Bayesian optimisation of several objectives: what `Auto` does while results are few."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nnilite_optuna._bayes import BayesTuner, ExpectedGain

if TYPE_CHECKING:
    import numpy as np

    from nnilite.tuning.cube import Matrix, Vector
    from nnilite_optuna._feasible import Feasible
    from nnilite_optuna._matern import MaternProcess

_DIRECTIONS = 32
_NODES = 4  # nodes of the integral in each direction
_BEYOND = 3.0  # standard deviations that the integral reaches below the mean
_MARGIN = 0.1  # distance from the front to the reference point, in extents of the front
_FROM_AFAR = 0.5  # share of proposals whose reference point lies beyond the worst results
_MOST_LEADERS = 12  # points of the front near which candidates are drawn


class FrontTuner(BayesTuner):
    """A Gaussian process for each objective, and the point whose expected gain of hypervolume is the largest.

    The hypervolume is a mean over directions of how far the front reaches in each (Zhang and Golovin, 2020, "Random
    Hypervolume Scalarizations for Provable Multi-Objective Black Box Optimization"). As the processes do not depend on
    each other, what a point is expected to gain in a direction is an integral over one number. It is seen by turns of
    chance from just beyond the front, which makes the front denser, and from the worst results, which makes it longer.
    """

    def __init__(self, objectives: int, seed: int | None = None) -> None:
        super().__init__("minimize", seed)
        self._objectives = objectives

    def _find_gain(self, aside: Matrix, feasible: Feasible | None, numbers: np.random.Generator) -> ExpectedGain:
        import numpy as np

        cube = self._cube
        learned = [self._posterior.process(place) for place in range(self._objectives)]
        rows = learned[0][1]
        means = np.column_stack([process.predict(cube.features(rows))[0] for process, _ in learned])
        violations = np.zeros(len(rows)) if feasible is None else feasible.violations
        good = np.flatnonzero(violations == 0.0)
        if not len(good):
            return ExpectedGain(rows[np.argsort(violations, kind="stable")[:_MOST_LEADERS]], None)
        front = good[find_front(means[good])]
        processes = [process.condition_on_mean(cube.features(aside)) for process, _ in learned]
        gain = make_gain(means[front], means[good], processes, numbers)
        chosen = numbers.permutation(front)[:_MOST_LEADERS]
        return ExpectedGain(rows[chosen], gain)


def find_front(values: Matrix) -> list[int]:
    """Return the numbers of the rows that no other one beats; of equal rows the first."""
    import numpy as np

    from nnilite_optuna._posterior import find_as_good

    order = np.lexsort(values.T[::-1])  # in this order, no row is beaten by a later one
    beaten = np.triu(find_as_good(values[order]), 1).any(axis=0)
    return [int(k) for k in order[~beaten]]


def make_gain(
    front: Matrix, known: Matrix, processes: list[MaternProcess], numbers: np.random.Generator
) -> Callable[[Matrix], Vector]:
    """Return what computes the logarithm of the expected gain of hypervolume, of feature rows."""
    import numpy as np

    count = front.shape[1]
    low, high, worst = front.min(axis=0), front.max(axis=0), known.max(axis=0)
    extent = np.where(high - low > 1e-6, high - low, np.maximum(worst - low, 1e-3))
    seen_from = worst if numbers.random() < _FROM_AFAR else high
    reference = np.maximum(seen_from, low + 1e-3 * extent) + _MARGIN * extent
    ways = np.abs(numbers.standard_normal((_DIRECTIONS, count)))
    ways = np.maximum(ways / np.linalg.norm(ways, axis=1, keepdims=True), 1e-3)
    reached = _reach((reference - front) / extent, ways).max(axis=0)  # how far the front reaches in each direction
    places, weights = np.polynomial.legendre.leggauss(_NODES)
    places, weights = 0.5 * (places + 1.0), 0.5 * weights

    def gain(features: Matrix) -> Vector:
        predicted = [process.predict(features) for process in processes]
        mean = (reference - np.column_stack([one for one, _ in predicted])) / extent
        deviation = np.column_stack([one for _, one in predicted]) / extent
        most = _reach(mean + _BEYOND * deviation, ways)
        span = np.maximum(most - reached, 0.05)
        found = np.zeros(len(features))
        for place, weight in zip(places, weights, strict=True):
            there = reached + place * span  # row x direction
            chance = np.ones_like(there)
            for k in range(count):
                chance *= _normal((mean[:, k, None] - there * ways[:, k]) / deviation[:, k, None])
            found += weight * (span * count * there ** (count - 1) * chance).mean(axis=1)
        return np.asarray(np.log(found + 1e-300))

    return gain


def _reach(above: Matrix, ways: Matrix) -> Matrix:
    """Return how far points reach from the reference in each direction; `above`: their distances to it."""
    import numpy as np

    return np.asarray(np.maximum((above[:, None, :] / ways[None, :, :]).min(axis=2), 0.0))


def _normal(deviations: Matrix) -> Matrix:
    """Return the normal distribution function, to three digits (Page, 1977); numpy has none."""
    import numpy as np

    far = np.minimum(np.maximum(deviations, -20.0), 20.0)
    steep = 0.07056 * far  # a power takes ten times as long, and new arrays take longer than the arithmetic
    steep *= far
    steep += 1.5976
    steep *= np.negative(far, out=far)
    chance = np.exp(steep, out=steep)
    chance += 1.0
    return np.asarray(np.divide(1.0, chance, out=chance))
