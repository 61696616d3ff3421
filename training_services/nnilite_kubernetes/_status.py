"""What objects and pods tell of a job. Pure: no clock, no network.

The keeper's word, which its pod carries as the termination message, comes first: it alone tells -9 from 137. Without
it the pod's own end is looked at, then the object of the job, and only then what a pod that has not started waits for.
"""

from __future__ import annotations

import json
from calendar import timegm
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import strptime

from nnilite.records import Json
from nnilite.service import JobState, JobStatus
from nnilite_kubernetes._kind import Kind, Outcome
from nnilite_kubernetes._manifest import ROLE, Role

_PULL = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
_STUCK = (*_PULL, "CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_LOST = (
    "Evicted",
    "Preempted",
    "Preempting",
    "NodeLost",
    "NodeShutdown",
    "Shutdown",
    "Terminated",
    "UnexpectedAdmissionError",
)
_RANKS = ("training.kubeflow.org/replica-index", "FC_TASK_INDEX", "adaptdl/rank")


@dataclass(frozen=True)
class Wait:
    """Why a pod has not started. `stuck`: "image", "schedule" or "" for what passes by itself."""

    reason: str
    stuck: str = ""
    since: float = 0.0


@dataclass(frozen=True)
class Facts:
    """One job as the cluster has it."""

    content: Json
    pods: Sequence[Json]
    roles: Sequence[Role]
    canceled: bool = False
    note: str = ""  # the cluster's latest warning about what is `unexplained`


def seconds(time: Json) -> float | None:
    """A time of Kubernetes as seconds since the epoch."""
    if not time:
        return None
    return float(timegm(strptime(str(time)[:19], "%Y-%m-%dT%H:%M:%S")))


def rank(pod: Json) -> int:
    """The number of a pod within its role."""
    metadata = pod["metadata"]
    marks = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    found = [str(marks[name]) for name in _RANKS if marks.get(name)]
    return int(found[0]) if found and found[0].isdigit() else 0


def role_of(pod: Json) -> str:
    """The role that a pod plays."""
    return str((pod["metadata"].get("labels") or {}).get(ROLE) or "")


def reporting(facts: Facts) -> tuple[Json | None, Role]:
    """The newest pod that speaks for the trial, if there is one, and its role."""
    role = next(role for role in facts.roles if role.reports)
    found = [pod for pod in facts.pods if role_of(pod) == role.name and rank(pod) == 0]
    found.sort(key=lambda pod: str(pod["metadata"].get("creationTimestamp")))
    return (found[-1] if found else None), role


def status(kind: Kind, facts: Facts) -> JobStatus:
    """The state of a job that is there. What it has waited for too long is for the caller: see `wait_of`."""
    pod, role = reporting(facts)
    outcome = kind.outcome(facts.content)
    end = pod_end(pod, role.container) if pod is not None else None
    if end is not None and (kind.pod_end_counts or outcome.state) and not _was_ended(facts, pod, end):
        return _judged(facts, end)
    if outcome.state is not None and outcome.state.ended:
        return _by_object(facts, outcome)
    host, url = (str((pod.get("spec") or {}).get("nodeName") or ""), "") if pod is not None else ("", "")
    started = container_start(pod, role.container) if pod is not None else None
    if started is not None:
        reason = "it is being ended" if facts.canceled else outcome.message
        return JobStatus(JobState.RUNNING, reason, host=host, url=url, started=started)
    reason = "it is being canceled" if facts.canceled else wait_of(facts).reason or outcome.message
    return JobStatus(JobState.WAITING, reason, host=host)


def _was_ended(facts: Facts, pod: Json, end: JobStatus) -> bool:
    """Whether the cluster has ended a pod of a job that nobody has deleted: then its object tells the reason."""
    deleted = pod["metadata"].get("deletionTimestamp") and not facts.content["metadata"].get("deletionTimestamp")
    return end.state is JobState.CANCELED and bool(deleted) and not facts.canceled


def _judged(facts: Facts, end: JobStatus) -> JobStatus:
    """A keeper that was told to end does not know who wanted it."""
    if facts.canceled:
        return replace(end, state=JobState.CANCELED, reason="canceled")
    if end.state is JobState.CANCELED and facts.content["metadata"].get("deletionTimestamp"):
        return replace(end, state=JobState.LOST, reason="somebody else has deleted its object")
    return end


def _by_object(facts: Facts, outcome: Outcome) -> JobStatus:
    """The end as the object tells it; a role that has failed says more."""
    if facts.canceled:
        return JobStatus(JobState.CANCELED, "canceled")
    if outcome.state is JobState.SUCCEEDED:
        return JobStatus(JobState.SUCCEEDED, exit_code=0)
    for pod in facts.pods:
        end = pod_end(pod, _container_of(pod, facts.roles))
        if end is not None and end.state not in (JobState.SUCCEEDED, JobState.CANCELED):
            reason = f"{pod['metadata']['name']}: {end.reason or end.state.value}"
            return JobStatus(end.state, reason, end.exit_code, end.host, started=end.started, ended=end.ended)
    state = outcome.state or JobState.FAILED
    if state is JobState.FAILED and outcome.exit_code is None:
        state = JobState.LOST  # no pod has failed: they were taken away
    return JobStatus(state, outcome.message, outcome.exit_code)


def _container_of(pod: Json, roles: Sequence[Role]) -> str:
    return next((role.container for role in roles if role.name == role_of(pod)), "")


def pod_end(pod: Json, container: str) -> JobStatus | None:
    """How a pod ended, None if it has not."""
    status = pod.get("status") or {}
    host = str((pod.get("spec") or {}).get("nodeName") or "")
    terminated = _container_state(pod, container).get("terminated")
    word = _keepers_word(terminated)
    if terminated and word is not None:
        return _by_keeper(word, terminated, host)
    if status.get("reason") in _LOST or _disrupted(status):
        return JobStatus(JobState.LOST, _sentence(status.get("reason"), status.get("message")), host=host)
    if terminated:
        return _by_container(terminated, host)
    if status.get("phase") == "Failed":
        return JobStatus(JobState.LOST, _sentence(status.get("reason"), status.get("message")) or "its pod failed")
    return None


def _keepers_word(terminated: Json | None) -> Json | None:
    try:
        word = json.loads((terminated or {}).get("message") or "")["nnilite"]
    except (ValueError, TypeError, KeyError):
        return None
    return word if isinstance(word, dict) else None


def _by_keeper(word: Json, terminated: Json, host: str) -> JobStatus:
    code, reason = word.get("code"), str(word.get("message") or "")
    state = JobState.SUCCEEDED if code == 0 else JobState.FAILED
    if reason.startswith("canceled"):
        state = JobState.CANCELED
    started = word.get("started") or seconds(terminated.get("startedAt"))
    ended = word.get("ended") or seconds(terminated.get("finishedAt"))
    return JobStatus(state, reason, code, host, started=started, ended=ended)


def _by_container(terminated: Json, host: str) -> JobStatus:
    """The end of a container whose keeper could not say how."""
    state, message, code = _guessed(terminated)
    started, ended = seconds(terminated.get("startedAt")), seconds(terminated.get("finishedAt"))
    return JobStatus(state, message, code, host, started=started, ended=ended)


def _guessed(terminated: Json) -> tuple[JobState, str, int | None]:
    """State, message and exit code."""
    code, reason = int(terminated.get("exitCode") or 0), str(terminated.get("reason") or "")
    message = _sentence(reason if reason not in ("Error", "Completed") else "", terminated.get("message"))
    if code == 0:
        return JobState.SUCCEEDED, message, 0
    if reason == "OOMKilled":
        return JobState.FAILED, "it was killed for going over its memory limit (OOMKilled)", code
    if code in (137, 143) or reason == "ContainerStatusUnknown":
        return JobState.LOST, message or f"its container was killed ({code})", None
    return JobState.FAILED, message or f"its container ended with {code}", code


def _disrupted(status: Json) -> bool:
    conditions = status.get("conditions") or []
    return any(entry.get("type") == "DisruptionTarget" and entry.get("status") == "True" for entry in conditions)


def container_start(pod: Json, container: str) -> float | None:
    """When the container was started, None if it was not."""
    state = _container_state(pod, container)
    return seconds((state.get("running") or state.get("terminated") or {}).get("startedAt"))


def _container_state(pod: Json, container: str) -> Json:
    for entry in (pod.get("status") or {}).get("containerStatuses") or []:
        if entry.get("name") == container:
            return entry.get("state") or {}
    return {}


def wait_of(facts: Facts) -> Wait:
    """What a job that has not started waits for: the worst of what its pods say."""
    waits = [found for pod in facts.pods if (found := pod_wait(pod))]
    stuck = [wait for wait in waits if wait.stuck]
    if stuck or waits:
        return (stuck or waits)[0]
    waiting = unexplained(facts)
    if waiting is None or (facts.pods and not facts.note):
        return Wait("its pod is being started")
    since = seconds(waiting["metadata"].get("creationTimestamp"))
    return Wait(facts.note or "its pods have not been made yet", "schedule" if since else "", since or 0.0)


def unexplained(facts: Facts) -> Json | None:
    """What does not come forward and does not say why: the object without pods, or a pod that has not started."""
    if not facts.pods:
        return facts.content
    pending = [pod for pod in facts.pods if (pod.get("status") or {}).get("phase") in (None, "Pending")]
    return pending[0] if pending and not any(map(pod_wait, pending)) else None


def pod_wait(pod: Json) -> Wait | None:
    """What a pod says that it waits for, None if it says nothing."""
    status = pod.get("status") or {}
    if status.get("phase") not in (None, "Pending"):
        return None
    since = seconds(pod["metadata"].get("creationTimestamp")) or 0.0
    for entry in status.get("conditions") or []:
        if entry.get("type") == "PodScheduled" and entry.get("status") == "False":
            return Wait(_sentence(entry.get("reason"), entry.get("message")), "schedule", since)
    begun = seconds(status.get("startTime")) or since
    for entry in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = (entry.get("state") or {}).get("waiting")
        if waiting and waiting.get("reason") in _STUCK:
            image = f"{entry.get('image')}: " if waiting.get("reason") in _PULL else ""
            return Wait(image + _sentence(waiting.get("reason"), waiting.get("message")), "image", begun)
    return None


def _sentence(reason: Json, message: Json) -> str:
    return ": ".join(str(part) for part in (reason, message) if part)
