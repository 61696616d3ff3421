"""TFJobs, PyTorchJobs and MPIJobs: the contract of all services, several roles, and workers that come and go."""

from __future__ import annotations

import shlex

import pytest

from nnilite.errors import ConfigError, Conflict
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite_kubernetes import KubeflowConfig, KubeflowService
from nnilite_kubernetes._config import RoleConfig
from platforms.kube.bench import ClusterContract, KubeBench, Platform
from platforms.kube.client import MPIJOBS_V1, MPIJOBS_V2, PODS
from platforms.kube.cluster import IMAGE, StandIn
from platforms.kube.controllers import Operators
from platforms.kube.operators import install

pytestmark = pytest.mark.process

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


_SLEEPER = {
    "metadata": {"name": "of-somebody-else"},
    "spec": {"containers": [{"name": "sleep", "image": IMAGE, "command": ["sleep", "600"]}]},
}


def role(**fields):
    return RoleConfig(**{"docker_image": IMAGE, **fields})


@pytest.fixture
def mpi():
    """The version of MPIJob that the cluster has: there is one name for both."""
    return MPIJOBS_V2


@pytest.fixture
def platform(mpi):
    return Platform(KubeflowService, KubeflowConfig, {}, install(mpi))


class TestTFJob(ClusterContract):
    fields = {"operator": "tf-operator", "worker": role()}


@pytest.mark.long  # a minute; the code is that of a TFJob but for the names of roles
class TestPyTorchJob(ClusterContract):
    fields = {"operator": "pytorch-operator", "master": role()}


@pytest.mark.long  # a minute; the code is that of a TFJob but for the names of roles
class TestMPIJob(ClusterContract):
    fields = {"operator": "mpi-operator", "worker": role()}


@pytest.mark.long
class TestMPIJobOfTheTrainingOperator(TestMPIJob):
    @pytest.fixture
    def mpi(self):
        return MPIJOBS_V1


# several roles


@pytest.mark.everywhere
@pytest.mark.usefixtures("this_machine")
def test_each_role_has_its_command_and_the_chief_alone_reports(cluster, open_bench, tmp_path):
    report, go_on = "python3 -c 'import nnilite; nnilite.report_final_result({})'", tmp_path / "go on"
    ps = role(command="echo as ps; sleep 60", cpu_number=1)
    worker = role(replicas=2, command=report.format(2) + "; sleep 60")
    wait = f"until [ -e {shlex.quote(str(go_on))} ]; do sleep 0.1; done"
    chief = role(command=f'{wait}; test -n "$TF_CONFIG" && {report.format(1)}')
    bench = open_bench(operator="tf-operator", ps=ps, worker=worker, chief=chief)
    name = bench.run("")
    eventually(lambda: len(cluster.running()) == 4, cluster.limit_s)
    [ps] = [pod["metadata"]["name"] for pod in cluster.pods() if "-ps-" in pod["metadata"]["name"]]
    place = (cluster.namespace, ps, "tensorflow")
    eventually(lambda: any(b"as ps" in line for line in cluster.api.cluster.pod_log(*place).lines()), cluster.limit_s)
    # The operator ends and deletes the others as soon as the chief has ended.
    go_on.touch()
    assert bench.finish(name).values == [1]
    assert bench.status(name).state is JobState.SUCCEEDED


def test_a_role_that_fails_ends_the_trial_and_is_named(open_bench):
    chief, worker = role(command="sleep 60"), role(command="exit 9")
    bench = open_bench(operator="tf-operator", chief=chief, worker=worker)
    status = bench.wait(bench.run(""))
    assert (status.state, status.exit_code) == (JobState.FAILED, 9)
    assert "-worker-0: exit code 9" in status.reason


@pytest.mark.parametrize(("operator", "first"), [("tf-operator", "chief"), ("pytorch-operator", "master")])
def test_a_role_that_fails_is_named_though_the_operator_deletes_all_pods(cluster, open_bench, operator, first):
    roles = {first: role(command="sleep 60"), "worker": role(replicas=2, command="sleep 1; exit 9")}
    bench = open_bench(operator=operator, run_policy={"backoffLimit": 0}, **roles)
    status = bench.wait(bench.run(""))
    assert (status.state, status.exit_code) == (JobState.FAILED, 9)
    assert ": exit code 9" in status.reason
    eventually(lambda: not cluster.pods(), cluster.limit_s)


@pytest.mark.parametrize(("operator", "first"), [("tf-operator", "chief"), ("pytorch-operator", "master")])
def test_the_pod_of_a_role_that_fails_stays_until_its_job_is_removed(cluster, open_bench, operator, first):
    bench = open_bench(operator=operator, **{first: role(command="sleep 60"), "worker": role(command="exit 9")})
    bench.wait(bench.run(""))
    eventually(lambda: [pod["status"]["phase"] for pod in cluster.pods()] == ["Failed"], cluster.limit_s)


def test_pods_that_still_run_when_the_trial_has_ended_are_cleaned_up(cluster, open_bench):
    bench = open_bench(operator="tf-operator", ps=role(command="sleep 60"), worker=role(command="true"))
    bench.finish(bench.run(""))
    eventually(lambda: [pod["status"]["phase"] for pod in cluster.pods()] == ["Succeeded"])


def test_pytorch_workers_know_their_rank(open_bench):
    command = "python3 -c 'import nnilite, os; nnilite.report_final_result(os.environ[\"WORLD_SIZE\"])'"
    bench = open_bench(operator="pytorch-operator", master=role(), worker=role(replicas=2))
    assert bench.finish(bench.run(command)).values == [3]


@pytest.mark.parametrize("mpi", [MPIJOBS_V1, MPIJOBS_V2], ids=["v1", "v2beta1"])
def test_a_launcher_that_cannot_be_made_is_given_up_though_its_workers_run(cluster, open_bench, machinery):
    bench = open_bench(operator="mpi-operator", worker=role(replicas=2), schedule_limit=300)
    taken = cluster.api.create(PODS, cluster.namespace, _SLEEPER)
    cluster.limit(pods=3)
    name = bench.run("true")
    eventually(lambda: "exceeded quota: pods" in bench.status(name).reason, cluster.limit_s)
    assert sum("-worker-" in pod["metadata"]["name"] for pod in cluster.pods()) == 2
    assert bench.status(name).state is JobState.WAITING
    vars(bench.service.config)["schedule_limit"] = 6
    status = bench.wait(name)
    cluster.delete(PODS, taken)
    assert status.state is JobState.FAILED
    assert "given up after 6 s: FailedCreate" in status.reason


# elastic jobs


@pytest.mark.parametrize("mpi", [MPIJOBS_V1, MPIJOBS_V2], ids=["v1", "v2beta1"])
def test_workers_come_and_go_while_the_trial_goes_on(cluster, open_bench):
    bench = open_bench(operator="mpi-operator", worker=role(replicas=2), min_replicas=1, max_replicas=4)
    name = bench.python(_FOLLOW.format(go=str(bench.sign("go"))))
    bench.eventually(lambda: bench.report(name).values[-1:] == [2])
    for number in (4, 1):
        bench.call(bench.service.scale(bench.handles[name], number))
        bench.eventually(lambda n=number: bench.report(name).values[-1:] == [n])
    bench.give("go")
    assert len(bench.finish(name).values[-1]) == 1
    assert bench.status(name).state is JobState.SUCCEEDED


def test_a_lost_worker_comes_back_and_the_trial_is_not_lost(cluster, open_bench):
    bench = open_bench(operator="mpi-operator", worker=role(replicas=2), min_replicas=1, max_replicas=2)
    name = bench.python(_FOLLOW.format(go=str(bench.sign("go"))))
    bench.eventually(lambda: bench.report(name).values[-1:] == [2])
    [victim] = [pod for pod in cluster.pods() if pod["metadata"]["name"].endswith("-worker-1")]
    name_of_it, uid = victim["metadata"]["name"], victim["metadata"]["uid"]
    cluster.api.delete(PODS, cluster.namespace, name_of_it, gracePeriodSeconds=0)
    get = lambda: cluster.api.get(PODS, cluster.namespace, name_of_it)  # noqa: E731
    bench.eventually(lambda: (pod := get()) and pod["metadata"]["uid"] != uid)
    bench.give("go")
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


@pytest.mark.parametrize("mpi", [MPIJOBS_V1, MPIJOBS_V2], ids=["v1", "v2beta1"])
def test_the_version_of_mpijob_that_is_served_is_used(cluster, mpi, open_bench):
    bench = open_bench(operator="mpi-operator", worker=role())
    assert bench.wait(bench.run("true")).state is JobState.SUCCEEDED
    assert len(cluster.all(mpi)) == 1


@pytest.mark.everywhere
def test_the_version_of_mpijob_that_is_not_served_is_told_before_anything_starts(cluster, open_bench):
    with pytest.raises(ConfigError, match=r"the cluster has no MPIJob of kubeflow\.org/v1"):
        open_bench(operator="mpi-operator", worker=role(), api_version="v1")


def test_a_missing_operator_is_told_before_anything_starts(platform, tmp_path):
    fields = {"operator": "tf-operator", "worker": role()}
    with StandIn(tmp_path / "cluster") as bare:
        with pytest.raises(ConfigError, match=r"the cluster has no TFJob of kubeflow\.org/v1"):
            KubeBench(tmp_path, platform.maker(bare, **fields), bare).__enter__()


def test_who_has_only_the_second_trainer_hears_how_to_use_it(platform, tmp_path):
    fields = {"operator": "tf-operator", "worker": role()}
    trainer = Operators(crds={("trainer.kubeflow.org", "v1alpha1", "trainjobs"): ""})
    with StandIn(tmp_path / "cluster", trainer) as newer:
        with pytest.raises(ConfigError, match=r"has Kubeflow Trainer \(version 2\): use operator: trainer"):
            KubeBench(tmp_path, platform.maker(newer, **fields), newer).__enter__()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"operator": "tf-operator"}, "worker: is needed"),
        ({"operator": "tf-operator", "worker": role(), "launcher": role()}, "launcher: is not a role of tf-operator"),
        ({"operator": "pytorch-operator", "worker": role()}, "master: is needed"),
        ({"operator": "pytorch-operator", "master": role(replicas=2)}, "master.replicas: must be 1"),
        ({"operator": "tf-operator", "worker": role(), "api_version": "v3"}, "apiVersion: 'v3' is not served; use v1"),
        ({"operator": "mpi-operator", "worker": role(replicas=5), "max_replicas": 4}, "must be between 1 and 4"),
        ({"operator": "tf-operator", "worker": role(), "reporting_role": "chief"}, "there is no role 'chief'"),
    ],
)
def test_roles_that_do_not_fit_the_operator_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        KubeflowConfig(**fields)
