"""The service of plain Jobs where something is wrong: the cluster, the pods, the rights, the network."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest

from nnilite.errors import ConfigError, NoCapacity, ServiceError
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite.testing.receiver import Receiver
from nnilite_kubernetes import KubernetesConfig, KubernetesService
from platforms.kube.bench import Platform
from platforms.kube.client import EVENTS, JOBS, PODS, SECRETS
from platforms.kube.cluster import IMAGE
from platforms.kube.faults import Faults
from platforms.kube.quota import quantity

pytestmark = pytest.mark.process

_BAD_IMAGE = "registry.invalid/no/such:image"
_ROOM = "nnilite-test/room"
_MESSAGE = "The node was low on resource: memory."
_RIGHTS = (
    ("batch", ["jobs"], ["create", "get", "list", "watch", "delete"]),
    ("", ["secrets"], ["get", "list", "patch", "delete"]),
    ("", ["pods"], ["list", "watch"]),
)


@pytest.fixture
def platform():
    return Platform(KubernetesService, KubernetesConfig, {"docker_image": IMAGE})


@pytest.fixture
def room(cluster):
    """A template for pods that no node has room for, and what makes that room."""
    name = f"{_ROOM}-{cluster.namespace}"
    yield {"spec": {"nodeSelector": {name: "yes"}}}, lambda: cluster.label_nodes(name, "yes")
    cluster.label_nodes(name, None)


def waits_for(bench, name, text):
    eventually(lambda: text in bench.status(name).reason)
    assert bench.status(name).state is JobState.WAITING


def lose_patience(bench, **limits):
    """Make a limit shorter once the test has seen what the service says before it."""
    vars(bench.service.config).update(limits)


def test_a_pod_that_no_node_has_room_for_says_so_and_runs_later(room, open_bench):
    template, make_room = room
    bench = open_bench(pod_template=template)
    name = bench.run("true")
    waits_for(bench, name, "Unschedulable: 0/")
    make_room()
    assert bench.wait(name).state is JobState.SUCCEEDED


def test_a_pod_that_gets_no_node_for_too_long_is_given_up(cluster, room, open_bench):
    bench = open_bench(schedule_limit=300, pod_template=room[0])
    name = bench.run("true")
    waits_for(bench, name, "Unschedulable: 0/")
    lose_patience(bench, schedule_limit=3)
    status = bench.wait(name)
    assert status.state is JobState.FAILED
    assert "given up after 3 s: Unschedulable: 0/" in status.reason
    eventually(lambda: not cluster.all(JOBS))


@pytest.mark.everywhere
def test_a_job_that_gets_no_pods_shows_the_clusters_warning_and_is_given_up(cluster, open_bench):
    bench = open_bench(schedule_limit=300)
    cluster.limit(pods=0)
    name = bench.run("true")
    eventually(lambda: cluster.all(EVENTS))
    waits_for(bench, name, "exceeded quota: pods, requested: pods=1, used: pods=0, limited: pods=0")
    lose_patience(bench, schedule_limit=3)
    assert "given up after 3 s: FailedCreate" in bench.wait(name).reason


def test_an_image_that_cannot_be_pulled_is_named_and_given_up(open_bench):
    bench = open_bench(docker_image=_BAD_IMAGE, image_pull_limit=300)
    name = bench.run("true")
    waits_for(bench, name, f"{_BAD_IMAGE}: ")
    lose_patience(bench, image_pull_limit=2)
    status = bench.wait(name)
    assert status.state is JobState.FAILED
    assert "given up after 2 s" in status.reason


@pytest.mark.everywhere
def test_a_job_deleted_by_somebody_else_is_lost(cluster, open_bench):
    bench = open_bench()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    cluster.delete(JOBS, cluster.all(JOBS)[0])
    assert bench.wait(name).state is JobState.LOST


def test_a_pod_deleted_by_somebody_else_is_lost(cluster, open_bench):
    bench = open_bench()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    cluster.delete(PODS, cluster.pods()[0])
    assert bench.wait(name).state is JobState.LOST


def test_an_evicted_pod_is_lost_with_the_reason_of_its_node(machinery, cluster, open_bench):
    bench = open_bench()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    machinery.node.run_of(cluster.pods()[0]["metadata"]["name"]).end("Evicted", _MESSAGE)
    status = bench.wait(name)
    assert status.state is JobState.LOST
    assert f"Evicted: {_MESSAGE}" in status.reason


# the way to the server, and the server


@pytest.mark.everywhere
@pytest.mark.parametrize("trouble", [Faults.drop_watches, Faults.expire_watches])
def test_watches_that_break_or_are_too_old_are_resumed(faults, open_bench, trouble):
    bench = open_bench(faults.kubeconfig)
    name = bench.run("sleep 1")
    trouble(faults)
    assert bench.wait(name).state is JobState.SUCCEEDED
    assert bench.wait(bench.run("true")).state is JobState.SUCCEEDED
    assert not faults.expiring


def test_a_server_that_cannot_be_reached_for_a_while_changes_nothing(faults, open_bench):
    bench = open_bench(faults.kubeconfig)
    name = bench.run(f"{bench.until('go')}; exit 4")
    bench.wait(name, JobState.RUNNING)
    faults.stop()
    assert not bench.status(name).state.ended
    bench.give("go")
    faults.start()
    assert bench.wait(name).exit_code == 4


@pytest.mark.everywhere
def test_a_restarted_api_server_changes_nothing(machinery, cluster, open_bench):
    bench = open_bench()
    name = bench.run(f"{bench.until('go')}; exit 4")
    bench.wait(name, JobState.RUNNING)
    cluster.halt()
    assert not bench.status(name).state.ended
    cluster.resume()
    bench.give("go")
    assert bench.wait(name).exit_code == 4
    assert bench.wait(bench.run("true")).state is JobState.SUCCEEDED


@pytest.mark.parametrize("status", [409, 500])
def test_a_server_in_trouble_is_asked_again_later(faults, open_bench, status):
    bench = open_bench(faults.kubeconfig)
    faults.fail("POST", status)
    job = bench.job("true")
    assert isinstance(bench.refusal(bench.service.submit(job)), ServiceError)
    assert bench.wait(bench.submit(job)).state is JobState.SUCCEEDED


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_server_that_is_still_starting_is_waited_for_when_an_experiment_begins(faults, open_bench, method, status):
    """etcd is restored, say: "storage is (re)initializing"."""
    for _ in range(2):
        faults.fail(method, status)
    bench = open_bench(faults.kubeconfig)
    assert bench.wait(bench.run("true")).state is JobState.SUCCEEDED
    assert not faults.failing


def test_a_server_that_stays_busy_is_told_of_after_a_while(faults, open_bench, monkeypatch):
    monkeypatch.setattr("nnilite_kubernetes._api._PATIENCE_S", 1.5)
    bench = open_bench(faults.kubeconfig)
    for _ in range(5):
        faults.fail("POST", 429)
    refusal = bench.refusal(bench.service.submit(bench.job("true")))
    assert isinstance(refusal, ServiceError)
    assert "as the test wants it" in str(refusal)


def test_a_cancellation_that_the_server_has_refused_is_made_up_for(faults, open_bench):
    bench = open_bench(faults.kubeconfig)
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    faults.fail("DELETE", 500)
    assert isinstance(bench.refusal(bench.service.cancel(bench.handles[name])), ServiceError)
    assert bench.wait(name).state is JobState.CANCELED


# whether pods reach the manager


@pytest.mark.everywhere
def test_a_manager_that_no_pod_can_reach_is_told_before_anything_starts(cluster, open_bench):
    if not cluster.callback:
        pytest.skip("trials report by their logs")
    with pytest.raises(ConfigError, match=r"nniManagerIp: trials would connect to the manager at .*callback: log"):
        open_bench(nni_manager_ip=None)
    assert cluster.all(JOBS) == []


def test_trials_of_a_manager_that_no_pod_can_reach_any_more_wait_and_say_so(cluster, open_bench, this_machine):
    bench = open_bench()
    bench.wait(bench.run("sleep 60"), JobState.RUNNING)
    config = replace(bench.service.config, nni_manager_ip=None)
    moved = KubernetesService(bench.service.name, config, bench.context())
    bench.call(moved.open())
    refusal = bench.refusal(moved.submit(bench.job("true")))
    bench.call(moved.close())
    assert isinstance(refusal, NoCapacity)
    assert "trials would connect to the manager at" in str(refusal)


def test_a_trial_is_told_to_run_on_its_node_and_not_in_its_pod(cluster, open_bench):
    bench = open_bench()
    name = bench.run("true")
    received = bench.finish(name)
    [pod] = cluster.pods()
    assert received.started[0]["host"] == bench.status(name).host == pod["spec"]["nodeName"]


# what one may do there


@pytest.mark.everywhere
def test_missing_rights_are_told_before_anything_starts(cluster, open_bench):
    account = cluster.limited(*_RIGHTS)
    with pytest.raises(ConfigError, match=r"may not patch jobs.batch; create secrets; get pods/log in the namespace"):
        open_bench(account)
    assert cluster.secrets() == []


@pytest.mark.everywhere
def test_an_account_with_the_rights_that_are_needed_and_no_others_will_do(cluster, open_bench):
    more = [("batch", ["jobs"], ["patch"]), ("", ["secrets"], ["create"]), ("", ["pods/log"], ["get"])]
    bench = open_bench(cluster.limited(*_RIGHTS, *more))
    assert bench.wait(bench.run("true")).state is JobState.SUCCEEDED


@pytest.mark.everywhere
def test_an_account_that_is_not_let_in_is_told_so(cluster, open_bench):
    with pytest.raises(ConfigError, match=r"kubeconfig: .*401.*Unauthorized"):
        open_bench(cluster.stranger())


@pytest.mark.everywhere
def test_a_full_quota_lets_the_trial_wait(cluster, open_bench):
    bench = open_bench()
    cluster.limit(jobs=0)
    job = bench.job("true")
    refusal = bench.refusal(bench.service.submit(job))
    assert isinstance(refusal, ServiceError)
    assert "exceeded quota: jobs" in str(refusal)
    cluster.limit(jobs=-1)
    assert bench.wait(bench.submit(job)).state is JobState.SUCCEEDED


def test_an_unknown_field_of_the_pod_template_is_named(cluster, open_bench):
    if cluster.minor < 25:
        pytest.skip("before Kubernetes 1.25, unknown fields are dropped without a word")
    bench = open_bench(pod_template={"spec": {"nodeSelektor": {"gpu": "a100"}}})
    refusal = bench.refusal(bench.service.submit(bench.job("true")))
    assert isinstance(refusal, ConfigError)
    assert "nodeSelektor" in str(refusal)


@pytest.mark.everywhere
def test_the_cluster_deletes_the_secret_with_its_job(cluster, open_bench):
    bench = open_bench()
    bench.finish(bench.run("true"))
    [job] = cluster.all(JOBS)
    [secret] = cluster.secrets()
    assert [entry["uid"] for entry in secret["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]
    cluster.delete(JOBS, job, "Foreground")
    eventually(lambda: not cluster.secrets() and not cluster.pods())


@pytest.mark.everywhere
def test_removing_jobs_leaves_nothing_of_ours_and_all_of_others(cluster, open_bench):
    bench = open_bench()
    cluster.api.create(SECRETS, cluster.namespace, {"metadata": {"name": "theirs", "labels": {"app": "nnilite"}}})
    for name in [bench.run("true"), bench.run("exit 1")]:
        bench.finish(name)
        bench.call(bench.service.remove(bench.handles[name]))
    eventually(lambda: [secret["metadata"]["name"] for secret in cluster.secrets()] == ["theirs"])
    eventually(lambda: not cluster.all(JOBS) and not cluster.pods())
    eventually(lambda: not bench.service._opened.known._memories)


def test_services_of_one_experiment_in_one_namespace_leave_each_others_jobs_alone(cluster, open_bench):
    bench = open_bench()
    other = KubernetesService("second", bench.service.config, bench.context())
    bench.call(other.open())
    job = bench.job("sleep 60")
    bench.wait(bench.submit(job), JobState.RUNNING)
    assert "the service kubernetesservice has this job already" in str(bench.refusal(other.submit(job)))
    assert [host.running for host in bench.service.hosts()] == [1]
    assert other.hosts() == []
    bench.call(other.close())
    assert len(cluster.all(JOBS)) == len(cluster.secrets()) == 1


def test_a_removal_that_the_server_refused_is_completed_by_the_next_manager(faults, cluster, open_bench):
    bench = open_bench(faults.kubeconfig)
    name = bench.run("true")
    bench.finish(name)
    faults.fail("DELETE", 500)
    assert isinstance(bench.refusal(bench.service.remove(bench.handles[name])), ServiceError)
    bench.restart()
    for _ in range(2):
        bench.call(bench.service.remove(bench.handles[name]))
    eventually(lambda: not cluster.all(JOBS) and not cluster.pods() and not cluster.secrets())


def test_a_manager_that_moved_is_told_to_running_keepers(this_machine, cluster, open_bench):
    bench = open_bench()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    bench.receiver.stop()
    bench.receiver = Receiver()
    bench.receiver.start()
    bench.restart()
    [secret] = cluster.secrets()
    assert base64.b64decode(secret["data"]["callback"]).decode() == bench.receiver.url


def test_without_a_way_to_the_manager_the_log_brings_metrics_and_output(open_bench):
    bench = open_bench()
    bench.put_code(**{"mod.py": "VALUE = 7"})
    program = "import mod, nnilite; print('hello'); nnilite.report_final_result(mod.VALUE)"
    job = bench.job(f'python3 -c "{program}"', report="stdout", callback="http://127.0.0.1:9")
    received = bench.finish(bench.submit(job))
    assert received.values == [7]
    assert received.output["stdout"] == b"hello\n"
    assert received.requests == 0


def test_a_dry_run_shows_the_manifests_without_secrets(open_bench):
    bench = open_bench(pod_template={"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}})
    secret, job = bench.service.describe(bench.job("true"))["manifests"]
    assert set(secret["data"].values()) == {"********"}
    pod = job["spec"]["template"]["spec"]
    assert pod["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert json.dumps(job).count("nnilite/trial")


def test_fields_of_the_template_join_ours(cluster, open_bench):
    env = [{"name": "MINE", "value": "it's $x"}]
    template = {"metadata": {"labels": {"team": "a"}}, "spec": {"containers": [{"env": env}]}}
    bench = open_bench(pod_template=template, shm_size=64, cpu_number=0.5, memory_size=256)
    name = bench.run('test "$MINE" = "it\'s \\$x"')
    assert bench.wait(name).state is JobState.SUCCEEDED
    [pod] = cluster.pods()
    assert pod["metadata"]["labels"]["team"] == "a"
    resources = pod["spec"]["containers"][0]["resources"]
    for name, amount in {"cpu": "0.5", "memory": "256Mi"}.items():
        assert {quantity(resources[part][name]) for part in ("requests", "limits")} == {quantity(amount)}


def test_gpus_are_what_the_scheduler_gives_and_no_more(cluster, open_bench):
    bench = open_bench()
    bench.run("true", gpus=1)
    [job] = cluster.all(JOBS)
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {part: {"nvidia.com/gpu": "1"} for part in ("requests", "limits")}
