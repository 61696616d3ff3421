"""What objects and pods tell of a job: the cases that a cluster shows now and then."""

from __future__ import annotations

import json

import pytest

from nnilite.service import JobState
from nnilite_kubernetes._config import KubernetesConfig, RoleConfig
from nnilite_kubernetes._kubeflow import KubeflowConfig, KubeflowJob
from nnilite_kubernetes._manifest import ROLE, Role
from nnilite_kubernetes._plain_job import PlainJob
from nnilite_kubernetes._status import Facts, status, wait_of

CONFIG = KubernetesConfig(docker_image="some:image")
TRIAL = Role("trial", "trial", CONFIG)
PLAIN = PlainJob(CONFIG)
MPI = KubeflowJob(KubeflowConfig(operator="mpi-operator", worker=RoleConfig()))


def an_object(*conditions, **metadata):
    known = [dict(zip(("type", "status", "reason"), entry, strict=False)) for entry in conditions]
    return {"metadata": {"name": "j", "uid": "u", **metadata}, "status": {"conditions": known}}


def a_pod(state=None, phase="Running", created="2026-01-01T00:00:00Z", role="trial", **more):
    metadata = {"name": f"j-{role}", "uid": created, "creationTimestamp": created, "labels": {ROLE: role}}
    states = [{"name": "trial", "image": "some:image", "state": state or {}}]
    return {"metadata": metadata, "spec": {}, "status": {"phase": phase, "containerStatuses": states, **more}}


def ended(code, **more):
    times = {"startedAt": "2026-01-01T00:00:01Z", "finishedAt": "2026-01-01T00:00:05Z"}
    return {"terminated": {"exitCode": code, **times, **more}}


def of(pod, *conditions, kind=PLAIN, roles=(TRIAL,), **more):
    return status(kind, Facts(an_object(*conditions), [pod] if pod else [], roles, **more))


def test_the_keepers_word_tells_a_signal_from_an_exit_code():
    message = json.dumps({"nnilite": {"code": -9, "message": "killed by SIGKILL", "started": 1.5, "ended": 2.5}})
    found = of(a_pod(ended(137, message=message), "Failed"))
    assert (found.state, found.exit_code, found.started, found.ended) == (JobState.FAILED, -9, 1.5, 2.5)


@pytest.mark.parametrize("message", ["[" * 4096, '{"nnilite":[]}', '{"nnilite":{"code":%s}}' % ("9" * 400)])
def test_what_a_trial_writes_in_the_place_of_its_keepers_word_stops_no_poll(message):
    found = of(a_pod(ended(3, message=message), "Failed"))
    assert (found.state, found.exit_code) in [(JobState.FAILED, 3), (JobState.FAILED, None)]


@pytest.mark.parametrize(
    ("terminated", "state", "text"),
    [
        (ended(137, reason="OOMKilled"), JobState.FAILED, "memory limit"),
        (ended(137, reason="Error"), JobState.LOST, "killed (137)"),
        (ended(128, reason="StartError", message="exec python3: not found"), JobState.FAILED, "python3: not found"),
        (ended(0, reason="Completed"), JobState.SUCCEEDED, ""),
        (ended(2, reason="Error"), JobState.FAILED, "ended with 2"),
    ],
)
def test_a_container_without_its_keepers_word(terminated, state, text):
    found = of(a_pod(terminated, "Failed"))
    assert found.state is state
    assert text in found.reason


@pytest.mark.parametrize("state", [{"running": {"startedAt": "2026-01-01T00:00:01Z"}}, ended(0), ended(137)])
def test_the_image_that_a_container_ran_has_its_digest(state):
    pod = a_pod(state, "Failed" if "terminated" in state else "Running")
    pod["status"]["containerStatuses"][0]["imageID"] = "docker-pullable://some@sha256:0123"
    assert of(pod).image == "some@sha256:0123"


def test_a_pod_that_was_preempted_is_lost_whatever_its_exit_code():
    disrupted = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    assert of(a_pod(ended(143), "Failed", conditions=disrupted)).state is JobState.LOST
    assert of(a_pod(phase="Failed", reason="NodeLost")).state is JobState.LOST


def test_a_trial_whose_node_does_not_answer_says_so_before_the_cluster_gives_it_up():
    running = {"running": {"startedAt": "2026-01-01T00:00:01Z"}}
    ready = {"type": "Ready", "status": "False"}  # as the node lifecycle controller leaves it: without a reason
    pod = a_pod(running, conditions=[ready])
    pod["spec"]["nodeName"] = "node-7"
    found = of(pod)
    assert (found.state, found.reason) == (
        JobState.RUNNING,
        "its node node-7 does not answer: the cluster may soon give the pod up",
    )
    ready["reason"] = "ContainersNotReady"  # by a node that answers
    assert of(pod).reason == ""


def test_the_newest_pod_counts_where_there_are_several():
    old = a_pod(ended(1), "Failed", created="2026-01-01T00:00:00Z")
    new = a_pod({"running": {"startedAt": "2026-01-01T00:01:00Z"}}, created="2026-01-01T00:01:00Z")
    found = status(PLAIN, Facts(an_object(), [new, old], (TRIAL,)))
    assert found.state is JobState.RUNNING


def test_a_condition_counts_where_it_is_true_not_where_it_is_last():
    found = of(None, ("Succeeded", "True"), ("Running", "False"), kind=MPI)
    assert found.state is JobState.SUCCEEDED
    assert of(None, ("Failed", "False"), ("Running", "True"), kind=MPI).state is JobState.WAITING


def test_a_failed_job_whose_pods_are_gone_is_lost():
    assert of(None, ("Failed", "True", "BackoffLimitExceeded")).state is JobState.LOST


def test_a_deleted_pod_of_a_living_job_waits_for_the_jobs_own_word():
    message = json.dumps({"nnilite": {"code": -15, "message": "canceled"}})
    pod = a_pod(ended(143, message=message), "Failed")
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:09Z"
    assert of(pod).state is JobState.RUNNING
    assert of(pod, ("Failed", "True", "x")).state is JobState.LOST
    assert of(pod, canceled=True).state is JobState.CANCELED


INTERRUPTED = json.dumps({"nnilite": {"code": -15, "message": "canceled by SIGTERM", "cause": "interrupted"}})
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for another"}


def test_a_container_that_was_told_to_end_waits_for_the_clusters_reason():
    ended_pod = ended(143, message=INTERRUPTED)
    assert of(a_pod(ended_pod)).state is JobState.RUNNING
    found = of(a_pod(ended_pod, "Failed", reason="Evicted", message="low on memory"))
    assert (found.state, found.reason, found.exit_code) == (JobState.LOST, "Evicted: low on memory", None)


def test_a_reason_that_comes_before_the_end_waits_for_the_end():
    running = {"running": {"startedAt": "2026-01-01T00:00:01Z"}}
    assert of(a_pod(running, conditions=[PREEMPTED])).state is JobState.RUNNING
    found = of(a_pod(ended(143, message=INTERRUPTED), "Failed", conditions=[PREEMPTED]))
    assert (found.state, found.reason) == (JobState.LOST, "PreemptionByScheduler: for another")


@pytest.mark.parametrize("code", [0, 3])
def test_what_a_trial_makes_of_its_eviction_is_not_its_end(code):
    message = json.dumps({"nnilite": {"code": code, "message": "", "cause": "interrupted"}})
    found = of(a_pod(ended(code, message=message), "Failed", conditions=[PREEMPTED]), ("Failed", "True", "x"))
    assert (found.state, found.exit_code) == (JobState.LOST, None)


def test_a_failure_of_its_own_stays_one_though_its_pod_is_taken_away():
    message = json.dumps({"nnilite": {"code": 3, "message": "exit code 3"}})
    found = of(a_pod(ended(3, message=message), "Failed", conditions=[PREEMPTED]))
    assert (found.state, found.exit_code) == (JobState.FAILED, 3)


def test_a_container_that_was_ended_before_its_keeper_could_say_so_is_lost_with_the_objects_reason():
    pod = a_pod(ended(143), "Failed")
    assert of(pod).state is JobState.RUNNING
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:40Z"
    found = of(pod, ("Failed", "True", "BackoffLimitExceeded"))
    assert found.state is JobState.LOST
    assert found.reason == "its pod j-trial was deleted, not by this experiment (BackoffLimitExceeded)"


def test_a_role_that_was_taken_away_counts_before_those_that_failed_because_of_it():
    roles = (Role("chief", "trial", CONFIG), Role("worker", "trial", CONFIG, reports=False))
    failed, taken = a_pod(ended(1), "Failed", role="chief"), a_pod(ended(143), "Failed", role="worker")
    taken["status"]["conditions"] = [PREEMPTED]
    found = status(
        KubeflowJob(KubeflowConfig(operator="tf-operator", chief=RoleConfig())),
        Facts(an_object(("Failed", "True", "TFJobFailed")), [failed, taken], roles),
    )
    assert found.state is JobState.FAILED  # the chief has said so itself
    silent = status(MPI, Facts(an_object(("Failed", "True", "x")), [taken], (TRIAL, roles[1])))
    assert (silent.state, silent.reason) == (JobState.LOST, "j-worker: PreemptionByScheduler: for another")


def test_a_job_without_pods_shows_the_clusters_warning():
    facts = Facts(an_object(creationTimestamp="2026-01-01T00:00:00Z"), [], (TRIAL,), note="FailedCreate: quota")
    assert status(PLAIN, facts).reason == "FailedCreate: quota"
    assert wait_of(facts).stuck == "schedule"


def test_an_image_is_looked_for_in_all_pods():
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    facts = Facts(an_object(), [a_pod(phase="Pending"), a_pod(waiting, "Pending", role="ps")], (TRIAL,))
    assert wait_of(facts).reason == "some:image: ErrImagePull: not found"


@pytest.mark.parametrize("code", ["three", 1e400, float("nan"), 10**400, [1], 2.5])
def test_an_exit_code_that_is_none_counts_as_a_lost_pod(code):
    found = of(a_pod(ended(code), "Failed"))
    assert (found.state, found.exit_code) == (JobState.LOST, None)
    assert "exit code" in found.reason


@pytest.mark.parametrize("time", ["yesterday", "2026-13-45T00:00:00Z", "0001-01-01T00:00:00Z", 1e400, [1], {"a": 1}])
def test_times_that_are_none_are_left_out(time):
    found = of(a_pod(ended(3, startedAt=time, finishedAt=time), "Failed"))
    assert (found.state, found.started, found.ended) == (JobState.FAILED, None, None)
