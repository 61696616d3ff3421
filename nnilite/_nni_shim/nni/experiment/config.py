"""`nni.experiment.config`: what programs that launch experiments fill in. It needs the whole nnilite."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

from nnilite.config import AlgorithmConfig, ExperimentConfig, ServiceConfig

__all__ = [
    "AlgorithmConfig",
    "AmlConfig",
    "CustomAlgorithmConfig",
    "DlcConfig",
    "ExperimentConfig",
    "FrameworkControllerConfig",
    "KubeflowConfig",
    "LocalConfig",
    "OpenpaiConfig",
    "RemoteConfig",
    "RemoteMachineConfig",
]

CustomAlgorithmConfig = AlgorithmConfig

AmlConfig = partial(ServiceConfig, "aml")
DlcConfig = partial(ServiceConfig, "dlc")
FrameworkControllerConfig = partial(ServiceConfig, "frameworkcontroller")
KubeflowConfig = partial(ServiceConfig, "kubeflow")
LocalConfig = partial(ServiceConfig, "local")
OpenpaiConfig = partial(ServiceConfig, "openpai")
RemoteConfig = partial(ServiceConfig, "remote")


class RemoteMachineConfig(SimpleNamespace):
    """One of RemoteConfig's `machine_list`; its fields are checked with the rest of the config."""

    def as_mapping(self) -> dict[str, Any]:
        """As the YAML has it."""
        return dict(vars(self))
