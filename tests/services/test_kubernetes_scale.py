"""Elastic trials: another number of workers while they go on, from `nnictl` down to the cluster; and lost workers."""

from __future__ import annotations

import json
import sys

import pytest

from nnilite.errors import ConfigError, Conflict
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite_kubernetes import AdlConfig, AdlService, KubeflowConfig, KubeflowService
from nnilite_kubernetes._config import RoleConfig
from platforms.kube.bench import Platform
from platforms.kube.client import MPIJOBS_V2, PODS, PYTORCHJOBS
from platforms.kube.cluster import IMAGE
from platforms.kube.operators import install
from platforms.kube.other_operators import install_adaptdl

pytestmark = pytest.mark.process

_FOLLOW = """
import nnilite, os, subprocess, time
script = os.path.join(os.path.dirname(os.environ["OMPI_MCA_orte_default_hostfile"]), "discover_hosts.sh")
number, seen = 0, []
while not seen or seen[-1] != {last}:
    hosts = subprocess.run([script], capture_output=True, text=True).stdout.split()
    if hosts and (not seen or seen[-1] != len(hosts)):
        seen.append(len(hosts))
        nnilite.report_intermediate_result(len(hosts))
    time.sleep(0.05)
nnilite.report_final_result(len(hosts))
"""
_ELASTIC = {"operator": "mpi-operator", "min_replicas": 1, "max_replicas": 4}
_MPI = Platform(KubeflowService, KubeflowConfig, _ELASTIC, install())
_TORCH = Platform(KubeflowService, KubeflowConfig, {"operator": "pytorch-operator"}, install())
_ADL = Platform(AdlService, AdlConfig, {"docker_image": IMAGE}, install_adaptdl())


@pytest.fixture(params=[_MPI], ids=["MPIJob"])
def platform(request):
    return request.param


def role(**fields):
    return RoleConfig(**{"docker_image": IMAGE, **fields})


def workers(cluster):
    found = [pod for pod in cluster.pods() if "-worker-" in pod["metadata"]["name"]]
    return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]


def test_nnictl_scales_a_trial_that_goes_on_as_one_curve(cluster, nnictl, kubeflow_experiment, tmp_path, this_machine):
    section = {"operator": "mpi-operator", "minReplicas": 1, "maxReplicas": 4}
    config = kubeflow_experiment(
        f"{sys.executable} trial.py", {**section, "worker": {"replicas": 2, "dockerImage": IMAGE}}
    )
    (tmp_path / "code" / "trial.py").write_text(_FOLLOW.format(last=4))
    nnictl("create", "-c", config, "-p", "0")
    listed = lambda: json.loads(nnictl("trial", "ls", "--json"))  # noqa: E731
    trial = eventually(lambda: [one["id"] for one in listed() if one["state"] == "RUNNING"], cluster.limit_s)[0]
    metrics = lambda: [m["value"] for m in json.loads(nnictl("trial", "show", "-T", trial, "--json"))["metrics"]]  # noqa: E731
    eventually(lambda: metrics()[-1:] == [2], cluster.limit_s)
    assert "5 workers are not between minReplicas 1 and maxReplicas 4" in nnictl("trial", "scale", trial, "5", code=4)
    assert nnictl("trial", "scale", trial, "4") == f"Trial {trial} was asked to have 4 workers.\n"
    eventually(lambda: listed()[0]["state"] == "SUCCEEDED", cluster.limit_s)
    found = metrics()
    assert (found[0], found[-2:]) in [(1, [4, 4]), (2, [4, 4])]
    assert found == sorted(found)
    assert "has ended" in nnictl("trial", "scale", trial, "2", code=4)


def test_a_worker_whose_node_has_gone_down_is_replaced(cluster, open_bench, machinery):
    """The operator would leave a pod that is there and has failed."""
    bench = open_bench(worker=role(replicas=2))
    name = bench.python(_FOLLOW.format(last=3))
    eventually(lambda: bench.received(name).values[-1:] == [2], cluster.limit_s)
    victim = workers(cluster)[-1]
    status = {"phase": "Failed", "reason": "NodeShutdown", "message": "Pod was terminated in response to imminent node"}
    cluster.api.patch(PODS, cluster.namespace, victim["metadata"]["name"], {"status": status}, "status")
    uid = victim["metadata"]["uid"]
    eventually(lambda: len(workers(cluster)) == 2 and uid not in {w["metadata"]["uid"] for w in workers(cluster)})
    assert bench.status(name).state is JobState.RUNNING
    bench.call(bench.service.scale(bench.handles[name], 3))
    assert bench.finish(name).values[-1] == 3
    assert bench.status(name).state is JobState.SUCCEEDED


def test_fewer_and_more_workers_are_what_the_object_says(cluster, open_bench):
    bench = open_bench(worker=role(replicas=2))
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    for number in (4, 1):
        bench.call(bench.service.scale(bench.handles[name], number))
        [job] = cluster.all(MPIJOBS_V2)
        assert job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == number
        eventually(lambda n=number: len(workers(cluster)) == n, cluster.limit_s)
    assert bench.status(name).state is JobState.RUNNING


@pytest.mark.parametrize("number", [0, 5])
def test_bounds_are_told(open_bench, number):
    bench = open_bench(worker=role(replicas=2))
    name = bench.run("sleep 60")
    refusal = bench.refusal(bench.service.scale(bench.handles[name], number))
    assert isinstance(refusal, Conflict)
    assert f"{number} workers are not between minReplicas 1 and maxReplicas 4" in str(refusal)


@pytest.mark.parametrize("platform", [_TORCH], indirect=True, ids=["PyTorchJob"])
def test_the_bounds_of_a_pytorchjob_may_stand_in_its_own_policy(cluster, open_bench):
    policy = {"minReplicas": 2, "maxReplicas": 3, "maxRestarts": 5}
    bench = open_bench(worker=role(replicas=2), elastic_policy=policy)
    name = bench.run("sleep 60")
    bench.call(bench.service.scale(bench.handles[name], 3))
    [job] = cluster.all(PYTORCHJOBS)
    assert job["spec"]["elasticPolicy"] == {**policy, "rdzvBackend": "c10d"}
    assert job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 3
    assert "between minReplicas 2" in str(bench.refusal(bench.service.scale(bench.handles[name], 1)))


@pytest.mark.parametrize("platform", [_ADL], indirect=True, ids=["AdaptDLJob"])
def test_adaptdl_scales_by_itself_and_says_so(open_bench):
    bench = open_bench(adaptive=True, min_replicas=1, max_replicas=3)
    name = bench.run("sleep 60")
    refusal = bench.refusal(bench.service.scale(bench.handles[name], 2))
    assert isinstance(refusal, Conflict)
    assert "AdaptDL's scheduler alone" in str(refusal)
    assert "minReplicas (1) and maxReplicas (3)" in str(refusal)


def test_a_job_that_is_gone_or_ended_is_not_scaled(open_bench):
    bench = open_bench(worker=role(replicas=2))
    name = bench.run("true")
    bench.finish(name)
    eventually(lambda: "has ended" in str(bench.refusal(bench.service.scale(bench.handles[name], 3))))
    bench.call(bench.service.remove(bench.handles[name]))
    eventually(lambda: "no longer in the cluster" in str(bench.refusal(bench.service.scale(bench.handles[name], 3))))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"operator": "pytorch-operator", "elastic_policy": {"minReplicas": "2"}},
            "elasticPolicy.minReplicas: must be",
        ),
        ({"operator": "pytorch-operator", "elastic_policy": []}, "elasticPolicy: must be an object"),
        ({"operator": "mpi-operator", "elastic_policy": {"maxReplicas": 3}}, "elasticPolicy: is for PyTorchJobs"),
        ({"operator": "mpi-operator", "run_policy": "All"}, "runPolicy: must be an object"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        KubeflowConfig(worker=role(), **fields)
