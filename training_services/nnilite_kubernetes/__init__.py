"""Training services of Kubernetes clusters.

One service for all platforms, which differ in the objects that represent a job.

_platforms            the platforms: the same service, with different objects
_service              the service: submits, polls, cancels and removes
_config               the fields that the sections of all platforms share
_checks               checks, before anything starts, that all needed rights exist
_quota                whether the namespace can ever hold one trial
_kind                 the differences between the platforms
_plain_job            a Job of one pod, or of a numbered one for each node of a distributed trial
_node_pods            the nodes of a distributed trial as pods
_kubeflow             TFJob, PyTorchJob and MPIJob
_trainer              TrainJobs of Kubeflow Trainer (version 2)
_frameworkcontroller  Frameworks of FrameworkController
_adl                  AdaptDLJobs, whose number of replicas changes while a trial runs
_manifest             from jobs to Kubernetes objects
_submitter            makes the objects in the cluster
_delivery             makes keeper, code and manager available to pods
_startup              checks everything before the start, and completes what an earlier manager left half made
_known                the known state of the jobs: two watches, and the memory of each job
_judge                determines the status of a job, and deletes what is lost or given up
_waits                how long it waits before it draws a conclusion
_logs                 the logs of pods, for the manager and for files
_code_pod             puts keeper and code on a volume, by a pod that mounts it
_receive              the program in that pod, which takes files from its standard input
_s3                   puts keeper and code into an S3 bucket
_azure_files          puts keeper and code on an Azure file share
_api                  the API server
_kube_credentials     where a cluster is and who we are there; loaded again when it no longer accepts us
_connections          the open connections to it, which another thread can break off
_informer             a copy of all objects of one kind, kept up to date by watching
_memory               what the service remembers about its jobs
_kueue                why a job that Kueue has suspended is not admitted
_status               the status of a job, from its objects and pods
_role_records         the records of pods: how each one ended, and its output
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
