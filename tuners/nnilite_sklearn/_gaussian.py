"""A Gaussian process by scikit-learn, with one length scale for each parameter.

Its hyperparameters are fitted on the first n results, n growing in steps, and kept until the next step.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel, Matern, Sum, WhiteKernel

from nnilite.tuning.cube import Matrix, Vector

_MOST_STEPS = 40


class Gaussian:
    """Fitted hyperparameters, and the process on any data."""

    def __init__(self, groups: Sequence[int], nu: float, alpha: float) -> None:
        self._groups, self._nu, self._alpha = tuple(groups), nu, alpha

    def fitted(self, features: Matrix, values: Vector) -> tuple[Kernel, float]:
        """Return the likeliest kernel given the values, and the logarithm of its posterior density."""
        model = GaussianProcessRegressor(self._start(), alpha=self._alpha, optimizer=_search)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The hyperparameters are at their bounds, which exist on purpose.
            model.fit(features, values)
        return model.kernel_, float(model.log_marginal_likelihood_value_)

    def _start(self) -> Kernel:
        shape = _Shared(self._groups, np.full(max(self._groups) + 1, 0.5), (0.03, 20.0), self._nu)
        return _Noisy(ConstantKernel(1.0, (0.05, 50.0)) * shape, WhiteKernel(1e-3, (1e-7, 0.3)))

    def process(self, kernel: Kernel, features: Matrix, values: Vector, unmeasured: Matrix) -> GaussianProcess:
        """Return the process given the values.

        At unmeasured points it takes its own mean (Ginsbourger et al., 2010).
        """
        process = GaussianProcess(kernel, self._alpha, features, values)
        if len(unmeasured):
            believed, _ = process.predict(unmeasured)
            both = np.concatenate([values, believed])
            process = GaussianProcess(kernel, self._alpha, np.vstack([features, unmeasured]), both)
        return process


class _Shared(Matern):  # type: ignore[misc,unused-ignore]
    """Matern's kernel with one length scale for each group of features: the options of a choice share one.

    groups: of each feature, the number of its group.
    """

    def __init__(self, groups: Sequence[int], length_scale: Any, length_scale_bounds: Any, nu: float) -> None:
        super().__init__(length_scale, length_scale_bounds, nu)
        self.groups = groups

    def __call__(self, X: Matrix, Y: Matrix | None = None, eval_gradient: bool = False) -> Any:
        scales = np.atleast_1d(self.length_scale)[list(self.groups)]
        found = Matern(scales, self.length_scale_bounds, self.nu)(X, Y, eval_gradient)
        if not eval_gradient:
            return found
        kernel, slopes = found
        slopes = slopes.reshape(*kernel.shape, -1)
        sums = np.zeros((*kernel.shape, len(np.atleast_1d(self.length_scale))))
        for feature, group in enumerate(self.groups):
            sums[..., group] += slopes[..., feature]
        return kernel, sums


class _Noisy(Sum):  # type: ignore[misc,unused-ignore]
    """A variance times a `_Shared`, and white noise. A search sets theta a hundred times.

    scikit-learn's own theta looks for the hyperparameters among all attributes, each time and in each part. That takes
    longer than the process itself.
    """

    @property
    def theta(self) -> Vector:
        parts = [self.k1.k1.constant_value, self.k1.k2.length_scale, self.k2.noise_level]
        return np.asarray(np.log(np.hstack(parts)))

    @theta.setter
    def theta(self, theta: Vector) -> None:
        self.k1.k1.constant_value, *scales, self.k2.noise_level = np.exp(theta)
        self.k1.k2.length_scale = np.array(scales)


class GaussianProcess:
    """A Gaussian process with known hyperparameters. `lowest` is the lowest of the values, believed ones included."""

    def __init__(self, kernel: Kernel, alpha: float, features: Matrix, values: Vector) -> None:
        model = GaussianProcessRegressor(kernel, alpha=alpha, optimizer=None).fit(features, values)
        self._features, self._root, self._weights = features, model.L_, model.alpha_
        self.lowest = float(np.min(values))
        self._shape = kernel.k1  # without the noise
        self._prior = float(self._shape.diag(features[:1])[0])

    def predict(self, features: Matrix) -> tuple[Vector, Vector]:
        """Return mean and standard deviation of the objective itself, without its noise.

        scikit-learn's own `predict` checks its input for longer than it takes to compute few rows.
        """
        cross = self._shape(features, self._features)
        known = solve_triangular(self._root, cross.T, lower=True, check_finite=False)
        return cross @ self._weights, np.sqrt(np.maximum(self._prior - np.sum(known**2, axis=0), 1e-12))


def _search(objective: Callable[..., Any], theta: Vector, bounds: Matrix) -> tuple[Vector, float]:
    def unlikely(theta: Vector) -> tuple[float, Vector]:
        fall, slope = objective(theta)
        rare, steep = _prior(theta)
        return fall + rare, slope + steep

    found = minimize(unlikely, theta, jac=True, bounds=bounds, method="L-BFGS-B", options={"maxiter": _MOST_STEPS})
    return found.x, found.fun


def _prior(theta: Vector) -> tuple[float, Vector]:
    """Return how rare hyperparameters are, as a negative logarithm, and its slopes, as in optuna's GPSampler.

    Few results fit a process best that takes a parameter for unimportant, or for noise, too early. Short lengths are
    less rare here than there, where results that lie close together, as imported ones may, are smoothed too much.
    `theta`: logarithms of variance (gamma, shape 2), length scales, and variance of the noise (gamma, shape 1.1,
    rate 30).
    """
    variance, *scales, noise = np.exp(theta)
    squares = np.square(scales)
    rare = variance - theta[0] + float(np.sum(0.1 * squares + 0.01 / squares)) + 30.0 * noise - 0.1 * theta[-1]
    return rare, np.array([variance - 1.0, *(0.2 * squares - 0.02 / squares), 30.0 * noise - 0.1])
