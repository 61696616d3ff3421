"""Random search."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from nnilite.tuning.learning import LearningTuner

if TYPE_CHECKING:
    from nnilite.records import Json


class RandomTuner(LearningTuner):
    """Draw each parameter at random, as its type says. In a finite space, no point is drawn twice.

    Args:
        seed: any whole number; None for a different search each time.
        optimize_mode: accepted as by other tuners, but has no effect.

    Raises: ConfigError
    """

    learns = False

    def __init__(self, seed: int | None = None, optimize_mode: str = "maximize") -> None:
        super().__init__(optimize_mode, seed)

    def _suggest(self, parameter_id: int, rng: random.Random) -> Json:
        return self.space.sample(rng)
