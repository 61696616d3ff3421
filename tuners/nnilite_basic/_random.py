"""Random search."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from nnilite.tuning.learning import LearningTuner

if TYPE_CHECKING:
    from nnilite.records import Json


class RandomTuner(LearningTuner):
    """Draws each parameter at random, as its type says. Where the space is finite, no point is drawn twice.

    Args:
        seed: any whole number; None for a different search each time.
        optimize_mode: taken as by other tuners, without any effect.

    Raises: ConfigError
    """

    def __init__(self, seed: int | None = None, optimize_mode: str = "maximize") -> None:
        super().__init__(optimize_mode, seed)

    def _suggest(self, parameter_id: int, rng: random.Random) -> Json:
        return self.space.sample(rng)
