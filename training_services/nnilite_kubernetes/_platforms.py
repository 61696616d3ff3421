"""The platforms: the same service, with different objects."""

from __future__ import annotations

from nnilite.services.node_places import LAUNCHERS
from nnilite_kubernetes import _adl, _frameworkcontroller, _kubeflow
from nnilite_kubernetes._adl import AdaptDLJob, AdlConfig
from nnilite_kubernetes._config import IGNORED, KubernetesConfig
from nnilite_kubernetes._frameworkcontroller import Framework, FrameworkControllerConfig
from nnilite_kubernetes._kind import OperatorKind
from nnilite_kubernetes._kubeflow import KubeflowConfig, KubeflowJob
from nnilite_kubernetes._plain_job import PlainJob
from nnilite_kubernetes._service import ClusterService
from nnilite_kubernetes._trainer import TrainJob


def _kind_of_operator(config: KubeflowConfig) -> OperatorKind:
    return TrainJob(config) if config.operator == "trainer" else KubeflowJob(config)


class KubernetesService(ClusterService):
    """The training service `kubernetes`: a batch/v1 Job for each trial, on any cluster."""

    Config = KubernetesConfig
    launchers = LAUNCHERS
    make_kind = PlainJob


class KubeflowService(ClusterService):
    """The training service `kubeflow`: a TFJob, PyTorchJob, MPIJob or TrainJob for each trial."""

    Config = KubeflowConfig
    launchers = LAUNCHERS
    ignores = (*IGNORED, *_kubeflow.IGNORED)
    make_kind = staticmethod(_kind_of_operator)


class FrameworkControllerService(ClusterService):
    """The training service `frameworkcontroller`: a Framework for each trial."""

    Config = FrameworkControllerConfig
    launchers = LAUNCHERS
    ignores = (*IGNORED, *_frameworkcontroller.IGNORED)
    make_kind = Framework


class AdlService(ClusterService):
    """The training service `adl`: an AdaptDLJob for each trial."""

    Config = AdlConfig
    ignores = (*IGNORED, *_adl.IGNORED)
    make_kind = AdaptDLJob
