"""Convert Determined's answers to the status of a job. Pure.

The keeper's report, the last event in a job's log, comes first: Determined takes a trial that was preempted, and saved
itself, for one that has succeeded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from nnilite.records import EndCause, Exited
from nnilite.service import JobState, JobStatus
from nnilite.services.job_watch import SeenJob, keeper_status

Experiment = Mapping[str, Any]
"""An experiment in Determined's answers."""
PAUSED = "STATE_PAUSED"
DELETED: Sequence[str] = ("STATE_DELETED", "STATE_DELETING", "STATE_DELETE_FAILED")
ENDED: Mapping[str, JobState] = {
    "STATE_COMPLETED": JobState.SUCCEEDED,
    "STATE_CANCELED": JobState.CANCELED,
    "STATE_ERROR": JobState.FAILED,
    **dict.fromkeys(DELETED, JobState.FAILED),
}
_WAITING: Mapping[str, str] = {
    "STATE_ACTIVE": "Determined has accepted the job",
    "STATE_QUEUED": "queued",
    "STATE_PULLING": "the job's image is being pulled",
    "STATE_STARTING": "the job's container is being started",
    PAUSED: "the job is paused on Determined; activate it there",
}
_STOPPING = "the job is being stopped"
_SOFT_STOP = "STATE_STOPPING_CANCELED"
_NOT_BEGUN: Sequence[str] = ("STATE_QUEUED", "STATE_PULLING", "STATE_STARTING")
# Determined says so of an image that does not exist; another try would not help.
_IMAGE = ("image", "pull")


@dataclass(frozen=True)
class ContainerFacts:
    """What the containers of a job tell."""

    started: float | None = None
    """When the first of them began."""
    alive: bool = False
    """Whether the last one has not ended yet."""
    message: str = ""
    """Determined's reason for the end of the last one."""

    @property
    def has_no_image(self) -> bool:
        """Return whether the image could not be pulled, so that nothing has run."""
        return all(word in self.message.lower() for word in _IMAGE)


def facts_of(allocations: Sequence[Mapping[str, Any]]) -> ContainerFacts:
    """Return the facts of the containers of a task, the latest last."""
    begun = [one for one in allocations if one.get("startTime") and one.get("state") not in _NOT_BEGUN]
    if not begun:
        return ContainerFacts()
    alive = begun[-1].get("state") != "STATE_TERMINATED"
    return ContainerFacts(seconds(begun[0].get("startTime")), alive, str(begun[-1].get("exitReason") or ""))


def seen(experiment: Experiment, queue: str, facts: ContainerFacts) -> SeenJob:
    """Return the state of a job in Determined's answer. `queue`: Determined's words on its place in the queue."""
    state = str(experiment.get("state"))
    if state in ENDED:
        return SeenJob(ENDED[state], started=facts.started)
    if state in _WAITING:
        in_queue = queue if state == "STATE_QUEUED" else ""
        return SeenJob(JobState.WAITING, in_queue or _WAITING[state], facts.started)
    if state == "STATE_RUNNING":
        return SeenJob(JobState.RUNNING, started=facts.started)
    if state.startswith("STATE_STOPPING"):
        return SeenJob(JobState.RUNNING, _STOPPING, facts.started, is_stopping=state != _SOFT_STOP)
    return SeenJob(JobState.UNKNOWN, f"Determined reported the unknown state {state!r:.40}", facts.started)


def taken_away(experiment: Experiment, facts: ContainerFacts) -> JobStatus:
    """Return the status of a job that has run, and waits again."""
    if facts.alive:
        return JobStatus(JobState.RUNNING, _STOPPING, started=facts.started)
    is_paused = experiment.get("state") == PAUSED
    why = "the job was paused on Determined" if is_paused else "Determined's scheduler preempted the job"
    return JobStatus(JobState.LOST, f"{why} ({facts.message})" if facts.message else why, started=facts.started)


def judge_end(state: str, word: Exited | None, facts: ContainerFacts) -> JobStatus:
    """Return how a job has ended. `word` is the keeper's report."""
    times = JobStatus(JobState.UNKNOWN, started=facts.started)
    if state in DELETED:
        return replace(times, state=JobState.LOST, reason="the job's experiment was deleted on Determined")
    if word is not None and word.code == 0:
        return keeper_status(word, facts.started)
    if state == "STATE_CANCELED":
        return replace(times, state=JobState.CANCELED, reason="canceled", exit_code=word.code if word else None)
    return _judge_by_keeper(word, facts) if word is not None else _judge_by_determined(facts, times)


def _judge_by_keeper(word: Exited, facts: ContainerFacts) -> JobStatus:
    found = keeper_status(word, facts.started)
    if word.cause is EndCause.INTERRUPTED:
        why = facts.message or "it was preempted"
        return replace(found, state=JobState.LOST, reason=f"Determined ended the job: {why}")
    return found


def _judge_by_determined(facts: ContainerFacts, times: JobStatus) -> JobStatus:
    """Return the end without a keeper's report."""
    message = facts.message and f"Determined says: {facts.message}"
    if facts.has_no_image:
        return replace(times, state=JobState.FAILED, reason=message)
    reason = message or "the job's container ended, and its keeper reported no end"
    return replace(times, state=JobState.LOST, reason=reason)


def in_queue(job: Mapping[str, Any]) -> str:
    """Return what Determined's job queue says of a job that waits."""
    summary = job.get("summary")
    ahead = summary.get("jobsAhead") if isinstance(summary, Mapping) else None
    wanted = job.get("requestedSlots")
    pool = job.get("resourcePool")
    words = [f"queued in the resource pool {pool}" if pool else "queued"]
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        words.append(f"for {wanted} slot{'' if wanted == 1 else 's'}")
    return " ".join(words) + (f", {ahead} jobs ahead of it" if ahead else "")


def seconds(text: object) -> float | None:
    """Convert a time (RFC 3339, with up to nine digits of a second) to seconds since the epoch.

    None if it is not a time.
    """
    if not isinstance(text, str) or not text:
        return None
    head, dot, rest = text.partition(".")
    if dot:
        digits = rest.rstrip("Z").partition("+")[0]
        text = f"{head}.{digits[:6]:0<6}{rest[len(digits) :]}"
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
