"""Trials that their cluster ends: they are lost with the cluster's reason, and tried again, in whatever way they end.

A pod's containers always get SIGTERM first, so the keeper ends the trial before anybody knows why. What it says of that
must never count as the trial's own failure.
"""

from __future__ import annotations

import json
import re

import pytest

from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite_kubernetes import (
    AdlConfig,
    AdlService,
    FrameworkControllerConfig,
    FrameworkControllerService,
    KubeflowConfig,
    KubeflowService,
    KubernetesConfig,
    KubernetesService,
)
from nnilite_kubernetes._config import RoleConfig
from nnilite_kubernetes._frameworkcontroller import TaskRoleConfig
from nnilite_kubernetes._waits import ClusterPatience
from platforms.kube.bench import Platform
from platforms.kube.client import (
    ADAPTDLJOBS,
    FRAMEWORKS,
    JOBS,
    MPIJOBS_V1,
    MPIJOBS_V2,
    PODS,
    PYTORCHJOBS,
    TFJOBS,
)
from platforms.kube.cluster import IMAGE
from platforms.kube.operators import install
from platforms.kube.other_operators import install_adaptdl, install_frameworkcontroller

pytestmark = pytest.mark.process

_ROLE = RoleConfig(docker_image=IMAGE)
_TASKS = [TaskRoleConfig(name="worker", docker_image=IMAGE)]
_IMAGE = {"docker_image": IMAGE}
_MPI = {"operator": "mpi-operator", "worker": _ROLE}
_PLATFORMS = {
    JOBS: Platform(KubernetesService, KubernetesConfig, _IMAGE),
    TFJOBS: Platform(KubeflowService, KubeflowConfig, {"operator": "tf-operator", "chief": _ROLE}, install()),
    PYTORCHJOBS: Platform(
        KubeflowService, KubeflowConfig, {"operator": "pytorch-operator", "master": _ROLE}, install()
    ),
    MPIJOBS_V2: Platform(KubeflowService, KubeflowConfig, _MPI, install()),
    MPIJOBS_V1: Platform(KubeflowService, KubeflowConfig, _MPI, install(MPIJOBS_V1)),
    FRAMEWORKS: Platform(
        FrameworkControllerService, FrameworkControllerConfig, {"task_roles": _TASKS}, install_frameworkcontroller()
    ),
    ADAPTDLJOBS: Platform(AdlService, AdlConfig, _IMAGE, install_adaptdl()),
}
_MEMORY = "The node was low on resource: memory."
_SHUTDOWN = "Pod was terminated in response to imminent node shutdown."


@pytest.fixture(params=_PLATFORMS, ids="/".join)
def key(request):
    """The kind of object that stands for a trial."""
    return request.param


@pytest.fixture
def platform(key):
    return _PLATFORMS[key]


only_job = pytest.mark.parametrize("key", [JOBS], ids=["jobs"])


def speaker(cluster):
    """The pod that reports, once it runs."""
    [pod] = [pod for pod in cluster.pods() if "-worker-" not in pod["metadata"]["name"] or len(cluster.pods()) == 1]
    return pod


def drain(cluster, key):
    cluster.evict(speaker(cluster))


def delete_pod(cluster, key):
    cluster.delete(PODS, speaker(cluster))


def preempt(cluster, key):
    cluster.disrupt(speaker(cluster), "PreemptionByScheduler", "preempting to accommodate a higher priority pod")


def taint(cluster, key):
    cluster.disrupt(speaker(cluster), "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")


def starve(cluster, key):
    cluster.node.run_of(speaker(cluster)["metadata"]["name"]).end("Evicted", _MEMORY)


def shut_down(cluster, key):
    cluster.node.run_of(speaker(cluster)["metadata"]["name"]).end("Terminated", _SHUTDOWN)


def delete_object(cluster, key):
    cluster.delete(key, cluster.all(key)[0])


def delete_object_first_its_pods(cluster, key):
    cluster.delete(key, cluster.all(key)[0], "Foreground")


WAYS = [
    (drain, "EvictionByEvictionAPI|was deleted, not by this experiment|PodExternalDeleted"),
    (delete_pod, "was deleted, not by this experiment|PodExternalDeleted"),
    (preempt, "PreemptionByScheduler|PodExternalDeleted"),
    (taint, "DeletionByTaintManager|PodExternalDeleted"),
    (starve, f"Evicted: {_MEMORY}"),
    (shut_down, f"Terminated: {_SHUTDOWN}"),
    (delete_object, "was deleted, not by this experiment"),
    (delete_object_first_its_pods, "was deleted, not by this experiment"),
]


@pytest.fixture
def able(request, way):
    """Whether the cluster can end a pod in this way on request. All but a node's own troubles are calls of its API."""
    if way in (starve, shut_down):
        request.getfixturevalue("machinery")


@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=[] if key == JOBS else pytest.mark.long) for key in _PLATFORMS]
)
@pytest.mark.parametrize(("way", "reason"), WAYS, ids=[way.__name__ for way, _ in WAYS])
def test_a_trial_that_its_cluster_ends_is_lost_with_the_clusters_reason(able, cluster, key, open_bench, way, reason):
    bench = open_bench()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    way(cluster, key)
    status = bench.wait(name)
    assert status.state is JobState.LOST
    if cluster.name == "given" and way is delete_pod and key in (MPIJOBS_V1, MPIJOBS_V2):
        # Seen on such a cluster alone: the operator hears of it first, and its own word is all that there is.
        reason += "|MPIJobFailed"
    assert re.search(reason, status.reason)
    assert status.exit_code is None


@only_job
@pytest.mark.parametrize("command", ["trap 'exit 3' TERM; sleep 60 & wait", "trap 'exit 0' TERM; sleep 60 & wait"])
def test_how_a_trial_answers_to_its_eviction_does_not_matter(machinery, cluster, key, open_bench, command):
    bench = open_bench()
    name = bench.run(command)
    bench.wait(name, JobState.RUNNING)
    starve(cluster, key)
    assert bench.wait(name).state is JobState.LOST


@only_job
def test_a_trial_that_has_ended_before_its_eviction_keeps_its_end(cluster, key, open_bench):
    bench = open_bench()
    name = bench.run("exit 3")
    eventually(lambda: [pod["status"]["phase"] for pod in cluster.pods()] == ["Failed"], cluster.limit_s)
    delete_pod(cluster, key)
    assert bench.wait(name).exit_code == 3


@only_job
def test_a_container_that_somebody_ends_is_lost_after_a_while_though_the_cluster_says_nothing(
    machinery, cluster, key, open_bench, monkeypatch
):
    monkeypatch.setattr("nnilite_kubernetes._service.ClusterService.patience", ClusterPatience(reason_s=1.0))
    bench = open_bench()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    cluster.node.run_of(speaker(cluster)["metadata"]["name"]).signal("trial")
    status = bench.wait(name)
    assert status.state is JobState.LOST
    assert status.reason


@only_job
def test_a_pod_whose_node_does_not_answer_is_not_waited_for_for_ever(machinery, cluster, key, open_bench, monkeypatch):
    monkeypatch.setattr("nnilite_kubernetes._service.ClusterService.patience", ClusterPatience(overdue_s=1.0))
    bench = open_bench()
    name = bench.submit(bench.job("trap '' TERM; while :; do sleep 0.1; done", grace_s=60))
    bench.wait(name, JobState.RUNNING)
    pod = speaker(cluster)
    run = cluster.node.run_of(pod["metadata"]["name"])
    run.frozen = True
    cluster.api.delete(PODS, cluster.namespace, pod["metadata"]["name"], gracePeriodSeconds=1)
    status = bench.wait(name)
    assert status.state is JobState.LOST
    assert "its node does not answer" in status.reason
    run.frozen = False


# The tests above read the words of each way; to the manager a pod is taken away with its job or without it.
RARELY = [pytest.param(way, marks=pytest.mark.long) for way in (delete_pod, preempt, starve)]


@only_job
@pytest.mark.parametrize("way", [drain, delete_object, *RARELY], ids=lambda way: way.__name__)
def test_an_experiment_tries_it_again_and_says_why(able, cluster, key, nnictl, experiment, way):
    """The whole manager, whose trials report by themselves: the keeper's word comes before the cluster's."""
    config = experiment('test "$NNILITE_ATTEMPT" = 1 || sleep 60; echo 1', maxTrialRetries=2)
    nnictl("create", "-c", config, "-p", "0")
    trial = lambda: (json.loads(nnictl("trial", "ls", "--json")) or [{"state": "WAITING"}])[0]  # noqa: E731
    eventually(lambda: trial()["state"] == "RUNNING", cluster.limit_s)
    way(cluster, key)
    found = eventually(lambda: (one := trial())["state"] not in ("RUNNING", "WAITING") and one, cluster.limit_s)
    shown = json.loads(nnictl("trial", "show", "-T", found["id"], "--json"))
    first, second = shown["attempts"]
    assert (first["state"], second["exitCode"]) == ("LOST", 0)
    assert re.search(dict(WAYS)[way], first["message"])
