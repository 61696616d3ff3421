"""What OpenPAI's answers tell of a job. Pure: no clock, no network.

The keeper's word, which the job prints at its end, comes first: it alone tells a trial that was killed from one that
has ended with 137. Without it, PAI's exit code counts, as PAI's own table of exit codes explains it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from nnilite.records import Json
from nnilite.service import JobState, JobStatus
from nnilite.services.keeper_folder import end_status

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
    "AttemptCreationPending": "PAI has yet to hand it to Kubernetes",
    "AttemptCreationRequested": "PAI has just handed it to Kubernetes",
    "AttemptPreparing": "it waits for resources, or for its image",
    "AttemptCompleted": "PAI starts it again",
}
_PREEMPTED = ("PodPreemptedForCriticalPod", "PodEvicted", "PodExternalDeleted")
_REASON_CHARS = 1500
_LATEST = 1e14
"""Milliseconds, far in the future."""


@dataclass(frozen=True)
class Task:
    """One task of a job: where it runs, and where its log is."""

    role: str
    index: int
    attempt: int
    job_attempt: int
    host: str = ""

    @property
    def place(self) -> str:
        """Its part of a path of the REST interface."""
        return f"attempts/{self.job_attempt}/taskRoles/{self.role}/taskIndex/{self.index}/attempts/{self.attempt}"


def state_of(summary: Mapping[str, Json]) -> JobState:
    """The state of a job, from the list or from its own page."""
    return _STATES.get(str(summary.get("state")), JobState.UNKNOWN)


def waiting(summary: Mapping[str, Json], warnings: list[Mapping[str, Json]]) -> str:
    """Why a job waits, in words."""
    cluster = str(summary.get("virtualCluster") or "")
    words = _WAITS.get(str(summary.get("subState")), "")
    parts = [f"{words}, in the virtual cluster {cluster}" if words and cluster else words]
    if warnings:
        latest = max(warnings, key=lambda event: str(event.get("lastTimestamp") or ""))
        parts.append(": ".join(str(latest[key]) for key in ("reason", "message") if latest.get(key)))
    parts.append(retried(summary))
    return "; ".join(part for part in parts if part)[:_REASON_CHARS]


def retried(summary: Mapping[str, Json]) -> str:
    """How often PAI has started a job again, and why."""
    times = _number(summary.get("retries")) or 0
    if not times:
        return ""
    details = summary.get("retryDetails")
    why = details if isinstance(details, Mapping) else {}
    causes = [f"{count} for {name}" for name, count in why.items() if count]
    delay_s = _number(summary.get("retryDelayTime"))
    text = f"PAI has started it again {times} time{'s' if times > 1 else ''}"
    text += f" ({', '.join(causes)})" if causes else ""
    return f"{text}, and waits {delay_s} s before the next" if delay_s else text


def ended(detail: Mapping[str, Json], word: Mapping[str, Json] | None, reporting: str) -> JobStatus:
    """How a job has ended. `word` is the keeper's; `reporting` is the role that speaks for the trial."""
    status = _object(detail.get("jobStatus"))
    task = task_of(detail, reporting)
    host = task.host if task else ""
    times = JobStatus(
        JobState.UNKNOWN,
        host=host,
        started=_seconds(status.get("appLaunchedTime") or status.get("launchedTime")),
        ended=_seconds(status.get("appCompletedTime") or status.get("completedTime")),
    )
    state = state_of(status)
    if word is not None and (state is not JobState.FAILED or _is_of(status, reporting)):
        return _by_keeper(word, times, stopped=state is JobState.CANCELED)
    if state is JobState.SUCCEEDED:
        return replace(times, state=state, exit_code=0)
    if state is JobState.CANCELED:
        return replace(times, state=state, reason="stopped on PAI")
    return _by_exit_code(status, times)


def _is_of(status: Mapping[str, Json], reporting: str) -> bool:
    """Whether it was the reporting role with which the job has ended; another one may have failed before it."""
    role = status.get("appExitTriggerTaskRoleName")
    return role in (None, "", reporting)


def _by_keeper(word: Mapping[str, Json], times: JobStatus, stopped: bool) -> JobStatus:
    found = end_status({**word, "time": word.get("ended")}, times.host, _time(word.get("started")) or times.started)
    return replace(
        found,
        state=JobState.CANCELED if stopped else found.state,
        reason=found.reason[:_REASON_CHARS],
        ended=found.ended or times.ended,
    )


def _by_exit_code(status: Mapping[str, Json], times: JobStatus) -> JobStatus:
    code = _number(status.get("appExitCode"))
    spec = _object(status.get("appExitSpec"))
    state = _TYPES.get(str(spec.get("type")), JobState.FAILED)
    if state is JobState.FAILED and str(spec.get("type")) == "UNKNOWN_FAILURE" and (code or 0) < 0:
        # No container has failed: the platform has ended it.
        state = JobState.LOST
    if state is JobState.SUCCEEDED:
        state = JobState.FAILED
    own = _number(_object(_object(status.get("appExitMessages")).get("runtime")).get("originUserExitCode"))
    exit_code = own if own is not None else code
    reason = explained(status)
    in_range = exit_code if state is JobState.FAILED and exit_code is not None and exit_code >= 0 else None
    return replace(times, state=state, reason=reason, exit_code=in_range)


def explained(status: Mapping[str, Json]) -> str:
    """PAI's own words on an exit code: phrase, reason, cure, and what it has seen."""
    spec = _object(status.get("appExitSpec"))
    code, phrase = status.get("appExitCode"), str(spec.get("phrase") or "")
    text = f"PAI's exit code {code}" + (f", {phrase}" if phrase else "")
    if phrase in _PREEMPTED:
        text += " (it was preempted, or its pod was taken away)"
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
    """One task of a job, None before it is there."""
    job_attempt = _number(_object(detail.get("jobStatus")).get("attemptId")) or 0
    tasks = _object(_object(detail.get("taskRoles")).get(role)).get("taskStatuses")
    for entry in tasks if isinstance(tasks, list) else []:
        task = _object(entry)
        if _number(task.get("taskIndex")) == index:
            host = str(task.get("containerNodeName") or task.get("containerIp") or "")
            return Task(role, index, _number(task.get("attemptId")) or 0, job_attempt, host)
    return None


def keepers_word(log: bytes) -> Mapping[str, Json] | None:
    """What the keeper has left in the log of its task: {"code": ..., "message": ..., "started": ..., "ended": ...}."""
    for line in reversed(log[-200_000:].split(b"\n")):
        if line.startswith(END_MARK):
            try:
                word = json.loads(line)["nnilite"]
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
            if isinstance(word, Mapping):
                return word
    return None


END_MARK = b'{"nnilite": {'
"""How the line begins with the keeper's word."""


def running(summary: Mapping[str, Json]) -> JobStatus:
    """A job that runs."""
    reason = "it is being stopped" if summary.get("state") == "STOPPING" else retried(summary)
    started = _seconds(summary.get("launchedTime") or summary.get("createdTime"))
    return JobStatus(JobState.RUNNING, reason, started=started)


def _object(value: Any) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _seconds(value: Any) -> float | None:
    """PAI's times are in milliseconds."""
    number = _time(value)
    return number / 1000 if number else None


def _time(value: Any) -> float | None:
    """A time, if it can be one: a trial can print a line that looks like its keeper's."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < _LATEST
    return float(value) if fits else None
