"""`nni.experiment.config`: configs written in Python as NNI's docs teach it, one for each of its classes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shim import nni_modules

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}


@pytest.fixture
def nni() -> Iterator[ModuleType]:
    """`nni.experiment.config`."""
    with nni_modules() as imported:
        yield imported("nni.experiment.config")


def filled(nni: Any, service: Any, folder: Path) -> Any:
    config = nni.ExperimentConfig(training_service=service)
    config.search_space, config.trial_command, config.trial_concurrency = SPACE, "python3 trial.py", 2
    config.trial_code_directory = folder
    config.tuner = nni.AlgorithmConfig(name="TPE", class_args={"optimize_mode": "maximize"})
    return config


def test_kubeflow_with_roles_on_nfs(nni: Any, tmp_path: Path) -> None:
    service = nni.KubeflowConfig(operator="pytorch-operator", api_version="v1")
    service.storage = nni.K8sNfsConfig(server="10.0.0.1", path="/exports")
    service.master = nni.KubeflowRoleConfig(replicas=1, command="python3 trial.py", gpu_number=1, memory_size="4gb")
    section = filled(nni, service, tmp_path).json()["trainingService"]
    assert (section["storage"]["server"], section["master"]["gpuNumber"]) == ("10.0.0.1", 1)


def test_frameworkcontroller_with_roles_and_azure_files(nni: Any, tmp_path: Path) -> None:
    role = nni.FrameworkControllerRoleConfig(name="worker", task_number=2, command="python3 trial.py")
    role.framework_attempt_completion_policy = nni.FrameworkAttemptCompletionPolicy(1, 2)
    storage = nni.K8sAzureStorageConfig(azure_account="me", azure_share="mine", azure_key="a2V5")
    service = nni.FrameworkControllerConfig(task_roles=[role], storage=storage)
    section = filled(nni, service, tmp_path).json()["trainingService"]
    assert section["taskRoles"][0]["frameworkAttemptCompletionPolicy"]["minSucceedTaskCount"] == 2
    assert section["storage"]["storageType"] == "azureStorage"


def test_remote_machines_as_a_list(nni: Any, tmp_path: Path) -> None:
    service = nni.RemoteConfig(machine_list=[nni.RemoteMachineConfig(host="h1", user="me", password="hidden")])
    assert filled(nni, service, tmp_path).json()["trainingService"]["machineList"][0]["host"] == "h1"


def test_machines_are_appended_to_a_list_that_was_not_set(nni: Any, tmp_path: Path) -> None:
    service = nni.RemoteConfig()
    service.machine_list.append(nni.RemoteMachineConfig(host="h1", user="me", password="hidden"))
    assert filled(nni, service, tmp_path).json()["trainingService"]["machineList"][0]["host"] == "h1"


def test_a_list_that_was_only_read_is_not_set(nni: Any) -> None:
    service = nni.RemoteConfig()
    assert service.machine_list == []
    assert service.as_mapping() == {"platform": "remote"}


def test_a_field_of_the_older_format_is_answered_with_its_present_name(nni: Any) -> None:
    with pytest.raises(TypeError, match="RemoteMachineConfig has no field 'ip'; did you mean host"):
        nni.RemoteMachineConfig(ip="h1")
    with pytest.raises(TypeError, match="AlgorithmConfig has no field 'builtin_tuner_name'; did you mean name"):
        nni.AlgorithmConfig(builtin_tuner_name="TPE")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("base", "ConfigBase"),
        ("algorithm", "CustomAlgorithmConfig"),
        ("training_service", "TrainingServiceConfig"),
        ("training_services", "RemoteMachineConfig"),
        ("training_services.local", "LocalConfig"),
        ("shared_storage", "NfsConfig"),
    ],
)
def test_the_modules_of_nnis_package_have_its_classes(nni: Any, module: str, name: str) -> None:
    found = importlib.import_module(f"nni.experiment.config.{module}")
    assert getattr(found, name) is getattr(nni, name)


def test_relative_paths_begin_at_the_base_path(nni: Any, tmp_path: Path) -> None:
    utils = importlib.import_module("nni.experiment.config.utils")
    (tmp_path / "code").mkdir()
    utils.set_base_path(tmp_path)
    try:
        config = nni.ExperimentConfig(trialCodeDirectory="code", trialCommand="x", searchSpace=SPACE)
        assert utils.get_base_path() == tmp_path
    finally:
        utils.unset_base_path()
    config.trial_concurrency, config.tuner.name, config.training_service = 1, "TPE", nni.LocalConfig()
    assert config.checked().trial_code_directory == tmp_path / "code"
    assert utils.get_base_path() == Path.cwd()


def test_a_config_in_the_older_format_is_converted(nni: Any) -> None:
    convert = importlib.import_module("nni.experiment.config.convert")
    old = {"trainingServicePlatform": "local", "maxTrialNum": 3, "trial": {"command": "x"}}
    tuner = {"builtinTunerName": "TPE"}
    converted = convert.to_v2({**old, "trialConcurrency": 1, "searchSpace": SPACE, "tuner": tuner})
    assert (converted["maxTrialNumber"], converted["trialCommand"], converted["tuner"]["name"]) == (3, "x", "TPE")


@pytest.mark.parametrize("kind", ["NfsConfig", "AzureBlobConfig"])
def test_shared_storage_by_its_classes(nni: Any, kind: str, tmp_path: Path) -> None:
    config = filled(nni, nni.LocalConfig(), tmp_path)
    config.shared_storage = getattr(nni, kind)(local_mount_point=tmp_path, remote_mount_point="/mnt")
    config.shared_storage.nfs_server, config.shared_storage.exported_directory = "h", "/e"
    config.shared_storage.storage_account_name, config.shared_storage.container_name = "a", "c"
    assert config.json()["sharedStorage"]["storageType"] == kind.removesuffix("Config").replace("Nfs", "NFS")


def test_a_platform_for_each_class_of_nni(nni: Any, tmp_path: Path) -> None:
    services = [nni.AmlConfig(), nni.OpenpaiConfig(), nni.LocalConfig(trial_gpu_number=1), nni.DlcConfig()]
    assert [one.platform for one in services] == ["aml", "openpai", "local", "dlc"]


def test_pai_dlc_by_nnis_class(nni: Any, tmp_path: Path) -> None:
    service = nni.DlcConfig()
    service.type, service.image, service.job_type, service.pod_count = "Worker", "i", "TFJob", 1
    service.ecs_spec, service.region, service.workspace_id = "ecs.c6.large", "cn-hangzhou", "1"
    service.nas_data_source_id, service.oss_data_source_id = "d-1", None
    service.access_key_id, service.access_key_secret = "id", "hidden"
    service.local_storage_mount_point, service.container_storage_mount_point = str(tmp_path), "/mnt/data"
    written = filled(nni, service, tmp_path).json()["trainingService"]
    assert (written["ecsSpec"], written["nasDataSourceId"]) == ("ecs.c6.large", "d-1")
    assert "hidden" not in repr(written)


def test_a_field_that_no_class_has_is_refused(nni: Any) -> None:
    with pytest.raises(AttributeError, match=r"no field 'gpus'"):
        nni.KubeflowRoleConfig().gpus = 1


def test_ones_own_tuner_is_in_the_current_folder(nni: Any) -> None:
    own = nni.CustomAlgorithmConfig(class_name="my.Tuner", class_args={"a": 1})
    assert (own.class_name, own.code_directory, own.class_args) == ("my.Tuner", ".", {"a": 1})


def test_the_canonical_form_has_in_each_part_what_it_takes_from_the_top(nni: Any, tmp_path: Path) -> None:
    config = filled(nni, [nni.LocalConfig(), nni.LocalConfig(trial_command="echo")], tmp_path)
    config.trial_gpu_number = 0
    first, second = config.to_json()["trainingService"]
    assert (first["trialCommand"], second["trialCommand"]) == ("python3 trial.py", "echo")
    assert {key: first[key] for key in ("trialCodeDirectory", "trialGpuNumber", "debug")} == {
        **{"trialCodeDirectory": str(tmp_path), "trialGpuNumber": 0, "debug": False}
    }
