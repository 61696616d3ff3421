"""Training services of Kubernetes clusters."""

from nnilite_kubernetes._adl import AdlConfig
from nnilite_kubernetes._config import KubernetesConfig
from nnilite_kubernetes._frameworkcontroller import FrameworkControllerConfig
from nnilite_kubernetes._kubeflow import KubeflowConfig
from nnilite_kubernetes._platforms import AdlService, FrameworkControllerService, KubeflowService, KubernetesService

__all__ = [
    "AdlConfig",
    "AdlService",
    "FrameworkControllerConfig",
    "FrameworkControllerService",
    "KubeflowConfig",
    "KubeflowService",
    "KubernetesConfig",
    "KubernetesService",
]
