"""The service of plain Jobs where something is wrong: the cluster, the pods, the rights, the network."""

from __future__ import annotations

import base64
import json

import pytest

from nnilite.errors import ConfigError, ServiceError
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite.testing.receiver import Receiver
from nnilite_kubernetes import KubernetesConfig, KubernetesService
from platforms.kube.bench import KubeBench
from platforms.kube.cluster import JOBS, StandIn

IMAGE = "python:3.11-slim"


@pytest.fixture
def cluster(tmp_path):
    with StandIn(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def open_bench(tmp_path, cluster):
    """Opens a bench with these fields of the section; closes it in the end."""
    opened = []

    def make(**fields):
        config = KubernetesConfig(kubeconfig=cluster.kubeconfig(), **{"docker_image": IMAGE, **fields})
        bench = KubeBench(tmp_path, lambda context: KubernetesService("kubernetes", config, context))
        opened.append(bench)
        return bench.__enter__()

    yield make
    cluster.node.full = ""
    cluster.node.bad_images.clear()
    cluster.api.quota = ""
    for bench in opened:
        bench.__exit__()


def waits_for(bench, name, text):
    eventually(lambda: text in bench.status(name).reason)
    assert bench.status(name).state is JobState.WAITING


def test_a_pod_that_no_node_has_room_for_says_so_and_runs_later(cluster, open_bench):
    cluster.node.full = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    bench = open_bench()
    name = bench.run("true")
    waits_for(bench, name, "Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    cluster.node.full = ""
    assert bench.wait(name).state is JobState.SUCCEEDED


def test_a_pod_that_gets_no_node_for_too_long_is_given_up(cluster, open_bench):
    cluster.node.full = "0/1 nodes are available"
    bench = open_bench(schedule_limit=1)
    status = bench.wait(bench.run("true"))
    assert status.state is JobState.FAILED
    assert "given up after 1 s: Unschedulable: 0/1 nodes are available" in status.reason
    eventually(lambda: not cluster.store.all(JOBS))


def test_a_job_that_gets_no_pods_shows_the_clusters_warning_and_is_given_up(cluster, open_bench):
    cluster.stop_controllers()
    bench = open_bench(schedule_limit=3)
    name = bench.run("true")
    cluster.warn(cluster.store.all(JOBS)[0], "FailedCreate", "exceeded quota: pods")
    bench.service._notes.clear()
    waits_for(bench, name, "FailedCreate: exceeded quota: pods")
    assert "given up after 3 s: FailedCreate" in bench.wait(name).reason


def test_an_image_that_cannot_be_pulled_is_named_and_given_up(cluster, open_bench):
    cluster.node.bad_images.add("no/such:image")
    bench = open_bench(docker_image="no/such:image", image_pull_limit=2)
    name = bench.run("true")
    waits_for(bench, name, "no/such:image: ImagePullBackOff")
    status = bench.wait(name)
    assert status.state is JobState.FAILED
    assert "given up after 2 s" in status.reason


def test_a_job_deleted_by_somebody_else_is_lost(cluster, open_bench):
    bench = open_bench()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    [job] = cluster.store.all(JOBS)
    cluster.store.delete(JOBS, "default", job["metadata"]["name"])
    assert bench.wait(name).state is JobState.LOST


def test_an_evicted_pod_is_lost_with_the_reason_of_its_node(cluster, open_bench):
    bench = open_bench()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    cluster.evict(cluster.pods()[0])
    status = bench.wait(name)
    assert status.state is JobState.LOST
    assert "Evicted: The node was low on resource: memory." in status.reason


def test_watches_that_break_or_are_too_old_are_resumed(cluster, open_bench):
    bench = open_bench()
    name = bench.run("sleep 1")
    cluster.store.compact()
    cluster.api.drop_watches()
    assert bench.wait(name).state is JobState.SUCCEEDED
    assert bench.wait(bench.run("true")).state is JobState.SUCCEEDED


def test_a_restarted_api_server_changes_nothing(cluster, open_bench):
    bench = open_bench()
    name = bench.run("sleep 1; exit 4")
    bench.wait(name, JobState.RUNNING)
    cluster.api.stop()
    assert not bench.status(name).state.ended
    cluster.api.start()
    assert bench.wait(name).exit_code == 4


def test_missing_rights_are_told_before_anything_starts(cluster, open_bench):
    cluster.api.forbidden |= {("create", "secrets"), ("get", "pods/log"), ("patch", "jobs")}
    bench = None
    with pytest.raises(ConfigError, match=r"may not patch jobs.batch; create secrets; get pods/log in the namespace"):
        bench = open_bench()
    cluster.api.forbidden.clear()
    assert bench is None
    assert cluster.secrets() == []


def test_an_account_that_is_not_let_in_is_told_so(cluster, open_bench, monkeypatch):
    monkeypatch.setattr("platforms.kube.cluster.TOKEN", "another")
    with pytest.raises(ConfigError, match=r"kubeconfig: .*401.*Unauthorized"):
        open_bench()
    monkeypatch.undo()
    cluster.kubeconfig()  # for the end of the test


def test_a_full_quota_lets_the_trial_wait(cluster, open_bench):
    bench = open_bench()
    cluster.api.quota = "exceeded quota: gpus, requested: 1, used: 4, limited: 4"
    job = bench.job("true")
    refusal = bench.refusal(bench.service.submit(job))
    assert isinstance(refusal, ServiceError)
    assert "exceeded quota: gpus" in str(refusal)
    cluster.api.quota = ""
    assert bench.wait(bench.submit(job)).state is JobState.SUCCEEDED


@pytest.mark.parametrize("status", [429, 500])
def test_a_server_in_trouble_is_asked_again_later(cluster, open_bench, status):
    bench = open_bench()
    cluster.api.failures.append(("POST", status))
    job = bench.job("true")
    assert isinstance(bench.refusal(bench.service.submit(job)), ServiceError)
    assert bench.wait(bench.submit(job)).state is JobState.SUCCEEDED


def test_an_unknown_field_of_the_pod_template_is_named(open_bench):
    bench = open_bench(pod_template={"spec": {"nodeSelektor": {"gpu": "a100"}}})
    refusal = bench.refusal(bench.service.submit(bench.job("true")))
    assert isinstance(refusal, ConfigError)
    assert "nodeSelektor" in str(refusal)


def test_the_cluster_deletes_the_secret_with_its_job(cluster, open_bench):
    bench = open_bench()
    bench.finish(bench.run("true"))
    [job] = cluster.store.all(JOBS)
    [secret] = cluster.secrets()
    assert [entry["uid"] for entry in secret["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]
    cluster.store.delete(JOBS, "default", job["metadata"]["name"], "Foreground")
    eventually(lambda: not cluster.secrets() and not cluster.pods())


def test_removing_jobs_leaves_nothing_of_ours_and_all_of_others(cluster, open_bench):
    bench = open_bench()
    other = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs", "labels": {"app": "nnilite"}}}
    cluster.store.create(("", "v1", "secrets"), "default", other)
    for name in [bench.run("true"), bench.run("exit 1")]:
        bench.finish(name)
        bench.call(bench.service.remove(bench.handles[name]))
    eventually(lambda: [secret["metadata"]["name"] for secret in cluster.secrets()] == ["theirs"])
    eventually(lambda: not cluster.store.all(JOBS) and not cluster.pods())


def test_a_manager_that_moved_is_told_to_running_keepers(cluster, open_bench):
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
    name = bench.run('test "$MINE" = "it\'s \\$x"', gpus=1)
    assert bench.wait(name).state is JobState.SUCCEEDED
    [pod] = cluster.pods()
    assert pod["metadata"]["labels"]["team"] == "a"
    limits = {"cpu": "0.5", "memory": "256Mi", "nvidia.com/gpu": "1"}
    assert pod["spec"]["containers"][0]["resources"] == {"requests": limits, "limits": limits}
