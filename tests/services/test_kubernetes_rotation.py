"""Reports that travel through a log which the kubelet rotates: none is lost, and none comes twice."""

from __future__ import annotations

import pytest

from nnilite.service import JobState
from nnilite_kubernetes import KubernetesConfig, KubernetesService
from platforms.kube.bench import KubeBench, Platform
from platforms.kube.cluster import IMAGE, StandIn

pytestmark = pytest.mark.process

_NO_WAY = {"report": "stdout", "callback": "http://127.0.0.1:9"}
_NUMBER = 60
_CHATTY = f"""
import nnilite, os, time
while not os.path.exists({{go!r}}):
    time.sleep(0.02)
for number in range({_NUMBER}):
    for _ in range(5):
        print("x" * 1000, flush=True)
    nnilite.report_intermediate_result(number)
    time.sleep(0.05)
nnilite.report_final_result("the last")
"""


@pytest.fixture
def cluster(tmp_path):
    with StandIn(tmp_path / "cluster") as cluster:
        cluster.node.rotates_at = 20_000
        yield cluster


@pytest.fixture
def bench(cluster, tmp_path):
    platform = Platform(KubernetesService, KubernetesConfig, {"docker_image": IMAGE})
    with KubeBench(tmp_path, platform.maker(cluster), cluster) as bench:
        yield bench


def chatty(bench):
    """Submit a job that talks once the sign `go` is given; its name."""
    return bench.submit(bench.job(bench.interpreter(_CHATTY.format(go=str(bench.sign("go")))), **_NO_WAY))


def state(bench, name):
    """What the service says now. It reads nothing of what trials report."""
    [status] = bench.call(bench.service.poll([bench.handles[name]]))
    return status.state


def test_no_report_is_lost_when_the_log_is_rotated_while_nobody_asks(bench, cluster):
    name = chatty(bench)
    bench.eventually(lambda: state(bench, name) is JobState.RUNNING)
    state(bench, name)
    bench.give("go")
    bench.eventually(lambda: [pod["status"]["phase"] for pod in cluster.pods()] == ["Succeeded"])
    assert bench.finish(name).values == [*range(_NUMBER), "the last"]
    assert bench.status(name).state is JobState.SUCCEEDED


def test_reports_that_were_rotated_away_while_no_manager_ran_come_by_the_recap(bench, cluster):
    name = chatty(bench)
    bench.give("go")
    bench.eventually(lambda: [pod["status"]["phase"] for pod in cluster.pods()] == ["Succeeded"])
    received = bench.finish(name)
    assert received.values == [*range(_NUMBER), "the last"]
    assert len(received.output["stdout"]) < 20_000
    assert bench.status(name).state is JobState.SUCCEEDED


def test_reports_that_are_read_during_the_run_come_once(bench):
    name = chatty(bench)
    bench.wait(name, JobState.RUNNING)
    bench.give("go")
    bench.eventually(lambda: len(bench.report(name).values) > 20)
    assert bench.finish(name).values == [*range(_NUMBER), "the last"]


def test_a_log_that_breaks_off_is_followed_again_where_it_was(bench, cluster):
    cluster.node.rotates_at = 0
    name = chatty(bench)
    bench.wait(name, JobState.RUNNING)
    bench.give("go")
    bench.eventually(lambda: len(bench.report(name).values) > 5)
    cluster.server.listener.break_connections()
    assert bench.finish(name).values == [*range(_NUMBER), "the last"]
