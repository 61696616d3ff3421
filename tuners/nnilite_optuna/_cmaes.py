"""CMA-ES, by the library cmaes, which is what optuna's sampler uses too.

It is driven directly, because optuna keeps the state of the optimiser in attributes of trials, which a replay would not
have. A generation is complete as soon as there are as many results as members, whichever they are; so no trial waits.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from nnilite.errors import SpaceError
from nnilite.records import Json
from nnilite.space import SearchSpace
from nnilite.tuning.class_args import number, one_of, whole_number
from nnilite.tuning.learning import LearningTuner, Point, PointState
from nnilite.tuning.positions import position, raw_at

if TYPE_CHECKING:
    import numpy as np
    from cmaes import CMA
    from numpy.typing import NDArray

_RUN = "run"


class CMAESTuner(LearningTuner):
    """Covariance matrix adaptation evolution strategy (Hansen, 2016). Numbers only; no choice, nothing nested.

    Strong where parameters depend on each other and a few hundred trials can be run. When a run has converged, another
    one begins at a random point with twice the population.

    Args:
        optimize_mode: "minimize" or "maximize".
        popsize: trials of a generation; None: 4 + 3 ln(number of parameters).
        sigma0: first standard deviation, as a share of each range.
        lr_adapt: learning-rate adaptation, for noisy objectives and those with many optima (Nomura et al., 2023).
        restart: begin again after convergence.
        seed: any whole number; None for a different search each time.

    Raises: ConfigError
    """

    def __init__(
        self,
        optimize_mode: str = "minimize",
        popsize: int | None = None,
        sigma0: float = 1 / 6,
        lr_adapt: bool = False,
        restart: bool = True,
        seed: int | None = None,
    ) -> None:
        super().__init__(optimize_mode, seed)
        self._size = None if popsize is None else whole_number("popsize", popsize, low=2)
        self._sigma = number("sigma0", sigma0, 1e-6, 1.0)
        self._adapt = one_of("lr_adapt", lr_adapt, (True, False))
        self._again = one_of("restart", restart, (True, False))

    def _accept(self, space: SearchSpace) -> None:
        for parameter in space.parameters:
            if parameter.unordered and parameter.count != 1:
                raise SpaceError(
                    f"CMA-ES takes numbers only, but {parameter.name!r} is a choice; "
                    "TPE, SMAC and Evolution take choices"
                )

    def _restart(self) -> None:
        self._axes = [p for p in self.space.parameters if p.count != 1]
        self._optimizer: CMA | None = None
        self._run = 0
        self._known: list[Point] = []  # results from elsewhere, or from before the space was changed
        self._generation: list[Point] = []

    def _suggest(self, parameter_id: int, rng: random.Random) -> Json:
        flat = {p.path: p.sample(rng) for p in self.space.parameters}
        if self._axes:
            optimizer = self._get_current()
            optimizer._rng.seed(rng.getrandbits(32))  # A replay need not ask for what was asked before.
            flat |= {p.path: raw_at(p, float(x)) for p, x in zip(self._axes, optimizer.ask(), strict=True)}
        return self.space.build(flat)

    def _opened(self, point: Point) -> None:
        if point.parameter_id in self._running and self._axes:
            self._get_current()
            point.notes[_RUN] = self._run

    def _closed(self, point: Point) -> None:
        if point.state is PointState.FAILED or not self._axes:
            return
        if point.notes.get(_RUN) == self._run:
            self._learn_from(point)
        elif _RUN not in point.notes and point.loss is not None:
            self._known.append(point)

    def _learn_from(self, point: Point) -> None:
        optimizer = self._get_current()
        self._generation.append(point)
        if len(self._generation) < optimizer.population_size:
            return
        optimizer.tell(self._rank_solutions())
        self._generation = []
        if self._again and optimizer.should_stop():
            self._run += 1
            self._optimizer = None

    def _rank_solutions(self) -> list[tuple[NDArray[np.float64], float]]:
        """Return the generation with its losses, the best first.

        Only the order counts, so poor ones take the worst loss.
        """
        import numpy as np

        ranked = sorted(self._generation, key=lambda point: (point.loss is None, point.loss or 0.0))
        worst = max((point.loss for point in ranked if point.loss is not None), default=0.0)
        return [(np.array(self._find_places(p)), worst if p.loss is None else p.loss) for p in ranked]

    def _find_places(self, point: Point) -> list[float]:
        flat = point.flat or {}
        return [position(p, flat[p.path]) for p in self._axes]

    def _get_current(self) -> CMA:
        import numpy as np
        from cmaes import CMA

        if self._optimizer is None:
            dimensions = len(self._axes)
            size = self._size or 4 + math.floor(3 * math.log(dimensions))
            self._optimizer = CMA(
                mean=np.array(self._start()),
                sigma=self._sigma,
                bounds=np.array([[0.0, 1.0]] * dimensions),
                n_max_resampling=10 * dimensions,
                seed=0,
                population_size=size * 2**self._run,
                lr_adapt=self._adapt,
            )
        return self._optimizer

    def _start(self) -> list[float]:
        """Return the middle, or the best point known from elsewhere; a later run begins anywhere."""
        if self._run:
            rng = self.rng(-1, self._run)
            return [rng.random() for _ in self._axes]
        if self._known:
            return self._find_places(min(self._known, key=lambda point: point.loss or 0.0))
        return [0.5] * len(self._axes)
