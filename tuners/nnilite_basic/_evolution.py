"""Naive evolution: the better of two random members has a child, and the worst of all dies."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from nnilite.space import Flat
from nnilite.tuning.class_args import whole_number
from nnilite.tuning.learning import LearningTuner, Point, PointState
from nnilite.tuning.positions import neighbour

if TYPE_CHECKING:
    from nnilite.records import Json

_WIDTH = 0.15  # standard deviation of a mutation, as a share of the parameter's range
_FRESH = 0.1  # share of mutations that draw a new value from the whole range
_MORE = 0.3  # chance to mutate one more parameter, after each mutation


class EvolutionTuner(LearningTuner):
    """NNI's Evolution (after Real et al., 2017, "Large-Scale Evolution of Image Classifiers"). All space types.

    The first `population_size` trials are random. Then each trial is the child of the better one of two members, with
    one or more parameters changed. A new member beyond the size makes the worst one die, as in GENITOR (Whitley, 1989):
    of the ways that were tried, the one that found most in 100 trials. Members that break result constraints are worse
    than all others, the more the worse (Deb, 2000, "An efficient constraint handling method for genetic algorithms").

    Args:
        optimize_mode: "maximize" or "minimize".
        population_size: 2 or more; large ones explore longer. NNI's default was 32.
        seed: any whole number; None for a different search each time.

    Raises: ConfigError
    """

    weighs_violations = True

    def __init__(self, optimize_mode: str = "maximize", population_size: int = 16, seed: int | None = None) -> None:
        super().__init__(optimize_mode, seed)
        self._size = whole_number("population_size", population_size, low=2)

    def _restart(self) -> None:
        self._population: list[Point] = []
        self._known = 0

    def _suggest(self, parameter_id: int, rng: random.Random) -> Json:
        if self._known < self._size or not self._population:
            return self.space.sample(rng)
        parent = min(rng.choice(self._population), rng.choice(self._population), key=_rank)
        return self.space.build(self._mutate(parent.flat or {}, rng))

    def _mutate(self, parent: Flat, rng: random.Random) -> Flat:
        # parameters that become active are drawn anew from their range
        child = {p.path: p.sample(rng) for p in self.space.parameters} | parent
        active = self.space.active(child)
        rng.shuffle(active)
        for count, parameter in enumerate(active):
            if count and rng.random() > _MORE:
                break
            if rng.random() < _FRESH:
                child[parameter.path] = parameter.sample(rng)
            else:
                child[parameter.path] = neighbour(parameter, child[parameter.path], _WIDTH, rng)
        return child

    def _opened(self, point: Point) -> None:
        self._known += 1

    def _closed(self, point: Point) -> None:
        if point.state is not PointState.DONE:
            return
        self._population.append(point)
        if len(self._population) > self._size:
            self._population.remove(max(self._population, key=_rank))


def _rank(point: Point) -> tuple[float, float]:
    return point.violation, point.loss or 0.0
