"""AdaptDLJobs: the contract of all services, and replicas whose number changes in mid-trial."""

from __future__ import annotations

import pytest

from nnilite.errors import ConfigError
from nnilite.service import JobState
from nnilite.testing import ServiceContract, eventually
from nnilite_kubernetes import AdlConfig, AdlService
from platforms.kube.bench import KubeBench
from platforms.kube.cluster import StandIn
from platforms.kube.other_operators import ADAPTDLJOBS, install_adaptdl

IMAGE = "python:3.11-slim"
_CLAIMS = ("", "v1", "persistentvolumeclaims")
_ADAPT = """
import nnilite, os, time
nnilite.report_intermediate_result(int(os.environ["ADAPTDL_NUM_REPLICAS"]))
while int(os.environ["ADAPTDL_NUM_REPLICAS"]) < 3: time.sleep(0.05)
nnilite.report_final_result(os.path.isdir(os.environ["ADAPTDL_CHECKPOINT_PATH"]))
"""


@pytest.fixture
def cluster(tmp_path):
    with StandIn(tmp_path / "cluster", install_adaptdl()) as cluster:
        yield cluster


@pytest.fixture
def open_bench(tmp_path, cluster):
    opened = []

    def make(**fields):
        config = AdlConfig(kubeconfig=cluster.kubeconfig(), docker_image=IMAGE, **fields)
        bench = KubeBench(tmp_path, lambda context: AdlService("adl", config, context))
        opened.append(bench)
        return bench.__enter__()

    yield make
    for bench in opened:
        bench.__exit__()


@pytest.mark.long  # minutes; the contract of a plain Job is in the everyday suite
class TestAdaptDLJob(ServiceContract):
    pushes = True
    has_logs = False

    @pytest.fixture
    def make_service(self, cluster):
        config = AdlConfig(kubeconfig=cluster.kubeconfig(), docker_image=IMAGE)
        return lambda context: AdlService("adl", config, context)

    @pytest.fixture
    def bench(self, tmp_path, make_service):
        with KubeBench(tmp_path, make_service) as bench:
            yield bench

    def test_metrics_survive_a_manager_that_is_away(self, bench):
        """Logs go with the pods here, so the keeper stays, and its job runs, until the manager is back."""
        name = bench.python("import time, nnilite; nnilite.report_final_result(3); time.sleep(0.5)")
        bench.wait(name, JobState.RUNNING)
        bench.receiver.stop()
        bench.receiver.start()
        assert bench.finish(name).values == [3]


def test_the_metrics_are_one_curve_while_replicas_come_and_go(cluster, open_bench):
    bench = open_bench(adaptive=True, min_replicas=1, max_replicas=4)
    name = bench.python(_ADAPT)
    for number in (2, 3):
        eventually(lambda last=number - 1: bench.received(name).values[-1:] == [last])
        [job] = cluster.store.all(ADAPTDLJOBS)
        place = (ADAPTDLJOBS, "default", job["metadata"]["name"])
        cluster.store.update(*place, lambda content, wanted=number: content["status"].update(wanted=wanted))
    assert bench.finish(name).values == [1, 2, 3, True]
    assert bench.status(name).state is JobState.SUCCEEDED
    assert len(bench.received(name).exits) == 1


def test_a_trial_owns_its_volume(cluster, open_bench):
    bench = open_bench(adaptive=True, memory_size="2Gi", cpu_number=1)
    name = bench.run("true")
    bench.finish(name)
    [claim], [job] = cluster.store.all(_CLAIMS), cluster.store.all(ADAPTDLJOBS)
    assert [owner["uid"] for owner in claim["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]
    bench.call(bench.service.remove(bench.handles[name]))
    eventually(lambda: not cluster.store.all(_CLAIMS) and not cluster.secrets())


def test_a_replica_that_fails_fails_the_trial(open_bench):
    bench = open_bench(min_replicas=2)
    status = bench.wait(bench.run('test "$ADAPTDL_REPLICA_RANK" = 0 && sleep 60; exit 3'))
    assert (status.state, status.exit_code) == (JobState.FAILED, 3)


def test_sizes_that_make_no_sense_are_refused():
    with pytest.raises(ConfigError, match="memorySize"):
        AdlConfig(docker_image=IMAGE, memory_size="lots")
    with pytest.raises(ConfigError, match="maxReplicas"):
        AdlConfig(docker_image=IMAGE, min_replicas=3, max_replicas=2)
