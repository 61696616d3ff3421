"""`nni.experiment`: launching experiments from Python. It needs the whole nnilite.

config  the classes with which NNI's users write a config in Python
"""

import sys

from nnilite import Experiment  # says what to do where the rest of the package is missing
from nnilite.experiment import RunMode, TrialHyperParameters, TrialJob, TrialMetricData, TrialResult

from .config import (  # type: ignore[import-not-found]  # see `nni._Elsewhere`
    AlgorithmConfig,
    AmlConfig,
    AzureBlobConfig,
    CustomAlgorithmConfig,
    DlcConfig,
    ExperimentConfig,
    FrameworkAttemptCompletionPolicy,
    FrameworkControllerConfig,
    FrameworkControllerRoleConfig,
    K8sAzureStorageConfig,
    K8sNfsConfig,
    K8sStorageConfig,
    KubeflowConfig,
    KubeflowRoleConfig,
    LocalConfig,
    NfsConfig,
    OpenpaiConfig,
    RemoteConfig,
    RemoteMachineConfig,
)

__all__ = [
    "AlgorithmConfig",
    "AmlConfig",
    "AzureBlobConfig",
    "CustomAlgorithmConfig",
    "DlcConfig",
    "Experiment",
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
    "RunMode",
    "TrialHyperParameters",
    "TrialJob",
    "TrialMetricData",
    "TrialResult",
]

# NNI's modules of these names have the same names in them.
for _part in ("data", "experiment"):
    sys.modules[f"{__name__}.{_part}"] = sys.modules[__name__]
