"""Convert OpenPAI's answers to the status of a job. Pure: no clock, no network.

The keeper's report, the last event in the job's log, comes first: only it distinguishes a trial that was killed from
one that ended with 137. Without it, PAI's exit code counts, as PAI's own table of exit codes explains it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nnilite.records import TIME_MAX, Exited, Json
from nnilite.service import JobState, JobStatus
from nnilite.services.job_watch import SeenJob, keeper_status

_STATES = {
    "WAITING": JobState.WAITING,
    "RUNNING": JobState.RUNNING,
    "STOPPING": JobState.RUNNING,
    "STOPPED": JobState.CANCELED,
    "SUCCEEDED": JobState.SUCCEEDED,
    "FAILED": JobState.FAILED,
}
_TYPES = {
    "USER_SUCCESS": JobState.SUCCEEDED,
    "USER_STOP": JobState.CANCELED,
    "PLATFORM_FAILURE": JobState.LOST,
    "RESOURCE_ALLOCATION_TIMEOUT": JobState.LOST,
}
_WAITS = {
    "AttemptCreationPending": "PAI has not handed the job to Kubernetes yet",
    "AttemptCreationRequested": "PAI has just handed the job to Kubernetes",
    "AttemptPreparing": "the job is waiting for resources, or for its image",
    "AttemptCompleted": "PAI is starting the job again",
}
_PREEMPTED = ("PodPreemptedForCriticalPod", "PodEvicted", "PodExternalDeleted")
_REASON_CHARS = 1500
_STARTED_AGAIN = (
    "PAI started the job again after a failure of its own; nnilite retries the trial itself, as another attempt"
)


@dataclass(frozen=True)
class Task:
    """One task of a job: its node and the location of its log."""

    role: str
    index: int
    attempt: int
    job_attempt: int
    host: str = ""

    @property
    def place(self) -> str:
        """Return its part of a path of the REST interface."""
        return f"attempts/{self.job_attempt}/taskRoles/{self.role}/taskIndex/{self.index}/attempts/{self.attempt}"


def state_of(summary: Mapping[str, Json]) -> JobState:
    """Return the state of a job, from the list or from its own page."""
    return _STATES.get(str(summary.get("state")), JobState.UNKNOWN)


def waits(detail: Mapping[str, Json]) -> bool:
    """Return whether a job has not run yet."""
    return state_of(_read_object(detail.get("jobStatus"))) is JobState.WAITING


def seen(detail: Mapping[str, Json], reporting: str, warnings: Sequence[Mapping[str, Json]]) -> SeenJob:
    """Return the state of a job in PAI's answer. `warnings` are those of Kubernetes while it waits."""
    status = _read_object(detail.get("jobStatus"))
    state = state_of(status)
    task = task_of(detail, reporting)
    host = task.host if task else ""
    if state is JobState.WAITING:
        return SeenJob(state, waiting(status, warnings), host=host)
    if state.ended:
        return SeenJob(state, started=_read_launched(status), host=host)
    if state is JobState.UNKNOWN:
        return SeenJob(state, f"PAI reported the unknown state {status.get('state')!r:.40}")
    if status.get("retries"):
        # The command may have run before, while no manager was running: then its reports would mix with new ones.
        return SeenJob(JobState.LOST, _STARTED_AGAIN, _read_launched(status), host)
    if status.get("state") == "STOPPING":
        return SeenJob(state, "the job is being stopped", _read_launched(status), host, is_stopping=True)
    return SeenJob(state, started=_read_launched(status) or _seconds(status.get("createdTime")), host=host)


def waiting(summary: Mapping[str, Json], warnings: Sequence[Mapping[str, Json]]) -> str:
    """Return why a job waits, in words."""
    cluster = str(summary.get("virtualCluster") or "")
    words = _WAITS.get(str(summary.get("subState")), "")
    parts = [f"{words}, in the virtual cluster {cluster}" if words and cluster else words]
    if warnings:
        latest = max(warnings, key=lambda event: str(event.get("lastTimestamp") or ""))
        parts.append(": ".join(str(latest[key]) for key in ("reason", "message") if latest.get(key)))
    parts.append(retried(summary))
    return "; ".join(part for part in parts if part)[:_REASON_CHARS]


def retried(summary: Mapping[str, Json]) -> str:
    """Return how often PAI has started a job again, and why."""
    times = _number(summary.get("retries")) or 0
    if not times:
        return ""
    details = summary.get("retryDetails")
    why = details if isinstance(details, Mapping) else {}
    causes = [f"{count} for {name}" for name, count in why.items() if count]
    delay_s = _number(summary.get("retryDelayTime"))
    text = f"PAI started the job again {times} time{'s' if times > 1 else ''}"
    text += f" ({', '.join(causes)})" if causes else ""
    return f"{text}; the next start is in {delay_s} s" if delay_s else text


def judge_end(detail: Mapping[str, Json], word: Exited | None, reporting: str) -> JobStatus:
    """Return how a job has ended. `word` is the keeper's report; `reporting` is the role that reports for the trial."""
    status = _read_object(detail.get("jobStatus"))
    task = task_of(detail, reporting)
    host = task.host if task else ""
    times = JobStatus(
        JobState.UNKNOWN,
        host=host,
        started=_read_launched(status),
        ended=_seconds(status.get("appCompletedTime") or status.get("completedTime")),
    )
    state = state_of(status)
    if word is not None and (state is not JobState.FAILED or _is_of(status, reporting)):
        return _judge_by_keeper(word, times, stopped=state is JobState.CANCELED)
    if state is JobState.SUCCEEDED:
        return replace(times, state=state, exit_code=0)
    if state is JobState.CANCELED:
        return replace(times, state=state, reason="the job was stopped on PAI")
    return _judge_by_exit_code(status, times)


def _is_of(status: Mapping[str, Json], reporting: str) -> bool:
    """Return whether the job ended with the reporting role; another one may have failed before it."""
    role = status.get("appExitTriggerTaskRoleName")
    return role in (None, "", reporting)


def _judge_by_keeper(word: Exited, times: JobStatus, stopped: bool) -> JobStatus:
    found = keeper_status(word, times.started)
    return replace(
        found,
        host=times.host,
        state=JobState.CANCELED if stopped else found.state,
        reason=found.reason[:_REASON_CHARS],
        ended=found.ended or times.ended,
    )


def _judge_by_exit_code(status: Mapping[str, Json], times: JobStatus) -> JobStatus:
    code = _number(status.get("appExitCode"))
    spec = _read_object(status.get("appExitSpec"))
    state = _TYPES.get(str(spec.get("type")), JobState.FAILED)
    if state is JobState.FAILED and str(spec.get("type")) == "UNKNOWN_FAILURE" and (code or 0) < 0:
        # No container has failed, so the platform ended the job.
        state = JobState.LOST
    if state is JobState.SUCCEEDED:
        state = JobState.FAILED
    own = _number(_read_object(_read_object(status.get("appExitMessages")).get("runtime")).get("originUserExitCode"))
    exit_code = own if own is not None else code
    reason = explained(status)
    in_range = exit_code if state is JobState.FAILED and exit_code is not None and exit_code >= 0 else None
    return replace(times, state=state, reason=reason, exit_code=in_range)


def explained(status: Mapping[str, Json]) -> str:
    """Return PAI's own words on an exit code: phrase, reason, cure, and observations."""
    spec = _read_object(status.get("appExitSpec"))
    code, phrase = status.get("appExitCode"), str(spec.get("phrase") or "")
    text = f"PAI's exit code {code}" + (f", {phrase}" if phrase else "")
    if phrase in _PREEMPTED:
        text += " (the job was preempted, or its pod was taken away)"
    if spec.get("reason"):
        text += f": {spec['reason']}"
    role = status.get("appExitTriggerTaskRoleName")
    if role:
        text += f" ({role} {status.get('appExitTriggerTaskIndex') or 0})"
    solutions = spec.get("solution")
    cures = [str(each) for each in solutions] if isinstance(solutions, list) else []
    parts = [text, f"PAI advises: {'; '.join(cures)}" if cures else "", _seen(status), retried(status)]
    return ". ".join(part.rstrip(".") for part in parts if part)[:_REASON_CHARS]


def _seen(status: Mapping[str, Json]) -> str:
    diagnostics = str(status.get("appExitDiagnostics") or "").strip()
    return " ".join(diagnostics.split())[:500]


def task_of(detail: Mapping[str, Json], role: str, index: int = 0) -> Task | None:
    """Return one task of a job, None before it exists."""
    job_attempt = _number(_read_object(detail.get("jobStatus")).get("attemptId")) or 0
    tasks = _read_object(_read_object(detail.get("taskRoles")).get(role)).get("taskStatuses")
    for entry in tasks if isinstance(tasks, list) else []:
        task = _read_object(entry)
        if _number(task.get("taskIndex")) == index:
            host = str(task.get("containerNodeName") or task.get("containerIp") or "")
            return Task(role, index, _number(task.get("attemptId")) or 0, job_attempt, host)
    return None


def _read_launched(status: Mapping[str, Json]) -> float | None:
    return _seconds(status.get("appLaunchedTime") or status.get("launchedTime"))


def _read_object(value: Any) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _seconds(value: Any) -> float | None:
    """Return seconds: PAI's times are in milliseconds."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= TIME_MAX * 1000
    return value / 1000 if fits else None
