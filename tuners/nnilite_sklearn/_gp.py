"""Bayesian optimisation with a Gaussian process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nnilite.tuning.class_args import number, one_of, whole_number
from nnilite_sklearn._surrogate import SurrogateTuner, log_improvement, standardized

if TYPE_CHECKING:
    import numpy as np

    from nnilite.tuning.cube import Matrix, Vector
    from nnilite_sklearn._gaussian import GaussianProcess

_REFINED = 4  # the best candidates, from which the search climbs uphill
_ROUNDS = 6  # of moves along numbers and through finite columns


class GaussianTuner(SurrogateTuner):
    """Base of GP and Metis: the process, fitted on the history."""

    most_points = 300

    def __init__(self, optimize_mode: str, cold_start_num: int, seed: int | None, nu: float, alpha: float) -> None:
        super().__init__(optimize_mode, cold_start_num, seed)
        self._nu, self._alpha = nu, alpha

    def _restart(self) -> None:
        from nnilite_sklearn._gaussian import Gaussian

        super()._restart()
        self._gaussian = Gaussian(self._cube.groups, self._nu, self._alpha)
        self._fit: tuple[int, Any, bool] = (0, None, False)

    def _process(self) -> tuple[GaussianProcess, Matrix, Vector]:
        """Return the process, and the position rows and values that it knows."""
        until = _step(len(self._ended))
        if self._fit[0] != until:
            self._fit = (until, *self._find_likeliest(*self._known(until)))
        _, kernel, bends = self._fit
        rows, losses = self._known()
        values, _ = standardized(losses, bends)
        unmeasured = self._cube.features(self._list_unmeasured())
        return self._gaussian.process(kernel, self._cube.features(rows), values, unmeasured), rows, values

    def _find_likeliest(self, rows: Matrix, losses: Vector) -> tuple[Any, bool]:
        """Return the kernel and whether losses are bent: bending helps where they span magnitudes, and harms steps."""
        features = self._cube.features(rows)
        fits = []
        for bends in (False, True):
            values, density = standardized(losses, bends)
            kernel, evidence = self._gaussian.fitted(features, values)
            fits.append((evidence + density, kernel, bends))
        return max(fits, key=lambda fit: fit[0])[1:]

    def _candidates(self, rows: Matrix, values: Vector, far: int, near: int, numbers: np.random.Generator) -> Matrix:
        import numpy as np

        best = rows[np.argsort(values, kind="stable")[:5]]
        return np.vstack([self._cube.drawn(far, numbers), self._cube.near(best, near, numbers)])

    def _climb_uphill(self, score: Callable[[Matrix], Vector], rows: Matrix) -> Vector:
        """Return the best of some rows after moving each uphill, along its numbers and through its finite columns."""
        import numpy as np

        found = list(rows)
        for row in rows:
            for _ in range(_ROUNDS):
                row, moved = self._climb(score, self._slide(score, row))
                if not moved:
                    break
            found.append(row)
        scores = score(np.array(found))
        return np.asarray(found[int(np.argmax(scores))])

    def _slide(self, score: Callable[[Matrix], Vector], row: Vector) -> Vector:
        """Move rows along the continuous columns, all at once."""
        import numpy as np
        from scipy.optimize import minimize

        free = np.flatnonzero(self._cube.continuous)
        if not len(free):
            return row
        steps = np.vstack([np.zeros(len(free)), 1e-5 * np.eye(len(free))])

        def fall(place: Vector) -> tuple[float, Vector]:
            tried = np.repeat(row[None, :], len(steps), axis=0)
            tried[:, free] = place + steps
            down = -score(tried)
            return float(down[0]), (down[1:] - down[0]) / 1e-5

        low, high = self._cube.low[free], self._cube.high[free]
        ends = list(zip(low, high, strict=True))
        end = minimize(fall, np.clip(row[free], low, high), jac=True, bounds=ends, options={"maxiter": 15})
        moved = row.copy()
        moved[free] = np.clip(end.x, low, high)
        return moved

    def _climb(self, score: Callable[[Matrix], Vector], row: Vector) -> tuple[Vector, bool]:
        """Return the best row that differs in one finite column, if it is better, and whether it is."""
        import numpy as np

        around = np.vstack([row[None, :], self._cube.neighbours(row)])
        best = int(np.argmax(score(around)))
        return np.asarray(around[best]), best > 0


class GPTuner(GaussianTuner):
    """NNI's GP: Bayesian optimisation with a Gaussian process (Snoek et al., 2012). All types but nested choices.

    Good for trials of a second and more, up to some hundreds.

    Args:
        optimize_mode: "maximize" or "minimize".
        utility: "ei" (expected improvement), "ucb" (confidence bound) or "poi" (probability of improvement).
        kappa: how much "ucb" explores.
        xi: improvement that "ei" and "poi" ask for at least, in standard deviations of the results.
        nu: smoothness of the Matern kernel: 0.5, 1.5 or 2.5.
        alpha: added to the diagonal, for noise and against numerical trouble.
        cold_start_num: number of random trials at the beginning.
        selection_num_warm_up: random candidates for each proposal.
        selection_num_starting_points: candidates near the best points.
        seed: any whole number; None for a different search each time.

    Raises: ConfigError, PluginError
    """

    def __init__(  # noqa: PLR0913  NNI's arguments
        self,
        optimize_mode: str = "maximize",
        utility: str = "ei",
        kappa: float = 5,
        xi: float = 0,
        nu: float = 2.5,
        alpha: float = 1e-6,
        cold_start_num: int = 10,
        selection_num_warm_up: int = 2000,
        selection_num_starting_points: int = 250,
        seed: int | None = None,
    ) -> None:
        one_of("nu", float(number("nu", nu)), (0.5, 1.5, 2.5))
        super().__init__(optimize_mode, cold_start_num, seed, float(nu), number("alpha", alpha, low=1e-12))
        self._utility = one_of("utility", utility, ("ei", "ucb", "poi"))
        self._kappa = number("kappa", kappa, low=0.0)
        self._xi = number("xi", xi, low=0.0)
        self._far = whole_number("selection_num_warm_up", selection_num_warm_up, low=1)
        self._near = whole_number("selection_num_starting_points", selection_num_starting_points, low=1)

    def _best(self, numbers: np.random.Generator) -> Vector:
        import numpy as np

        process, rows, values = self._process()

        def worth(candidates: Matrix) -> Vector:
            return self._score(*process.predict(self._cube.features(candidates)), process.lowest)

        score = self._fresh(worth)
        candidates = self._candidates(rows, values, self._far, self._near, numbers)
        order = np.argsort(-score(candidates), kind="stable")
        return self._climb_uphill(score, candidates[order[:_REFINED]])

    def _score(self, mean: Vector, deviation: Vector, best: float) -> Vector:
        import numpy as np
        from scipy import special

        if self._utility == "ucb":
            return self._kappa * deviation - mean
        if self._utility == "poi":
            return np.asarray(special.log_ndtr((best - self._xi - mean) / deviation))
        return log_improvement(mean, deviation, best - self._xi)


def _step(count: int) -> int:
    """Return the number of results that hyperparameters are fitted to: all of few, then in steps of a tenth."""
    step = 1
    while step * 20 <= count:
        step *= 2
    return count - count % step
