"""Tuners with a model of the objective: fit it, then run the point that promises most.

A proposal is a pure function of the points, the seed and the parameter id, so that a replay changes nothing: what a
model keeps between proposals is a cache of something that follows from the first n results.
"""

from __future__ import annotations

import importlib.util
import math
import random
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from nnilite.errors import PluginError, SpaceError
from nnilite.records import Json
from nnilite.space import SearchSpace
from nnilite.tuning.class_args import whole_number
from nnilite.tuning.learning import LearningTuner, Point, PointState, canonical

if TYPE_CHECKING:
    import numpy as np

    from nnilite.tuning.cube import Cube, Matrix, Vector

    Score = Callable[[Matrix], Vector]

_MOST_FAILED = 50  # most failed points that models use
_NEARLY_ALIKE = 1e6  # what points that are nearly alike to running ones lose of their score


def need_sklearn() -> None:
    """Raise a PluginError that names the extra if scikit-learn is not installed. Imports nothing, as that is slow."""
    for module in ("scipy", "sklearn"):
        if importlib.util.find_spec(module) is None:
            raise PluginError(f"this needs the module {module!r}. Install it with: pip install 'nnilite[sklearn]'")


class SurrogateTuner(LearningTuner):
    """Base of the tuners here. A subclass implements `_best`: the most promising candidate, given what is known."""

    nested = False
    most_points = 400
    """A larger history is thinned: the best ones and the latest ones are kept."""

    def __init__(self, optimize_mode: str, cold_start_num: int, seed: int | None) -> None:
        super().__init__(optimize_mode, seed)
        need_sklearn()
        self._cold = whole_number("cold_start_num", cold_start_num, low=1)

    def _accept(self, space: SearchSpace) -> None:
        if not self.nested and any(p.parent is not None or p.nested for p in space.parameters):
            raise SpaceError(
                f"{type(self).__name__.removesuffix('Tuner')} takes no nested choices; "
                "TPE, SMAC, Evolution and Anneal do"
            )

    def _restart(self) -> None:
        from nnilite.tuning.cube import Cube

        self._cube: Cube = Cube(self.space)
        self._ended: list[Point] = []  # with a value, or known to be poor
        self._rows: list[Vector] = []  # their positions
        self._failed: list[Vector] = []  # the positions of trials that ended without a result

    def _closed(self, point: Point) -> None:
        import numpy as np

        if point.flat is None:
            return
        row = self._cube.positions([point.flat])[0]
        if point.state is PointState.FAILED:
            if not any(np.array_equal(row, failed) for failed in self._failed):
                self._seen.discard(canonical(point.parameters))
            self._failed.append(row)
        else:
            self._ended.append(point)
            self._rows.append(row)

    def _suggest(self, parameter_id: int, rng: random.Random) -> Json:
        from nnilite.tuning.cube import generator

        done = sum(point.state is PointState.DONE for point in self._ended)
        if done < self._cold or not self._cube.width:
            return self.space.sample(rng)
        from threadpoolctl import threadpool_limits

        with threadpool_limits(limits=1):  # small matrices: threads cost more than they save
            return self.space.build(self._cube.flat(self._best(generator(rng))))

    @abstractmethod
    def _best(self, numbers: np.random.Generator) -> Vector:
        """Return the position row of the most promising candidate."""

    def _history(self, until: int | None = None) -> tuple[Matrix, Vector]:
        """Return position rows and standardized losses of the first `until` results."""
        rows, losses = self._known(until)
        return rows, standardized(losses)[0]

    def _known(self, until: int | None = None) -> tuple[Matrix, Vector]:
        """Return position rows and losses of the first `until` results; poor ones count as the worst."""
        import numpy as np

        ended = self._ended[:until]
        known = [point.loss for point in ended if point.loss is not None]
        worst = max(known, default=0.0)
        losses = np.array([worst if point.loss is None else point.loss for point in ended])
        chosen = self._thin_out(losses)
        return np.array(self._rows[: len(ended)])[chosen], losses[chosen]

    def _thin_out(self, losses: Vector) -> list[int]:
        import numpy as np

        count = len(losses)
        if count <= self.most_points:
            return list(range(count))
        best = np.argsort(losses, kind="stable")[: self.most_points // 2]
        latest = range(count - self.most_points // 2, count)
        return sorted({*(int(k) for k in best), *latest})

    def _fresh(self, score: Score) -> Score:
        """Lower the score of what is nearly alike to a running point.

        In a finite space, drop what was tried from it; otherwise the best would be proposed repeatedly.
        """
        import numpy as np

        running = self._list_running()

        def apart(rows: Matrix) -> Vector:
            found = score(rows)
            return np.where(self._cube.nearly_alike(rows, running), found - _NEARLY_ALIKE, found)

        if not self.distinct or self._cube.continuous.any():
            return apart
        tried = {row.tobytes() for row in (*self._rows, *self._failed[:-1], *self._list_unmeasured())}

        def fresh(rows: Matrix) -> Vector:
            return np.where([row.tobytes() in tried for row in rows], -np.inf, apart(rows))

        return fresh

    def _list_running(self) -> Matrix:
        return self._cube.positions([p.flat for p in self._running.values() if p.flat is not None])

    def _list_unmeasured(self) -> Matrix:
        """Return position rows of the points that run now, and of those that failed.

        A model that knew nothing of points that failed would propose them over and over. The last one has a second
        chance at once: it may have failed by bad luck.
        """
        import numpy as np

        return np.vstack([self._list_running(), *self._failed[-_MOST_FAILED - 1 : -1]])


def standardized(losses: Vector, bends: bool = True) -> tuple[Vector, float]:
    """Return losses with mean 0 and variance 1 in the same order.

    If it `bends`, without long tails, which suits most models.

    Also return the logarithm of how much closer together this brings them, as a factor of their joint density.
    """
    import numpy as np

    largest = float(np.max(np.abs(losses))) or 1.0
    losses = losses / largest  # the square of a large loss is not a float
    spread = float(np.std(losses))
    if spread <= 1e-12:
        return np.zeros(len(losses)), 0.0
    level = (losses - float(np.mean(losses))) / spread
    if bends and len(losses) >= 8:
        bent, slope = _bend(level)
        width = float(np.std(bent))
        if np.all(np.isfinite(bent)) and width > 1e-9:
            return (bent - np.mean(bent)) / width, slope - len(losses) * math.log(width)
    return level, 0.0


def _bend(level: Vector) -> tuple[Vector, float]:
    """Apply Yeo and Johnson's transformation, with the power that makes the result likeliest to be normal.

    Also return the sum of the logarithms of its slopes. scipy searches the power too, but its checks of each step take
    ten times as long as the step.
    """
    import numpy as np
    from scipy import optimize, stats

    weight = float(np.sum(np.sign(level) * np.log1p(np.abs(level))))

    def unlikely(power: float) -> float:
        variance = float(np.var(stats.yeojohnson(level, power)))
        return 0.5 * len(level) * math.log(max(variance, 1e-300)) - (power - 1.0) * weight

    power = optimize.minimize_scalar(unlikely, bounds=(-5.0, 7.0), method="bounded", options={"xatol": 1e-4}).x
    return np.asarray(stats.yeojohnson(level, power)), (float(power) - 1.0) * weight


def log_improvement(mean: Vector, deviation: Vector, best: float) -> Vector:
    """Return the logarithm of the expected improvement below `best`, which ranks candidates even where it is tiny."""
    import numpy as np
    from scipy import special

    deviation = np.maximum(deviation, 1e-12)
    z = (best - mean) / deviation
    near = np.maximum(z, -1.0)
    plain = np.log(np.exp(-0.5 * near**2) / np.sqrt(2.0 * np.pi) + near * special.ndtr(near))
    far = np.clip(-z, 1.0, 1e5)
    rest = np.maximum(1.0 - np.sqrt(np.pi / 2.0) * far * special.erfcx(far / np.sqrt(2.0)), 1e-12)
    tail = -0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) + np.log(rest)
    return np.asarray(np.where(z > -1.0, plain, tail) + np.log(deviation))
