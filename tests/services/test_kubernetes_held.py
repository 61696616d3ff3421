"""What a whole namespace lacks holds the service, with the reason; no trial ends: it says nothing about parameters."""

from __future__ import annotations

import contextlib
import json

import pytest

from nnilite.errors import NoCapacity
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite_kubernetes import KubeflowConfig, KubeflowService
from nnilite_kubernetes._config import RoleConfig
from nnilite_kubernetes._waits import ClusterPatience
from platforms.kube.bench import KubeBench, Platform
from platforms.kube.client import BINDINGS, SECRETS, TFJOBS
from platforms.kube.cluster import IMAGE, StandIn
from platforms.kube.operators import CRDS, install

pytestmark = pytest.mark.process

_FIELDS = {"operator": "tf-operator", "worker": RoleConfig(docker_image=IMAGE)}
_ALL = ["create", "get", "list", "watch", "patch", "delete"]
_RIGHTS = (("kubeflow.org", ["tfjobs"], _ALL), ("", ["secrets"], _ALL), ("", ["pods", "pods/log"], _ALL))


@pytest.fixture
def cluster(tmp_path):
    with StandIn(tmp_path / "cluster", install()) as cluster:
        yield cluster


@contextlib.contextmanager
def without_operator(cluster):
    cluster.registry.undefine(TFJOBS)
    yield
    cluster.registry.crds[TFJOBS] = CRDS[TFJOBS]


@contextlib.contextmanager
def namespace_being_deleted(cluster):
    cluster.registry.ending.add(cluster.namespace)
    yield
    cluster.registry.ending.clear()


@contextlib.contextmanager
def without_rights(cluster):
    [binding] = cluster.all(BINDINGS)
    cluster.delete(BINDINGS, binding)
    yield
    cluster.api.create(BINDINGS, cluster.namespace, {**binding, "metadata": {"name": binding["metadata"]["name"]}})


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (without_operator, "the cluster has no TFJob any more: was the operator removed?"),
        (namespace_being_deleted, "the namespace default is being deleted"),
        (without_rights, "this account may no longer create what a trial needs"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_trials_wait_until_the_namespace_can_take_them_again(cluster, tmp_path, trouble, reason):
    platform = Platform(KubeflowService, KubeflowConfig, _FIELDS)
    with KubeBench(tmp_path, platform.maker(cluster, cluster.limited(*_RIGHTS)), cluster) as bench:
        job = bench.job("true")
        with trouble(cluster):
            refusal = bench.refusal(bench.service.submit(job))
            assert isinstance(refusal, NoCapacity)
            assert reason in str(refusal)
        assert bench.wait(bench.submit(job)).state is JobState.SUCCEEDED


def show(nnictl):
    return json.loads(nnictl("experiment", "show", "--json"))


@pytest.mark.usefixtures("this_machine")
def test_a_resume_without_the_operator_goes_on_by_itself_when_it_is_there_again(
    cluster, tmp_path, nnictl, kubeflow_experiment
):
    more = {"operator": "tf-operator", "worker": {"dockerImage": IMAGE}}
    report = "python3 -c 'import nnilite; nnilite.report_final_result(1)'"
    config = kubeflow_experiment(f"test -e {tmp_path}/sign || sleep 60; {report}", more)
    name = json.loads(nnictl("create", "-c", config, "-p", "0", "--json"))["id"]
    eventually(cluster.running, cluster.limit_s)
    nnictl("stop", name)
    (tmp_path / "sign").touch()
    with without_operator(cluster):
        nnictl("resume", name, "-p", "0")
        nnictl("trial", "rerun", "--status", "USER_CANCELED")
        eventually(lambda: "no TFJob of kubeflow.org/v1" in json.dumps(show(nnictl)), cluster.limit_s)
        reason = "kubeflow cannot be opened: operator: the cluster has no TFJob"
        eventually(lambda: reason in nnictl("trial", "show", "0"), cluster.limit_s)
        assert show(nnictl)["counts"]["FAILED"] == 0
    eventually(lambda: show(nnictl)["counts"]["SUCCEEDED"] == 1, 90.0)


def test_jobs_of_which_nothing_can_be_read_are_of_an_unknown_state_and_no_silent_server(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("nnilite_kubernetes._service.ClusterService.patience", ClusterPatience(silence_s=0.5))
    platform = Platform(KubeflowService, KubeflowConfig, _FIELDS)
    with KubeBench(tmp_path, platform.maker(cluster), cluster) as bench:
        name = bench.run("true")
        bench.wait(name)
        asked = lambda: bench.refusal(bench.service.poll([bench.handles[name]]))  # noqa: E731
        with without_operator(cluster):
            cluster.store.compact()
            bench.eventually(lambda: "refused to list tfjobs for" in str(asked()))
        bench.eventually(lambda: asked() is None)


def test_the_secret_of_a_trial_is_there_before_pods_can_look_for_it_and_goes_with_the_object(cluster, tmp_path):
    admits, seen = cluster.registry.admission[TFJOBS], []

    def look(body):
        seen.append([secret["metadata"]["name"] for secret in cluster.store.all(SECRETS, cluster.namespace)])
        return admits(body)

    cluster.registry.admission[TFJOBS] = look
    platform = Platform(KubeflowService, KubeflowConfig, _FIELDS)
    with KubeBench(tmp_path, platform.maker(cluster), cluster) as bench:
        bench.wait(bench.run("true"))
        [job] = cluster.all(TFJOBS)
        [secret] = cluster.secrets()
        assert seen == [[job["metadata"]["name"]]]
        assert [owner["uid"] for owner in secret["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]
