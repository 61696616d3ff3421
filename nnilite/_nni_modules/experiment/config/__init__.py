"""`nni.experiment.config`: what programs that launch experiments fill in.

convert  from NNI's older format to the present one
utils    the folder of relative paths, and times
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

from nnilite.config import AlgorithmConfig, ExperimentConfig, Fields, ServiceConfig, SharedStorageConfig

__all__ = [
    "AlgorithmConfig",
    "AmlConfig",
    "AzureBlobConfig",
    "ConfigBase",
    "CustomAlgorithmConfig",
    "DlcConfig",
    "ExperimentConfig",
    "FrameworkAttemptCompletionPolicy",
    "FrameworkControllerConfig",
    "FrameworkControllerRoleConfig",
    "K8sAzureStorageConfig",
    "K8sNfsConfig",
    "K8sStorageConfig",
    "KubeflowConfig",
    "KubeflowRoleConfig",
    "LocalConfig",
    "NfsConfig",
    "OpenpaiConfig",
    "RemoteConfig",
    "RemoteMachineConfig",
    "SharedStorageConfig",
    "TrainingServiceConfig",
]

ConfigBase = Fields
TrainingServiceConfig = ServiceConfig
AmlConfig = partial(ServiceConfig, "aml")
DlcConfig = partial(ServiceConfig, "dlc")
FrameworkControllerConfig = partial(ServiceConfig, "frameworkcontroller")
KubeflowConfig = partial(ServiceConfig, "kubeflow")
LocalConfig = partial(ServiceConfig, "local")
OpenpaiConfig = partial(ServiceConfig, "openpai")
RemoteConfig = partial(ServiceConfig, "remote")


def CustomAlgorithmConfig(class_name: str | None = None, code_directory: Any = ".", class_args: Any = None) -> Any:
    """Return a custom tuner or assessor.

    As in NNI, its module is in the current folder unless the arguments say otherwise.
    """
    return AlgorithmConfig(class_name=class_name, code_directory=code_directory, class_args=class_args or {})


@dataclass
class RemoteMachineConfig(Fields):
    """One of RemoteConfig's `machine_list`. What is set is checked with the rest of the config, as in all these."""

    host: Any = None
    port: Any = None
    user: Any = None
    password: Any = None
    ssh_key_file: Any = None
    ssh_passphrase: Any = None
    use_active_gpu: Any = None
    max_trial_number_per_gpu: Any = None
    gpu_indices: Any = None
    python_path: Any = None


@dataclass
class K8sStorageConfig(Fields):
    """The `storage` of KubeflowConfig and FrameworkControllerConfig."""

    storage_type: Any = None
    azure_account: Any = None
    azure_share: Any = None
    azure_key: Any = None
    azure_secret: Any = None
    key_vault_name: Any = None
    key_vault_key: Any = None
    server: Any = None
    path: Any = None


@dataclass
class K8sNfsConfig(K8sStorageConfig):
    """The same on NFS."""

    storage_type: Any = "nfs"


@dataclass
class K8sAzureStorageConfig(K8sStorageConfig):
    """The same on an Azure file share."""

    storage_type: Any = "azureStorage"


@dataclass
class _NniStorageConfig(Fields):
    storage_type: Any = None
    local_mount_point: Any = None
    remote_mount_point: Any = None
    local_mounted: Any = None
    storage_account_name: Any = None
    storage_account_key: Any = None
    container_name: Any = None
    nfs_server: Any = None
    exported_directory: Any = None


@dataclass
class NfsConfig(_NniStorageConfig):
    """`shared_storage` of an experiment on NFS."""

    storage_type: Any = "NFS"


@dataclass
class AzureBlobConfig(_NniStorageConfig):
    """`shared_storage` of an experiment in Azure's blobs."""

    storage_type: Any = "AzureBlob"


@dataclass
class _NniRoleConfig(Fields):
    command: Any = None
    gpu_number: Any = None
    cpu_number: Any = None
    memory_size: Any = None
    docker_image: Any = None


@dataclass
class KubeflowRoleConfig(_NniRoleConfig):
    """KubeflowConfig's `worker`, `ps` or `master`."""

    replicas: Any = None
    code_directory: Any = None


@dataclass
class FrameworkAttemptCompletionPolicy(Fields):
    """When the pods of a role decide on the end of a trial."""

    min_failed_task_count: Any = None
    min_succeed_task_count: Any = None


@dataclass
class FrameworkControllerRoleConfig(_NniRoleConfig):
    """One of FrameworkControllerConfig's `task_roles`."""

    name: Any = None
    task_number: Any = None
    framework_attempt_completion_policy: Any = None


# NNI's modules of these names share out the same names.
_PARTS = ("algorithm", "base", "experiment_config", "shared_storage", "training_service", "training_services")
_SERVICES = ("aml", "dlc", "frameworkcontroller", "k8s_storage", "kubeflow", "local", "openpai", "remote")
for _part in (*_PARTS, *(f"training_services.{_service}" for _service in _SERVICES)):
    sys.modules[f"{__name__}.{_part}"] = sys.modules[__name__]
