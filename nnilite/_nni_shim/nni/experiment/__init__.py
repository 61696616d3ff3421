"""`nni.experiment`: launching experiments from Python. It needs the whole nnilite.

config  the classes with which NNI's users write a config in Python
"""

from nnilite import Experiment  # says what to do where the rest of the package is missing
from nnilite.experiment import RunMode, TrialHyperParameters, TrialJob, TrialMetricData, TrialResult

from .config import (
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
