"""What each pod of a trial leaves with its attempt: its exit code and its log, also when it is gone."""

from __future__ import annotations

import json
import os
import shlex
import threading

import pytest

from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite_kubernetes import (
    FrameworkControllerConfig,
    FrameworkControllerService,
    KubeflowConfig,
    KubeflowService,
)
from nnilite_kubernetes._config import RoleConfig
from nnilite_kubernetes._frameworkcontroller import TaskRoleConfig
from platforms.kube.bench import Platform
from platforms.kube.client import MPIJOBS_V1, PODS
from platforms.kube.cluster import IMAGE
from platforms.kube.operators import install
from platforms.kube.other_operators import install_frameworkcontroller

pytestmark = pytest.mark.process

_TF = Platform(KubeflowService, KubeflowConfig, {"operator": "tf-operator"}, install())
_MPI = Platform(KubeflowService, KubeflowConfig, {"operator": "mpi-operator"}, install(MPIJOBS_V1))
_FC = Platform(FrameworkControllerService, FrameworkControllerConfig, {"barrier": False}, install_frameworkcontroller())


@pytest.fixture(params=[_TF], ids=["TFJob"])
def platform(request):
    return request.param


def role(command, **fields):
    return RoleConfig(docker_image=IMAGE, command=command, **fields)


def attempt(bench, name):
    """The folder of a job's attempt on this machine."""
    _, _, trial, number = name.split("-")
    return bench.folder / "experiment" / "trials" / trial / number


def records(bench, name):
    """What is known of each pod, by role and rank."""
    path = attempt(bench, name) / "roles.json"
    entries = json.loads(path.read_text()) if path.exists() else []
    return {f"{entry['role']}-{entry['rank']}": entry for entry in entries}


def log(bench, name, pod):
    path = attempt(bench, name) / "roles" / f"{pod}.log"
    return path.read_text() if path.exists() else ""


def being_read(bench, name, pod):
    """Whether the service follows the log of a pod that is to end."""
    return (attempt(bench, name) / "roles" / f"{pod}.last").exists()


def until(sign):
    """A shell command that waits for a file."""
    return f"until [ -e {shlex.quote(str(sign))} ]; do sleep 0.1; done"


def phases(cluster):
    return [pod["status"].get("phase") for pod in cluster.pods()]


@pytest.mark.usefixtures("this_machine")
def test_exit_codes_and_logs_of_all_roles_are_kept_when_their_pods_are_gone(cluster, open_bench, tmp_path):
    begun, go_on, read = tmp_path / "begun", tmp_path / "go on", tmp_path / "read"
    ps = role(
        f"end() {{ {until(read)}; echo ps was told to end; exit 4; }}; trap end TERM; echo ps is here; "
        f"touch {shlex.quote(str(begun))}; while :; do sleep 0.1; done"
    )
    workers = role("echo a worker", replicas=2)
    # The job ends with its chief, which would end a worker or a ps that has not come so far.
    chief = role(f"{until(go_on)}; echo the chief")
    bench = open_bench(ps=ps, worker=workers, chief=chief)
    name = bench.run("", grace_s=60)
    eventually(lambda: begun.exists() and phases(cluster).count("Succeeded") == 2, cluster.limit_s)
    go_on.touch()
    assert bench.wait(name).state is JobState.SUCCEEDED
    # A pod that ends within the moment that it takes to ask for its log leaves none.
    eventually(lambda: being_read(bench, name, "ps-0"), cluster.limit_s)
    read.touch()
    bench.call(bench.service.remove(bench.handles[name]))
    eventually(lambda: not cluster.pods(), cluster.limit_s)
    eventually(lambda: "ps was told to end" in log(bench, name, "ps-0"), cluster.limit_s)
    assert log(bench, name, "ps-0").startswith("ps is here\n")
    assert log(bench, name, "worker-0") == log(bench, name, "worker-1") == "a worker\n"
    found = records(bench, name)
    assert {pod: found[pod]["exitCode"] for pod in ("chief-0", "worker-0", "worker-1")} == {
        "chief-0": 0,
        "worker-0": 0,
        "worker-1": 0,
    }
    assert "NNILITE_EVENT" not in "".join(log(bench, name, pod) for pod in found)


@pytest.mark.usefixtures("this_machine")
def test_a_log_is_kept_though_the_watch_has_not_told_of_its_pod_when_the_job_is_removed(cluster, open_bench, tmp_path):
    bench = open_bench(chief=role(until(tmp_path / "go on")), worker=role("echo a worker"))
    bench.service._opened.known._pods.close()
    name = bench.run("")
    eventually(lambda: "Succeeded" in phases(cluster), cluster.limit_s)
    (tmp_path / "go on").touch()
    eventually(lambda: phases(cluster) == ["Succeeded"] * 2, cluster.limit_s)
    bench.call(bench.service.remove(bench.handles[name]))
    assert log(bench, name, "worker-0") == "a worker\n"


def test_a_role_that_failed_can_be_read_afterwards(open_bench, cluster):
    bench = open_bench(chief=role("sleep 60"), worker=role("echo out of memory; exit 9"))
    name = bench.run("")
    assert bench.wait(name).exit_code == 9
    bench.call(bench.service.remove(bench.handles[name]))
    found = records(bench, name)["worker-0"]
    assert (found["state"], found["exitCode"], found["log"]) == ("FAILED", 9, "worker-0.log")
    assert log(bench, name, "worker-0") == "out of memory\n"
    eventually(lambda: records(bench, name)["chief-0"]["ended"], cluster.limit_s)


@pytest.mark.parametrize("platform", [_FC], indirect=True, ids=["Framework"])
@pytest.mark.usefixtures("this_machine")
def test_a_controller_that_deletes_its_pods_at_once_leaves_their_logs(cluster, open_bench, tmp_path):
    begun, read = tmp_path / "begun", tmp_path / "read"
    serve = f"end() {{ {until(read)}; exit; }}; trap end TERM; echo serving; touch {shlex.quote(str(begun))}"
    roles = [
        TaskRoleConfig(name="worker", docker_image=IMAGE, command=f"{until(begun)}; echo done"),
        TaskRoleConfig(name="ps", docker_image=IMAGE, command=f"{serve}; while :; do sleep 0.1; done"),
    ]
    bench = open_bench(task_roles=roles)
    name = bench.run("", grace_s=60)
    assert bench.finish(name).exits[0]["code"] == 0
    eventually(lambda: being_read(bench, name, "ps-0"), cluster.limit_s)
    read.touch()
    eventually(lambda: not cluster.pods(), cluster.limit_s)
    eventually(lambda: log(bench, name, "ps-0").startswith("serving\n"), cluster.limit_s)
    eventually(lambda: records(bench, name)["ps-0"]["ended"])


def test_logs_of_roles_that_run_are_there_when_somebody_looks(open_bench):
    bench = open_bench(ps=role("echo one; sleep 60"), worker=role("sleep 60"))
    name = bench.run("")
    bench.wait(name, JobState.RUNNING)
    folder = attempt(bench, name)

    def looked():
        bench.call(bench.service.fetch(bench.handles[name], folder))
        return log(bench, name, "ps-0") == "one\n"

    eventually(looked)
    assert records(bench, name)["ps-0"]["state"] == "RUNNING"


@pytest.mark.usefixtures("this_machine")
def test_what_ended_while_no_manager_was_there_is_read_by_the_next_one(cluster, open_bench, tmp_path):
    bench = open_bench(worker=role(until(tmp_path / "go on")), ps=role("echo early; exit 0"))
    name = bench.run("")
    bench.close()
    eventually(lambda: "Succeeded" in phases(cluster), cluster.limit_s)
    bench.open()
    eventually(lambda: log(bench, name, "ps-0") == "early\n")
    (tmp_path / "go on").touch()
    assert bench.wait(name).state is JobState.SUCCEEDED
    eventually(lambda: records(bench, name).get("worker-0", {}).get("read"))
    before = records(bench, name)
    bench.restart()
    assert records(bench, name) == before


def test_closing_does_not_wait_for_a_pod_that_ends_slowly_and_prints_nothing(machinery, cluster, open_bench, tmp_path):
    stays = f"trap '' TERM; touch {shlex.quote(str(tmp_path / 'stays'))}; while :; do sleep 0.1; done"
    bench = open_bench(worker=role("sleep 60"), ps=role(stays))
    name = bench.submit(bench.job("", grace_s=60))
    bench.wait(name, JobState.RUNNING)
    eventually(lambda: (tmp_path / "stays").exists())
    bench.call(bench.service.cancel(bench.handles[name]))
    readers = lambda: [each for each in threading.enumerate() if each.name.startswith("pod-logs")]  # noqa: E731
    eventually(readers)
    bench.close()
    eventually(lambda: not readers())
    bench.open()
    for pod in cluster.pods():
        machinery.node.run_of(pod["metadata"]["name"]).kill()


def test_people_read_what_pods_printed_when_all_is_over(nnictl, kubeflow_experiment, tmp_path, this_machine):
    served = tmp_path / "served"
    report = (
        f"test -s mod.bin && until test -e {served}; do sleep 0.1; done"
        " && python3 -c 'import nnilite; nnilite.report_final_result(1)'; sleep 1"
    )
    section = {
        "operator": "tf-operator",
        "storage": {"storageType": "pvc", "claim": "shared"},
        "worker": {"replicas": 1, "dockerImage": IMAGE},
        "ps": {"replicas": 1, "dockerImage": IMAGE, "command": f"echo serving; touch {served}; sleep 60"},
    }
    config = kubeflow_experiment(report, section, callback="log")
    (tmp_path / "code" / "mod.bin").write_text(os.urandom(1_000_000).hex())  # more than a Secret holds
    profile = json.loads(nnictl("create", "-c", config, "-p", "0", "--foreground", "--json"))
    assert (profile["counts"]["SUCCEEDED"], profile["best"]["value"]) == (1, 1)
    trial = profile["best"]["id"]
    assert "0/roles/ps-0.log" in nnictl("trial", "show", profile["id"], "-T", trial)
    assert nnictl("log", "trial", profile["id"], "-T", trial, "--file", "0/roles/ps-0.log") == "serving\n"
    entries = json.loads(nnictl("log", "trial", profile["id"], "-T", trial, "--file", "0/roles.json"))
    assert {entry["role"]: entry["exitCode"] for entry in entries}["worker"] == 0


@pytest.mark.parametrize("platform", [_MPI], indirect=True, ids=["MPIJob"])
def test_no_role_stays_ending_though_its_manager_goes_before_its_pods(open_bench, machinery, cluster):
    """Workers of the training-operator are `sleep`, which as the first process of a container ignores SIGTERM."""
    bench = open_bench(worker=role(""))
    name = bench.run("sleep 1", grace_s=60)
    bench.finish(name)
    bench.call(bench.service.remove(bench.handles[name]))
    eventually(lambda: records(bench, name)["worker-0"]["state"] == "ENDING")
    bench.close()
    assert records(bench, name)["worker-0"]["state"] == "DELETED"
    bench.open()
    for pod in cluster.pods():
        machinery.node.run_of(pod["metadata"]["name"]).kill()


def test_containers_that_never_ran_have_no_exit_code(open_bench):
    init = [{"name": "early", "image": IMAGE, "command": ["sh", "-c", "exit 1"]}]
    bench = open_bench(worker=role("true", pod_template={"spec": {"initContainers": init}}))
    name = bench.run("")
    status = bench.wait(name)
    assert (status.state, status.exit_code) == (JobState.FAILED, None)
    assert "its init container early failed" in status.reason
    eventually(lambda: records(bench, name))
    assert records(bench, name)["worker-0"]["exitCode"] is None


def test_a_pod_with_labels_that_are_not_ours_writes_nowhere(cluster, open_bench, machinery):
    bench = open_bench(worker=role("sleep 60"))
    name = bench.run("")
    bench.wait(name, JobState.RUNNING)
    [pod] = cluster.pods()
    labels = {**pod["metadata"]["labels"], "nnilite/trial": "other", "nnilite/attempt": "x.y"}
    change = {"metadata": {"labels": labels}}
    cluster.api.patch(PODS, cluster.namespace, pod["metadata"]["name"], change)
    cluster.delete(PODS, pod)
    assert bench.wait(name).state is JobState.LOST
    assert not (bench.folder / "experiment" / "trials" / "other").exists()
