"""Each tuner beats random search on a function that is made for it, in so many seeds that it cannot be luck.

Paired by seed, both get the same number of trials (or the same total budget). Winning 10 of 11 by luck has a
probability of 0.6 %, winning 7 of 7 of 0.8 %, winning 23 of 31 of 0.5 %.

Tuners that think long play all these seeds in the long runs (`make test-long`), and in others fewer: winning 4 of 4 by
luck has a probability of 6 %, winning 8 of 11 of 11 %.
"""

from __future__ import annotations

import itertools
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from nnilite._plugins.lookup import tuner_class
from nnilite.tuning.class_args import construct

LONG = "NNILITE_SIMULATION_RUNS" in os.environ
MOST, MANY, FEW = (31, 23), (11, 10), (7, 7)
SLOW_MOST, SLOW_FEW = (MOST, FEW) if LONG else ((11, 8), (4, 4))


def numbers(count: int) -> dict:
    return {f"x{k}": {"_type": "uniform", "_value": [-5, 5]} for k in range(count)}


def trace(tuner, space: dict, value: Callable[[dict], object], trials: int) -> list[tuple[dict, object]]:
    tuner.update_search_space(space)
    found = []
    for k in range(trials):
        parameters = tuner.generate_parameters(k)
        found.append((parameters, value(parameters)))
        tuner.receive_trial_result(k, parameters, found[-1][1], customized=False, trial_job_id=str(k))
        tuner.trial_end(k, True, trial_job_id=str(k))
    return found


def best(name: str, args: dict, space: dict, value: Callable[[dict], float], trials: int) -> float:
    return min(loss for _, loss in trace(construct(tuner_class(name), args), space, value, trials))


def wins(name: str, args: dict, space: dict, value: Callable[[dict], float], trials: int, odds: tuple[int, int]) -> int:
    """How often it wins. When it has won often enough, the rest is not played."""
    seeds, needed = odds
    args = {"optimize_mode": "minimize", **args}
    won = 0
    for k in range(seeds):
        ours = best(name, {**args, "seed": k}, space, value, trials)
        won += ours < best("Random", {"seed": k}, space, value, trials)
        if won == needed:
            break
    return won


def sphere(parameters: dict) -> float:
    return sum((x - 1.3) ** 2 for x in parameters.values())


def valley(parameters: dict) -> float:
    """A long valley across the axes."""
    x = list(parameters.values())
    return sum(100 * (a + b) ** 2 + (a - 1) ** 2 for a, b in itertools.pairwise(x))


def branin(parameters: dict) -> float:
    x, y = 5 + 1.5 * (parameters["x0"] - 1.7), 7.5 + 1.5 * parameters["x1"]
    return (y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6) ** 2 + 10 * (1 - 1 / 8 / math.pi) * math.cos(x)


CHOICES = {f"c{k}": {"_type": "choice", "_value": ["a", "b", "c", "d"]} for k in range(10)}


def matches(parameters: dict) -> float:
    return -sum((k + 3) * (value == "abcd"[k % 4]) for k, value in enumerate(parameters.values()))


NESTED = {
    "model": {
        "_type": "choice",
        "_value": [
            {"_name": "net", "rate": {"_type": "loguniform", "_value": [1e-6, 1]}, "width": CHOICES["c0"]},
            {"_name": "tree", "depth": {"_type": "randint", "_value": [1, 30]}},
        ],
    },
    "noise": {"_type": "normal", "_value": [0, 2]},
}


def tuned(parameters: dict) -> float:
    model = parameters["model"]
    if model["_name"] == "tree":
        part = 2 + abs(model["depth"] - 17) / 10
    else:
        part = abs(math.log10(model["rate"]) + 3.3) + (model["width"] != "c")
    return part + abs(parameters["noise"] - 1)


@pytest.mark.parametrize(
    ("name", "args", "space", "value", "trials", "odds"),
    [
        ("TPE", {}, NESTED, tuned, 60, SLOW_MOST),  # wins nine of ten: too few for 10 of 11 in each choice of seeds
        ("TPE", {}, numbers(4), sphere, 60, MANY),
        ("Evolution", {"population_size": 12}, CHOICES, matches, 120, MANY),
        ("Anneal", {}, numbers(5), sphere, 60, MANY),
        ("Anneal", {}, NESTED, tuned, 60, MANY),
        ("CMAES", {}, numbers(5), valley, 200, MANY),
        pytest.param("DNGO", {"trials_per_update": 10}, numbers(3), sphere, 40, MANY, marks=pytest.mark.long),
    ],
)
def test_a_tuner_beats_random_search(name, args, space, value, trials, odds):
    assert wins(name, args, space, value, trials, odds) >= odds[1]


@pytest.mark.parametrize(
    ("name", "args", "space", "value", "trials"),
    [
        ("GP", {}, numbers(2), branin, 25),
        pytest.param("Metis", {}, numbers(2), branin, 25, marks=pytest.mark.long),
        pytest.param("SMAC", {}, CHOICES, matches, 60, marks=pytest.mark.long),
    ],
)
def test_a_tuner_that_thinks_long_beats_random_search(name, args, space, value, trials):
    assert wins(name, args, space, value, trials, SLOW_FEW) >= SLOW_FEW[1]


@pytest.mark.parametrize("name", ["GP", pytest.param("Metis", marks=pytest.mark.long)])
def test_normal_parameters_are_learnt_as_well_as_uniform_ones(name):
    space = {axis: {"_type": "normal", "_value": [0, 1]} for axis in "xyz"}
    assert best(name, {"optimize_mode": "minimize", "seed": 0}, space, sphere, 40) < 0.01


def test_a_quasi_random_sequence_covers_the_space_more_evenly():
    from scipy.stats import qmc

    def unevenness(name: str, seed: int) -> float:
        found = trace(construct(tuner_class(name), {"seed": seed}), numbers(3), sphere, 64)
        return qmc.discrepancy([[(x + 5) / 10 for x in p.values()] for p, _ in found])

    assert all(unevenness("QMC", seed) < unevenness("Random", seed) for seed in range(FEW[0]))


def two_goals(parameters: dict) -> dict:
    """The front is where all but the first are 0."""
    first, *rest = ((x + 5) / 10 for x in parameters.values())
    height = 1 + 9 * sum(rest) / len(rest)
    return {"cost": first, "error": height * (1 - math.sqrt(first / height))}


def covered(results: list[dict]) -> float:
    """The area that a front dominates, up to (1.1, 11)."""
    area, ceiling = 0.0, 11.0
    for cost, error in sorted((r["cost"], r["error"]) for r in results):
        if error < ceiling and cost < 1.1:
            area, ceiling = area + (1.1 - cost) * (ceiling - error), error
    return area


def test_nsga2_finds_a_better_front_than_random_search():
    goals = {"objectives": {"cost": "minimize", "error": "minimize"}, "population_size": 20}
    for seed in range(FEW[0]):
        ours = trace(construct(tuner_class("NSGA2"), {**goals, "seed": seed}), numbers(5), two_goals, 300)
        luck = trace(construct(tuner_class("Random"), {"seed": seed}), numbers(5), two_goals, 300)
        assert covered([r for _, r in ours]) > covered([r for _, r in luck])


def unfinished(parameters: dict) -> float:
    """More budget brings the result nearer to what the parameters are worth."""
    budget = parameters.get("TRIAL_BUDGET", 81)
    here = {key: x for key, x in parameters.items() if key.startswith("x")}
    return sphere(here) + 4 * (1 + math.sin(7 * here["x0"])) * (1 / budget - 1 / 81)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("Hyperband", {"R": 81}),
        ("Hyperband", {"R": 81, "exec_mode": "serial"}),
        ("ASHA", {"max_budget": 81}),
        pytest.param("BOHB", {"max_budget": 81}, marks=pytest.mark.long),
    ],
)
def test_small_budgets_beat_random_search_of_the_same_cost(name, args):
    won = 0
    for seed in range(MOST[0]):
        tuner = construct(tuner_class(name), {"optimize_mode": "minimize", "seed": seed, **args})
        found = trace(tuner, numbers(3), unfinished, 220)
        cost = sum(p["TRIAL_BUDGET"] for p, _ in found)
        ours = min(loss for p, loss in found if p["TRIAL_BUDGET"] == 81)
        won += ours < best("Random", {"seed": seed}, numbers(3), unfinished, round(cost / 81))
    assert won >= MOST[1]


def trained(parameters: dict) -> float:
    """Some epochs of the toy problem of the paper on population-based training, from a checkpoint."""
    source, target = Path(parameters["load_checkpoint_dir"]) / "state", Path(parameters["save_checkpoint_dir"])
    state = [float(x) for x in source.read_text().split()] if source.exists() else [0.9, 0.9]
    for _ in range(4):
        state = [x - 0.04 * h * x for x, h in zip(state, (parameters["h0"], parameters["h1"]), strict=True)]
    target.mkdir(parents=True, exist_ok=True)
    (target / "state").write_text(" ".join(map(str, state)))
    return 1.2 - sum(x**2 for x in state)


def test_a_population_hands_its_checkpoints_over_and_beats_lone_training():
    space = {"h0": {"_type": "uniform", "_value": [0, 1]}, "h1": {"_type": "uniform", "_value": [0, 1]}}
    won = 0
    for seed in range(MANY[0]):
        with tempfile.TemporaryDirectory(prefix="it's $ ") as folder:
            args = {"all_checkpoint_dir": folder, "population_size": 6, "seed": seed}
            ours = max(value for _, value in trace(construct(tuner_class("PBT"), args), space, trained, 60))
        with tempfile.TemporaryDirectory() as folder:
            lone = {"load_checkpoint_dir": folder, "save_checkpoint_dir": folder}
            draws = trace(construct(tuner_class("Random"), {"seed": seed}), space, lambda p: 0.0, 6)
            values = []
            for number, (parameters, _) in enumerate(draws):
                place = {key: f"{path}/{number}" for key, path in lone.items()}
                values.append([trained({**parameters, **place}) for _ in range(10)][-1])
        won += ours > max(values)
    assert won >= MANY[1]
