"""`nni.experiment`: launching experiments from Python. It needs the whole nnilite.

config  the classes by which NNI's users write a config in Python
"""

from nnilite import Experiment  # tells what to do where the rest of the package is not
from nnilite.experiment import RunMode, TrialHyperParameters, TrialJob, TrialMetricData, TrialResult

from .config import (
    AlgorithmConfig,
    AmlConfig,
    CustomAlgorithmConfig,
    DlcConfig,
    ExperimentConfig,
    FrameworkControllerConfig,
    KubeflowConfig,
    LocalConfig,
    OpenpaiConfig,
    RemoteConfig,
    RemoteMachineConfig,
)

__all__ = [
    "AlgorithmConfig",
    "AmlConfig",
    "CustomAlgorithmConfig",
    "DlcConfig",
    "Experiment",
    "ExperimentConfig",
    "FrameworkControllerConfig",
    "KubeflowConfig",
    "LocalConfig",
    "OpenpaiConfig",
    "RemoteConfig",
    "RemoteMachineConfig",
    "RunMode",
    "TrialHyperParameters",
    "TrialJob",
    "TrialMetricData",
    "TrialResult",
]
