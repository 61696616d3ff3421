"""Schedules of Hyperband, ASHA and BOHB, and the population of PBT."""

from __future__ import annotations

import math

import pytest

from nnilite.errors import ConfigError, NoMoreTrialError
from nnilite.tuner import Call
from nnilite.tuning.class_args import construct
from nnilite_basic import PBTTuner
from nnilite_optuna import ASHATuner, BOHBTuner, HyperbandTuner

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}


def ready(tuner):
    tuner.update_search_space(SPACE)
    return tuner


def end(tuner, k: int, parameters: dict, value: float | None = None) -> None:
    if value is not None:
        tuner.receive_trial_result(k, parameters, value, customized=False, trial_job_id=str(k))
    tuner.trial_end(k, value is not None, trial_job_id=str(k))


def budgets(tuner, count: int, first: int = 0) -> list[float]:
    found = []
    for k in range(first, first + count):
        parameters = tuner.generate_parameters(k)
        found.append(parameters["TRIAL_BUDGET"])
        end(tuner, k, parameters, parameters["x"])
    return found


def test_the_brackets_of_hyperband_are_those_of_the_paper():
    tuner = ready(HyperbandTuner(R=9, eta=3, seed=0))
    assert budgets(tuner, 13) == [1] * 9 + [3] * 3 + [9]
    assert budgets(tuner, 7, 13) == [3] * 5 + [9] + [9]  # 5 with 3, then one of them; the last bracket begins
    assert budgets(tuner, 2, 20) == [9, 9]
    assert budgets(tuner, 9, 22) == [1] * 9


@pytest.mark.parametrize(
    ("tuner", "expected"),
    [
        (HyperbandTuner(seed=0), {2, 6, 20, 60}),  # with NNI's defaults
        (BOHBTuner(max_budget=50, seed=0), {1, 5, 16, 50}),
        (ASHATuner(min_budget=3, max_budget=10, seed=0), {3, 10}),
        (ASHATuner(min_budget=0.5, max_budget=4.5, seed=0), {0.5, 1.5, 4.5}),
    ],
)
def test_budgets_are_whole_numbers_if_their_ends_are(tuner, expected):
    given = set(budgets(ready(tuner), 70))
    assert given == expected
    assert {type(budget) for budget in given} == {type(budget) for budget in expected}


def test_the_best_of_a_rung_go_on():
    tuner = ready(HyperbandTuner("minimize", R=9, seed=0))
    firsts = [tuner.generate_parameters(k) for k in range(9)]
    for k, parameters in enumerate(firsts):
        end(tuner, k, parameters, parameters["x"])
    seconds = [tuner.generate_parameters(k)["x"] for k in range(9, 12)]
    assert seconds == sorted(p["x"] for p in firsts)[:3]


def test_hyperband_begins_another_bracket_rather_than_wait():
    tuner = ready(HyperbandTuner(R=9, seed=0))
    given = [tuner.generate_parameters(k)["TRIAL_BUDGET"] for k in range(15)]
    assert given == [1] * 9 + [3] * 5 + [9]


def test_serial_hyperband_waits_for_its_bracket():
    tuner = ready(HyperbandTuner(R=9, exec_mode="serial", seed=0))
    waiting = [tuner.generate_parameters(k) for k in range(9)]
    with pytest.raises(NoMoreTrialError, match="continues when"):
        tuner.generate_parameters(9)
    for k, parameters in enumerate(waiting):
        end(tuner, k, parameters, 1.0)
    assert tuner.generate_parameters(10)["TRIAL_BUDGET"] == 3


def test_failed_trials_do_not_go_on_and_do_not_block():
    tuner = ready(HyperbandTuner("minimize", R=9, seed=0))
    for k in range(9):
        end(tuner, k, tuner.generate_parameters(k), 0.5 if k == 4 else None)
    assert [tuner.generate_parameters(9)["TRIAL_BUDGET"], tuner.generate_parameters(10)["TRIAL_BUDGET"]] == [3, 3]
    assert len(tuner._plan._brackets) == 2  # one survivor, so the second trial is of the next bracket


def test_asha_promotes_at_once_and_never_waits():
    tuner = ready(ASHATuner("minimize", max_budget=9, seed=0))
    assert budgets(tuner, 4) == [1, 1, 1, 3]
    assert budgets(tuner, 40, 4).count(9) >= 2


@pytest.mark.parametrize(
    ("kind", "largest", "count"),
    [(ASHATuner, {"max_budget": 9}, 3), (HyperbandTuner, {"R": 9}, 9), (BOHBTuner, {"max_budget": 9}, 9)],
)
def test_checkpoints_are_handed_on_to_the_next_rung(kind, largest, count):
    tuner = ready(kind("minimize", all_checkpoint_dir="/data/it's", seed=0, **largest))
    found = [tuner.generate_parameters(k) for k in range(count)]
    for k, parameters in enumerate(found):
        end(tuner, k, parameters, parameters["x"])
    best = min(found, key=lambda p: p["x"])
    promoted = tuner.generate_parameters(count)
    assert promoted["x"] == best["x"]
    assert promoted["TRIAL_BUDGET"] == 3
    assert promoted["load_checkpoint_dir"] == best["save_checkpoint_dir"] != promoted["save_checkpoint_dir"]


@pytest.mark.parametrize("make", [HyperbandTuner, ASHATuner])
def test_the_best_imported_results_are_the_first_candidates(make):
    tuner = ready(make("minimize", eta=2, seed=0))
    tuner.import_data([{"parameter": {"x": k / 8}, "value": abs(k / 8 - 0.4)} for k in range(8)])
    first = [tuner.generate_parameters(k) for k in range(4)]
    assert [p["x"] for p in first[:2]] == [0.375, 0.5]
    assert not {p["x"] for p in first[2:]} & {k / 8 for k in range(8)}
    assert {p["TRIAL_BUDGET"] for p in first} == {tuner._schedule().next().budget}


def test_bohb_learns_from_the_largest_budget_with_enough_results():
    tuner = ready(BOHBTuner("minimize", max_budget=9, min_points_in_model=4, random_fraction=0.0, seed=0))
    budgets(tuner, 60)
    assert tuner._modelled == 9
    late = [p.parameters["x"] for p in tuner.points[-20:]]
    assert sum(late) / len(late) < 0.35


def test_bohb_models_a_budget_with_enough_good_and_enough_other_results():
    tuner = ready(BOHBTuner("minimize", max_budget=1, min_points_in_model=4, seed=0))
    budgets(tuner, 5)
    assert tuner._modelled is None
    budgets(tuner, 1, 5)
    assert tuner._modelled == 1


def test_bohb_follows_no_single_result_before_others_count_as_good():
    tuner = ready(BOHBTuner("minimize", max_budget=9, min_points_in_model=2, random_fraction=0.0, seed=0))
    losses = {0.1: 0.0, 0.9: 0.01}
    tuner.import_data([{"parameter": {"x": k / 10}, "value": losses.get(k / 10, 1.0)} for k in range(11)])
    fresh = [tuner.generate_parameters(k)["x"] for k in range(9)]
    assert {x < 0.3 for x in fresh if abs(x - 0.5) > 0.2} == {True, False}


def test_candidates_that_continue_repel_no_new_ones_of_bohb():
    tuner = ready(BOHBTuner("minimize", max_budget=9, seed=0))
    budgets(tuner, 9)
    assert [tuner.generate_parameters(k)["TRIAL_BUDGET"] for k in range(9, 12)] == [3, 3, 3]
    assert not tuner._shown
    tuner.generate_parameters(12)
    assert len(tuner._shown) == 1


FINITE = {"x": {"_type": "choice", "_value": list(range(5))}, "y": {"_type": "randint", "_value": [0, 4]}}


@pytest.mark.parametrize(
    "tuner",
    [
        HyperbandTuner("minimize", R=9, seed=0),
        ASHATuner("minimize", max_budget=9, seed=0),
        BOHBTuner("minimize", max_budget=9, random_fraction=0.0, seed=0),
    ],
)
def test_new_candidates_differ_from_all_others_while_a_finite_space_has_some_left(tuner):
    tuner.update_search_space(FINITE)
    budgets(tuner, 80)
    new = [(p.flat["x",], p.flat["y",]) for p in tuner.points if p.notes["slot"].rung == 0]
    assert len(set(new[:15])) == 15
    assert len(new) > 20  # when all have been tried, they come again


def test_a_replay_in_a_finite_space_goes_on_with_the_same_new_candidates():
    def make():
        return BOHBTuner("minimize", max_budget=9, random_fraction=0.2, seed=0)

    tuner, calls = make(), [Call("space", value=FINITE)]
    tuner.update_search_space(FINITE)
    for k in range(30):
        parameters = tuner.generate_parameters(k)
        calls.append(Call("generate", k, parameters=parameters))
        if k % 5:
            end(tuner, k, parameters, value := float(parameters["x"] + parameters["y"]))
            calls.append(Call("result", k, str(k), parameters, value))
        else:
            end(tuner, k, parameters)
        calls.append(Call("end", k, str(k), success=k % 5 > 0))
    again = make()
    again.replay(calls)
    assert tuner._modelled is not None
    assert budgets(again, 40, 30) == budgets(tuner, 40, 30)
    assert [p.parameters for p in again.points] == [p.parameters for p in tuner.points]


def test_the_parameters_of_a_candidate_that_failed_may_come_again():
    again = 0
    for seed in range(10):
        tuner = HyperbandTuner(R=9, seed=seed)
        tuner.update_search_space({"x": {"_type": "choice", "_value": [1, 2]}})
        first = tuner.generate_parameters(0)
        end(tuner, 0, first)
        again += tuner.generate_parameters(1)["x"] == first["x"]
    assert 0 < again < 10


def test_imported_results_teach_bohb():
    tuner = ready(BOHBTuner("minimize", max_budget=9, min_points_in_model=4, random_fraction=0.0, seed=0))
    tuner.import_data([{"parameter": {"x": k / 40}, "value": abs(k / 40 - 0.8)} for k in range(40)])
    fresh = [tuner.generate_parameters(k)["x"] for k in range(9)]
    assert sum(0.6 < x < 1.0 for x in fresh) >= 7


def test_bohb_takes_another_space_while_trials_run_that_do_not_fit_it():
    tuner = ready(BOHBTuner("minimize", max_budget=9, min_points_in_model=4, random_fraction=0.0, seed=0))
    tuner.import_data([{"parameter": {"x": k / 20}, "value": abs(k / 20 - 0.4)} for k in range(11)])
    running = [tuner.generate_parameters(k) for k in range(9)]
    tuner.update_search_space({"x": {"_type": "choice", "_value": [0.1, 0.2, 0.3, 0.4, 0.5]}})
    for k, parameters in enumerate(running):
        end(tuner, k, parameters, 0.5)
    fresh = [tuner.generate_parameters(k)["x"] for k in range(9, 14)]
    assert fresh[0] == 0.4


def test_a_population_never_runs_a_member_twice_at_a_time(tmp_path):
    tuner = ready(PBTTuner(population_size=3, all_checkpoint_dir=str(tmp_path), seed=0))
    running = [tuner.generate_parameters(k) for k in range(3)]
    with pytest.raises(NoMoreTrialError, match="all 3 members"):
        tuner.generate_parameters(3)
    end(tuner, 1, running[1], 0.5)
    assert tuner.generate_parameters(4)["load_checkpoint_dir"] == running[1]["save_checkpoint_dir"]


def test_a_poor_member_goes_on_from_the_best_ones_checkpoint(tmp_path):
    tuner = ready(PBTTuner(population_size=4, fraction=0.25, all_checkpoint_dir=str(tmp_path), seed=0))
    members = [tuner.generate_parameters(k) for k in range(4)]
    for k, value in enumerate([0.1, 0.9, 0.5, 0.6]):
        end(tuner, k, members[k], value)
    after = [tuner.generate_parameters(k) for k in range(4, 8)]
    assert after[0]["load_checkpoint_dir"] == members[1]["save_checkpoint_dir"]
    assert [p["load_checkpoint_dir"] for p in after[1:]] == [p["save_checkpoint_dir"] for p in members[1:]]
    assert [p["x"] for p in after[1:]] == [p["x"] for p in members[1:]]
    assert after[0]["save_checkpoint_dir"].endswith("1/0")


def test_a_member_that_failed_does_not_go_on_from_its_own_checkpoint(tmp_path):
    tuner = ready(PBTTuner(population_size=2, all_checkpoint_dir=str(tmp_path), seed=0))
    members = [tuner.generate_parameters(k) for k in range(2)]
    end(tuner, 0, members[0], 0.5)
    end(tuner, 1, members[1])
    after = [tuner.generate_parameters(k) for k in range(2, 4)]
    assert [p["load_checkpoint_dir"] for p in after] == [members[0]["save_checkpoint_dir"]] * 2


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: ASHATuner(all_checkpoint_dir=folder, seed=0),
        lambda folder: HyperbandTuner(all_checkpoint_dir=folder, seed=0),
        lambda folder: BOHBTuner(all_checkpoint_dir=folder, seed=0),
        lambda f: PBTTuner(population_size=3, all_checkpoint_dir=f),
    ],
)
def test_in_a_new_space_nobody_goes_on_from_a_checkpoint_of_the_former_one(make, tmp_path):
    tuner = ready(make(str(tmp_path)))
    before = [tuner.generate_parameters(k) for k in range(3)]
    for k, parameters in enumerate(before):
        end(tuner, k, parameters, 0.5)
    tuner.update_search_space({"x": {"_type": "uniform", "_value": [2, 3]}})
    after = [tuner.generate_parameters(k) for k in range(3, 6)]
    assert not {p["load_checkpoint_dir"] for p in after} & {p["save_checkpoint_dir"] for p in before}


def test_a_member_that_diverged_goes_on_as_one_of_the_best(tmp_path):
    tuner = ready(PBTTuner(population_size=3, all_checkpoint_dir=str(tmp_path), seed=0))
    for epoch, values in enumerate([(0.9, 0.8, 0.1), (math.nan, 0.8, 0.7)]):
        members = [tuner.generate_parameters(3 * epoch + k) for k in range(3)]
        for k, value in enumerate(values):
            end(tuner, 3 * epoch + k, members[k], value)
    assert tuner.generate_parameters(6)["load_checkpoint_dir"] == members[1]["save_checkpoint_dir"]


def test_impossible_budgets_get_a_sentence():
    with pytest.raises(ConfigError, match=r"classArgs\.max_budget: must not be below min_budget \(5\)"):
        construct(ASHATuner, {"min_budget": 5, "max_budget": 2})
    with pytest.raises(ConfigError, match=r"classArgs\.eta: must be a whole number of at least 2"):
        construct(HyperbandTuner, {"eta": 1})
    for name, value in (("R", 10**400), ("R", math.nan), ("seed", 10**400)):
        with pytest.raises(ConfigError, match=rf"classArgs\.{name}: must be a"):
            construct(HyperbandTuner, {name: value})
