"""A Gaussian process on numpy alone: fast for few results, and there in every installation.

Matern's kernel of smoothness 5/2 has one length scale for each parameter. Variance, length scales and noise are the
likeliest ones given the results and a prior; the search for them begins at the same place each time, so that a replay
finds the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nnilite.tuning.cube import Matrix, Vector

_ROOT5 = math.sqrt(5.0)
_JITTER = 1e-6
_MOST_AT_ONCE = 64  # rows of a triangle that is inverted as a whole
_MOST_STEPS = 40
_SMALLEST_GAIN = 1e-3  # smallest gain of a step, in log-likelihood


@dataclass(frozen=True)
class KernelParameters:
    """Hyperparameters: the variance, a length for each feature, and the variance of the noise."""

    variance: float
    lengths: Vector
    noise: float


def likeliest(features: Matrix, values: Vector, groups: Sequence[int]) -> tuple[KernelParameters, float]:
    """Return the likeliest hyperparameters, and the logarithm of their posterior density.

    groups: of each feature, the number of the parameter that it belongs to; its features share a length.
    """
    group = np.asarray(groups)
    count = int(group.max()) + 1
    squares = np.zeros((count, len(values) ** 2))
    for column, number in zip(features.T, group, strict=True):
        squares[number] += np.square(column[:, None] - column[None, :]).ravel()

    def unlikely(theta: Vector) -> tuple[float, Vector]:
        return _unlikely(theta, squares, values)

    start = np.concatenate([[0.0], np.full(count, math.log(0.5)), [math.log(1e-2)]])
    theta, fall = _descend(unlikely, start)
    variance, *lengths, noise = np.exp(theta)
    return KernelParameters(float(variance), np.array(lengths)[group], float(noise)), -fall


class MaternProcess:
    """The process given results. `exact` rows are known without noise: those that are believed, not measured."""

    def __init__(self, scales: KernelParameters, features: Matrix, values: Vector, exact: int = 0) -> None:
        self._scales = scales
        self._known = features / scales.lengths
        noise = np.full(len(values), scales.noise)
        noise[len(values) - exact :] = 0.0
        covariance = scales.variance * _matern(_squares(self._known, self._known))
        covariance[np.diag_indices_from(covariance)] += noise + _JITTER
        self._inverse_root = _invert(np.asarray(np.linalg.cholesky(covariance)))
        self._weights = self._inverse_root.T @ (self._inverse_root @ values)
        self._features, self._values, self._exact = features, values, exact

    def predict(self, features: Matrix) -> tuple[Vector, Vector]:
        """Return mean and standard deviation of the objective itself, without its noise."""
        cross = self._scales.variance * _matern(_squares(features / self._scales.lengths, self._known))
        explained = np.square(cross @ self._inverse_root.T).sum(axis=1)
        return cross @ self._weights, np.sqrt(np.maximum(self._scales.variance - explained, 1e-10))

    def condition_on_mean(self, features: Matrix) -> MaternProcess:
        """Return the process that takes its own mean for the value at these rows (Ginsbourger et al., 2010)."""
        if not len(features):
            return self
        values = np.concatenate([self._values, self.predict(features)[0]])
        return MaternProcess(self._scales, np.vstack([self._features, features]), values, self._exact + len(features))


def _squares(one: Matrix, other: Matrix) -> Matrix:
    found = np.square(one).sum(axis=1)[:, None] + np.square(other).sum(axis=1)[None, :]
    found -= 2.0 * one @ other.T
    return np.asarray(np.maximum(found, 0.0, out=found))


def _matern(squares: Matrix) -> Matrix:
    """Return the kernel of scaled distances. It writes over `squares`, as new arrays take longer than arithmetic."""
    far = np.sqrt(squares)
    far *= _ROOT5
    squares *= 5.0 / 3.0
    squares += 1.0 + far
    squares *= np.exp(np.negative(far, out=far), out=far)
    return squares


def _invert(root: Matrix) -> Matrix:
    """Return the inverse of a lower triangular matrix, a large one by its blocks, which takes a third of the time."""
    count = len(root)
    if count <= _MOST_AT_ONCE:
        return np.asarray(np.linalg.inv(root))
    half = count // 2
    found = np.zeros_like(root)
    found[:half, :half] = _invert(root[:half, :half])
    found[half:, half:] = _invert(root[half:, half:])
    found[half:, :half] = -found[half:, half:] @ (root[half:, :half] @ found[:half, :half])
    return found


def _unlikely(theta: Vector, squares: Matrix, values: Vector) -> tuple[float, Vector]:
    """Return the negative logarithm of the posterior density, and its slopes."""
    variance, lengths, noise = math.exp(theta[0]), np.exp(theta[1:-1]), math.exp(theta[-1])
    weights = 1.0 / np.square(lengths)
    kernel, steepness = _spread_out(weights @ squares, variance)
    kernel = kernel.reshape(len(values), len(values))
    covariance = kernel.copy()
    covariance[np.diag_indices_from(covariance)] += noise + _JITTER
    try:
        root = np.asarray(np.linalg.cholesky(covariance))
    except np.linalg.LinAlgError:
        return math.inf, np.zeros_like(theta)
    half = _invert(root)
    pull = half.T @ half  # the inverse, at first
    alpha = pull @ values
    fall = 0.5 * float(values @ alpha) + float(np.log(np.diag(root)).sum())
    pull -= np.outer(alpha, alpha)
    steepness *= pull.ravel()
    along = squares @ steepness
    slopes = [0.5 * float((pull * kernel).sum()), *(0.5 * weights * along), 0.5 * noise * float(np.trace(pull))]
    rare, steep = _prior(variance, lengths, noise)
    return fall + rare, np.array(slopes) + steep


def _spread_out(squares: Vector, variance: float) -> tuple[Vector, Vector]:
    """Return the kernel of scaled distances, and how steep it is. It writes over `squares`, as `_matern` does."""
    far = np.sqrt(squares, out=squares)
    far *= _ROOT5
    decay = np.negative(far)
    np.exp(decay, out=decay)
    decay *= variance
    steepness = 1.0 + far
    kernel = far
    kernel *= far
    kernel /= 3.0
    kernel += steepness
    kernel *= decay
    steepness *= 5.0 / 3.0
    steepness *= decay
    return kernel, steepness


def _prior(variance: float, lengths: Vector, noise: float) -> tuple[float, Vector]:
    """Return how rare hyperparameters are, as a negative logarithm, and its slopes.

    Few results fit a process best that takes a parameter for unimportant, or for noise, too early. Variance: gamma of
    shape 2. Noise: gamma of shape 1.1 and rate 30. Lengths: neither tiny nor far longer than the range.
    """
    squares = np.square(lengths)
    rare = variance - math.log(variance) + float(np.sum(0.1 * squares + 0.01 / squares))
    rare += 30.0 * noise - 0.1 * math.log(noise)
    return rare, np.array([variance - 1.0, *(0.2 * squares - 0.02 / squares), 30.0 * noise - 0.1])


def _descend(objective: Callable[[Vector], tuple[float, Vector]], place: Vector) -> tuple[Vector, float]:
    """Return where a smooth function has a minimum near `place`, and its value there, by the method of BFGS."""
    value, slope = objective(place)
    curve = np.eye(len(place))
    for _ in range(_MOST_STEPS):
        way = -curve @ slope
        if way @ slope >= 0.0:
            curve = np.eye(len(place))
            way = -slope
        way /= max(1.0, float(np.max(np.abs(way))))  # a step of e in each hyperparameter at most
        length = 1.0
        for _ in range(12):
            there, steep = objective(place + length * way)
            if there <= value + 1e-4 * length * float(way @ slope):
                break
            length *= 0.4
        else:
            return place, value
        step, bend = length * way, steep - slope
        gain = value - there
        place, value, slope = place + step, there, steep
        if gain < _SMALLEST_GAIN:
            break
        curve = _updated(curve, step, bend)
    return place, value


def _updated(curve: Matrix, step: Vector, bend: Vector) -> Matrix:
    along = float(step @ bend)
    if along <= 1e-10:
        return curve
    turn = np.eye(len(step)) - np.outer(step, bend) / along
    return np.asarray(turn @ curve @ turn.T + np.outer(step, step) / along)
