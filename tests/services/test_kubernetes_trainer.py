"""TrainJobs of Kubeflow Trainer (version 2): numbered nodes, runtimes made and named, queues, and what is refused."""

from __future__ import annotations

import contextlib

import pytest

from nnilite.errors import ConfigError
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite_kubernetes import KubeflowConfig, KubeflowService
from nnilite_kubernetes._config import RoleConfig
from nnilite_kubernetes._trainer import TrainJob
from platforms.kube.bench import ClusterContract, KubeBench, Platform
from platforms.kube.client import CLUSTER_RUNTIMES, JOBSETS, RUNTIMES, TRAINJOBS, WORKLOADS
from platforms.kube.cluster import IMAGE, StandIn
from platforms.kube.controllers import Operators
from platforms.kube.kueue import FULL
from platforms.kube.trainer import install_trainer

pytestmark = pytest.mark.process

_REPORT = "python3 -c 'import nnilite, os; nnilite.report_final_result({})'"
_SUSPENDED = "it is suspended until its queue admits it (TrainJob is suspended)"


def role(**fields):
    return RoleConfig(**{"docker_image": IMAGE, **fields})


def runtime(*containers, step="trainer", **policy):
    """The spec of a runtime, whose job for training has these containers."""
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": step}
    jobs = {"metadata": {"labels": labels}, "spec": {"template": {"spec": {"containers": list(containers)}}}}
    job_set = {"failurePolicy": {"maxRestarts": 3}, "replicatedJobs": [{"name": "node", "template": jobs}]}
    return {"mlPolicy": {"numNodes": 7, **policy}, "template": {"spec": job_set}}


@pytest.fixture
def platform():
    return Platform(KubeflowService, KubeflowConfig, {"operator": "trainer"}, install_trainer())


@pytest.fixture
def named(cluster):
    """Makes a runtime of the whole cluster, which goes with the test."""
    with contextlib.ExitStack() as stack:

        def make(spec):
            name = f"ours-{cluster.namespace}"
            cluster.api.create(CLUSTER_RUNTIMES, "", {"metadata": {"name": name}, "spec": spec})
            stack.callback(cluster.api.delete, CLUSTER_RUNTIMES, "", name)
            return name

        yield make


@pytest.mark.long  # a minute; what runs in the pods is as in a Job, and the end is told as of a PyTorchJob
class TestTrainJob(ClusterContract):
    fields = {"worker": role()}


@pytest.mark.everywhere
def test_nodes_know_their_number_and_the_first_one_reports(cluster, open_bench):
    known = 'os.environ["PET_NNODES"] + os.environ["PET_NODE_RANK"] + os.environ["JOB_COMPLETION_INDEX"]'
    bench = open_bench(worker=role(replicas=2), train_job={"trainer": {"numProcPerNode": 2}})
    name = bench.run(f'test "$PET_NPROC_PER_NODE" = 2 && {_REPORT.format(known)}')
    assert bench.finish(name).values == [200]
    assert bench.status(name).state is JobState.SUCCEEDED
    [job], [made] = cluster.all(TRAINJOBS), cluster.all(RUNTIMES)
    assert job["spec"]["runtimeRef"]["name"] == made["metadata"]["name"] == job["metadata"]["name"]
    bench.call(bench.service.remove(bench.handles[name]))
    eventually(lambda: not [*cluster.all(RUNTIMES), *cluster.all(JOBSETS), *cluster.pods()], cluster.limit_s)


def test_a_node_that_fails_ends_the_trial_and_is_named(open_bench):
    bench = open_bench(worker=role(replicas=2))
    status = bench.wait(bench.run('sleep 1; test "$JOB_COMPLETION_INDEX" = 1 && exit 9; sleep 60'))
    assert (status.state, status.exit_code) == (JobState.FAILED, 9)
    assert "-node-0-1-" in status.reason
    assert "exit code 9" in status.reason


def test_a_node_that_is_deleted_loses_the_trial(cluster, open_bench):
    bench = open_bench(worker=role(replicas=2))
    name = bench.run("sleep 60")
    eventually(lambda: len(cluster.running()) == 2, cluster.limit_s)
    bench.wait(name, JobState.RUNNING)
    [second] = [pod for pod in cluster.pods() if "-node-0-1-" in pod["metadata"]["name"]]
    cluster.disrupt(second, "PreemptionByScheduler", "a pod of higher priority needs the room")
    status = bench.wait(name)
    assert status.state is JobState.LOST
    assert "was deleted, not by this experiment" in status.reason or "PreemptionByScheduler" in status.reason


def test_the_pods_of_a_named_runtime_are_those_of_the_trial(cluster, open_bench, named):
    variable = {"name": "FROM_RUNTIME", "value": "17"}
    node = {"name": "node", "image": IMAGE, "command": ["false"], "args": ["x"], "env": [variable]}
    beside = {"name": "beside", "image": IMAGE, "command": ["sleep", "1"]}
    name = named(runtime(node, beside, torch={}))
    bench = open_bench(worker=RoleConfig(replicas=1), runtime=name)
    assert bench.finish(bench.run(_REPORT.format('int(os.environ["FROM_RUNTIME"])'))).values == [17]
    [made] = cluster.all(RUNTIMES)
    spec = made["spec"]["template"]["spec"]
    pod = spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert [(each["name"], each["image"]) for each in pod["containers"]] == [("node", IMAGE), ("beside", IMAGE)]
    assert "failurePolicy" not in spec
    assert made["spec"]["mlPolicy"]["numNodes"] == 1


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (None, r"runtime: there is no ClusterTrainingRuntime 'ours-default'; the cluster has: none"),
        (runtime({"name": "node"}, mpi={"numProcPerNode": 1}), "starts its nodes by MPI"),
        (runtime({"name": "node"}, step="dataset-initializer"), "has no job for training with a container 'node'"),
    ],
    ids=["missing", "mpi", "nothing trains"],
)
def test_a_runtime_that_trials_cannot_use_is_refused_at_the_start(platform, tmp_path, spec, message):
    operators = Operators(crds=platform.operators.crds)
    with StandIn(tmp_path / "cluster", operators) as cluster:
        if spec is not None:
            cluster.api.create(CLUSTER_RUNTIMES, "", {"metadata": {"name": "ours-default"}, "spec": spec})
        with pytest.raises(ConfigError, match=message):
            KubeBench(tmp_path, platform.maker(cluster, worker=role(), runtime="ours-default"), cluster).__enter__()


def test_a_cluster_without_trainer_is_told_what_else_there_is(platform, tmp_path):
    with StandIn(tmp_path / "cluster") as bare:
        with pytest.raises(ConfigError, match=r"no TrainJob of trainer.kubeflow.org/v1alpha1: is Kubeflow Trainer"):
            KubeBench(tmp_path, platform.maker(bare, worker=role()), bare).__enter__()


# queues


@pytest.fixture
def queued(tmp_path, platform):
    """A bench whose trials begin suspended, as in a queue of Kueue."""
    operators = platform.operators
    crds = {**operators.crds, WORKLOADS: "kueue.x-k8s.io_workloads.v1beta1.yaml"}
    with StandIn(tmp_path / "cluster", Operators(operators.controllers, crds, operators.admission)) as cluster:
        make = platform.maker(cluster, worker=role(), train_job={"suspend": True})
        with KubeBench(tmp_path, make, cluster) as bench:
            yield bench, cluster


def admit(cluster, suspended=False):
    [job] = cluster.all(TRAINJOBS)
    cluster.api.patch(TRAINJOBS, cluster.namespace, job["metadata"]["name"], {"spec": {"suspend": suspended}})


def test_a_trial_in_a_queue_waits_with_the_queues_reason_and_then_runs(queued):
    bench, cluster = queued
    name = bench.run("true")
    bench.eventually(lambda: bench.status(name).reason == _SUSPENDED)
    [job] = cluster.all(TRAINJOBS)
    labels = {"kueue.x-k8s.io/job-uid": job["metadata"]["uid"]}
    template = {"spec": {"containers": [{"name": "node", "image": IMAGE}]}}
    pods = {"name": "node", "count": 1, "template": template}
    body = {"metadata": {"name": "w", "labels": labels}, "spec": {"queueName": "team", "podSets": [pods]}}
    cluster.api.create(WORKLOADS, cluster.namespace, body)
    since = job["metadata"]["creationTimestamp"]
    told = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": FULL}
    change = {"status": {"conditions": [{**told, "lastTransitionTime": since}]}}
    cluster.api.patch(WORKLOADS, cluster.namespace, "w", change, "status")
    bench.eventually(lambda: bench.status(name).reason == f"it waits in the queue team: {FULL}")
    admit(cluster)
    assert bench.wait(name).state is JobState.SUCCEEDED


def test_a_trial_that_its_queue_suspends_again_is_lost(queued):
    bench, cluster = queued
    name = bench.run("sleep 60")
    bench.eventually(lambda: cluster.all(TRAINJOBS))
    admit(cluster)
    bench.wait(name, JobState.RUNNING)
    admit(cluster, suspended=True)
    assert bench.wait(name).state is JobState.LOST


# configuration


def test_a_dry_run_shows_the_runtime_and_the_job():
    kind = TrainJob(KubeflowConfig(operator="trainer", worker=role(replicas=3), keep_finished=60, backoff_limit=2))
    pod = {"metadata": {"labels": {}}, "spec": {"containers": [{"name": "node", "image": IMAGE}]}}
    [(_, made)] = kind.companions({"name": "t"}, {"worker": pod})
    job_set = made["spec"]["template"]["spec"]
    assert made["spec"]["mlPolicy"] == {"torch": {}, "numNodes": 3}
    assert job_set["ttlSecondsAfterFinished"] == 60
    assert job_set["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "worker: is needed"),
        ({"worker": role(replicas=0)}, "worker.replicas: must be at least 1"),
        ({"worker": role(), "master": role()}, "master: is not a role of trainer; the roles are worker"),
        ({"worker": role(), "max_replicas": 4}, "maxReplicas: is not for TrainJobs"),
        ({"worker": role(), "run_policy": {"suspend": True}}, "runPolicy: is not for TrainJobs"),
        (
            {"worker": role(), "train_job": {"trainer": {"image": "x"}}},
            "trainJob.trainer.image: is what the role worker",
        ),
        ({"worker": role(), "train_job": {"runtimeRef": {"name": "x"}}}, "trainJob.runtimeRef: cannot be set"),
        ({"worker": role(), "train_job": [1]}, "trainJob: must be an object"),
        (
            {"worker": role(), "runtime_kind": "TrainingRuntime"},
            "runtimeKind: is the kind of runtime, which is not set",
        ),
        ({"operator": "tf-operator", "worker": role(), "runtime": "x"}, "runtime: is for operator: trainer"),
    ],
)
def test_fields_that_do_not_fit_trainjobs_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        KubeflowConfig(**{"operator": "trainer", **fields})
