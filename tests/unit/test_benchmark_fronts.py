"""What the benchmarks of several objectives and of constraints on results measure with, and how they report."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pytest

from benchmarks.search_front_problems import PROBLEMS, goal, hypervolume
from benchmarks.search_fronts import BASELINE, OPTUNA_GP, OURS, list_jobs, report
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


def test_the_report_has_optunas_gp_if_it_has_run_by_its_own_seeds() -> None:
    ours = {
        (label, problem.name, seed): [0.4, 0.2, 0.1]
        for label in (BASELINE, OURS)
        for problem in PROBLEMS
        for seed in (0, 1)
    }
    assert OPTUNA_GP not in report(ours)
    gp = {(OPTUNA_GP, problem.name, 1): [0.2, 0.1] for problem in PROBLEMS}
    found = report({**ours, **gp})
    assert "GP: 2.00 [2.00, 2.00] after 25 results, 1.99 [1.99, 1.99] after 50 results (seeds: 1)." in found
    assert f"| {PROBLEMS[0].name} | 0.2000 | 0.4000 | 0.1000 | 0.2000 |" in found


def test_the_slow_gp_of_optuna_has_seeds_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Namespace(solvers=f"{OURS},{OPTUNA_GP}", seeds=3, gp_seeds=1)
    for found, seeds in ((None, set()), (True, {0})):
        monkeypatch.setattr("importlib.util.find_spec", lambda name, found=found: found)
        jobs = list_jobs(options)
        assert {seed for label, _, seed in jobs if label == OPTUNA_GP} == seeds
        assert {seed for label, _, seed in jobs if label == OURS} == {0, 1, 2}
