"""TFJobs, PyTorchJobs and MPIJobs: the contract of all services, several roles, and workers that come and go."""

from __future__ import annotations

import sys

import pytest

from nnilite.errors import ConfigError, Conflict
from nnilite.service import JobState
from nnilite.testing import ServiceContract, eventually
from nnilite_kubernetes import KubeflowConfig, KubeflowService
from nnilite_kubernetes._config import RoleConfig
from platforms.kube.bench import KubeBench
from platforms.kube.cluster import StandIn
from platforms.kube.operators import MPIJOBS_V1, MPIJOBS_V2, PYTORCHJOBS, TFJOBS, install

IMAGE = "python:3.11-slim"
_FOLLOW = """
import nnilite, os, subprocess, time
folder = os.path.dirname(os.environ["OMPI_MCA_orte_default_hostfile"])
seen = []
while not os.path.exists({go!r}):
    hosts = subprocess.run([os.path.join(folder, "discover_hosts.sh")], capture_output=True, text=True).stdout.split()
    if hosts and (not seen or seen[-1] != len(hosts)):
        seen.append(len(hosts))
        nnilite.report_intermediate_result(len(hosts))
    time.sleep(0.05)
nnilite.report_final_result(hosts)
"""


def role(**fields):
    return RoleConfig(**{"docker_image": IMAGE, **fields})


@pytest.fixture(params=[MPIJOBS_V2])
def cluster(request, tmp_path):
    with StandIn(tmp_path / "cluster", install(request.param)) as cluster:
        yield cluster


@pytest.fixture
def open_bench(tmp_path, cluster):
    opened = []

    def make(**fields):
        config = KubeflowConfig(kubeconfig=cluster.kubeconfig(), **fields)
        bench = KubeBench(tmp_path, lambda context: KubeflowService("kubeflow", config, context))
        opened.append(bench)
        return bench.__enter__()

    yield make
    for bench in opened:
        bench.__exit__()


class Contract(ServiceContract):
    pushes = True
    has_logs = False
    fields: dict[str, object] = {}

    @pytest.fixture
    def make_service(self, cluster):
        config = KubeflowConfig(kubeconfig=cluster.kubeconfig(), **self.fields)
        return lambda context: KubeflowService("kubeflow", config, context)

    @pytest.fixture
    def bench(self, tmp_path, make_service):
        with KubeBench(tmp_path, make_service) as bench:
            yield bench


@pytest.mark.long  # minutes; the contract of a plain Job is in the everyday suite
class TestTFJob(Contract):
    fields = {"operator": "tf-operator", "worker": role()}


@pytest.mark.long  # minutes; the contract of a plain Job is in the everyday suite
class TestPyTorchJob(Contract):
    fields = {"operator": "pytorch-operator", "master": role()}


@pytest.mark.long  # minutes; the contract of a plain Job is in the everyday suite
class TestMPIJob(Contract):
    fields = {"operator": "mpi-operator", "worker": role()}


# several roles


def test_each_role_has_its_command_and_the_chief_alone_reports(cluster, open_bench):
    report = f"{sys.executable} -c 'import nnilite; nnilite.report_final_result({{}})'"
    ps = role(command="echo as ps; sleep 60", cpu_number=1)
    worker = role(replicas=2, command=report.format(2) + "; sleep 60")
    chief = role(command='sleep 1; test -n "$TF_CONFIG" && ' + report.format(1))
    bench = open_bench(operator="tf-operator", ps=ps, worker=worker, chief=chief)
    name = bench.run("")
    assert bench.finish(name).values == [1]
    assert bench.status(name).state is JobState.SUCCEEDED
    logs = {run.name.rsplit("-", 2)[-2]: cluster.node.logs.get((run.uid, "tensorflow")) for run in runs(cluster)}
    assert [text for _, text in logs["ps"] if text == b"as ps"]


def runs(cluster):
    return list(cluster.node.runs.values())


def test_a_role_that_fails_ends_the_trial_and_is_named(open_bench):
    chief, worker = role(command="sleep 60"), role(command="exit 9")
    bench = open_bench(operator="tf-operator", chief=chief, worker=worker)
    status = bench.wait(bench.run(""))
    assert (status.state, status.exit_code) == (JobState.FAILED, 9)
    assert "-worker-0: exit code 9" in status.reason


def test_pods_that_still_run_when_the_trial_has_ended_are_cleaned_up(cluster, open_bench):
    bench = open_bench(operator="tf-operator", ps=role(command="sleep 60"), worker=role(command="true"))
    bench.finish(bench.run(""))
    eventually(lambda: [pod["status"]["phase"] for pod in cluster.pods()] == ["Succeeded"])


def test_pytorch_workers_know_their_rank(open_bench):
    command = f"{sys.executable} -c 'import nnilite, os; nnilite.report_final_result(os.environ[\"WORLD_SIZE\"])'"
    bench = open_bench(operator="pytorch-operator", master=role(), worker=role(replicas=2))
    assert bench.finish(bench.run(command)).values == ["3"]


# elastic jobs


@pytest.mark.parametrize("cluster", [MPIJOBS_V1, MPIJOBS_V2], indirect=True)
def test_workers_come_and_go_while_the_trial_goes_on(cluster, open_bench, tmp_path):
    go = tmp_path / "go"
    bench = open_bench(operator="mpi-operator", worker=role(replicas=2), min_replicas=1, max_replicas=4)
    name = bench.python(_FOLLOW.format(go=str(go)))
    values = bench.received(name).values
    eventually(lambda: bench.received(name).values[-1:] == [2])
    bench.call(bench.service.scale(bench.handles[name], 4))
    eventually(lambda: bench.received(name).values[-1:] == [4])
    bench.call(bench.service.scale(bench.handles[name], 1))
    eventually(lambda: bench.received(name).values[-1:] == [1])
    go.touch()
    assert len(bench.finish(name).values[-1]) == 1
    assert values is not bench.received(name).values
    assert bench.status(name).state is JobState.SUCCEEDED


def test_a_lost_worker_comes_back_and_the_trial_is_not_lost(cluster, open_bench, tmp_path):
    go = tmp_path / "go"
    bench = open_bench(operator="mpi-operator", worker=role(replicas=2), min_replicas=1, max_replicas=2)
    name = bench.python(_FOLLOW.format(go=str(go)))
    eventually(lambda: bench.received(name).values[-1:] == [2])
    [victim] = [pod for pod in cluster.pods() if pod["metadata"]["name"].endswith("-worker-1")]
    cluster.store.remove(("", "v1", "pods"), "default", victim["metadata"]["name"])
    eventually(lambda: cluster.node.run_of(victim["metadata"]["name"]).uid != victim["metadata"]["uid"])
    go.touch()
    assert len(bench.finish(name).values) >= 2
    assert bench.status(name).state is JobState.SUCCEEDED


def test_the_number_of_workers_stays_within_its_bounds(open_bench):
    bench = open_bench(operator="pytorch-operator", worker=role(replicas=2), min_replicas=1, max_replicas=3)
    name = bench.run("sleep 60")
    refusal = bench.refusal(bench.service.scale(bench.handles[name], 4))
    assert isinstance(refusal, Conflict)
    assert "minReplicas 1 and maxReplicas 3" in str(refusal)


def test_an_elastic_pytorch_job_gets_more_workers(cluster, open_bench):
    bench = open_bench(operator="pytorch-operator", worker=role(replicas=1), min_replicas=1, max_replicas=3)
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    bench.call(bench.service.scale(bench.handles[name], 3))
    eventually(lambda: len(cluster.pods()) == 3)
    assert bench.status(name).state is JobState.RUNNING


def test_a_job_that_is_not_elastic_cannot_be_scaled(open_bench):
    bench = open_bench(operator="tf-operator", worker=role())
    name = bench.run("sleep 60")
    assert isinstance(bench.refusal(bench.service.scale(bench.handles[name], 2)), Conflict)


# what the cluster has, and what the config may say


@pytest.mark.parametrize("cluster", [MPIJOBS_V1, MPIJOBS_V2], indirect=True)
def test_the_version_of_mpijob_that_is_served_is_used(cluster, open_bench):
    bench = open_bench(operator="mpi-operator", worker=role())
    assert bench.wait(bench.run("true")).state is JobState.SUCCEEDED
    [key] = [key for key in (MPIJOBS_V1, MPIJOBS_V2) if key in cluster.api.crds]
    assert len(cluster.store.all(key)) == 1


def test_a_missing_operator_is_told_before_anything_starts(cluster, open_bench):
    operators = {key: cluster.api.crds.pop(key) for key in (TFJOBS, PYTORCHJOBS)}
    with pytest.raises(ConfigError, match=r"the cluster has no TFJob of kubeflow\.org/v1"):
        open_bench(operator="tf-operator", worker=role())
    cluster.api.crds.update(operators)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"operator": "tf-operator"}, "worker: is needed"),
        ({"operator": "tf-operator", "worker": role(), "launcher": role()}, "launcher: is no role of tf-operator"),
        ({"operator": "pytorch-operator", "worker": role()}, "master: is needed"),
        ({"operator": "pytorch-operator", "master": role(replicas=2)}, "master.replicas: must be 1"),
        ({"operator": "tf-operator", "worker": role(), "api_version": "v1beta2"}, "apiVersion: 'v1beta2' is no longer"),
        ({"operator": "mpi-operator", "worker": role(replicas=5), "max_replicas": 4}, "must be between 1 and 4"),
        ({"operator": "tf-operator", "worker": role(), "reporting_role": "chief"}, "there is no role 'chief'"),
    ],
)
def test_roles_that_do_not_fit_the_operator_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        KubeflowConfig(**fields)
