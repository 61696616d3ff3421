"""What a namespace allows: told before anything starts where no trial could run, waited for where it is used up."""

from __future__ import annotations

import pytest

from nnilite.errors import ConfigError, NoCapacity
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite_kubernetes import KubeflowConfig, KubeflowService, KubernetesConfig, KubernetesService
from nnilite_kubernetes._config import RoleConfig
from nnilite_kubernetes._quota import Demand, quantity, refusals
from nnilite_kubernetes._waits import ClusterPatience
from platforms.kube.bench import Platform
from platforms.kube.client import EVENTS, JOBS, QUOTAS, SECRETS
from platforms.kube.cluster import IMAGE
from platforms.kube.operators import install

_JOB = Platform(KubernetesService, KubernetesConfig, {"docker_image": IMAGE})
_TF = Platform(KubeflowService, KubeflowConfig, {"operator": "tf-operator"}, install())


@pytest.fixture(params=[_JOB], ids=["Job"])
def platform(request):
    return request.param


def pod(number=1, init=None, **resources):
    container = {"name": "trial", "resources": {"requests": resources, "limits": resources}}
    return {"containers": [container], "initContainers": init or []}, number


def quota(hard, **more):
    return {"metadata": {"name": "team"}, "spec": {"hard": hard, **more}}


def told(pods, *quotas, ranges=(), **objects):
    return refusals(Demand(pods, objects), quotas, [{"spec": {"limits": list(ranges)}}])


@pytest.mark.parametrize(
    ("text", "number"), [("500m", "0.5"), ("2", "2"), (4, "4"), ("1Gi", 2**30), ("1G", 10**9), ("1e3", 1000)]
)
def test_quantities_are_read_as_kubernetes_spells_them(text, number):
    assert quantity(text) == quantity(str(number))


def test_a_quantity_that_is_none_is_told():
    with pytest.raises(ConfigError, match="'lots' is not a quantity"):
        quantity("lots")


@pytest.mark.parametrize(
    ("hard", "sentence"),
    [
        ({"requests.cpu": "3"}, "one trial asks for requests.cpu 4, and the ResourceQuota team allows 3 in all"),
        ({"cpu": "3500m"}, "one trial asks for cpu 4, and the ResourceQuota team allows 3500m in all"),
        ({"limits.memory": "1Gi"}, "one trial asks for limits.memory 2Gi, and the ResourceQuota team allows 1Gi"),
        ({"requests.nvidia.com/gpu": "1"}, "asks for requests.nvidia.com/gpu 2, and the ResourceQuota team allows 1"),
        ({"pods": "1"}, "one trial asks for pods 2, and the ResourceQuota team allows 1 in all"),
        (
            {"count/tfjobs.kubeflow.org": "0"},
            "asks for count/tfjobs.kubeflow.org 1, and the ResourceQuota team allows 0",
        ),
    ],
)
def test_a_trial_that_is_larger_than_a_quota_is_told(hard, sentence):
    pods = [pod(2, cpu="2", memory="1Gi", **{"nvidia.com/gpu": "1"})]
    [found] = told(pods, quota(hard), **{"count/tfjobs.kubeflow.org": 1})
    assert sentence in found


def test_a_trial_that_fits_is_not_complained_of():
    hard = {"cpu": "4", "requests.memory": "2Gi", "pods": "2", "services": "0", "requests.nvidia.com/gpu": "2"}
    assert told([pod(2, cpu="2", memory="1Gi", **{"nvidia.com/gpu": "1"})], quota(hard)) == []


def test_containers_that_prepare_count_where_they_are_larger():
    init = [{"name": "first", "resources": {"limits": {"cpu": "8"}}}]
    assert told([pod(1, init, cpu="1")], quota({"cpu": "8"})) == []
    assert "cpu 8" in told([pod(1, init, cpu="1")], quota({"cpu": "7"}))[0]


def test_a_quota_that_wants_limits_names_the_field_for_them():
    [found] = told([pod(1, cpu="1")], quota({"limits.memory": "64Gi"}))
    assert found == "the ResourceQuota team requires of every container its limits.memory: set memorySize"


def test_defaults_of_a_limit_range_count():
    default = {"type": "Container", "default": {"memory": "2Gi"}, "defaultRequest": {"memory": "1Gi"}}
    assert told([pod(1, cpu="1")], quota({"limits.memory": "2Gi"}), ranges=[default]) == []
    assert "limits.memory 2Gi" in told([pod(1, cpu="1")], quota({"limits.memory": "1Gi"}), ranges=[default])[0]


def test_bounds_of_a_limit_range_are_told():
    bounds = {"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "128Mi"}}
    found = told([pod(1, cpu="4", memory="64Mi")], ranges=[bounds, {"type": "Pod", "max": {"cpu": "1"}}])
    assert found == [
        "the container trial asks for cpu 4; a LimitRange allows 2",
        "the container trial asks for memory 64Mi; a LimitRange requires 128Mi",
    ]


def test_a_quota_for_some_pods_only_is_left_to_the_server():
    assert told([pod(1, cpu="4")], quota({"cpu": "1"}, scopes=["Terminating"])) == []


# on a cluster


def limit(cluster, name, **hard):
    content = {
        "metadata": {"name": name},
        "spec": {"hard": {key.replace("_", "."): text for key, text in hard.items()}},
    }
    cluster._make(QUOTAS, content)  # goes with the test
    counted = lambda: (cluster.api.get(QUOTAS, cluster.namespace, name).get("status") or {}).get("used")  # noqa: E731
    eventually(counted, cluster.limit_s)


@pytest.mark.process
@pytest.mark.everywhere
@pytest.mark.parametrize("platform", [_TF], indirect=True, ids=["TFJob"])
def test_a_trial_that_can_never_start_is_told_before_anything_does(cluster, open_bench):
    limit(cluster, "team", requests_cpu="3")
    role = RoleConfig(docker_image=IMAGE, cpu_number=1, replicas=2)
    with pytest.raises(ConfigError, match=r"could start.*requests.cpu 4, and the ResourceQuota team allows 3 in all"):
        open_bench(worker=role, ps=role)
    assert cluster.secrets() == []


@pytest.mark.process
def test_trials_that_run_are_watched_though_no_other_could_start_any_more(cluster, open_bench):
    bench = open_bench(cpu_number=0.5, memory_size=64)
    name = bench.run(f"{bench.until('go')}; exit 3")
    bench.wait(name, JobState.RUNNING)
    limit(cluster, "team", requests_cpu="100m")
    bench.restart()
    bench.give("go")
    assert bench.wait(name).exit_code == 3


@pytest.mark.process
@pytest.mark.everywhere
def test_what_is_used_up_is_waited_for_and_nothing_stays_of_the_try(cluster, open_bench):
    bench = open_bench(cpu_number=0.5, memory_size=64)
    limit(cluster, "team", **{"count/jobs.batch": "1"})
    first = bench.run("sleep 3")
    job = bench.job("true")
    refusal = bench.refusal(bench.service.submit(job))
    assert isinstance(refusal, NoCapacity)
    assert str(refusal).startswith("exceeded quota: team, requested: count/jobs.batch=1, used: count/jobs.batch=1")
    assert len(cluster.secrets()) == 1
    bench.wait(first)
    bench.call(bench.service.remove(bench.handles[first]))

    def taken():
        return not isinstance(bench.refusal(bench.service.submit(job)), NoCapacity)

    eventually(taken, cluster.limit_s)
    bench.submit(job)
    assert bench.wait(job.name).state is JobState.SUCCEEDED


def test_a_quota_that_stays_used_up_is_not_asked_again_and_again(cluster, open_bench):
    if cluster.name != "stand-in":
        pytest.skip("only the stand-in counts requests")
    bench = open_bench()
    limit(cluster, "team", **{"count/jobs.batch": "0"})
    job = bench.job("true")
    for _ in range(4):
        assert isinstance(bench.refusal(bench.service.submit(job)), NoCapacity)
    posts = [path for method, path in cluster.server.requests if method == "POST" and path.endswith("/secrets")]
    assert len(posts) <= 2


# nothing stays, and nothing of others is touched


@pytest.mark.process
def test_a_job_that_the_cluster_has_is_found_though_others_are_refused_for_the_quota(cluster, open_bench):
    """Its answer was lost with the last manager. Were it called refused, another service would run it, too."""
    bench = open_bench()
    job = bench.job("sleep 60")
    handle = bench.call(bench.service.submit(job))
    eventually(lambda: bench.service._opened.known.watched(bench.service._submitter.name(job.name)))
    cluster.limit(jobs=0)
    for _ in range(3):
        assert isinstance(bench.refusal(bench.service.submit(bench.job("true"))), NoCapacity)
    assert bench.call(bench.service.submit(job)) == handle


def test_the_secret_of_a_refused_job_does_not_stay(cluster, open_bench):
    if cluster.minor < 25:
        pytest.skip("before Kubernetes 1.25, unknown fields are dropped without a word")
    bench = open_bench(pod_template={"spec": {"nodeSelektor": {"gpu": "a100"}}})
    assert isinstance(bench.refusal(bench.service.submit(bench.job("true"))), ConfigError)
    assert cluster.secrets() == []


@pytest.mark.process
def test_what_a_manager_left_half_made_is_deleted_by_the_next_one(cluster, open_bench):
    bench = open_bench()
    bench.finish(bench.run("true"))
    [secret] = cluster.secrets()
    left = {"name": "left", "labels": secret["metadata"]["labels"], "annotations": secret["metadata"]["annotations"]}
    cluster.api.create(SECRETS, cluster.namespace, {"metadata": left})
    bench.restart()
    eventually(lambda: [each["metadata"]["name"] for each in cluster.secrets()] == [secret["metadata"]["name"]])


@pytest.mark.process
def test_an_object_of_somebody_else_with_our_name_is_left_alone(cluster, open_bench):
    bench = open_bench()
    job = bench.job("true")
    _, ours = bench.service.describe(job)["manifests"]
    theirs = {"metadata": {"name": ours["metadata"]["name"]}, "spec": {**ours["spec"], "suspend": True}}
    theirs["spec"]["template"] = {"spec": {**ours["spec"]["template"]["spec"], "volumes": []}}
    theirs["spec"]["template"]["spec"]["containers"] = [{"name": "c", "image": IMAGE, "command": ["sleep", "60"]}]
    made = cluster.api.create(JOBS, cluster.namespace, theirs)
    refusal = bench.refusal(bench.service.submit(job))
    assert isinstance(refusal, ConfigError)
    assert "exists already and does not belong to this experiment" in str(refusal)
    [found] = cluster.all(JOBS)
    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    assert cluster.secrets() == []


# what a pod waits for that it does not say itself


@pytest.mark.everywhere
def test_a_pod_whose_volume_does_not_come_shows_the_clusters_warning_and_is_given_up(
    cluster, open_bench, machinery, monkeypatch
):
    monkeypatch.setattr(KubernetesService, "patience", ClusterPatience(first_note_s=0.5, note_pause_s=0.5))
    volume = {"name": "more", "secret": {"secretName": "missing"}}
    bench = open_bench(pod_template={"spec": {"volumes": [volume]}}, schedule_limit=300)
    name = bench.run("true")
    [pod] = eventually(cluster.pods)
    about = {"kind": "Pod", "apiVersion": "v1", "namespace": cluster.namespace}
    about.update({key: pod["metadata"][key] for key in ("name", "uid")})
    event = {"metadata": {"name": "a-warning"}, "involvedObject": about, "type": "Warning", "reason": "FailedMount"}
    cluster.api.create(EVENTS, cluster.namespace, {**event, "message": 'secret "missing" not found'})
    eventually(lambda: bench.status(name).reason == 'FailedMount: secret "missing" not found', cluster.limit_s)
    vars(bench.service.config)["schedule_limit"] = 4
    status = bench.wait(name)
    assert status.state is JobState.FAILED
    assert status.reason == 'given up after 4 s: FailedMount: secret "missing" not found'
