"""What every tuner that learns from points keeps to, whatever its algorithm."""

from __future__ import annotations

import atexit
import itertools
import json
import math
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress

import pytest
from optuna.samplers import TPESampler

from call_counts import count_calls
from nnilite._plugins.lookup import tuner_class
from nnilite.errors import ConfigError, NoMoreTrialError, SpaceError
from nnilite.tuner import Call
from nnilite.tuning.class_args import construct
from nnilite.tuning.learning import PointState
from nnilite_optuna import _tpe
from nnilite_sklearn._surrogate import SurrogateTuner

NESTED = {
    "x": {"_type": "uniform", "_value": [-5, 5]},
    "rate": {"_type": "loguniform", "_value": [1e-5, 1]},
    "layer": {
        "_type": "choice",
        "_value": [
            {"_name": "Empty"},
            {"_name": "Conv 'a' $b\n", "size": {"_type": "choice", "_value": [2, 3]}},
        ],
    },
}
FLAT = {
    "x": {"_type": "uniform", "_value": [-5, 5]},
    "rate": {"_type": "loguniform", "_value": [1e-5, 1]},
    "steps": {"_type": "quniform", "_value": [1, 100, 3]},
    "width": {"_type": "randint", "_value": [1, 9]},
    "kind": {"_type": "choice", "_value": ["a", None, [1, 2], 0.5]},
}
NORMALS = {
    "a": {"_type": "normal", "_value": [0, 2]},
    "b": {"_type": "qnormal", "_value": [10, 4, 0.5]},
    "c": {"_type": "lognormal", "_value": [0, 1]},
    "d": {"_type": "qlognormal", "_value": [2, 1, 1]},
    "e": {"_type": "qloguniform", "_value": [0.1, 50, 1]},
}
NUMBERS = {key: value for key, value in FLAT.items() if key != "kind"}
SPACES = {"nested": NESTED, "flat": FLAT, "normals": NORMALS, "numbers": NUMBERS}
FOLDER = tempfile.mkdtemp(prefix="nni lite's $")
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
GOALS = {"default": "minimize", "size": "minimize"}
LEARNERS: dict[str, dict] = {
    "Random": {"optimize_mode": "minimize"},
    "TPE": {},
    "Evolution": {"optimize_mode": "minimize", "population_size": 8},
    "Anneal": {},
    "QMC": {"optimize_mode": "minimize"},
    "CMAES": {"popsize": 5},
    "NSGA2": {"objectives": GOALS, "population_size": 6},
    "PBT": {"optimize_mode": "minimize", "population_size": 6, "all_checkpoint_dir": FOLDER},
    "Hyperband": {"optimize_mode": "minimize", "R": 9},
    "ASHA": {"optimize_mode": "minimize", "max_budget": 9, "all_checkpoint_dir": FOLDER},
    "BOHB": {"optimize_mode": "minimize", "max_budget": 9},
    "GP": {"optimize_mode": "minimize", "selection_num_warm_up": 100, "selection_num_starting_points": 50},
    "Metis": {"optimize_mode": "minimize", "selection_num_starting_points": 100},
    "SMAC": {"optimize_mode": "minimize"},
    "DNGO": {"optimize_mode": "minimize", "num_epochs_per_training": 50, "trials_per_update": 10},
}
ONLY_NUMBERS = {"CMAES"}
NOT_NESTED = {"CMAES", "GP", "Metis", "DNGO"}
REPEATS = {"PBT", "Hyperband", "ASHA", "BOHB"}  # the same parameters come again on purpose
SLOW = {"GP", "Metis", "SMAC", "DNGO"}
SEEDS = range(3)
LONG = "NNILITE_SIMULATION_RUNS" in os.environ


def marked(name: str, *more: str) -> object:
    # All of the numbers are in "flat", too.
    marks = [pytest.mark.long] if name in SLOW and "numbers" in more else []
    return pytest.param(name, *more, marks=marks)


NAMES = [marked(name) for name in LEARNERS]
CASES = [
    marked(name, space)
    for name in LEARNERS
    for space in SPACES
    if not (space == "nested" and name in NOT_NESTED) and not (space == "flat" and name in ONLY_NUMBERS)
]


def loss(parameters: dict) -> float:
    return sum(abs(v) for v in parameters.values() if isinstance(v, (int, float)))


def result(parameters: dict) -> dict:
    return {"default": loss(parameters), "size": -parameters.get("width", 0)}


def started(name: str, space: dict = NUMBERS, seed: int = 7):
    tuner = construct(tuner_class(name), {"seed": seed, **LEARNERS[name]})
    tuner.update_search_space(space)
    return tuner


def own(tuner, parameters: dict) -> dict:
    return {key: value for key, value in parameters.items() if key not in tuner.extra_keys}


def play(tuner, first: int, count: int, concurrency: int = 3, calls: list | None = None) -> list:
    """Run trials with so many at a time; the oldest ends first, every fifth fails, every seventh is NaN."""
    calls = [] if calls is None else calls
    waiting, proposed = [], []
    for k in range(first, first + count):
        parameters = json.loads(json.dumps(tuner.generate_parameters(k)))
        calls.append(Call("generate", k, parameters=parameters))
        proposed.append(parameters)
        waiting.append((k, parameters))
        if len(waiting) == concurrency:
            end(tuner, *waiting.pop(0), calls)
    for k, parameters in waiting:
        end(tuner, k, parameters, calls)
    return proposed


def end(tuner, k: int, parameters: dict, calls: list) -> None:
    if k % 5 != 4:
        value = math.nan if k % 7 == 3 else result(parameters)
        tuner.receive_trial_result(k, parameters, value, customized=False, trial_job_id=str(k))
        calls.append(Call("result", k, str(k), parameters, value))
    tuner.trial_end(k, k % 5 != 4, trial_job_id=str(k))
    calls.append(Call("end", k, str(k), success=k % 5 != 4))


def test_a_tuner_that_does_not_learn_keeps_nothing_of_its_trials():
    tuner = started("Random")
    play(tuner, 0, 30)
    assert (tuner.points, tuner._running, tuner._heard) == ([], {}, set())


@pytest.mark.parametrize("name", NAMES)
def test_another_seed_gives_other_proposals(name):
    assert play(started(name), 0, 3) != play(started(name, seed=8), 0, 3)


@pytest.mark.parametrize(("name", "space"), CASES)
def test_proposals_lie_in_the_space_repeat_by_their_seed_and_go_on_after_a_replay(name, space):
    trials, more = (18, 4) if name in SLOW and not LONG else (30, 12)
    calls: list[Call] = [Call("space", value=SPACES[space])]
    whole = started(name, SPACES[space])
    proposed = play(whole, 0, trials, calls=calls)
    assert play(started(name, SPACES[space]), 0, trials) == proposed
    again = construct(tuner_class(name), {"seed": 7, **LEARNERS[name]})
    again.replay(calls)
    later = play(whole, trials, more)
    assert play(again, trials, more) == later
    for parameters in proposed + later:
        assert whole.space.contains(own(whole, parameters)) is None


@pytest.mark.parametrize("name", NAMES)
def test_a_replay_in_the_middle_keeps_the_running_trials_whose_proposals_differ(name):
    calls: list[Call] = [Call("space", value=NUMBERS)]
    whole = started(name)
    play(whole, 0, 20, calls=calls)
    running = [whole.generate_parameters(k) for k in range(20, 23)]
    calls += [Call("generate", k, parameters=parameters) for k, parameters in enumerate(running, 20)]
    again = construct(tuner_class(name), {"seed": 7, **LEARNERS[name]})
    again.replay(calls)
    later = [whole.generate_parameters(k) for k in range(23, 26)]
    assert [again.generate_parameters(k) for k in range(23, 26)] == later
    assert len({json.dumps(parameters) for parameters in running + later[:2]}) == 5


@pytest.mark.parametrize("name", NAMES)
def test_late_doubled_and_unknown_ids_do_no_harm(name):
    tuner = started(name)
    first = tuner.generate_parameters(0)
    for value in ({"default": 1, "size": 1}, 1.0, {"default": 2}):
        tuner.receive_trial_result(0, first, value, customized=False, trial_job_id="a")
    tuner.trial_end(0, True, trial_job_id="a")
    tuner.trial_end(0, False, trial_job_id="a")
    tuner.trial_end(77, True, trial_job_id="b")
    tuner.receive_trial_result(78, first, 1.0, customized=False, trial_job_id="c")
    tuner.receive_trial_result(79, {"of": "another space"}, 1.0, customized=False, trial_job_id="d")
    assert len(tuner.points) == (2 if tuner.learns else 0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [math.nan, math.inf, None, "no number", {"acc": 1}, {"default": math.nan}, [1]])
def test_a_result_without_a_finite_number_does_no_harm(name, value):
    tuner = started(name)
    for k in range(14):
        tuner.receive_trial_result(k, tuner.generate_parameters(k), value, customized=False, trial_job_id="x")
        tuner.trial_end(k, True, trial_job_id="x")
    assert tuner.space.contains(own(tuner, tuner.generate_parameters(14))) is None


def test_cmaes_keeps_away_from_where_results_are_no_numbers():
    """The best is at the edge to where there are none; if those were only ignored, it would be there far more often."""
    space, poor = {axis: {"_type": "uniform", "_value": [-5, 5]} for axis in "xy"}, 0
    for seed in range(6):
        tuner = construct(tuner_class("CMAES"), {"seed": seed})
        tuner.update_search_space(space)
        for k in range(120):
            parameters = tuner.generate_parameters(k)
            value = math.nan if parameters["x"] > 1 else abs(parameters["y"]) - parameters["x"]
            poor += k >= 60 and math.isnan(value)
            tuner.receive_trial_result(k, parameters, value, customized=False, trial_job_id=str(k))
    assert poor / 360 < 0.2


@pytest.mark.parametrize("name", NAMES)
def test_customised_and_imported_results_are_learnt(name):
    tuner = started(name)
    point = tuner.space.sample(random.Random(0))
    tuner.receive_trial_result(None, point, {"default": 3, "size": 1}, customized=True, trial_job_id="a")
    tuner.trial_end(None, True, trial_job_id="a")
    imported = [{"parameter": point, "value": {"default": 1, "size": 0}}, {"parameter": point, "value": None}]
    tuner.import_data([*imported, {"parameter": {"x": 99}, "value": 1}, {"value": 2}])
    tuner.import_data([{"parameter": point, "value": math.nan}])
    customized = [3.0] if tuner.learns else []
    assert [p.loss for p in tuner.points] == [*customized, 1.0, None]


@pytest.mark.parametrize("name", [marked(name) for name in LEARNERS if name not in {"Random", "QMC"}])
def test_a_warm_start_finds_better_points_in_few_trials(name):
    space, rng = {axis: {"_type": "uniform", "_value": [-1, 9]} for axis in "xyz"}, random.Random(0)
    known = [{axis: rng.uniform(-1, 1) for axis in space} for _ in range(30)]
    best = {}
    for seed, start in itertools.product(SEEDS, ([], known)):
        tuner = started(name, space, seed)
        tuner.import_data([{"parameter": parameters, "value": result(parameters)} for parameters in start])
        proposed = play(tuner, 0, 8, concurrency=1)
        best[seed, bool(start)] = min(loss(own(tuner, parameters)) for parameters in proposed)
    warm, cold = (sum(best[seed, start] for seed in SEEDS) for start in (True, False))
    assert warm < 0.6 * cold


def test_results_of_a_tuner_with_budgets_or_checkpoints_are_learnt_by_others():
    extras = {"TRIAL_BUDGET": 9, "load_checkpoint_dir": "/a", "save_checkpoint_dir": "/b"}
    tuner = started("TPE", {"x": NUMBERS["x"], "TRIAL_BUDGET": {"_type": "randint", "_value": [1, 10]}})
    tuner.import_data([{"parameter": {"x": 1.5, **extras}, "value": 2}])
    assert tuner.points[0].flat == {("x",): 1.5, ("TRIAL_BUDGET",): 9}


@pytest.mark.parametrize("name", NAMES)
def test_a_new_space_keeps_what_fits(name):
    tuner = started(name)
    play(tuner, 0, 15)
    narrow = {**NUMBERS, "x": {"_type": "uniform", "_value": [0, 5]}}
    tuner.update_search_space(narrow)
    assert all((p.flat is None) == (p.parameters["x"] < 0) for p in tuner.points)
    assert all(p["x"] >= 0 for p in play(tuner, 15, 15))


@pytest.mark.parametrize("name", [marked(name) for name in LEARNERS if name not in REPEATS])
def test_a_finite_space_is_explored_once_and_then_ends(name):
    tuner = started(
        name, {"a": {"_type": "randint", "_value": [3, 7]}, "b": {"_type": "quniform", "_value": [2, 10, 5]}}
    )
    proposed = play(tuner, 0, 12)
    failed = {json.dumps(point.parameters) for point in tuner.points if point.state is PointState.FAILED}
    again = len(failed) if isinstance(tuner, SurrogateTuner) else 0  # each has a second chance
    proposed += play(tuner, 12, again)
    assert len({json.dumps(p) for p in proposed}) == 12
    with pytest.raises(NoMoreTrialError):
        tuner.generate_parameters(20)
    assert tuner.generate_multiple_parameters([21, 22]) == []


@pytest.mark.parametrize("trials", [100, pytest.param(10_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", NAMES)
def test_a_replay_of_thousands_of_trials_thinks_of_none_of_them(name, trials):
    """To propose anew for each would take a model minutes."""
    rng, model = random.Random(0), started("Random")
    calls = [Call("space", value=NUMBERS)]
    for k in range(trials):
        parameters = model.space.sample(rng)
        calls.append(Call("generate", k, parameters=parameters))
        calls.append(Call("result", k, str(k), parameters, result(parameters)))
        calls.append(Call("end", k, str(k), success=True))
    started(name).replay(calls[:4])  # imports what a replay needs
    tuner = construct(tuner_class(name), {"seed": 1, **LEARNERS[name]})
    took = count_calls(lambda: tuner.replay(calls))
    assert took < 3_000 * trials
    assert tuner.space.contains(own(tuner, tuner.generate_parameters(trials))) is None


@pytest.mark.parametrize("name", NAMES)
def test_wrong_arguments_get_a_sentence(name):
    with pytest.raises(ConfigError, match=r"classArgs.sed: .*did you mean seed\?"):
        construct(tuner_class(name), {**LEARNERS[name], "sed": 1})
    if name != "NSGA2":
        with pytest.raises(ConfigError, match=r"classArgs.optimize_mode: must be one of 'maximize', 'minimize'"):
            construct(tuner_class(name), {**LEARNERS[name], "optimize_mode": "max"})
    with pytest.raises(ConfigError, match=r"classArgs.seed: must be a whole number"):
        construct(tuner_class(name), {**LEARNERS[name], "seed": 1.5})


NNI: dict[str, dict] = {
    "TPE": {
        "optimize_mode": "minimize",
        "seed": None,
        "tpe_args": {"constant_liar_type": "best", "n_startup_jobs": 20, "n_ei_candidates": 24, "linear_forgetting": 25}
        | {"prior_weight": 1.0, "gamma": 0.25},
    },
    "Random": {"seed": None, "optimize_mode": "maximize"},
    "GridSearch": {"optimize_mode": "maximize"},
    "Batch": {},
    "Evolution": {"optimize_mode": "maximize", "population_size": 32},
    "Anneal": {"optimize_mode": "minimize", "parallel_optimize": False, "constant_liar_type": "min"},
    "GP": {"optimize_mode": "maximize", "utility": "ei", "kappa": 5, "xi": 0, "nu": 2.5, "alpha": 1e-6}
    | {"cold_start_num": 10, "selection_num_warm_up": 100000, "selection_num_starting_points": 250},
    "Metis": {"optimize_mode": "maximize", "no_resampling": True, "no_candidates": False, "cold_start_num": 10}
    | {"selection_num_starting_points": 600, "exploration_probability": 0.9},
    "SMAC": {"optimize_mode": "maximize", "config_dedup": False},
    "PBT": {"optimize_mode": "maximize", "all_checkpoint_dir": None, "population_size": 10, "factor": 0.2}
    | {"resample_probability": 0.25, "fraction": 0.2},
    "DNGO": {"optimize_mode": "maximize", "sample_size": 1000, "trials_per_update": 20, "num_epochs_per_training": 500},
    "Hyperband": {"optimize_mode": "maximize", "R": 60, "eta": 3, "exec_mode": "parallelism"},
    "BOHB": {"optimize_mode": "maximize", "min_budget": 1, "max_budget": 3, "eta": 3, "min_points_in_model": None}
    | {"top_n_percent": 15, "num_samples": 64, "random_fraction": 1 / 3, "bandwidth_factor": 3}
    | {"min_bandwidth": 1e-3, "config_space": None},
}
"""NNI's tuners with all their arguments and the defaults of those."""


@pytest.mark.parametrize(("name", "args"), NNI.items())
def test_all_arguments_of_nni_are_taken_with_their_defaults(name, args, caplog):
    assert construct(tuner_class(name), args)
    assert not caplog.records


def test_nnis_gamma_for_tpe_is_heeded_though_it_is_nnis_default():
    tuners = [construct(tuner_class("TPE"), {"seed": 1, "tpe_args": args}) for args in ({}, {"gamma": 0.25})]
    for tuner in tuners:
        tuner.update_search_space(NUMBERS)
    ours, nnis = (play(tuner, 0, 50) for tuner in tuners)
    assert ours[:10] == nnis[:10]
    assert ours != nnis  # of 50 the best 5 are the good ones, or the best 2


def test_what_nni_heeds_and_we_do_not_is_warned_of_or_refused(caplog):
    construct(tuner_class("BOHB"), {"bandwidth_factor": 5})
    assert "classArgs.bandwidth_factor: 5.0 has no effect" in caplog.text
    with pytest.raises(ConfigError, match=r"classArgs.config_space: .*write searchSpace instead"):
        construct(tuner_class("BOHB"), {"config_space": "/some/where.pcs"})


@pytest.mark.parametrize("name", [marked(name) for name in LEARNERS if name != "NSGA2"])
def test_to_maximise_is_to_minimise_the_opposite_and_a_dict_counts_as_its_default(name):
    def search(mode: str, value: Callable[[float], object]) -> list:
        tuner = construct(tuner_class(name), {"seed": 7, **LEARNERS[name], "optimize_mode": mode})
        tuner.update_search_space(NUMBERS)
        found = []
        for k in range(16):
            found.append(tuner.generate_parameters(k))
            tuner.receive_trial_result(k, found[-1], value(loss(own(tuner, found[-1]))), trial_job_id=str(k))
            tuner.trial_end(k, True, trial_job_id=str(k))
        return found

    smallest = search("minimize", lambda x: x)
    assert smallest == search("maximize", lambda x: {"default": -x, "other": x})
    assert name in ("Random", "QMC") or smallest != search("maximize", lambda x: x)


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_space_gets_a_sentence(name):
    with pytest.raises(SpaceError, match="x"):
        started(name, {"x": {"_type": "uniform", "_value": [1]}})


@pytest.mark.parametrize("name", sorted(REPEATS))
def test_a_space_with_a_name_that_the_tuner_adds_is_refused(name):
    for key in construct(tuner_class(name), LEARNERS[name]).extra_keys:
        with pytest.raises(SpaceError, match=f"'{key}' is what this tuner adds to the parameters itself"):
            started(name, {key: NUMBERS["width"]})


@pytest.mark.parametrize("name", sorted(NOT_NESTED))
def test_a_tuner_that_cannot_take_nested_choices_says_so_and_names_others(name):
    with pytest.raises(SpaceError, match="TPE"):
        started(name, NESTED)


@pytest.mark.parametrize("name", sorted(ONLY_NUMBERS))
def test_a_tuner_of_numbers_only_refuses_choices(name):
    with pytest.raises(SpaceError, match="'kind' is a choice"):
        started(name, FLAT)


@pytest.mark.parametrize("name", [marked(name) for name in sorted(SLOW - {"Metis"})])  # which explores on purpose
def test_in_a_finite_space_a_model_goes_on_near_the_best_when_that_was_tried(name):
    tuner = started(name, {"n": {"_type": "randint", "_value": [0, 400]}, "c": FLAT["kind"]})
    found = []
    for k in range(26):
        found.append(tuner.generate_parameters(k))
        tuner.receive_trial_result(k, found[-1], found[-1]["n"], trial_job_id=str(k))
    assert sum(p["n"] < 100 for p in found[-8:]) >= 6


WIDE = {**NUMBERS, "x": {"_type": "uniform", "_value": [-9, 9]}}
OTHER = {"y": {"_type": "quniform", "_value": [0, 4, 1]}, "z": {"_type": "lognormal", "_value": [0, 1]}}
VALUES = [
    1,
    -2.5,
    math.nan,
    math.inf,
    None,
    "x",
    [],
    {},
    {"default": 3, "size": 1},
    {"default": "?"},
    True,
    1e308,
    -1e308,
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_calls_does_no_harm(name, seed):
    rng, tuner, given = random.Random(seed), started(name), {}
    for k in range(90):
        number = rng.choice([None, k, *range(max(0, k - 8), k)])
        parameters = rng.choice([given.get(number), {"x": 1}, None, 5, "text", {**NUMBERS}])
        match rng.randrange(9):
            case 0 | 1 | 2 | 3:
                with suppress(NoMoreTrialError):
                    given[k] = tuner.generate_parameters(k)
            case 4 | 5:
                tuner.receive_trial_result(number, parameters, rng.choice(VALUES), customized=number is None)
            case 6:
                tuner.trial_end(number, rng.random() < 0.5, trial_job_id="a")
            case 7:
                tuner.import_data([{"parameter": parameters, "value": rng.choice(VALUES)}, {}])
            case 8 if rng.random() < 0.3:
                tuner.update_search_space(rng.choice([WIDE, NUMBERS, OTHER]))
    assert given
    assert all(own(tuner, parameters) for parameters in given.values())


def test_anneal_keeps_its_window_as_wide_at_an_end_of_the_range():
    tuner = tuner_class("Anneal")(seed=1)
    tuner.update_search_space({"x": {"_type": "uniform", "_value": [0, 1]}})
    tuner.import_data([{"parameter": {"x": 1.0}, "value": 0}])
    drawn = [tuner.generate_parameters(number)["x"] for number in range(300)]
    assert min(drawn) == pytest.approx(1 - 1 / 1.1, abs=0.02)
    assert min(drawn) > 1 - 1 / 1.1


@pytest.mark.parametrize(("name", "value"), [("parallel_optimize", True), ("constant_liar_type", "min")])
def test_arguments_that_tpe_had_in_nni_2_are_taken_with_a_warning(name: str, value: object, caplog) -> None:
    construct(tuner_class("TPE"), {"optimize_mode": "maximize", name: value})
    assert f"classArgs.{name}: {value!r} has no effect: trials that run count always" in caplog.text


def proposals_of_tpe(space: dict, args: dict) -> list[dict]:
    """Of a search with six at once, in which trials fail, have no number, equal another one, and break a limit."""
    tuner = construct(tuner_class("TPE"), {"seed": 4, "tpe_args": args})
    tuner.result_constraints = ("delay <= 0.8",)
    tuner.update_search_space(space)
    luck, found, running = random.Random(1), [], []
    for number in range(60):
        found.append(tuner.generate_parameters(number))
        running.append((number, found[-1]))
        if len(running) == 6:
            ended, parameters = running.pop(luck.randrange(6))
            value = round(abs(parameters["x"]), luck.choice([0, 9])) if luck.random() > 0.1 else math.nan
            if luck.random() > 0.1:
                tuner.receive_trial_result(ended, parameters, {"default": value, "delay": luck.random()})
            tuner.trial_end(ended, True)
    return found


@pytest.mark.parametrize("args", [{}, {"multivariate": False}, {"gamma": 0.5, "constant_liar_type": None}], ids=str)
@pytest.mark.parametrize("space", [NESTED, FLAT], ids=["nested", "flat"])
def test_what_tpe_remembers_of_trials_changes_no_proposal(monkeypatch, space, args):
    ours = proposals_of_tpe(space, args)
    plain = lambda: lambda always, **arguments: TPESampler(**arguments)  # noqa: E731
    monkeypatch.setattr(_tpe, "get_caching_tpe", plain)
    assert proposals_of_tpe(space, args) == ours
