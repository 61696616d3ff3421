"""Names of NNI that programs import and that have one job: each does it. `share-of-nni.md` counts what tests use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import nnilite.experiment
from nnilite._cli import nnictl
from shim import nni_modules

Imported = Callable[[str], ModuleType]


@pytest.fixture
def imported() -> Iterator[Imported]:
    with nni_modules() as found:
        yield found


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of nnictl that were to be carried out; each is read by its parser, and answered with an id."""
    asked: list[list[str]] = []

    def record(words: list[str]) -> int:
        nnictl._make_parser(words[0]).parse_args(words)
        asked.append(words)
        print(json.dumps({"id": "abc"}))  # noqa: T201  as the command does
        return 0

    monkeypatch.setattr(nnictl, "run", record)
    return asked


@pytest.mark.parametrize(
    ("module", "name", "given", "command"),
    [
        ("nni.tools.nnictl.updater", "update_searchspace", {"filename": "s.json"}, "update searchspace abc -f s.json"),
        ("nni.tools.nnictl.updater", "update_concurrency", {"value": 2}, "update concurrency abc -v 2"),
        ("nni.tools.nnictl.updater", "update_duration", {"value": "2h"}, "update duration abc -v 2h"),
        ("nni.tools.nnictl.updater", "update_trialnum", {"value": 9}, "update trialnum abc -v 9"),
        ("nni.tools.nnictl.updater", "import_data", {"filename": "d.json"}, "experiment import abc -f d.json"),
        (
            "nni.tools.nnictl.launcher",
            "create_experiment",
            {"config": "c.yml", "port": 80, "foreground": True},
            "create -c c.yml -p 80 -f",
        ),
        ("nni.tools.nnictl.launcher", "resume_experiment", {"port": 80}, "resume abc -p 80"),
        ("nni.tools.nnictl.launcher", "view_experiment", {"port": 80}, "view abc -p 80"),
        ("nni.tools.nnictl.nnictl_utils", "stop_experiment", {}, "stop abc"),
        ("nni.tools.nnictl.nnictl_utils", "trial_kill", {"trial_id": "T"}, "trial kill abc -T T"),
        ("nni.tools.nnictl.nnictl_utils", "list_experiment", {}, "experiment show abc --json"),
        ("nni.tools.nnictl.nnictl_utils", "experiment_status", {}, "experiment status abc --json"),
        ("nni.tools.nnictl.nnictl_utils", "experiment_list", {"all": True}, "experiment list --all"),
        (
            "nni.tools.nnictl.nnictl_utils",
            "export_trials_data",
            {"type": "csv", "path": "o"},
            "experiment export abc -t csv -f o",
        ),
        ("nni.tools.nnictl.nnictl_utils", "get_config", {}, "config show abc"),
        ("nni.tools.nnictl.nnictl_utils", "get_config_filename", {}, "experiment show abc --json"),
        ("nni.tools.nnictl.nnictl_utils", "webui_url", {}, "webui url abc"),
    ],
)
def test_a_function_of_nnictl_carries_out_its_command(
    imported: Imported, commands: list[list[str]], module: str, name: str, given: dict[str, Any], command: str
) -> None:
    getattr(imported(module), name)(SimpleNamespace(id="abc", **given))
    assert commands == [command.split()]


def test_a_config_is_read_by_nnictl(imported: Imported, commands: list[list[str]]) -> None:
    assert imported("nni.tools.nnictl.config_utils").Config("abc").get_config() == {"id": "abc"}
    assert commands == [["config", "show", "abc", "--json"]]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("nni.experiment.config.algorithm", "AlgorithmConfig"),
        ("nni.experiment.config.algorithm", "CustomAlgorithmConfig"),
        ("nni.experiment.config.base", "ConfigBase"),
        ("nni.experiment.config.experiment_config", "ExperimentConfig"),
        ("nni.experiment.config.training_service", "TrainingServiceConfig"),
        ("nni.experiment.config.training_services", "LocalConfig"),
        ("nni.experiment.config.training_services", "RemoteConfig"),
        ("nni.experiment.config.training_services", "RemoteMachineConfig"),
        ("nni.experiment.config.training_services.local", "LocalConfig"),
        ("nni.experiment.config.training_services.remote", "RemoteConfig"),
        ("nni.experiment.config.training_services.remote", "RemoteMachineConfig"),
        ("nni.experiment.config.training_services.kubeflow", "KubeflowConfig"),
    ],
)
def test_a_class_of_configs_is_the_same_by_each_of_its_names(imported: Imported, module: str, name: str) -> None:
    assert getattr(imported(module), name) is getattr(imported("nni.experiment.config"), name)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("nni.experiment", "TrialHyperParameters"),
        ("nni.experiment", "TrialJob"),
        ("nni.experiment", "TrialMetricData"),
        ("nni.experiment", "TrialResult"),
        ("nni.experiment.data", "TrialJob"),
        ("nni.experiment.data", "TrialResult"),
        ("nni.experiment.experiment", "Experiment"),
        ("nni.experiment.experiment", "RunMode"),
    ],
)
def test_what_an_experiment_answers_with_is_that_of_nnilite(imported: Imported, module: str, name: str) -> None:
    assert getattr(imported(module), name) is getattr(nnilite.experiment, name)


def test_times_of_configs_are_read(imported: Imported) -> None:
    utils = imported("nni.experiment.config.utils")
    assert [utils.parse_time(time) for time in ("90s", "2m", "1h")] == [90, 120, 3600]
    assert utils.is_missing(None)
    assert not utils.is_missing("")


def test_storage_of_kubernetes_has_nnis_fields(imported: Imported) -> None:
    storage = imported("nni.experiment.config").K8sStorageConfig(storage_type="nfs", server="s", path="/p")
    assert (storage.storage_type, storage.server, storage.path) == ("nfs", "s", "/p")


def test_calls_that_have_no_effect_here_say_nothing(imported: Imported, capsys: pytest.CaptureFixture[str]) -> None:
    nni, log, common = (imported(name) for name in ("nni", "nni.runtime.log", "nni.runtime.common"))
    calls = [nni.enable_global_logging, nni.silence_stdout, log.enable_global_logging, log.silence_stdout]
    calls += [log.start_experiment_logging, log.stop_experiment_logging, common.enable_multi_phase]
    assert [call() for call in calls] == [None] * len(calls)
    assert not common.multi_phase_enabled()
    assert capsys.readouterr() == ("", "")


def test_the_serializer_writes_and_reads_plain_values(imported: Imported) -> None:
    serializer = imported("nni.common.serializer")
    assert serializer.load(serializer.dump({"a": [1, None]})) == {"a": [1, None]}
    assert serializer.trace(dict) is dict


def test_the_names_of_types_can_annotate(imported: Imported) -> None:
    typehint = imported("nni.typehint")
    kinds = [typehint.ParameterRecord, typehint.SearchSpace, typehint.TrialMetric, typehint.TrialRecord]
    assert all(dict in (getattr(kind, "__origin__", dict),) for kind in kinds)


def test_commands_have_a_module_of_their_own(imported: Imported) -> None:
    channel = imported("nni.runtime.tuner_command_channel")
    assert imported("nni.runtime.tuner_command_channel.command_type").CommandType is channel.CommandType


def test_a_normal_value_is_drawn_around_its_mean(imported: Imported) -> None:
    import numpy as np

    draw = imported("nni.parameter_expressions").normal
    values = [draw(100.0, 1.0, np.random.RandomState(seed)) for seed in range(50)]
    assert 99 < sum(values) / 50 < 101


def test_kinds_of_nodes_have_nnis_values(imported: Imported) -> None:
    assert imported("nni.utils").NodeType.ROOT == "root"


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("curvefitting_assessor", "CurvefittingClassArgsValidator"),
        ("medianstop_assessor", "MedianstopClassArgsValidator"),
        ("evolution_tuner", "EvolutionClassArgsValidator"),
        ("hyperopt_tuner", "HyperoptClassArgsValidator"),
    ],
)
def test_a_validator_can_be_derived_from_by_the_name_of_its_algorithm(
    imported: Imported, module: str, name: str
) -> None:
    validator = getattr(imported(f"nni.algorithms.hpo.{module}"), name)
    assert validator is imported("nni.utils").ClassArgsValidator
