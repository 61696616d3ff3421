"""Curvefitting, and optuna's pruners as assessors."""

from __future__ import annotations

import math
import random
import sys

import pytest

from learning_curves import SHAPES
from nnilite._plugins.lookup import assessor_class
from nnilite.assessor import Assessor, AssessResult
from nnilite.config import from_dict
from nnilite.errors import ConfigError
from nnilite.tuning.class_args import construct

EVERY = {
    "Auto": {},
    "Medianstop": {},
    "Curvefitting": {},
    "Percentile": {"n_startup_trials": 1},
    "SuccessiveHalving": {"reduction_factor": 2},
    "Threshold": {"lower": 0.0},
    "Patient": {"patience": 3},
    "Wilcoxon": {},
}


def made(name: str, **args: object) -> Assessor:
    return construct(assessor_class(name), {**EVERY[name], **args})


def completed(assessor: Assessor, name: str, values: list) -> None:
    for k in range(len(values)):
        assessor.assess_trial(name, values[: k + 1])
    assessor.trial_end(name, True)


def stopped_at(assessor: Assessor, name: str, values: list) -> int | None:
    """The number of results after which a trial is stopped."""
    for k in range(len(values)):
        if assessor.assess_trial(name, values[: k + 1]) is AssessResult.Bad:
            assessor.trial_end(name, False)
            return k + 1
    assessor.trial_end(name, True)
    return None


def curve(end: float, count: int = 20, rate: float = 0.3) -> list[float]:
    return [end * (1 - math.exp(-rate * (k + 1))) for k in range(count)]


@pytest.mark.parametrize("name", EVERY)
def test_any_kind_of_result_gets_an_answer(name):
    assessor, rng = made(name), random.Random(0)
    kinds = [1, 0.5, {"default": 2, "x": 1}, math.nan, math.inf, None, "text", {"acc": 1}, [1]]
    for trial in range(12):
        history = [rng.choice(kinds) for _ in range(10)]
        for k in range(10):
            assert isinstance(assessor.assess_trial(str(trial), history[: k + 1]), AssessResult)
        assessor.trial_end(str(trial), trial % 2 == 0)
    assessor.trial_end("of another life", True)


@pytest.mark.parametrize("name", EVERY)
def test_a_dict_counts_as_its_default(name):
    plain, dicts = made(name), made(name)
    for trial in range(8):
        values = curve(0.9 - trial / 10)
        wrapped = [{"default": value, "other": "x"} for value in values]
        assert stopped_at(plain, str(trial), values) == stopped_at(dicts, str(trial), wrapped)


@pytest.mark.parametrize("name", sorted(EVERY.keys() - {"Threshold"}))
def test_minimising_is_maximising_the_opposite(name):
    up, down = made(name, optimize_mode="maximize"), made(name, optimize_mode="minimize")
    for trial in range(8):
        values = curve(0.9 - trial / 10)
        assert stopped_at(up, str(trial), values) == stopped_at(down, str(trial), [-value for value in values])


@pytest.mark.parametrize("name", EVERY)
def test_wrong_arguments_get_a_sentence(name):
    with pytest.raises(ConfigError, match=r"classArgs\.optimise: .*did you mean optimize_mode\?"):
        made(name, optimise="maximize")
    with pytest.raises(ConfigError, match="must be one of 'maximize', 'minimize', not 'best'"):
        made(name, optimize_mode="best")


def test_curvefitting_stops_a_curve_that_levels_off_too_low():
    assessor = made("Curvefitting")
    completed(assessor, "good", curve(0.9))
    assert stopped_at(assessor, "poor", curve(0.6)) == 6  # the start step
    assert stopped_at(assessor, "as good", curve(0.9)) is None
    assert stopped_at(assessor, "slow but better", curve(1.0, rate=0.15)) is None


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_curvefitting_never_stops_a_curve_that_equals_the_best_one(shape):
    assessor = made("Curvefitting", threshold=1.0)
    completed(assessor, "best", shape)
    assert stopped_at(assessor, "same", shape) is None


# Patient stops a trial for its own results alone, Threshold for a single one.
@pytest.mark.parametrize("mode", ["maximize", "minimize"])
@pytest.mark.parametrize("name", ["Medianstop", "Percentile", "SuccessiveHalving", "Wilcoxon"])
def test_a_curve_that_equals_the_best_one_is_never_stopped(name, mode):
    for shape in SHAPES.values():
        assessor = made(name, optimize_mode=mode)
        completed(assessor, "best", shape)
        assert stopped_at(assessor, "same", shape) is None


@pytest.mark.parametrize("seed", range(12))
def test_the_chance_of_wilcoxons_test_is_that_of_scipy_with_ties_and_zeros(seed):
    from scipy.stats import wilcoxon

    from nnilite_optuna._wilcoxon import chance_of_less

    rng = random.Random(seed)
    differences = [rng.choice([-2.0, -1.0, 0.0, 1.0]) for _ in range(3 + seed % 4)]
    known = wilcoxon(differences, alternative="less", zero_method="zsplit").pvalue
    assert chance_of_less(differences) == pytest.approx(known)


def test_wilcoxon_stops_a_trial_with_ties_that_is_worse_on_all_folds():
    assessor = made("Wilcoxon")
    completed(assessor, "best", [0.9] * 12)
    assert stopped_at(assessor, "worse", [0.8] * 12) == 4  # by chance, one of 16 has four such signs
    assert stopped_at(assessor, "worse on few", [0.9, 0.8] * 6) == 8


def test_curvefitting_does_not_mix_the_histories_of_trials():
    assessor = made("Curvefitting")
    for k in range(20):
        assessor.assess_trial("best", curve(0.9)[: k + 1])
        assessor.assess_trial("worst", curve(0.1)[: k + 1])
    assessor.trial_end("best", True)
    assessor.assess_trial("worst", curve(0.1))
    assert stopped_at(assessor, "middle", curve(0.5)) == 6


def test_curvefitting_judges_at_every_gap():
    assessor = made("Curvefitting", gap=5, start_step=4)
    completed(assessor, "good", curve(0.9))
    assert stopped_at(assessor, "poor", curve(0.5)) == 4
    assert stopped_at(assessor, "poor later", [*curve(0.9)[:4], *curve(0.3)[4:]]) == 9


@pytest.mark.parametrize("name", EVERY)
def test_a_trial_that_begins_again_is_judged_by_its_new_results(name):
    anew, first = made(name), made(name)
    for trial in range(8):
        values = curve(0.9 - trial / 10)
        anew.assess_trial(str(trial), [0.5])
        anew.assess_trial(str(trial), [0.5, 0.5])
        assert stopped_at(anew, str(trial), values) == stopped_at(first, str(trial), values)


def test_curvefitting_fits_a_long_curve_by_some_of_its_points(monkeypatch):
    from nnilite_sklearn import _curvefitting

    sizes = []
    monkeypatch.setattr(_curvefitting, "forecast_at", lambda epoch, points: sizes.append(len(points)))
    assessor = made("Curvefitting", epoch_num=1000, start_step=900, gap=50)
    completed(assessor, "good", curve(0.9))
    assessor.assess_trial("long", [0.1] * 950)
    assert sizes == [64]


def test_curvefitting_takes_results_of_any_size():
    assessor = made("Curvefitting", epoch_num=8, start_step=4)
    completed(assessor, "a", [1e308] * 8)
    for values in ([1e308, -1e308, 0.0, 1.0, 2.0], [-1e308, -1e307, 1e306, 1e307, 1e308]):
        assert assessor.assess_trial(f"trial of {values}", values) in AssessResult


def test_percentile_keeps_the_best_part():
    assessor = made("Percentile", percentile=25.0, n_startup_trials=4)
    for k in range(8):
        completed(assessor, str(k), [k / 10] * 3)
    assert stopped_at(assessor, "a", [0.65] * 3) is None
    assert stopped_at(assessor, "b", [0.4] * 3) == 1


def test_successive_halving_lets_few_on_at_each_rung():
    assessor = made("SuccessiveHalving", reduction_factor=2)
    ends = [stopped_at(assessor, str(k), [(k * 7 % 16) / 16] * 16) for k in range(16)]
    assert ends.count(None) < 8
    assert set(ends) - {None} <= {1, 2, 4, 8, 16}


def test_threshold_stops_below_above_and_on_nan():
    assert stopped_at(made("Threshold"), "a", [1, -1, 1]) == 2
    assert stopped_at(made("Threshold", lower=None, upper=3.0), "a", [1, 4]) == 2
    assert stopped_at(made("Threshold"), "a", [1, math.nan]) == 2


def test_threshold_heeds_its_warm_up_for_nan_as_well():
    assert stopped_at(made("Threshold", n_warmup_steps=2), "a", [math.nan, -1, math.nan]) == 3


PRUNERS = {
    "Percentile": lambda pruners, **args: pruners.PercentilePruner(
        args.pop("percentile", 25.0), args.pop("n_startup_trials", 1), **args
    ),
    "SuccessiveHalving": lambda pruners, **args: pruners.SuccessiveHalvingPruner(
        **{"min_resource": 1, "reduction_factor": 2, **args}
    ),
    "Threshold": lambda pruners, **args: pruners.ThresholdPruner(**{"lower": 0.0, **args}),
    "Patient": lambda pruners, **args: pruners.PatientPruner(None, args.pop("patience", 3), **args),
}
VARIANTS = [
    ("Percentile", {"percentile": 60.0, "n_startup_trials": 3}),
    ("Percentile", {"n_warmup_steps": 3, "interval_steps": 4, "n_min_trials": 2}),
    ("SuccessiveHalving", {}),
    ("SuccessiveHalving", {"min_resource": 2, "reduction_factor": 3, "bootstrap_count": 2}),
    ("SuccessiveHalving", {"min_resource": "auto", "min_early_stopping_rate": 1}),
    ("Threshold", {"lower": 0.1, "upper": 0.7, "n_warmup_steps": 2, "interval_steps": 3}),
    ("Patient", {"patience": 2, "min_delta": 0.05}),
]


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("mode", ["maximize", "minimize"])
@pytest.mark.parametrize(("name", "args"), VARIANTS, ids=str)
def test_each_verdict_is_that_of_optunas_pruner(name, args, mode):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    ours = made(name, optimize_mode=mode, **args)
    study = optuna.create_study(direction=mode, pruner=PRUNERS[name](optuna.pruners, **args))
    rng, first_step = random.Random(4), name == "SuccessiveHalving"  # whose steps count from 1
    for number in range(25):
        values = [round(rng.random(), 1) for _ in range(12)]
        trial = study.ask()
        for step in range(12):
            trial.report(values[step], step + first_step)
            verdict = ours.assess_trial(str(number), values[: step + 1])
            assert (verdict is AssessResult.Bad) == trial.should_prune(), (number, step)
        failed = number % 5 == 4
        study.tell(trial, None if failed else values[-1], state=optuna.trial.TrialState.FAIL if failed else None)
        ours.trial_end(str(number), not failed)


def test_a_judgement_costs_as_little_after_many_results_as_after_few():
    for name in sorted(EVERY.keys() - {"Curvefitting", "Wilcoxon"}):
        assessor = made(name)
        completed(assessor, "best", [0.5] * 30)
        early = count_calls(assessor, [0.5] * 20, 10)
        late = count_calls(made(name), [0.5] * 3010, 10)
        assert late <= early + 20, name


@pytest.mark.parametrize("seed", range(5))
def test_patient_compares_the_last_results_with_the_best_one_before_them(seed):
    """It keeps only results that can still count."""
    rng = random.Random(seed)
    patience = rng.randrange(8)
    values = [rng.choice([round(rng.random(), 1), rng.random()]) for _ in range(60)]
    assessor = made("Patient", patience=patience, min_delta=0.1)
    for k in range(60):
        before, last = values[: max(0, k - patience)], values[max(0, k - patience) : k + 1]
        poor = max(before, default=-math.inf) - 0.1 > max(last)
        assert (assessor.assess_trial("a", values[: k + 1]) is AssessResult.Bad) == poor, k


def count_calls(assessor: Assessor, values: list, last: int) -> int:
    """How many functions the last so many judgements of a trial call."""
    for k in range(len(values) - last):
        assessor.assess_trial("long", values[: k + 1])
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        for k in range(len(values) - last, len(values)):
            assessor.assess_trial("long", values[: k + 1])
    finally:
        sys.setprofile(None)
    return counted


def test_patience_ends():
    assert stopped_at(made("Patient", patience=2), "a", [1, 2, 3, 2, 2, 2, 2]) == 6
    assert stopped_at(made("Patient", patience=2), "b", list(range(9))) is None


def test_wilcoxon_stops_a_trial_that_is_worse_on_most_folds():
    assessor, rng = made("Wilcoxon"), random.Random(0)
    hard = [rng.random() for _ in range(10)]
    completed(assessor, "best", [2 - h for h in hard])
    assert stopped_at(assessor, "worse", [1.5 - h for h in hard]) is not None
    assert stopped_at(assessor, "better", [2.5 - h for h in hard]) is None


def test_thresholds_out_of_order_get_a_sentence():
    with pytest.raises(ConfigError, match=r"classArgs\.upper: must be a number of at least 5, not 2"):
        made("Threshold", lower=5, upper=2)
    with pytest.raises(ConfigError, match="set lower, upper or both"):
        made("Threshold", lower=None)


@pytest.mark.parametrize(
    ("tuner", "assessor", "count"),
    [
        ({"name": "TPE"}, {"name": "Medianstop"}, 1),
        ({"name": "TPE", "classArgs": {"optimize_mode": "maximize"}}, {"name": "Medianstop"}, 0),
        ({"name": "TPE"}, {"name": "Threshold", "classArgs": {"upper": 9}}, 0),
        ({"name": "TPE"}, None, 0),
    ],
)
def test_an_assessor_that_looks_for_the_opposite_of_the_tuner_is_warned_of(tuner, assessor, count):
    raw = {"trialCommand": "true", "trialConcurrency": 1, "trainingService": {"platform": "local"}}
    config = from_dict(
        {**raw, "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}}, "tuner": tuner, "assessor": assessor}
    ).checked()
    config.check_algorithms()
    said = ["optimize_mode is minimize for the tuner, but maximize for the assessor; set it in the classArgs of both"]
    assert config.warnings == said[:count]


def started_auto() -> Assessor:
    """It has seen five trials complete, which end between 0.6 and 1.0."""
    assessor = made("Auto")
    for trial in range(5):
        completed(assessor, f"whole {trial}", curve(0.6 + trial / 10))
    return assessor


def test_auto_stops_a_trial_that_is_far_behind_and_says_why():
    assessor = started_auto()
    assert stopped_at(assessor, "poor", curve(0.1)) is not None
    assert stopped_at(assessor, "good", curve(1.1)) is None
    assessor.assess_trial("worse", curve(0.05)[:12])
    reason = assessor.explain_stop()
    assert reason.startswith("after 12 results its best is 0.04863; the best 2 of 6 completed trials had 0.9727")


def test_auto_judges_no_trial_before_four_have_completed():
    assessor = made("Auto")
    for trial in range(3):
        completed(assessor, str(trial), curve(1.0))
    assert stopped_at(assessor, "poor", curve(0.1)) is None


def test_auto_waits_for_a_trial_that_could_still_gain_as_much_as_another_one_did():
    late = [0.0] * 10 + [0.5] * 10
    assert stopped_at(started_auto(), "late", late) == 2
    assessor = started_auto()
    completed(assessor, "late too", [0.0] * 12 + [1.2] * 8)
    assert stopped_at(assessor, "late", late) == 13


def test_auto_waits_for_a_trial_that_gets_there_at_its_own_pace():
    steady = [0.05 * (k + 1) for k in range(20)]
    assert stopped_at(started_auto(), "steady", steady) is None
    assert stopped_at(started_auto(), "too slow", [value / 2 for value in steady]) is not None


def test_auto_trusts_the_largest_gain_of_many_trials_more_than_that_of_few():
    few, many = made("Auto"), made("Auto")
    for assessor, count in ((few, 4), (many, 40)):
        for trial in range(count):
            completed(assessor, str(trial), [0.5] * 10 + [1.0] * 10)
    behind = [0.4] * 20
    assert stopped_at(many, "behind", behind) == 2
    assert stopped_at(few, "behind", behind) == 11


def test_auto_judges_no_trial_before_a_twentieth_of_its_results():
    assessor = made("Auto")
    for trial in range(5):
        completed(assessor, str(trial), [1.0] * 100)
    assert stopped_at(assessor, "poor", [0.1] * 100) == 5


def test_auto_minimizes_as_it_maximizes():
    up, down = started_auto(), made("Auto", optimize_mode="minimize")
    for trial in range(5):
        completed(down, f"whole {trial}", [-value for value in curve(0.6 + trial / 10)])
    for end in (0.1, 0.3, 0.5, 0.7):
        falling = [-value for value in curve(end)]
        assert stopped_at(up, str(end), curve(end)) == stopped_at(down, str(end), falling)


def test_auto_remembers_the_latest_trials_only():
    assessor = made("Auto")
    for trial in range(200):
        completed(assessor, str(trial), [float(trial)] * 3)
    assert len(assessor._completed) == 64
