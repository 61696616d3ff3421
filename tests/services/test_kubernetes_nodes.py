"""Distributed trials in clusters: all nodes are pods of one object, find each other by name, and end together."""

from __future__ import annotations

import os
from shutil import which

import pytest

from meeting_ranks import MEETING
from nnilite.errors import ConfigError
from nnilite.service import JobState
from nnilite.services.delivery import sample_job
from nnilite.testing import eventually
from nnilite.testing.probes import runs
from nnilite_kubernetes import (
    FrameworkControllerConfig,
    FrameworkControllerService,
    KubeflowConfig,
    KubeflowService,
    KubernetesConfig,
    KubernetesService,
)
from nnilite_kubernetes._config import RoleConfig
from nnilite_kubernetes._frameworkcontroller import TaskRoleConfig
from platforms.kube.bench import KubeBench, Platform
from platforms.kube.client import FRAMEWORKS, JOBS, PODS, PYTORCHJOBS, SERVICES, TFJOBS, TRAINJOBS
from platforms.kube.cluster import IMAGE, StandIn
from platforms.kube.operators import install
from platforms.kube.other_operators import install_frameworkcontroller
from platforms.kube.trainer import install_trainer
from platforms.node_cases import check_meeting

pytestmark = pytest.mark.process

ON_TWO = {"nodes": 2, "processes": 2, "launcher": "torch"}
BY_LOG = {"report": "stdout", "callback": None}
UP = "import nnilite, os, time; nnilite.report_intermediate_result(os.getpid()); time.sleep(60)"
ROLE = RoleConfig(docker_image=IMAGE)
TASK = TaskRoleConfig(name="x", docker_image=IMAGE)  # for which the barrier of the stand-in tells an address
JOB = Platform(KubernetesService, KubernetesConfig, {"docker_image": IMAGE})
OPERATOR = install()


def of_kubeflow(operator, **roles):
    return Platform(KubeflowService, KubeflowConfig, {"operator": operator, **roles}, OPERATOR)


PYTORCH = of_kubeflow("pytorch-operator", master=ROLE)
TF = of_kubeflow("tf-operator", worker=ROLE)
TRAINER = Platform(KubeflowService, KubeflowConfig, {"operator": "trainer", "worker": ROLE}, install_trainer())
FRAMEWORK = Platform(
    FrameworkControllerService, FrameworkControllerConfig, {"task_roles": [TASK]}, install_frameworkcontroller()
)
KINDS = {JOBS: JOB, PYTORCHJOBS: PYTORCH, TFJOBS: TF, TRAINJOBS: TRAINER, FRAMEWORKS: FRAMEWORK}


@pytest.fixture
def platform(request):
    return getattr(request, "param", JOB)


@pytest.fixture
def cluster(tmp_path, platform):
    with StandIn(tmp_path / "cluster", platform.operators) as cluster:
        yield cluster


@pytest.fixture
def make_service(tmp_path, cluster, platform):
    """Makes such a service, which is not open."""
    bench = KubeBench(tmp_path, platform.maker(cluster), cluster, nodes=2)
    yield lambda **fields: platform.maker(cluster, **fields)(bench.context())
    bench._loop.close()


@pytest.fixture
def open_nodes(tmp_path, cluster, platform):
    """Opens the bench of a service whose trials have two nodes."""
    opened: list[KubeBench] = []

    def make(**fields) -> KubeBench:
        opened.append(KubeBench(tmp_path, platform.maker(cluster, **fields), cluster, nodes=2))
        return opened[-1].__enter__()

    yield make
    for bench in opened:
        bench.__exit__()


def meet(bench, *more, **spec):
    words = " ".join([bench.interpreter(MEETING), *more])
    return bench.run(words, distributed=ON_TWO, parameters={"x": 3}, **spec)


EACH = pytest.mark.parametrize("platform", KINDS.values(), ids=[key[2] for key in KINDS], indirect=True)
TWO = pytest.mark.parametrize(
    "platform",
    [
        pytest.param(platform, marks=() if key in (JOBS, FRAMEWORKS) else pytest.mark.long)
        for key, platform in KINDS.items()
    ],
    ids=[key[2] for key in KINDS],
    indirect=True,
)
"""Every day a plain Job and a kind that has an operator, all with the long tests."""


# Which pod's log is read depends on the object. A callback does not, and those of each report in the tests below.
@pytest.mark.parametrize(
    ("platform", "spec"),
    [*((platform, BY_LOG) for platform in KINDS.values()), (JOB, {})],
    ids=[*(f"log-{key[2]}" for key in KINDS), "callback-jobs"],
    indirect=["platform"],
)
def test_the_ranks_of_a_trial_meet_on_two_pods_and_report_once(open_nodes, spec):
    bench = open_nodes()
    check_meeting(bench.finish(meet(bench, **spec)))


@EACH
@pytest.mark.long
@pytest.mark.skipif(which("mpirun") is None, reason="there is no mpirun; install the package openmpi-bin")
def test_mpirun_starts_the_ranks_in_both_pods(open_nodes):
    bench = open_nodes()
    words = bench.interpreter(MEETING)
    check_meeting(bench.finish(bench.run(words, distributed={**ON_TWO, "launcher": "mpi"}, parameters={"x": 3})))


@pytest.mark.long  # every day on this machine and on SSH hosts: what a cluster gives the ranks is in their meeting
@pytest.mark.timeout(300)
def test_a_ddp_training_in_two_pods_has_the_losses_of_one_process(start, monkeypatch, cluster, ddp):
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig()))
    section = {"platform": "kubernetes", "namespace": cluster.namespace, "dockerImage": cluster.image}
    ddp.check(start(**{**ddp.config(processesPerNode=1), "trainingService": {**section, "nniManagerIp": "127.0.0.1"}}))


@TWO
def test_a_rank_that_fails_in_another_pod_ends_all_and_is_the_reason(open_nodes, cluster):
    bench = open_nodes()
    status = bench.wait(meet(bench, "3"), JobState.FAILED)
    assert status.reason.startswith(f"rank 3 on {os.uname().nodename}: exit code 1")
    assert "rank 3 fails" in status.reason
    assert status.exit_code == 1
    eventually(lambda: not cluster.running(), cluster.limit_s)


# That the object goes is what the contract has of each kind, and its pods end with it.
@TWO
def test_a_canceled_trial_leaves_no_process_in_any_pod(open_nodes, cluster):
    bench = open_nodes()
    name = bench.run(bench.interpreter(UP), distributed=ON_TWO)
    bench.eventually(lambda: bench.received(name).values)
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.wait(name).state is JobState.CANCELED
    eventually(lambda: not runs(bench.received(name).values[0]))
    eventually(lambda: not cluster.pods(), cluster.limit_s)


@TWO
def test_a_pod_that_is_taken_away_loses_the_trial(open_nodes, cluster):
    bench = open_nodes()
    name = bench.run(bench.interpreter(UP), distributed=ON_TWO)
    bench.eventually(lambda: bench.received(name).values)
    [second] = [pod for pod in cluster.pods() if _number(pod) == 1]
    cluster.disrupt(second, "PreemptionByScheduler", "a pod of higher priority needs the room")
    assert bench.wait(name).state is JobState.LOST
    eventually(lambda: not runs(bench.received(name).values[0]))


def _number(pod):
    """The number of a pod among the nodes."""
    labels, name = pod["metadata"]["labels"], pod["metadata"]["name"]
    index = (pod["metadata"].get("annotations") or {}).get("batch.kubernetes.io/job-completion-index")
    number = int(index or labels.get("training.kubeflow.org/replica-index") or name.rpartition("-")[2])
    return number + ("-master-" in str(pod["spec"]) and "-worker-" in name)


def test_the_object_of_a_trial_has_numbered_pods_and_a_service_for_their_names_which_goes_with_it(open_nodes, cluster):
    bench = open_nodes()
    name = meet(bench)
    assert bench.finish(name).values[-1] == 4
    [job], [service] = cluster.all(JOBS), cluster.all(SERVICES)
    spec, own = job["spec"], job["metadata"]["name"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)
    assert spec["template"]["spec"]["subdomain"] == service["metadata"]["name"] == own
    bench.call(bench.service.remove(bench.handles[name]))
    eventually(lambda: not [*cluster.all(SERVICES), *cluster.all(PODS)], cluster.limit_s)


VOLCANO = {"metadata": {"annotations": {"team": "x"}}, "spec": {"schedulerName": "volcano"}}


def test_all_pods_of_a_trial_are_in_one_group_of_volcano(make_service):
    queue = {"scheduling.volcano.sh/queue-name": "team"}
    service = make_service(pod_template=VOLCANO, object_annotations=queue)
    found = service.describe(sample_job(service.context, None))["manifests"]
    [group], [job] = ([one for one in found if one["kind"] == kind] for kind in ("PodGroup", "Job"))
    assert group["spec"] == {"minMember": 2, "queue": "team"}
    annotations = job["spec"]["template"]["metadata"]["annotations"]
    assert (annotations["scheduling.k8s.io/group-name"], annotations["team"]) == (group["metadata"]["name"], "x")


@pytest.mark.parametrize(
    ("platform", "fields", "said"),
    [
        (JOB, {"pod_template": VOLCANO}, "podTemplate.spec.schedulerName: is volcano, but the cluster has no PodGroup"),
        (of_kubeflow("mpi-operator", worker=ROLE), {}, "distributed: does not work with mpi-operator"),
        (PYTORCH, {"worker": RoleConfig(replicas=3)}, r"worker.replicas: is 3, but distributed.nodes is 1; remove it"),
        (TF, {"ps": ROLE}, "ps: is not a node of a distributed trial; remove it"),
        (TF, {"worker": None, "chief": ROLE}, "chief: is not a node of a distributed trial; remove it"),
        (TRAINER, {"worker": RoleConfig(replicas=5)}, "worker.replicas: is 5, but distributed.nodes is 2; remove it"),
        (FRAMEWORK, {"task_roles": [TASK, TaskRoleConfig(name="ps")]}, "taskRoles: are 2, and distributed needs one"),
        (FRAMEWORK, {"barrier": False}, "barrier: is needed for distributed"),
    ],
    indirect=["platform"],
)
async def test_what_cannot_be_the_nodes_of_a_trial_is_refused_with_its_field_and_a_cure(make_service, fields, said):
    with pytest.raises(ConfigError, match=said):
        await make_service(**fields).check()
