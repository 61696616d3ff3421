"""Points that cover the space more evenly than chance would."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from nnilite.records import Json
from nnilite.tuning.class_args import one_of
from nnilite.tuning.learning import LearningTuner, Point
from nnilite.tuning.positions import raw_at

if TYPE_CHECKING:
    from scipy.stats.qmc import QMCEngine


class QMCTuner(LearningTuner):
    """Quasi-Monte Carlo: a scrambled Sobol or Halton sequence (scipy's). All space types, nested ones included.

    It does not learn from results: a better random search, and a good base to compare tuners with.

    Args:
        qmc_type: "sobol" or "halton". Sobol is at its best with a power of 2 of trials.
        scramble: randomise the sequence, by the seed, without making it less even.
        seed: any whole number; None for a different search each time.
        optimize_mode: accepted as by other tuners, but has no effect.

    Raises: ConfigError
    """

    def __init__(
        self,
        qmc_type: str = "sobol",
        scramble: bool = True,
        seed: int | None = None,
        optimize_mode: str = "maximize",
    ) -> None:
        super().__init__(optimize_mode, seed)
        self._type = one_of("qmc_type", qmc_type, ("sobol", "halton"))
        self._scramble = one_of("scramble", scramble, (True, False))

    def _restart(self) -> None:
        self._engine: QMCEngine | None = None
        self._given = 0  # points that the engine has given
        self._taken = 0  # trials so far: the next one gets the point of this number
        self._asked: int | None = None

    def _opened(self, point: Point) -> None:
        self._taken += point.parameter_id is not None

    def _suggest(self, parameter_id: int, rng: random.Random) -> Json:
        if self._asked == parameter_id:  # The point of the sequence was tried before, so the space is finite.
            return self.space.sample(rng)
        self._asked = parameter_id
        places = self._draw_point(self._taken)
        return self.space.build({p.path: raw_at(p, places[k]) for k, p in enumerate(self.space.parameters)})

    def _draw_point(self, index: int) -> list[float]:
        if self._engine is None or index < self._given:
            self._engine, self._given = self._make_engine(), 0
        if index > self._given:
            self._engine.fast_forward(index - self._given)
        self._given = index + 1
        return [float(place) for place in self._engine.random(1)[0]]

    def _make_engine(self) -> QMCEngine:
        from scipy.stats import qmc

        kinds: dict[str, Any] = {"sobol": qmc.Sobol, "halton": qmc.Halton}
        dimensions = max(1, len(self.space.parameters))
        engine: QMCEngine = kinds[self._type](dimensions, scramble=self._scramble, rng=self.seed % 2**32)
        return engine
