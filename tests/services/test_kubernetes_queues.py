"""Jobs that wait in a queue: they say why, no limit counts that time, and their objects can name the queue."""

from __future__ import annotations

import pytest

from nnilite.errors import ConfigError
from nnilite.service import JobState
from nnilite_kubernetes import KubernetesConfig, KubernetesService
from nnilite_kubernetes._manifest import Role
from nnilite_kubernetes._status import Facts, wait_of
from platforms.kube.bench import KubeBench, Platform
from platforms.kube.client import JOBS, MAPS
from platforms.kube.cluster import IMAGE, StandIn
from platforms.kube.kueue import FULL, QUEUE, install_kueue


@pytest.fixture
def cluster(tmp_path):
    with StandIn(tmp_path / "cluster", install_kueue()) as cluster:
        yield cluster


@pytest.fixture
def open_bench(cluster, tmp_path):
    platform = Platform(KubernetesService, KubernetesConfig, {"docker_image": IMAGE})
    benches = []

    def opened(kubeconfig=None, **fields):
        benches.append(KubeBench(tmp_path, platform.maker(cluster, kubeconfig, **fields), cluster))
        return benches[-1].__enter__()

    yield opened
    for bench in benches:
        bench.__exit__()


@pytest.mark.process
def test_a_trial_in_a_queue_says_why_for_as_long_as_it_waits_and_then_runs(cluster, open_bench):
    bench = open_bench(object_labels={QUEUE: "team"}, schedule_limit=1)
    name = bench.run("true")
    bench.eventually(lambda: bench.status(name).reason == f"it waits in the queue team: {FULL}")
    assert bench.status(name).state is JobState.WAITING
    vars(bench.service.config)["schedule_limit"] = 300  # a busy machine takes its time to find a node
    cluster.api.create(MAPS, cluster.namespace, {"metadata": {"name": "team"}})
    assert bench.wait(name).state is JobState.SUCCEEDED


@pytest.mark.process
def test_who_may_not_read_workloads_sees_that_the_trial_is_suspended(cluster, open_bench):
    verbs = ["create", "get", "list", "watch", "patch", "delete"]
    rules = [("batch", ["jobs"], verbs), ("", ["secrets"], verbs), ("", ["pods", "pods/log"], verbs)]
    bench = open_bench(cluster.limited(*rules), object_labels={QUEUE: "team"})
    name = bench.run("true")
    bench.eventually(lambda: "until its queue admits it (Job suspended)" in bench.status(name).reason)


@pytest.mark.process
def test_only_the_object_of_a_trial_has_its_labels_and_annotations(cluster, open_bench):
    bench = open_bench(object_labels={"team": "vision"}, object_annotations={"note": "a 'quoted' $HOME"})
    bench.finish(bench.run("true"))
    [job], [pod] = cluster.all(JOBS), cluster.pods()
    assert job["metadata"]["labels"]["team"] == "vision"
    assert job["metadata"]["annotations"]["note"] == "a 'quoted' $HOME"
    for content in (pod, *cluster.secrets()):
        assert "team" not in content["metadata"]["labels"]


@pytest.mark.parametrize("key", ["nnilite/trial", "app.kubernetes.io/managed-by"])
def test_labels_that_nnilite_needs_cannot_be_changed(key):
    with pytest.raises(ConfigError, match=rf"objectLabels.{key}: is nnilite's own"):
        KubernetesConfig(object_labels={key: "x"})


def test_time_in_a_queue_is_no_time_without_a_node():
    config = KubernetesConfig()
    created, admitted = "2026-01-01T00:00:00Z", "2026-01-01T05:00:00Z"
    entry = {"type": "Suspended", "status": "True", "message": "Job suspended", "lastTransitionTime": created}
    content = {"metadata": {"name": "j", "creationTimestamp": created}, "status": {"conditions": [entry]}}
    facts = Facts(content, [], [Role("trial", "trial", config)])
    assert wait_of(facts).stuck == ""
    entry.update(status="False", lastTransitionTime=admitted)
    assert (wait_of(facts).stuck, wait_of(facts).since) == ("schedule", 1767243600.0)
