"""How likely a trial is to end with a result, by where others succeeded and failed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from nnilite_optuna._matern import KernelParameters, MaternProcess

if TYPE_CHECKING:
    from nnilite.tuning.cube import Cube, Matrix, Vector

_REACH = 0.5  # length scale of features
_MOST_KNOWN = 150  # latest successes and failures used, of each kind
_HOPELESS = 0.2  # chance of success below which a failure was no bad luck
_REGION = 3  # hopeless failures that are no coincidence
_TINY = -5.0  # logarithm of an improvement
_FAR = 30.0  # deviations: the tail beyond is soon no float, and near to its first term


class Success:
    """The chance that trials of a place succeed more often than they fail.

    It is that of a Gaussian process of labels, 1 for a success and -1 for a failure, whose mean is that of all
    labels. So a lone failure counts little among successes, since machines fail, too, and a region
    where all fail is soon as good as forbidden (classification by regression, Rasmussen and Williams, 2006, 6.5).
    """

    def __init__(self, cube: Cube, succeeded: Sequence[Vector], failed: Sequence[Vector]) -> None:
        self._cube = cube
        self._failed = np.array(failed[-_MOST_KNOWN:]).reshape(-1, cube.width)
        if not len(self._failed):
            return
        rows = np.vstack([*succeeded[-_MOST_KNOWN:], self._failed])
        count = len(rows) - len(self._failed)
        self._expected = (count + 1.0 - len(self._failed)) / (len(rows) + 1.0)
        labels = np.repeat([1.0, -1.0], [count, len(self._failed)]) - self._expected
        features = cube.features(rows)
        self._process = MaternProcess(KernelParameters(1.0, np.full(features.shape[1], _REACH), 1.0), features, labels)

    @cached_property
    def hopeless(self) -> Matrix:
        """Rows of failures where success is unlikely: the model of losses keeps away from them."""
        return self._failed[self.log_chance(self._failed) < math.log(_HOPELESS)] if len(self._failed) else self._failed

    def weigh(self, log_improvements: Vector, rows: Matrix) -> Vector:
        """Return scores of position rows that rank improvements by chance of success, too.

        Next to a region that fails, tiny improvements are as good as one another, so that a model that is sure of all
        that succeeds does not send every trial to where it fails.
        """
        if not len(self._failed):
            return log_improvements
        if len(self.hopeless) < _REGION:
            return np.asarray(log_improvements + self.log_chance(rows))
        tiny = np.minimum(log_improvements - _TINY, 0.0)
        return np.asarray(np.maximum(log_improvements, _TINY) + 0.01 * tiny + self.log_chance(rows))

    def log_chance(self, rows: Matrix) -> Vector:
        """Return the logarithm of the chance of each position row."""
        mean, deviation = self._process.predict(self._cube.features(rows))
        return log_below((self._expected + mean) / deviation)


def log_below(deviations: Vector) -> Vector:
    """Return the logarithm of the chance that a normal variable is below this many standard deviations."""
    near = np.array([math.log(0.5 * math.erfc(-z / math.sqrt(2.0))) for z in np.maximum(deviations, -_FAR).tolist()])
    far = np.maximum(-deviations, _FAR)
    return np.where(deviations > -_FAR, near, -0.5 * np.square(far) - np.log(far * math.sqrt(2.0 * math.pi)))
