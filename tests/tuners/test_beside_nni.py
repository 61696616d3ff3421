"""The same name does the same thing: our tuners and assessors beside those of NNI 3.0, in an environment of its own.

Where ours differ on purpose, docs/explanation/what-differs-from-nni.md says why, and a test here shows the difference.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nni_answers
from learning_curves import SHAPES
from nni_comparison import DRAWS, NUMBERS, SPACE, Answers, count_ends, find_far_columns
from real_nni import kept_answers, need_python

pytestmark = [pytest.mark.process, pytest.mark.real, pytest.mark.timeout(900)]
STEPPED = ("quniform", "quniform with odd ends", "qloguniform")
FEW = {"Random": [0], "TPE": ["minimize", 0, {"n_startup_jobs": DRAWS + 1}], "Evolution": ["maximize", DRAWS]}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    found = Answers(need_python(), tmp_path_factory.mktemp("answers"), kept=kept_answers())
    yield found
    found.close()


# ------------------------------------------------------------ constructors

OTHER_DEFAULTS = {
    "Random": {"optimize_mode": "maximize"},  # has no effect
    "GridSearch": {"optimize_mode": "maximize"},  # has no effect
    "Evolution": {"population_size": 16},
    "GP": {"selection_num_warm_up": 2000},
}


@pytest.mark.parametrize("name", sorted([*nni_answers.TUNERS, *nni_answers.ASSESSORS]))
def test_constructors_take_nnis_arguments_in_the_same_order_with_the_same_defaults(answers: Answers, name: str) -> None:
    theirs, ours = answers.ask("list_arguments", name)
    other = OTHER_DEFAULTS.get(name, {})
    assert ours[: len(theirs)] == [[known, other.get(known, default)] for known, default in theirs]
    assert {known for known, _ in ours[len(theirs) :]} <= {"seed", "optimize_mode", "all_checkpoint_dir"}


DOCUMENTED: dict[str, list[dict[str, Any]]] = {
    "TPE": [
        {"optimize_mode": "minimize", "seed": 12345},
        *(
            {"tpe_args": {"constant_liar_type": liar, "n_startup_jobs": 10, "n_ei_candidates": 20}}
            for liar in ("best", "worst", "mean", None)
        ),
        {"tpe_args": {"linear_forgetting": 100, "prior_weight": 0, "gamma": 0.5}},
    ],
    "Random": [{"seed": 3}, {"optimize_mode": "minimize", "seed": None}],
    "GridSearch": [{}, {"optimize_mode": "maximize"}],
    "Batch": [{}],
    "Evolution": [{"optimize_mode": "minimize", "population_size": 100}],
    "Hyperopt": [
        {
            "algorithm_name": "anneal",
            "optimize_mode": "maximize",
            "parallel_optimize": True,
            "constant_liar_type": liar,
        }
        for liar in ("min", "max", "mean")
    ],
    "GP": [
        {"utility": utility, "kappa": 5.0, "xi": 0.0, "nu": 2.5, "alpha": 1e-6, "cold_start_num": 10}
        for utility in ("ei", "ucb", "poi")
    ]
    + [{"selection_num_warm_up": 100000, "selection_num_starting_points": 250}],
    "Metis": [
        {"no_resampling": False, "no_candidates": True, "selection_num_starting_points": 60},
        {"cold_start_num": 5, "exploration_probability": 0.5, "optimize_mode": "minimize"},
    ],
    "PBT": [
        {"all_checkpoint_dir": "/tmp", "population_size": 4, "factor": 0.3},
        {"resample_probability": 0.5, "fraction": 0.3, "optimize_mode": "minimize"},
    ],
    "Hyperband": [
        {"optimize_mode": "minimize", "R": 100, "eta": 3, "exec_mode": mode} for mode in ("serial", "parallelism")
    ],
    "BOHB": [
        {"min_budget": 1, "max_budget": 27, "eta": 3, "min_points_in_model": 7, "top_n_percent": 15},
        {"num_samples": 64, "random_fraction": 0.33, "bandwidth_factor": 3.0, "min_bandwidth": 0.001},
    ],
    "DNGO": [
        {"optimize_mode": "minimize", "sample_size": 100, "trials_per_update": 10, "num_epochs_per_training": 50},
    ],
    "SMAC": [{"optimize_mode": "minimize", "config_dedup": True}],
    "Medianstop": [{"optimize_mode": "minimize", "start_step": 5}],
    "Curvefitting": [{"epoch_num": 20, "start_step": 6, "threshold": 0.9, "gap": 2}],
}
"""The classArgs that NNI's reference describes, with the values that it names."""


@pytest.mark.parametrize("name", DOCUMENTED)
def test_all_documented_arguments_are_taken(answers: Answers, name: str) -> None:
    told = [answers.ask("build", name, arguments) for arguments in DOCUMENTED[name]]
    assert told == [(True, True)] * len(told)


# ------------------------------------------------------------ assessors


def make_curves(seed: int) -> list[list[float]]:
    rng = random.Random(seed)
    return [[rng.random() + step * rng.random() / 10 for step in range(rng.randint(4, 20))] for _ in range(60)]


@pytest.mark.parametrize("arguments", [["maximize"], ["minimize"], ["maximize", 5], ["minimize", 1]], ids=str)
def test_medianstop_gives_nnis_verdict_at_each_result(answers: Answers, arguments: list[Any]) -> None:
    theirs, ours = answers.ask("judge", "Medianstop", arguments, make_curves(7), [3, 11, 20])
    assert ours == theirs
    assert any(False in verdicts for verdicts in theirs)


def test_medianstop_judges_the_twenty_shapes_as_nnis_but_for_what_rounding_makes(answers: Answers) -> None:
    # Multiples of 1/64 have averages without rounding.
    known = [[round(64 * value) / 64 for value in shape] for name, shape in SHAPES.items() if "NaN" not in name]
    theirs, ours = answers.ask("judge", "Medianstop", [], known, [])
    assert ours == theirs
    level = [0.1] * 3  # whose averages are not 0.1 in floating point
    theirs, ours = answers.ask("judge", "Medianstop", [], [level, level], [])
    assert (theirs[1], ours[1]) == ([True, True, False], [True, True, True])


def test_curvefitting_stops_what_nnis_stops_on_smooth_curves(answers: Answers) -> None:
    """NNI's has no forecast for some curves in some runs, as its fits turn on how numbers are rounded."""
    best = [0.9 - 0.7 / (k + 1) for k in range(10)]
    poor = [[0.4 * (0.9 - 0.7 / (k + 1) ** bend) for k in range(10)] for bend in (0.5, 1, 1.5)]
    better = [1.2 * value for value in best]
    once = [20, 8, 0.95, 20]  # one judgement of each trial, as NNI's takes long
    theirs, ours = answers.ask("judge", "Curvefitting", once, [best, *poor, better], [])
    goes_on, stopped = [True] * 10, [True] * 7 + [False] + [True] * 2
    assert ours == [goes_on, *[stopped] * 3, goes_on]
    assert (theirs[0], theirs[-1]) == (goes_on, goes_on)
    assert stopped in theirs[1:-1]


def test_curvefitting_stops_a_poor_curve_of_which_nnis_has_no_forecast(answers: Answers) -> None:
    best = [0.9 * (1 - 0.7 ** (k + 1)) for k in range(10)]
    _, ours = answers.ask("judge", "Curvefitting", [20, 10], [best, [0.4 * value for value in best]], [])
    assert ours[1][9] is False, "NNI's has a forecast in some runs only, as it draws at random"


# ------------------------------------------------------------ draws


@pytest.mark.parametrize("name", ["Random", "Evolution"])
def test_two_thousand_draws_of_each_kind_are_distributed_as_nnis(answers: Answers, name: str) -> None:
    theirs, ours = answers.ask("draw", name, FEW[name], SPACE, DRAWS)
    assert (len(theirs), len(ours)) == (DRAWS, DRAWS)
    assert find_far_columns(theirs, ours, SPACE) == {}


@pytest.mark.long  # hyperopt takes minutes for so many
def test_anneal_begins_with_draws_that_are_distributed_as_nnis(answers: Answers) -> None:
    theirs, ours = answers.ask("draw", "Hyperopt", ["anneal"], SPACE, DRAWS)
    assert find_far_columns(theirs, ours, SPACE) == {}


@pytest.mark.long
def test_anneal_goes_on_as_nnis_from_the_same_results(answers: Answers) -> None:
    """Where NNI's keeps the type: what-differs-from-nni.md names the others."""
    space = {name: SPACE[name] for name in ("uniform", "loguniform", "qloguniform", "texts")}
    values = [(-0.9, 5.0, 99.0, "a"), (2.9, 0.0002, 3.0, "c"), (0.3, 0.1, 12.0, "b")]  # near to both ends
    results = [
        {"parameter": dict(zip(space, one, strict=True)), "value": loss} for loss, one in enumerate(values, start=1)
    ]
    theirs, ours = answers.ask("draw_after", "Hyperopt", ["anneal"], space, results, 500)
    assert find_far_columns(theirs, ours, space) == {}


@pytest.mark.parametrize("name", ["GP", "DNGO"])
def test_models_begin_with_draws_that_are_distributed_as_nnis(answers: Answers, name: str) -> None:
    theirs, ours = answers.ask("draw", name, [], NUMBERS, DRAWS)
    assert find_far_columns(theirs, ours, NUMBERS) == {}


def test_pbt_begins_with_draws_that_are_distributed_as_nnis(answers: Answers, tmp_path: Path) -> None:
    theirs, ours = answers.ask("draw", "PBT", ["maximize", str(tmp_path), DRAWS], SPACE, DRAWS)
    assert (len(theirs), len(ours)) == (DRAWS, DRAWS)
    assert find_far_columns(theirs, ours, SPACE) == {}


def test_metis_begins_with_draws_that_are_distributed_as_nnis_but_for_steps(answers: Answers) -> None:
    space = {name: SPACE[name] for name in ("numbers", "randint", "uniform", "quniform")}
    theirs, ours = answers.ask("draw", "Metis", [], space, DRAWS)
    assert set(find_far_columns(theirs, ours, space)) <= {"quniform"}
    assert count_ends(theirs, ours) == pytest.approx([2 / 5, 1 / 4], abs=0.05)


def test_hyperband_draws_as_nnis(answers: Answers) -> None:
    theirs, ours = answers.ask("draw_budgets", "Hyperband", ["maximize", 1, 3], {**SPACE, "x": SPACE["uniform"]}, DRAWS)
    assert find_far_columns(theirs, ours, SPACE) == {}


@pytest.mark.long  # both go through all earlier trials at each draw
def test_bohb_begins_with_draws_that_are_distributed_as_nnis(answers: Answers) -> None:
    """Of the types that NNI's BOHB takes; it fails with the normal ones, and with steps that do not fit the range."""
    space = {name: SPACE[name] for name in ("texts", "numbers", "randint", "uniform", "quniform", "loguniform")}
    all_at_random = ["maximize", 1, 1, 3, 7, 15, 64, 1.0]
    theirs, ours = answers.ask("draw_budgets", "BOHB", all_at_random, {**space, "x": SPACE["uniform"]}, DRAWS)
    assert set(find_far_columns(theirs, ours, space)) <= {"quniform"}
    assert count_ends(theirs, ours) == pytest.approx([2 / 5, 1 / 4], abs=0.05)


@pytest.mark.long  # both go through all trials that run at each draw
def test_tpe_draws_as_nnis_but_for_steps_which_are_equally_likely(answers: Answers) -> None:
    theirs, ours = answers.ask("draw", "TPE", FEW["TPE"], SPACE, DRAWS)
    assert set(find_far_columns(theirs, ours, SPACE)) <= set(STEPPED)
    assert count_ends(theirs, ours) == pytest.approx([1 / 4, 2 / 5], abs=0.05)


@pytest.mark.parametrize(
    ("name", "arguments", "repeats"),
    [
        ("Random", [], False),
        ("TPE", [], False),
        ("Evolution", ["maximize", 4], True),
        ("GP", [], True),
        ("Metis", [], True),
        ("DNGO", [], True),
        ("Hyperopt", ["anneal"], True),
    ],
)
def test_a_finite_space_ends_where_some_of_nnis_repeat(
    answers: Answers, name: str, arguments: list[Any], repeats: bool
) -> None:
    theirs, ours = answers.ask("exhaust", name, arguments, {"x": {"_type": "choice", "_value": [1, 2, 3]}}, 8)
    assert (len(theirs) == 8, theirs[-1] == "NoMoreTrialError") == (repeats, not repeats)
    assert (sorted(one["x"] for one in ours[:-1]), ours[-1]) == ([1, 2, 3], "NoMoreTrialError")


def test_batch_proposes_the_same_one_after_the_other(answers: Answers) -> None:
    known = [{"x": 1, "y": "a"}, {"x": 1, "y": "b"}, {"x": 2}]
    space = {"combine_params": {"_type": "choice", "_value": known}}
    assert answers.ask("exhaust", "Batch", [], space, 8) == ([*known, "NoMoreTrialError"],) * 2


def test_grid_search_proposes_the_same_points_round_by_round(answers: Answers) -> None:
    space = {name: SPACE[name] for name in ("texts", "uniform", "loguniform", "normal", "lognormal")}
    theirs, ours = answers.ask("exhaust", "GridSearch", [], space, 4 * 3**4)
    first = [sorted(map(_as_text, told[:4])) for told in (theirs, ours)]
    second = [sorted(map(_as_text, told[4:])) for told in (theirs, ours)]
    assert (first[0], second[0]) == (first[1], second[1])


def test_grid_search_lists_a_finite_space_in_nnis_order(answers: Answers) -> None:
    space = {name: SPACE[name] for name in ("texts", "numbers", "randint")}
    theirs, ours = answers.ask("exhaust", "GridSearch", [], space, 200)
    assert ours == theirs
    assert len(ours) == 4 * 4 * 11 + 1


def _as_text(parameters: dict[str, Any]) -> str:
    return json.dumps({name: round(one, 9) if isinstance(one, float) else one for name, one in parameters.items()})


# ------------------------------------------------------------ schedules


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Hyperband", []),
        ("Hyperband", ["maximize", 27, 3]),
        ("Hyperband", ["minimize", 60, 3]),
        ("Hyperband", ["maximize", 16, 2, "serial"]),
        ("BOHB", ["maximize", 1, 9, 3]),
        ("BOHB", ["maximize", 1, 81, 3]),
        ("BOHB", ["minimize", 2, 50, 3]),
    ],
    ids=str,
)
def test_budgets_come_in_nnis_order_and_the_best_go_on(answers: Answers, name: str, arguments: list[Any]) -> None:
    theirs, ours = answers.ask("draw_budgets", name, arguments, {"x": SPACE["uniform"]}, 120)
    assert [one["TRIAL_BUDGET"] for one in ours] == [one["TRIAL_BUDGET"] for one in theirs]
    assert [_find_repeats(trials) for trials in (theirs, ours)] == [_find_repeats(theirs)] * 2


def _find_repeats(trials: list[Any]) -> list[bool]:
    """Whether the parameters of each trial have run before, with a smaller budget."""
    values = [one["x"] for one in trials]
    return [value in values[:place] for place, value in enumerate(values)]
