"""Metis: of the most promising, the least known and the most doubtful point, the one that may improve most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnilite.tuning.class_args import number, one_of, whole_number
from nnilite_sklearn._gp import GaussianTuner
from nnilite_sklearn._surrogate import log_improvement

if TYPE_CHECKING:
    import numpy as np

    from nnilite.tuning.cube import Matrix, Vector

_NEAR_SHARE = 0.5  # of the candidates, near to the best points
_DOUBT = 2.5  # standard deviations from its prediction at which a result is doubted


class MetisTuner(GaussianTuner):
    """NNI's Metis (Li et al., 2018, "Metis: Robustly Tuning Tail Latencies of Cloud Systems"). No nested choices.

    A Gaussian process proposes three candidates: where the objective is expected to be best, where it is least known,
    and, if resampling is on, the point whose result contradicts the process most. The candidate that is likeliest to
    improve is run, so Metis copes with noise better than GP.

    Args:
        optimize_mode: "maximize" or "minimize".
        no_resampling: False lets it run a doubtful point again.
        no_candidates: True makes it explore only, by the least known point.
        selection_num_starting_points: candidates for each proposal.
        cold_start_num: number of random trials at the beginning.
        exploration_probability: chance that the least known point is considered at all.
        seed: any whole number; None for a different search each time.

    Raises: ConfigError, PluginError
    """

    def __init__(
        self,
        optimize_mode: str = "maximize",
        no_resampling: bool = True,
        no_candidates: bool = False,
        selection_num_starting_points: int = 600,
        cold_start_num: int = 10,
        exploration_probability: float = 0.9,
        seed: int | None = None,
    ) -> None:
        super().__init__(optimize_mode, cold_start_num, seed, nu=2.5, alpha=1e-6)
        self._resampling = not one_of("no_resampling", no_resampling, (True, False))
        self._only_explore = one_of("no_candidates", no_candidates, (True, False))
        self._count = whole_number("selection_num_starting_points", selection_num_starting_points, low=2)
        self._exploring = number("exploration_probability", exploration_probability, 0.0, 1.0)
        self.distinct = not self._resampling

    def _best(self, numbers: np.random.Generator) -> Vector:
        import numpy as np

        process, rows, values = self._process()

        def mean(tried: Matrix) -> Vector:
            return process.predict(self._cube.features(tried))[0]

        def deviation(tried: Matrix) -> Vector:
            return process.predict(self._cube.features(tried))[1]

        near = int(self._count * _NEAR_SHARE)
        tried = self._candidates(rows, values, self._count - near, near, numbers)
        unknown = np.asarray(tried[int(np.argmax(self._fresh(deviation)(tried)))])
        if self._only_explore:
            return unknown
        score = self._fresh(lambda rows: -mean(rows))
        order = np.argsort(-score(tried), kind="stable")
        found = [self._climb_uphill(score, tried[order[:3]])]
        if numbers.random() < self._exploring:
            found.append(unknown)
        if self._resampling:
            found.extend(self._find_doubtful(rows, values, mean(rows)))
        means, deviations = process.predict(self._cube.features(np.array(found)))
        return found[int(np.argmax(log_improvement(means, deviations, process.lowest)))]

    def _find_doubtful(self, rows: Matrix, values: Vector, means: Vector) -> list[Vector]:
        import numpy as np

        gap = np.abs(values - means)
        worst = int(np.argmax(gap))
        return [rows[worst]] if gap[worst] > _DOUBT * max(float(np.std(values - means)), 1e-9) else []
