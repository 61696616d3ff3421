"""AdaptDLJobs: the contract of all services, and replicas whose number changes in mid-trial."""

from __future__ import annotations

import pytest

from nnilite.errors import ConfigError
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite_kubernetes import AdlConfig, AdlService
from platforms.kube.bench import ClusterContract, Platform
from platforms.kube.client import ADAPTDLJOBS, CLAIMS, PODS
from platforms.kube.cluster import IMAGE
from platforms.kube.other_operators import install_adaptdl

pytestmark = pytest.mark.process

_ADAPT = """
import nnilite, os, time
nnilite.report_intermediate_result(int(os.environ["ADAPTDL_NUM_REPLICAS"]))
while int(os.environ["ADAPTDL_NUM_REPLICAS"]) < 3: time.sleep(0.05)
nnilite.report_final_result(os.path.isdir(os.environ["ADAPTDL_CHECKPOINT_PATH"]))
"""


@pytest.fixture
def platform():
    return Platform(AdlService, AdlConfig, {"docker_image": IMAGE}, install_adaptdl())


class TestAdaptDLJob(ClusterContract):
    ends_alone = False  # logs go with the pods, so keepers stay until the manager is back


def test_the_metrics_are_one_curve_while_replicas_come_and_go(machinery, cluster, open_bench):
    bench = open_bench(adaptive=True, min_replicas=1, max_replicas=4)
    name = bench.python(_ADAPT)
    for number in (2, 3):
        eventually(lambda last=number - 1: bench.received(name).values[-1:] == [last])
        [job] = cluster.all(ADAPTDLJOBS)
        allocation = {"status": {"allocation": ["node"] * number}}
        cluster.api.patch(ADAPTDLJOBS, cluster.namespace, job["metadata"]["name"], allocation, "status")
    assert bench.finish(name).values == [1, 2, 3, True]
    assert bench.status(name).state is JobState.SUCCEEDED
    assert len(bench.received(name).exits) == 1


def test_memory_at_dev_shm_is_left_to_adaptdl_which_mounts_it_itself(cluster, open_bench):
    bench = open_bench(shm_size=64)
    assert bench.wait(bench.run("true")).state is JobState.SUCCEEDED
    [job] = cluster.all(ADAPTDLJOBS)
    assert "nnilite-shm" not in str(job["spec"])


def test_a_template_that_mounts_something_at_dev_shm_too_is_refused():
    mount = {"name": "mine", "mountPath": "/dev/shm"}
    template = {"spec": {"containers": [{"volumeMounts": [mount]}], "volumes": [{"name": "mine", "emptyDir": {}}]}}
    with pytest.raises(ConfigError, match=r"podTemplate: cannot mount anything at /dev/shm: AdaptDL does"):
        AdlConfig(docker_image=IMAGE, pod_template=template)


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_trial_whose_pod_is_deleted_goes_on_only_where_it_is_adaptive(cluster, open_bench, machinery, adaptive):
    bench = open_bench(adaptive=adaptive)
    name = bench.run('test "$ADAPTDL_NUM_RESTARTS" = 1 || sleep 60')
    bench.wait(name, JobState.RUNNING)
    cluster.delete(PODS, cluster.pods()[0])
    assert bench.wait(name).state is (JobState.SUCCEEDED if adaptive else JobState.LOST)


def test_a_trial_owns_its_volume(cluster, open_bench):
    bench = open_bench(adaptive=True, memory_size="2Gi", cpu_number=1)
    name = bench.run("true")
    bench.finish(name)
    [claim], [job] = cluster.all(CLAIMS), cluster.all(ADAPTDLJOBS)
    assert [owner["uid"] for owner in claim["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]
    bench.call(bench.service.remove(bench.handles[name]))
    eventually(lambda: not cluster.all(CLAIMS) and not cluster.secrets())


def test_a_canceled_trial_leaves_no_volume_though_its_manager_is_gone(cluster, open_bench):
    bench = open_bench(adaptive=True)
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    bench.call(bench.service.cancel(bench.handles[name]))
    bench.close()
    eventually(lambda: not cluster.all(CLAIMS) and not cluster.secrets() and not cluster.pods(), cluster.limit_s)
    bench.open()


def test_a_volume_that_a_manager_left_half_made_is_owned_or_deleted_by_the_next_one(cluster, open_bench):
    bench = open_bench(adaptive=True)
    bench.finish(bench.run("true"))
    [claim], [job] = cluster.all(CLAIMS), cluster.all(ADAPTDLJOBS)
    left = {"name": "left", **{part: claim["metadata"][part] for part in ("labels", "annotations")}}
    cluster.api.create(CLAIMS, cluster.namespace, {"metadata": left, "spec": claim["spec"]})
    nobody = {"metadata": {"ownerReferences": None}}
    cluster.api.patch(CLAIMS, cluster.namespace, claim["metadata"]["name"], nobody)
    bench.restart()
    owners = lambda: [each["metadata"].get("ownerReferences") for each in cluster.all(CLAIMS)]  # noqa: E731
    eventually(lambda: len(owners()) == 1)
    [[owner]] = owners()
    assert owner["uid"] == job["metadata"]["uid"]


def test_a_replica_that_fails_fails_the_trial(open_bench):
    bench = open_bench(min_replicas=2)
    status = bench.wait(bench.run('test "$ADAPTDL_REPLICA_RANK" = 0 && sleep 60; exit 3'))
    assert (status.state, status.exit_code) == (JobState.FAILED, 3)


def test_sizes_that_make_no_sense_are_refused():
    with pytest.raises(ConfigError, match="memorySize"):
        AdlConfig(docker_image=IMAGE, memory_size="lots")
    with pytest.raises(ConfigError, match="maxReplicas"):
        AdlConfig(docker_image=IMAGE, min_replicas=3, max_replicas=2)
