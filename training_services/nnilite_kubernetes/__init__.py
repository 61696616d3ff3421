"""Training services of Kubernetes clusters.

One service for all platforms; they differ in the objects that stand for a job.

_platforms            the platforms: the same service, with different objects
_service              the service: submits, polls, cancels and removes
_config               the fields that the sections of all platforms share
_checks               asks, before anything starts, whether all that will be needed is allowed
_quota                whether the namespace can ever hold one trial
_kind                 what the platforms differ in
_kubeflow             TFJob, PyTorchJob and MPIJob
_frameworkcontroller  Frameworks of FrameworkController
_adl                  AdaptDLJobs, whose number of replicas changes while a trial runs
_manifest             from jobs to Kubernetes objects
_submitter            makes the objects in the cluster
_delivery             sees to it that pods find keeper, code and manager
_opening              what is looked at before anything starts, and what an earlier manager has left half made
_known                what is known of the jobs: two watches, and what is kept in mind
_judge                tells how a job stands, and deletes what is lost or given up
_logs                 the logs of pods, for the manager and for files
_code_pod             puts keeper and code on a volume, by a pod that mounts it
_receive              the program in that pod, which takes files from its standard input
_s3                   puts keeper and code into an S3 bucket
_azure_files          puts keeper and code on an Azure file share
_api                  the API server
_kube_credentials     where a cluster is and who we are there; loaded again when it no longer accepts us
_connections          the open connections to it, which another thread can break off
_mirror               a copy of all objects of one kind, kept up to date by watching
_memory               what the service keeps in mind of its jobs
_status               what objects and pods tell of a job
_role_records         what pods leave: how each one ended, and what it has printed
_log                  the log of a pod: its keeper's events, and the trial's output between them
_exec                 a command in a container, as `kubectl exec` has it
"""

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
