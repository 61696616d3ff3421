"""The facts that NNI's own tests of its tuners check, by the names that they import: rounds of trials, imports.

Those tests are not in NNI's package. Its classes of single spaces are in `test_odd_spaces`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nnilite._plugins.lookup import tuner_class
from nnilite.config import load
from nnilite.tuning.class_args import construct
from shim import nni_modules

TYPES: dict[str, Any] = {
    "choice_str": {"_type": "choice", "_value": ["cat", "dog", "elephant", "cow", "sheep", "panda"]},
    "choice_num": {"_type": "choice", "_value": [10, 20, 30, 40, 50, 60]},
    "choice_float": {"_type": "choice", "_value": [0.3, 0.5, 99.5]},
    "randint": {"_type": "randint", "_value": [-7, 29]},
    "uniform": {"_type": "uniform", "_value": [0.01, 99.9]},
    "quniform": {"_type": "quniform", "_value": [0, 10, 2.5]},
    "loguniform": {"_type": "loguniform", "_value": [0.01, 10]},
    "qloguniform": {"_type": "qloguniform", "_value": [2, 10, 2]},
    "normal": {"_type": "normal", "_value": [0, 1]},
    "qnormal": {"_type": "qnormal", "_value": [0, 10, 2]},
    "lognormal": {"_type": "lognormal", "_value": [0, 1]},
    "qlognormal": {"_type": "qlognormal", "_value": [0, 3, 0.5]},
}
RANGES = ("randint", "uniform", "quniform", "loguniform", "qloguniform")
CLASSES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "TPE": ("hyperopt_tuner.HyperoptTuner", ("tpe",)),
    "Random": ("hyperopt_tuner.HyperoptTuner", ("random_search",)),
    "Anneal": ("hyperopt_tuner.HyperoptTuner", ("anneal",)),
    "TpeTuner": ("tpe_tuner.TpeTuner", ()),
    "GridSearch": ("gridsearch_tuner.GridSearchTuner", ()),
    "Evolution": ("evolution_tuner.EvolutionTuner", ("maximize", 100)),
    "GP": ("gp_tuner.GPTuner", ()),
    "Metis": ("metis_tuner.MetisTuner", ()),
    "SMAC": ("smac_tuner.SMACTuner", ()),
}
SLOW = ("GP", "Metis", "SMAC")
"""Have a model, so that they get a single round, as in NNI's tests."""


@pytest.fixture
def nni() -> Iterator[Any]:
    with nni_modules() as imported:
        yield imported


def make(nni: Any, name: str) -> Any:
    path, arguments = CLASSES[name]
    module, _, known = path.rpartition(".")
    tuner = getattr(nni(f"nni.algorithms.hpo.{module}"), known)(*arguments)
    assert isinstance(tuner, nni("nni.tuner").Tuner)
    return tuner


def check(kind: str, value: Any) -> None:
    """Check what NNI's tests check of a value."""
    about = TYPES[kind]
    if about["_type"] == "choice":
        assert value in about["_value"]
    if about["_type"] in RANGES:
        assert about["_value"][0] <= value <= about["_value"][1]
    if kind == "randint":
        assert isinstance(value, int)
    if kind == "uniform":
        assert isinstance(value, float)
    if about["_type"].startswith("q"):
        assert value / about["_value"][2] == pytest.approx(round(value / about["_value"][2]))
    if "lognormal" in kind:
        assert value >= 0


@pytest.mark.parametrize("name", CLASSES)
def test_rounds_of_trials_stay_within_a_space_of_all_types(nni: Any, name: str) -> None:
    tuner, rng = make(nni, name), random.Random(1)
    tuner.update_search_space(TYPES)
    for turn in range(1 if name in SLOW else 3):
        ids = list(range(20 * turn, 20 * turn + 20))
        found = tuner.generate_multiple_parameters(ids, st_callback=lambda *given: None)
        assert len(found) == len(ids)
        for number, parameters in zip(ids, found, strict=True):
            assert parameters.keys() == TYPES.keys()
            for kind, value in parameters.items():
                check(kind, value)
            tuner.receive_trial_result(number, parameters, rng.uniform(-100, 100))
            tuner.trial_end(number, True)


@pytest.mark.parametrize("kind", ["choice_str", "choice_num"])
@pytest.mark.parametrize("name", CLASSES)
def test_results_are_imported_at_the_beginning_and_in_the_middle(nni: Any, name: str, kind: str) -> None:
    tuner, options = make(nni, name), TYPES[kind]["_value"]
    tuner.update_search_space({kind: TYPES[kind]})
    first = [
        {"parameter": {kind: options[0]}, "value": 1.1},
        {"parameter": {kind: options[1]}, "value": {"default": 1.2, "tmp": 2}},
    ]
    tuner.import_data(first)
    found = tuner.generate_multiple_parameters([0, 1, 2])
    assert len(found) == 3
    for number, parameters in enumerate(found):
        tuner.receive_trial_result(number, parameters, float(number))
    # A result that it knows comes once more.
    tuner.import_data([*first, {"parameter": {kind: options[3]}, "value": 1.3}])
    for parameters in tuner.generate_multiple_parameters([3]):
        assert parameters[kind] in options
        tuner.receive_trial_result(3, parameters, 1.0)


def test_batch_leaves_out_what_was_imported(nni: Any) -> None:
    tuner = nni("nni.algorithms.hpo.batch_tuner").BatchTuner()
    tuner.update_search_space({"combine_params": {"_type": "choice", "_value": [{"x": 1}, {"x": 2}, {"x": 3}]}})
    tuner.import_data([{"parameter": {"x": 2}, "value": 1.0}])
    assert tuner.generate_multiple_parameters([0, 1, 2]) == [{"x": 1}, {"x": 3}]


@pytest.mark.parametrize("size", [12, 100])
def test_pbt_trains_its_population_epoch_by_epoch(nni: Any, tmp_path: Path, size: int) -> None:
    tuner = nni("nni.algorithms.hpo.pbt_tuner").PBTTuner(all_checkpoint_dir=str(tmp_path), population_size=size)
    tuner.update_search_space(TYPES)
    for turn in range(3):
        ids = list(range(size * turn, size * turn + size))
        for number, parameters in zip(ids, tuner.generate_multiple_parameters(ids), strict=True):
            assert Path(parameters["save_checkpoint_dir"]).parent.name == str(turn)
            for kind in TYPES:
                check(kind, parameters[kind])
            tuner.receive_trial_result(number, parameters, float(number))
            tuner.trial_end(number, True)


def test_pbt_takes_imported_results_with_and_without_their_checkpoints(nni: Any, tmp_path: Path) -> None:
    tuner = nni("nni.algorithms.hpo.pbt_tuner").PBTTuner(all_checkpoint_dir=str(tmp_path), population_size=4)
    tuner.update_search_space({"choice_str": TYPES["choice_str"]})
    folders = [str(tmp_path / str(member) / "0") for member in range(4)]
    values = [1.1, {"default": 1.2, "tmp": 2}, 11, 7]
    animals = zip(("cat", "dog", "cat", "cat"), folders, strict=True)
    parameters = [{"choice_str": animal, "save_checkpoint_dir": folder} for animal, folder in animals]
    data = [{"parameter": one, "value": value} for one, value in zip(parameters, values, strict=True)]
    tuner.import_data([*data, {"parameter": {"choice_str": "dog"}, "value": 3.0}])
    assert [one["choice_str"] in TYPES["choice_str"]["_value"] for one in tuner.generate_multiple_parameters([0, 1])]


def test_a_trial_below_the_median_is_bad_from_the_start_step_on(nni: Any) -> None:
    result = nni("nni.assessor").AssessResult
    assessor = nni("nni.algorithms.hpo.medianstop_assessor").MedianstopAssessor("maximize", 2)
    for trial, level in enumerate((0.8, 0.9)):
        for steps in range(1, 5):
            assert assessor.assess_trial(str(trial), [level] * steps) is result.Good
        assessor.trial_end(str(trial), True)
    assert assessor.assess_trial("2", [0.1]) is result.Good
    assert assessor.assess_trial("2", [0.1, 0.1]) is result.Bad
    assert assessor.assess_trial("3", [0.9, 0.95]) is result.Good


VERSION_1: dict[str, Any] = {
    "authorName": "nni",
    "experimentName": "default_test",
    "maxExecDuration": "5m",
    "maxTrialNum": 2,
    "trialConcurrency": 1,
    "searchSpacePath": "search space.json",
    "trial": {"command": "python3 trial.py", "codeDir": ".", "gpuNum": 0},
    "useAnnotation": False,
    "multiPhase": False,
    "multiThread": True,
    "trainingServicePlatform": "local",
}
OF_TUNERS = {
    "dropout_rate": {"_type": "quniform", "_value": [0.5, 0.9, 2]},  # a step that is wider than the range
    "conv_size": {"_type": "choice", "_value": [2, 3, 5, 7]},
    "learning_rate": {"_type": "choice", "_value": [0.0001, 0.001, 0.01, 0.1]},
}
OF_BATCH = {"combine_params": {"_type": "choice", "_value": [{"x": 1, "y": 2}, {"x": 2, "y": 3}]}}
OF_ADVISORS = {"dropout_rate": {"_type": "uniform", "_value": [0.5, 0.9]}, "lr": OF_TUNERS["learning_rate"]}
MAXIMIZE = {"optimize_mode": "maximize"}
RUNS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    *(("tuner", name, MAXIMIZE, OF_TUNERS) for name in ("Anneal", "Evolution", "Random", "SMAC", "TPE")),
    *(("tuner", name, MAXIMIZE, OF_TUNERS) for name in ("GP", "GridSearch", "Metis", "MetisTuner", "GPTuner")),
    ("tuner", "BatchTuner", {}, OF_BATCH),
    ("advisor", "BOHB", {**MAXIMIZE, "min_budget": 1, "max_budget": 27, "eta": 3}, OF_ADVISORS),
    ("advisor", "Hyperband", {**MAXIMIZE, "R": 60, "eta": 3}, OF_ADVISORS),
]
"""The algorithms that NNI's integration runner starts, with configs of version 1 and the search spaces of each."""


@pytest.mark.parametrize(("word", "name", "arguments", "space"), RUNS, ids=[name for _, name, *_ in RUNS])
def test_a_config_of_version_1_with_each_algorithm_gives_trials(
    word: str, name: str, arguments: dict[str, Any], space: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "search space.json").write_text(json.dumps(space, indent="\t"))
    algorithm = {f"builtin{word.capitalize()}Name": name, "classArgs": arguments}
    (tmp_path / "config.yml").write_text(yaml.safe_dump({**VERSION_1, word: algorithm}))
    config = load(tmp_path / "config.yml").checked()
    made = config.tuner or config.advisor
    assert made
    assert made.name
    tuner = construct(tuner_class(made.name), dict(made.class_args))
    tuner.update_search_space(config.search_space)
    for number in range(2):
        parameters = tuner.generate_parameters(number)
        assert space.keys() <= parameters.keys() or parameters in OF_BATCH["combine_params"]["_value"]
        tuner.receive_trial_result(number, parameters, 1.0)
        tuner.trial_end(number, True)
