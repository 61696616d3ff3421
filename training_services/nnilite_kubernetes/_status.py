"""Determines the status of a job from its objects and pods. Pure: no clock, no network.

The keeper's report, which is the termination message of its pod, comes first: only it distinguishes -9 from 137.
Without it, the pod's own end counts, then the object of the job, and only then what a pod that has not started
waits for.

A keeper that received SIGTERM does not know the sender, so its report does not decide: unless the manager has
canceled the job, it is lost, with the reason of pod or object. That reason may come later than the end of the
container, so until then the job counts as running (`interrupted`).
"""

from __future__ import annotations

import json
import re
from calendar import timegm
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import strptime

from nnilite.records import EXIT_CODE_MAX, EndCause, Json
from nnilite.service import JobState, JobStatus
from nnilite.services.keeper_folder import end_status, read_clock_time
from nnilite_kubernetes._kind import ObjectOutcome, OperatorKind, resumed, suspension
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
_SIGTERM = 143
_INTERRUPTED = EndCause.INTERRUPTED.value
CANCELED = "nnilite/canceled"  # an annotation
_RANKS = (
    "training.kubeflow.org/replica-index",
    "batch.kubernetes.io/job-completion-index",
    "FC_TASK_INDEX",
    "adaptdl/rank",
)


_USUAL_GRACE_S = 30.0
_RANK = re.compile("[0-9]{1,9}")  # anyone who may make pods writes annotations


@dataclass(frozen=True)
class PodWait:
    """Why a pod has not started. `stuck`: "image", "schedule" or "" for what passes by itself."""

    reason: str
    stuck: str = ""
    since: float = 0.0


@dataclass(frozen=True)
class Facts:
    """One job in its present state in the cluster."""

    content: Json
    pods: Sequence[Json]
    roles: Sequence[Role]
    canceled: bool = False
    note: str = ""  # the cluster's latest warning about what is `unexplained`


def seconds(time: Json) -> float | None:
    """Return a time of Kubernetes as seconds since the epoch, None if it is none."""
    try:
        return read_clock_time(timegm(strptime(str(time)[:19], "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return None


def rank(pod: Json) -> int:
    """Return the number of a pod within its role."""
    metadata = pod["metadata"]
    marks = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    found = [str(marks[name]) for name in _RANKS if marks.get(name)]
    return int(found[0]) if found and _RANK.fullmatch(found[0]) else 0


def find_role(pod: Json) -> str:
    """Return the role of a pod."""
    return str((pod["metadata"].get("labels") or {}).get(ROLE) or "")


def reporting(facts: Facts) -> tuple[Json | None, Role]:
    """Return the newest pod that reports for the trial, if any, and its role."""
    role = next(role for role in facts.roles if role.reports)
    found = [pod for pod in facts.pods if find_role(pod) == role.name and rank(pod) == 0]
    found.sort(key=lambda pod: str(pod["metadata"].get("creationTimestamp")))
    return (found[-1] if found else None), role


def status(kind: OperatorKind, facts: Facts) -> JobStatus:
    """Return the state of an existing job. The caller decides whether it has waited too long: see `wait_of`."""
    pod, role = reporting(facts)
    outcome = kind.outcome(facts.content)
    end = judge_pod_end(pod, role.container) if pod is not None else None
    image = _find_image(pod, role.container) if pod is not None else ""
    if end is not None and (kind.pod_end_counts or outcome.state):
        found = _judge_end(facts, pod, end)
        if found is not None:
            return replace(found, image=image)
    if outcome.state is not None and outcome.state.ended:
        return _judge_by_object(facts, outcome)
    host = find_node(pod) if pod is not None else ""
    started = find_container_start(pod, role.container) if pod is not None else None
    if started is not None:
        reason = (
            "it is being ended" if facts.canceled or end is not None else _describe_silent_node(pod) or outcome.message
        )
        return JobStatus(JobState.RUNNING, reason, host=host, started=started, image=image)
    reason = "it is being canceled" if facts.canceled else wait_of(facts).reason or outcome.message
    return JobStatus(JobState.WAITING, reason, host=host)


def _describe_silent_node(pod: Json | None) -> str:
    """Return what to say of a pod whose node does not answer, "" for others.

    The cluster takes it for not ready after 40 s, though its containers run as far as is known, and gives it up much
    later: after 5 minutes, by default.
    """
    if pod is None or find_phase(pod) != "Running":
        return ""
    host = find_node(pod)
    for entry in (pod.get("status") or {}).get("conditions") or []:
        if entry.get("type") == "Ready" and entry.get("status") == "False" and not entry.get("reason"):
            return f"its node {host} does not answer: the cluster may soon give the pod up"
    return ""


def interrupted(facts: Facts) -> JobStatus | None:
    """Return the end of the reporting pod if it received SIGTERM from an unknown sender, else None."""
    pod, role = reporting(facts)
    end = judge_pod_end(pod, role.container) if pod is not None else None
    return end if end is not None and end.state is JobState.CANCELED and not facts.canceled else None


def _judge_end(facts: Facts, pod: Json, end: JobStatus) -> JobStatus | None:
    """Return what the end of the reporting pod means for the job; None where others have to say why it ended."""
    if facts.canceled:
        return replace(end, state=JobState.CANCELED, reason="canceled")
    if end.state is not JobState.CANCELED:
        return end
    if facts.content["metadata"].get("deletionTimestamp"):
        return replace(end, state=JobState.LOST, reason=deleted(facts.content), exit_code=None)
    if pod["metadata"].get("deletionTimestamp") or not _is_by_answer(pod, facts.roles):
        return None
    return end


def _is_by_answer(pod: Json, roles: Sequence[Role]) -> bool:
    """Return whether the keeper reports that an answer of the manager asked for the end, not a signal."""
    word = _read_keeper_message(_find_container_state(pod, _name_container(pod, roles)).get("terminated"))
    return word is not None and word.get("cause") != _INTERRUPTED


def deleted(content: Json) -> str:
    """Return the reason for an object that was deleted, not by this experiment."""
    return f"the {content.get('kind') or 'object'} {content['metadata']['name']} was deleted, not by this experiment"


def _judge_by_object(facts: Facts, outcome: ObjectOutcome) -> JobStatus:
    """Return the end that the object reports; a role that was removed, or has failed, says more."""
    if facts.canceled:
        return JobStatus(JobState.CANCELED, "canceled")
    if outcome.state is JobState.SUCCEEDED:
        return JobStatus(JobState.SUCCEEDED, exit_code=0)
    # Disrupted pods first: the others fail because of them.
    pods = sorted(facts.pods, key=lambda pod: not disruption(pod))
    for pod in pods:
        end = judge_pod_end(pod, _name_container(pod, facts.roles))
        if end is not None and end.state not in (JobState.SUCCEEDED, JobState.CANCELED):
            reason = f"{pod['metadata']['name']}: {end.reason or end.state.value}"
            return JobStatus(end.state, reason, end.exit_code, end.host, started=end.started, ended=end.ended)
    for pod in pods:
        container = _name_container(pod, facts.roles)
        end = judge_pod_end(pod, container)
        code = (_find_container_state(pod, container).get("terminated") or {}).get("exitCode")
        # What the object tells as the trial's failure is its answer to somebody's SIGTERM.
        if end is not None and end.state is JobState.CANCELED and outcome.exit_code in (None, code):
            reason = " ".join(filter(None, (removal(pod), outcome.message and f"({outcome.message})")))
            return replace(end, state=JobState.LOST, reason=reason, exit_code=None)
    # No pod has failed: they were taken away.
    if outcome.exit_code is None and outcome.state in (None, JobState.FAILED):
        gone = next((pod for pod in pods if pod["metadata"].get("deletionTimestamp")), None)
        reason = outcome.message if gone is None else f"{removal(gone)} ({outcome.message})"
        return JobStatus(JobState.LOST, reason)
    state = outcome.state or JobState.FAILED
    return JobStatus(state, outcome.message, outcome.exit_code if state is JobState.FAILED else None)


def removal(pod: Json) -> str:
    """Return why a pod was removed, as far as it says."""
    return disruption(pod) or f"its pod {pod['metadata']['name']} was deleted, not by this experiment"


def _name_container(pod: Json, roles: Sequence[Role]) -> str:
    return next((role.container for role in roles if role.name == find_role(pod)), "")


def judge_pod_end(pod: Json, container: str) -> JobStatus | None:
    """Return how a pod ended, None if it has not. CANCELED: it received SIGTERM from an unknown sender."""
    host = find_node(pod)
    terminated = _find_container_state(pod, container).get("terminated")
    word = _read_keeper_message(terminated)
    judged = _judge_by_keeper(word, terminated, host) if terminated and word is not None else None
    if judged is not None and judged.state is not JobState.CANCELED:
        return judged
    over = judged is not None or terminated or find_phase(pod) == "Failed"
    why = disruption(pod)
    if why and (over or _is_node_gone(pod)):
        return JobStatus(JobState.LOST, why, host=host, started=judged.started if judged else None)
    if judged is not None:
        return judged
    if terminated:
        return _judge_by_container(terminated, host)
    return _judge_without_container(pod, host) if find_phase(pod) == "Failed" else None


def _judge_without_container(pod: Json, host: str) -> JobStatus:
    """Return the end of a pod whose own container never ran, or is no longer known."""
    status = pod.get("status") or {}
    for entry in status.get("initContainerStatuses") or []:
        terminated = (entry.get("state") or {}).get("terminated") or {}
        if terminated.get("exitCode"):
            text = _sentence(f"its init container {entry.get('name')} failed", _guess_end(terminated)[1])
            return JobStatus(JobState.FAILED, text, host=host)
    reason = _sentence(status.get("reason"), status.get("message")) or "its pod failed"
    return JobStatus(JobState.LOST, reason, host=host)


def disruption(pod: Json) -> str:
    """Return why the cluster removed a pod, "" if it did not: eviction, preemption, a node that goes down."""
    status = pod.get("status") or {}
    if status.get("reason") in _LOST:
        return _sentence(status.get("reason"), status.get("message"))
    for entry in status.get("conditions") or []:
        if entry.get("type") == "DisruptionTarget" and entry.get("status") == "True":
            return _sentence(entry.get("reason"), entry.get("message")) or "the cluster removed it"
    return ""


def _is_node_gone(pod: Json) -> bool:
    """Return whether the node is gone, so that nothing can report how the containers end."""
    return (pod.get("status") or {}).get("reason") == "NodeLost"


def find_grace_s(pod: Json) -> float | None:
    """Return how long a pod that is being deleted may take to end; None for other pods."""
    metadata = pod["metadata"]
    if not metadata.get("deletionTimestamp"):
        return None
    grace_s = metadata.get("deletionGracePeriodSeconds")
    return float(grace_s) if isinstance(grace_s, int) else _USUAL_GRACE_S


def is_alive(pod: Json) -> bool:
    """Return whether a pod has not ended."""
    return find_phase(pod) in ("Pending", "Running")


def is_canceled(content: Json) -> bool:
    """Return whether an object has the note that its job is canceled."""
    return CANCELED in (content["metadata"].get("annotations") or {})


def find_phase(pod: Json) -> str:
    """Return the phase of a pod, "" if it has none yet."""
    return str((pod.get("status") or {}).get("phase") or "")


def find_node(pod: Json) -> str:
    """Return the node of a pod, "" if it has none yet."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _read_keeper_message(terminated: Json | None) -> Json | None:
    try:
        word = json.loads((terminated or {}).get("message") or "")["nnilite"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return word if isinstance(word, dict) else None


def _judge_by_keeper(word: Json, terminated: Json, host: str) -> JobStatus:
    started = word.get("started") or seconds(terminated.get("startedAt"))
    ended = word.get("ended") or seconds(terminated.get("finishedAt"))
    return end_status({**word, "time": ended}, host, started)


def _judge_by_container(terminated: Json, host: str) -> JobStatus:
    """Return the end of a container whose keeper could not report it."""
    state, message, code = _guess_end(terminated)
    started, ended = seconds(terminated.get("startedAt")), seconds(terminated.get("finishedAt"))
    return JobStatus(state, message, code, host, started=started, ended=ended)


def _guess_end(terminated: Json) -> tuple[JobState, str, int | None]:
    """Guess state, message and exit code."""
    code, reason = terminated.get("exitCode") or 0, str(terminated.get("reason") or "")
    message = _sentence(reason if reason not in ("Error", "Completed") else "", terminated.get("message"))
    if type(code) is not int or abs(code) > EXIT_CODE_MAX:
        return JobState.LOST, message or f"its container ended with the exit code {code!r:.60}", None
    if code == 0:
        return JobState.SUCCEEDED, message, 0
    if reason == "OOMKilled":
        return JobState.FAILED, "it was killed for going over its memory limit (OOMKilled)", code
    if code == _SIGTERM:
        return JobState.CANCELED, message or "its container was ended by SIGTERM", None
    if code == 137 or reason == "ContainerStatusUnknown":
        return JobState.LOST, message or f"its container was killed ({code})", None
    return JobState.FAILED, message or f"its container ended with {code}", code


def find_container_start(pod: Json, container: str) -> float | None:
    """Return when the container was started, None if it was not."""
    state = _find_container_state(pod, container)
    return seconds((state.get("running") or state.get("terminated") or {}).get("startedAt"))


def _find_image(pod: Json, container: str) -> str:
    """Return the image that a container was started from, with its digest; "" before that."""
    name = str(_find_container(pod, container).get("imageID") or "")
    return name.rpartition("://")[2]  # Docker puts its own scheme before it


def _find_container_state(pod: Json, container: str) -> Json:
    return _find_container(pod, container).get("state") or {}


def _find_container(pod: Json, container: str) -> Json:
    """Return what the status of a pod has on one of its containers."""
    found = (pod.get("status") or {}).get("containerStatuses") or []
    return next((entry for entry in found if entry.get("name") == container), {})


def wait_of(facts: Facts) -> PodWait:
    """Return what a job that has not started waits for: the worst of its pods' reasons."""
    waits = [found for pod in facts.pods if (found := explain_pod_wait(pod))]
    if waits:
        return next((wait for wait in waits if wait.stuck), waits[0])
    waiting = unexplained(facts)
    if waiting is None or (facts.pods and not facts.note):
        return PodWait("its pod is being started")
    suspended = suspension(facts.content)
    if suspended and not facts.pods:
        return PodWait(facts.note or suspended)  # which a queue may do for long: only what comes after it is limited
    since = seconds(resumed(facts.content) or waiting["metadata"].get("creationTimestamp"))
    return PodWait(facts.note or "its pods have not been made yet", "schedule" if since else "", since or 0.0)


def unexplained(facts: Facts) -> Json | None:
    """Return what makes no progress without a reason: a pod that has not started, or the object that lacks pods.

    It is the object if the reporting pod does not exist, whatever other pods run already.
    """
    pending = [pod for pod in facts.pods if (pod.get("status") or {}).get("phase") in (None, "Pending")]
    if any(map(explain_pod_wait, pending)):
        return None
    if reporting(facts)[0] is None:
        return facts.content
    return pending[0] if pending else None


def explain_pod_wait(pod: Json) -> PodWait | None:
    """Return what a pod waits for, None if it does not say."""
    status = pod.get("status") or {}
    if status.get("phase") not in (None, "Pending"):
        return None
    since = seconds(pod["metadata"].get("creationTimestamp")) or 0.0
    for entry in status.get("conditions") or []:
        if entry.get("type") == "PodScheduled" and entry.get("status") == "False":
            return PodWait(_sentence(entry.get("reason"), entry.get("message")), "schedule", since)
    begun = seconds(status.get("startTime")) or since
    for entry in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = (entry.get("state") or {}).get("waiting")
        if waiting and waiting.get("reason") in _STUCK:
            image = f"{entry.get('image')}: " if waiting.get("reason") in _PULL else ""
            return PodWait(image + _sentence(waiting.get("reason"), waiting.get("message")), "image", begun)
    return None


def _sentence(reason: Json, message: Json) -> str:
    return ": ".join(str(part) for part in (reason, message) if part)
