"""What the benchmarks of several objectives and of constraints on results measure with."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.search_fronts import PROBLEMS, goal, hypervolume
from benchmarks.search_limits import PROBLEMS as LIMITED


@pytest.mark.parametrize(
    ("points", "volume"),
    [
        ([[0.5, 0.5]], 0.25),
        ([[0.5, 0.5], [0.25, 0.75], [0.6, 0.6], [2.0, 0.0]], 0.3125),
        ([[0.5, 0.5, 0.5], [0.0, 0.75, 0.75]], 0.15625),
        ([[1.0, 0.0]], 0.0),
    ],
)
def test_a_hypervolume_counts_what_several_points_reach_once(points: list[list[float]], volume: float) -> None:
    assert hypervolume(np.array(points), np.ones(len(points[0]))) == pytest.approx(volume)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_random_points_reach_less_than_the_true_front(problem) -> None:
    luck = np.random.default_rng(1)
    found = np.array([problem.function(luck.random(problem.width)) for _ in range(200)])
    reference, whole = goal(problem.name)
    assert 0.0 < hypervolume(found, reference) < whole


@pytest.mark.parametrize("problem", LIMITED, ids=lambda problem: problem.name)
def test_no_feasible_random_point_is_below_the_best_value(problem) -> None:
    luck = np.random.default_rng(2)
    value, *limits = problem.function(*(luck.uniform(*ends, size=20_000) for ends in problem.ranges))
    feasible = np.all(np.array(limits) <= 0.0, axis=0)
    assert feasible.any()
    assert value[feasible].min() > problem.best - 1e-3 * abs(problem.best)
