"""`nnictl config convert --from determined`, held against Determined's own test cases and examples."""

from __future__ import annotations

import functools
import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from nnilite._cli.nnictl import run
from nnilite.config import from_dict
from nnilite.errors import ConfigError
from nnilite.space import SearchSpace
from nnilite_determined import convert
from nnilite_determined._expconf_space import search_space
from platforms.determined import expconf

CASES = sorted((expconf.CONTRACT / "expconf-test-cases-v0").glob("*.yaml"))
EXAMPLES = sorted((expconf.CONTRACT / "examples").glob("*.yaml"))
SCHEMAS = "http://determined.ai/schemas/expconf/v0/"
HUGE = {"type": "log", "minval": 0, "maxval": 9999, "base": 10}
SINGLE = {"name": "x", "entrypoint": "python3 train.py", "searcher": {"name": "single", "metric": "loss"}}


@functools.cache
def _read(path: Path) -> list[dict[str, Any]]:
    return list(yaml.load(path.read_text(), Loader=yaml.CSafeLoader))


def _cases(kind: str) -> list[pytest.ParameterSet]:
    found = []
    for path in CASES:
        for case in _read(path):
            found += [
                pytest.param(url, case.get("case"), id=f"{path.stem}: {case['name']}")
                for url in case.get(kind) or []
                if url in expconf.schemas()
            ]
    return found


@pytest.mark.parametrize(("url", "case"), _cases("sane_as"))
def test_the_schemas_take_what_determined_takes(url, case):
    assert expconf.complaints(case, url) == []


@pytest.mark.parametrize(("url", "case"), _cases("sanity_errors"))
def test_the_schemas_refuse_what_determined_refuses(url, case):
    assert expconf.complaints(case, url)


@pytest.mark.parametrize(
    "case", [case for url, case in (one.values for one in _cases("sane_as")) if url.endswith("/hyperparameter.json")]
)
def test_each_hyperparameter_of_determined_becomes_one_of_ours(case):
    space = search_space({"x": case}, grid=False)
    assert SearchSpace.parse(space).json == space


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_becomes_an_experiment_that_can_be_created(path, tmp_path, monkeypatch):
    monkeypatch.setenv("DET_PASS", "secret")
    config = {**convert(yaml.safe_load(path.read_text())).config, "trialCodeDirectory": str(tmp_path)}
    from_dict(json.loads(json.dumps(config))).checked()


def _converted(**fields):
    return convert({**SINGLE, "hyperparameters": {"lr": 0.1}, **fields})


# As 26 of the 65 files in Determined's repository: an experiment of one trial that searches nothing.
RUN = {"name": "core-api-stage-0", "entrypoint": "python3 0_start.py", "max_restarts": 0}


def test_an_experiment_of_one_trial_gets_the_place_where_a_space_goes(tmp_path, monkeypatch):
    monkeypatch.setenv("DET_PASS", "secret")
    found = convert({**RUN, "searcher": {"name": "single", "metric": "x", "max_length": None}})
    assert (list(found.config["searchSpace"]), found.config["maxTrialNumber"]) == (["placeholder"], 1)
    assert "put what is to be searched in its place" in " ".join(found.notes)
    from_dict(json.loads(json.dumps({**found.config, "trialCodeDirectory": str(tmp_path)}))).checked()


def test_a_search_without_parameters_is_refused():
    with pytest.raises(ConfigError, match="is empty: there is nothing to search"):
        convert({**RUN, "searcher": {"name": "random", "metric": "x", "max_trials": 3}})


def test_ranges_keep_their_ends():
    space = {
        "layers": {"type": "int", "minval": 1, "maxval": 4},
        "drop": {"type": "double", "minval": 0, "maxval": 0.5},
        "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
    }
    found = search_space(space, grid=False)
    assert found["layers"] == {"_type": "randint", "_value": [1, 5]}
    assert found["drop"] == {"_type": "uniform", "_value": [0.0, 0.5]}
    assert found["lr"]["_value"] == pytest.approx([1e-4, 1e-1])


def test_constants_and_nested_hyperparameters_are_found_where_they_were():
    given = {
        "optimizer": {"lr": 0.1, "kind": {"type": "const", "val": [1, 2]}, "net": {"deep": {"type": "const", "val": 3}}}
    }
    space = SearchSpace.parse(search_space(given, grid=False))
    sample = space.sample(random.Random(1))["optimizer"]
    assert (sample["lr"], sample["kind"], sample["net"]["deep"]) == (0.1, [1, 2], 3)


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({"type": "int", "minval": 0, "maxval": 2, "count": 100}, [0, 1, 2]),
        ({"type": "int", "minval": 1, "maxval": 9, "count": 3}, [1, 5, 9]),
        ({"type": "double", "minval": 0.0, "maxval": 1.0, "count": 3}, [0.0, 0.5, 1.0]),
        ({"type": "log", "base": 10, "minval": -3, "maxval": -1, "count": 3}, [0.001, 0.01, 0.1]),
    ],
)
def test_a_grid_has_determineds_points(given, values):
    assert search_space({"x": given}, grid=True)["x"]["_value"] == pytest.approx(values)


@pytest.mark.parametrize(
    ("searcher", "tuner", "trials"),
    [
        ({"name": "single"}, "Random", 1),
        ({"name": "random", "max_trials": 9}, "Random", 9),
        ({"name": "grid"}, "GridSearch", None),
        ({"name": "async_halving", "max_trials": 16, "num_rungs": 3, "max_time": 64}, "ASHA", 21),
        ({"name": "asha", "max_trials": 16, "num_rungs": 2, "max_length": {"epochs": 8}}, "ASHA", 20),
        ({"name": "async_halving", "max_trials": 16, "num_rungs": 10**18, "max_time": 64}, "ASHA", 21),
        ({"name": "adaptive_asha", "max_trials": 16, "max_length": {"batches": 64}}, "ASHA", 21),
    ],
)
def test_each_searcher_becomes_a_tuner(searcher, tuner, trials):
    config = _converted(searcher={"metric": "loss", **searcher}).config
    assert (config["tuner"]["name"], config.get("maxTrialNumber")) == (tuner, trials)


def test_a_divisor_that_is_rounded_is_named():
    searcher = {"name": "asha", "metric": "loss", "max_trials": 16, "max_length": {"epochs": 8}, "divisor": 2.6}
    assert any("searcher.divisor 2.6 became 3" in note for note in _converted(searcher=searcher).notes)


def test_what_is_kept_on_determined_stays_as_it_is():
    data = {"bucket": "images", "train_key": "train.tar", "url": "https://s3.example.org/x"}
    found = _converted(data=data, resources={"devices": [{"host_path": "/d", "container_path": "/d"}]})
    assert found.config["trainingService"]["expconf"]["data"] == data
    assert expconf.complaints({"name": "x", **found.config["trainingService"]["expconf"]}) == []
    assert any("user_data" in note for note in found.notes)


def test_periods_policies_restarts_and_mounts_are_converted():
    found = _converted(
        min_validation_period={"batches": 100},
        checkpoint_policy="best",
        max_restarts=3,
        bind_mounts=[{"host_path": "/data", "container_path": "/data", "read_only": True}],
        labels=["a"],
        resources={"slots_per_trial": 2, "resource_pool": "gpu", "shm_size": "8G", "max_slots": 6},
    ).config
    service = found["trainingService"]
    assert found["searchSpace"]["min_validation_period"] == {"_type": "choice", "_value": [100]}
    assert (found["checkpoint"], found["maxTrialRetries"], found["retryFailed"]) == ({"keep": "best"}, 3, 3)
    assert service["bindMounts"] == [{"hostPath": "/data", "containerPath": "/data", "readOnly": True}]
    assert (service["slots"], service["resourcePool"], service["shmSize"], service["labels"]) == (
        2,
        "gpu",
        "8gb",
        ["a"],
    )


def test_what_cannot_be_converted_is_named():
    storage = {"type": "gcs", "bucket": "b"}
    notes = " | ".join(_converted(description="x", checkpoint_storage=storage, project="p", unheard_of=1).notes)
    for word in ("description", "gcs", "workspace", "unheard_of"):
        assert word in notes


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"searcher": {"name": "custom"}}, "searcher.name"),
        ({"searcher": {"name": "random", "metric": "m"}}, "searcher.max_trials"),
        ({"entrypoint": "model_def:MNistTrial"}, "entrypoint"),
        ({"hyperparameters": {"x": {"type": "int", "minval": 3, "maxval": 1}}}, "hyperparameters.x.maxval"),
        ({"hyperparameters": {"a": {"x": {"type": "odd"}}}}, "hyperparameters.a.x.type"),
        ({"hyperparameters": {"x": HUGE}}, "hyperparameters.x.maxval"),
        ({"hyperparameters": [1]}, "hyperparameters"),
        ({"max_restarts": -1}, "max_restarts"),
        ({"searcher": {"name": "grid"}, "hyperparameters": {"x": {"type": "int", "minval": 1, "maxval": 3}}},
         "hyperparameters.x.count"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_at_its_place(fields, place):
    with pytest.raises(ConfigError) as refused:
        _converted(**fields)
    assert refused.value.place.field == place


def test_the_command_prints_yaml_and_names_the_line_of_a_fault(tmp_path: Path, capsys):
    good, bad = tmp_path / "good 'one'.yaml", tmp_path / "bad.yaml"
    good.write_text(EXAMPLES[0].read_text())
    bad.write_text("entrypoint: python3 a.py\nhyperparameters: {x: 1}\nsearcher:\n  name: custom\n")
    assert run(["config", "convert", "--from", "determined", str(good)]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["tuner"]["name"] == "ASHA"
    assert run(["config", "convert", "--from", "determined", str(bad)]) != 0
    assert "bad.yaml:4" in capsys.readouterr().err
