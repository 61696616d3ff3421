"""GridSearch, Batch and Medianstop."""

from __future__ import annotations

import json
import math
import random

import pytest

from learning_curves import SHAPES
from nnilite.assessor import AssessResult
from nnilite.errors import ConfigError, NoMoreTrialError, SpaceError
from nnilite.tuning.class_args import construct
from nnilite_basic import BatchTuner, GridSearchTuner, MedianstopAssessor, RandomTuner


def grid(space: dict) -> GridSearchTuner:
    tuner = GridSearchTuner()
    tuner.update_search_space(space)
    return tuner


def proposals(tuner, count: int) -> list:
    return tuner.generate_multiple_parameters(list(range(count)))


def test_a_grid_of_finite_types_lists_all_combinations_and_ends():
    space = {"a": {"_type": "choice", "_value": ["x", None]}, "b": {"_type": "quniform", "_value": [2, 10, 5]}}
    found = proposals(grid(space), 100)
    assert [(p["a"], p["b"]) for p in found] == [(a, b) for a in ("x", None) for b in (2.0, 5.0, 10.0)]


def test_a_continuous_grid_halves_its_steps_in_each_round_and_repeats_nothing():
    found = [p["x"] for p in proposals(grid({"x": {"_type": "uniform", "_value": [0, 8]}}), 7)]
    assert found == [4.0, 2.0, 6.0, 1.0, 3.0, 5.0, 7.0]


def test_a_round_of_a_mixed_grid_has_only_new_points():
    space = {"a": {"_type": "randint", "_value": [0, 2]}, "x": {"_type": "loguniform", "_value": [1, 16]}}
    found = [(p["a"], round(p["x"], 9)) for p in proposals(grid(space), 6)]
    assert found == [(0, 4.0), (1, 4.0), (0, 2.0), (0, 8.0), (1, 2.0), (1, 8.0)]


def test_a_grid_of_a_normal_type_follows_its_quantiles():
    found = [p["x"] for p in proposals(grid({"x": {"_type": "normal", "_value": [10, 2]}}), 3)]
    assert found == pytest.approx([10, 10 - 2 * 0.6744898, 10 + 2 * 0.6744898])


def test_a_grid_of_a_coarse_normal_type_ends():
    found = proposals(grid({"x": {"_type": "qnormal", "_value": [0, 0.001, 1]}}), 5)
    assert found == [{"x": 0.0}]


def test_a_nested_grid_varies_only_what_counts():
    inner = {"_name": "Conv", "size": {"_type": "choice", "_value": [2, 3]}}
    found = proposals(grid({"layer": {"_type": "choice", "_value": [{"_name": "Empty"}, inner]}}), 10)
    assert [p["layer"].get("size") for p in found] == [None, 2, 3]


def test_a_grid_skips_what_was_imported_or_customised():
    tuner = grid({"a": {"_type": "choice", "_value": [1, 2, 3]}})
    tuner.import_data([{"parameter": {"a": 1}, "value": 0}, {"parameter": {"a": 2}, "value": None}])
    tuner.receive_trial_result(None, {"a": 3}, 1, customized=True, trial_job_id="x")
    assert proposals(tuner, 5) == [{"a": 2}]


def test_a_grid_in_a_new_space_does_not_repeat_itself():
    tuner = grid({"a": {"_type": "choice", "_value": [1, 2]}})
    proposals(tuner, 2)
    tuner.update_search_space({"a": {"_type": "choice", "_value": [1, 2, 3]}})
    assert proposals(tuner, 5) == [{"a": 3}]


def test_a_batch_runs_its_sets_in_order_and_skips_what_is_done():
    sets = [{"lr": 0.1, "name": "it's $HOME"}, {"lr": 0.2}, {"other": [1]}]
    tuner = BatchTuner()
    tuner.update_search_space({"combine": {"_type": "choice", "_value": sets}})
    tuner.import_data([{"parameter": {"lr": 0.2}, "value": 0}])
    assert [tuner.generate_parameters(0), tuner.generate_parameters(1)] == [sets[0], sets[2]]
    with pytest.raises(NoMoreTrialError):
        tuner.generate_parameters(2)


def test_a_batch_of_plain_options_hands_out_the_options_themselves():
    tuner = BatchTuner()
    tuner.update_search_space({"p": {"_type": "choice", "_value": [1, 2, "two"]}})
    assert [tuner.generate_parameters(number) for number in range(3)] == [1, 2, "two"]


@pytest.mark.parametrize(
    "space",
    [
        {},
        {"a": {"_type": "choice", "_value": [{}]}, "b": {"_type": "choice", "_value": [{}]}},
        {"a": {"_type": "uniform", "_value": [0, 1]}},
        {"a": {"_type": "choice", "_value": []}},
        {"a": 3},
    ],
)
def test_a_batch_refuses_any_other_space_with_an_example(space):
    with pytest.raises(SpaceError, match="right would be"):
        BatchTuner().update_search_space(space)


def test_arguments_that_a_tuner_does_not_have_are_refused():
    with pytest.raises(ConfigError, match=r"classArgs.optimize_mode: BatchTuner has no such argument; it takes none"):
        construct(BatchTuner, {"optimize_mode": "maximize"})


def test_random_draws_follow_their_types():
    tuner = RandomTuner(seed=0)
    tuner.update_search_space({"x": {"_type": "loguniform", "_value": [1e-4, 1]}})
    logs = [math.log10(tuner.generate_parameters(k)["x"]) for k in range(2000)]
    assert sum(logs) / len(logs) == pytest.approx(-2, abs=0.1)


def completed(assessor, name: str, values: list) -> None:
    for k in range(len(values)):
        assessor.assess_trial(name, values[: k + 1])
    assessor.trial_end(name, True)


def test_medianstop_stops_a_trial_below_the_median_of_running_averages():
    assessor = MedianstopAssessor()
    for name, values in (("a", [1, 3]), ("b", [2, 4]), ("c", [3, 5])):
        completed(assessor, name, values)  # running averages at step 1: 2, 3, 4
    assert assessor.assess_trial("d", [0]) is AssessResult.Bad
    assert assessor.assess_trial("e", [0, 3]) is AssessResult.Good
    assert assessor.assess_trial("f", [2.9, 2]) is AssessResult.Bad


def test_medianstop_keeps_the_best_so_far():
    assessor = MedianstopAssessor()
    completed(assessor, "a", [1, 1])
    assert assessor.assess_trial("b", [1, 0]) is AssessResult.Good


def test_medianstop_can_minimise():
    assessor = MedianstopAssessor("minimize")
    completed(assessor, "a", [{"default": 1}])
    assert assessor.assess_trial("b", [{"default": 2}]) is AssessResult.Bad
    assert assessor.assess_trial("c", [{"default": 0.5}]) is AssessResult.Good


def test_medianstop_waits_for_its_start_step_and_for_a_completed_trial():
    assessor = MedianstopAssessor(start_step=2)
    assert assessor.assess_trial("z", [-5, -5]) is AssessResult.Good
    assessor.trial_end("z", False)
    completed(assessor, "a", [1, 1, 1])
    assert assessor.assess_trial("b", [0]) is AssessResult.Good
    assert assessor.assess_trial("b", [0, 0]) is AssessResult.Bad


class NniMedianstop:
    """The rule of NNI 3.0's own class, `nni/algorithms/hpo/medianstop_assessor.py`, with its state of plain lists."""

    def __init__(self, optimize_mode, start_step):
        self.high, self.start, self.averages = optimize_mode == "maximize", start_step, []

    def judges_good(self, history):
        if len(history) < self.start:
            return True
        rivals = sorted(one[len(history) - 1] for one in self.averages if len(one) >= len(history))
        if not rivals:
            return True
        if self.high:
            return max(history) >= rivals[(len(rivals) - 1) // 2]
        return min(history) <= rivals[len(rivals) // 2]

    def complete(self, history):
        self.averages.append([sum(history[: k + 1]) / (k + 1) for k in range(len(history))])


@pytest.mark.parametrize("mode", ["maximize", "minimize"])
@pytest.mark.parametrize("start_step", [0, 1, 3])
def test_medianstop_judges_as_nnis_does(mode, start_step):
    ours, theirs = MedianstopAssessor(mode, start_step), NniMedianstop(mode, start_step)
    rng = random.Random(start_step)
    verdicts = []
    for trial in range(60):
        # Halves and quarters: sums of them are exact, so that both compute the same averages.
        history = [rng.randrange(40) / 4 for _ in range(rng.randrange(1, 17))]
        for k in range(len(history)):
            judged = ours.assess_trial(str(trial), history[: k + 1]) is AssessResult.Good
            verdicts.append(judged)
            assert judged == theirs.judges_good(history[: k + 1])
        success = trial % 3 != 0
        ours.trial_end(str(trial), success)
        if success and len(history) >= start_step:
            theirs.complete(history)
    assert {True, False} == set(verdicts)


@pytest.mark.parametrize("curve", SHAPES.values(), ids=SHAPES)
def test_medianstop_never_stops_a_curve_that_equals_the_only_completed_one(curve):
    assessor = MedianstopAssessor()
    completed(assessor, "best", curve)
    assert all(assessor.assess_trial("same", curve[: k + 1]) is AssessResult.Good for k in range(len(curve)))


def test_medianstop_judges_a_trial_that_begins_again_by_its_new_results():
    assessor = MedianstopAssessor()
    completed(assessor, "a", [0.5, 0.5])
    assert assessor.assess_trial("b", [0.9]) is AssessResult.Good
    assert assessor.assess_trial("b", [0.1]) is AssessResult.Bad


class Counted(list):
    """A history that counts how many of its results were looked at."""

    looks = 0

    def __getitem__(self, place):
        Counted.looks += 1
        return super().__getitem__(place)

    def __iter__(self):
        raise AssertionError("the whole history is looked at")


def test_medianstop_looks_at_each_result_once():
    assessor, history = MedianstopAssessor(), Counted()
    for k in range(500):
        history.append(k)
        assessor.assess_trial("long", history)
    assert Counted.looks == 500


def test_medianstop_leaves_out_what_is_no_number():
    assessor = MedianstopAssessor()
    completed(assessor, "a", [math.nan, 4, "x", {"acc": 1}])
    assert assessor.assess_trial("b", [math.nan]) is AssessResult.Good
    assert assessor.assess_trial("b", [math.nan, 3]) is AssessResult.Bad


def test_medianstop_is_quick_with_ten_thousand_trials():
    assessor, rng = MedianstopAssessor(), random.Random(0)
    for k in range(10_000):
        completed(assessor, str(k), [rng.random() for _ in range(3)])
    assert assessor.assess_trial("last", [0.0]) is AssessResult.Bad


def test_medianstop_checks_its_arguments():
    with pytest.raises(ConfigError, match=r"classArgs.start_step: must be a whole number of at least 0, not -1"):
        construct(MedianstopAssessor, {"start_step": -1})


def test_proposals_are_json():
    space = {"q": {"_type": "qloguniform", "_value": [1, 100, 2]}, "r": {"_type": "randint", "_value": [0, 3]}}
    assert json.loads(json.dumps(proposals(grid(space), 3))) == proposals(grid(space), 3)
