"""Simulated annealing as hyperopt does it: proposals come closer to good points as results arrive."""

from __future__ import annotations

import math
import random
from bisect import insort
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from nnilite.space import Key, Parameter
from nnilite.tuning.class_args import one_of
from nnilite.tuning.learning import LearningTuner, Point, PointState
from nnilite.tuning.positions import position, raw_at

if TYPE_CHECKING:
    from nnilite.records import Json

_MEAN_RANK = 2.0  # how far down the ranking the point to start from is, on average (the best is 1)
_SHRINKING = 0.1


_Ranked = tuple[float, int, Point]
"""Loss, minus the number of the result (of equal losses the latest comes first), and the point."""


class AnnealTuner(LearningTuner):
    """NNI's Anneal. All space types, nested ones included.

    Each parameter takes its value near that of a good point, within a window that shrinks as 1 / (1 + 0.1 n), n being
    the number of results. Choices keep their value more and more often in the same way.

    Args:
        optimize_mode: "minimize" or "maximize".
        parallel_optimize: let running trials count as if they had the value that `constant_liar_type` names.
        constant_liar_type: "min", "max" or "mean" of the results so far.
        seed: any whole number; None for a different search each time.

    Raises: ConfigError
    """

    def __init__(
        self,
        optimize_mode: str = "minimize",
        parallel_optimize: bool = False,
        constant_liar_type: str = "min",
        seed: int | None = None,
    ) -> None:
        super().__init__(optimize_mode, seed)
        self._parallel = one_of("parallel_optimize", parallel_optimize, (True, False))
        self._lie = one_of("constant_liar_type", constant_liar_type, ("min", "max", "mean"))

    def _restart(self) -> None:
        self._ranked: list[_Ranked] = []  # best first
        self._order = 0
        self._results: Counter[Key] = Counter()  # number of results in which each parameter was active

    def _closed(self, point: Point) -> None:
        if point.state is PointState.DONE and point.loss is not None:
            self._order += 1
            insort(self._ranked, (point.loss, -self._order, point))
            self._results.update(list(point.flat or ()))  # counts keys; of a mapping it would add values

    def _suggest(self, parameter_id: int, rng: random.Random) -> Json:
        ranked = self._rank_with_lies() if self._parallel and self._ranked else self._ranked
        flat = {p.path: self._near(p, ranked, rng) for p in self.space.parameters}
        return self.space.build(flat)

    def _near(self, parameter: Parameter, ranked: list[_Ranked], rng: random.Random) -> int | float:
        path = parameter.path
        rank = _draw_rank(rng)
        known = (point.flat[path] for _, _, point in ranked if point.flat and path in point.flat)
        found = list(islice(known, rank + 1))
        if not found:
            return parameter.sample(rng)
        raw = found[-1]
        share = 1.0 / (1.0 + _SHRINKING * self._results[path])
        if parameter.unordered:
            return parameter.sample(rng) if rng.random() < share else raw
        half = share / 2.0
        # At an end of the range the window moves inwards, as hyperopt's does, and stays as wide.
        middle = min(max(position(parameter, raw), half), 1.0 - half)
        return raw_at(parameter, rng.uniform(middle - half, middle + half))

    def _rank_with_lies(self) -> list[_Ranked]:
        losses = [loss for loss, _, _ in self._ranked]
        lie = {"min": losses[0], "max": losses[-1], "mean": math.fsum(losses) / len(losses)}[self._lie]
        running = [point for point in self._running.values() if point.flat is not None]
        lied = [(lie, -self._order - 1 - k, point) for k, point in enumerate(running)]
        return sorted([*self._ranked, *lied], key=lambda entry: entry[:2])


def _draw_rank(rng: random.Random) -> int:
    """Draw a rank, counting from 0, with the mean rank above."""
    return int(math.log(1.0 - rng.random()) / math.log(1.0 - 1.0 / _MEAN_RANK))
