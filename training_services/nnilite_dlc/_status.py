"""Convert DLC's answers to the status of a job. Pure.

The keeper's report, the last event in a job's log, comes first: DLC reports no exit code, and its words for the reason
of an end are not documented. NNI knew other names of some states, which are accepted, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from nnilite.records import EndCause, Exited
from nnilite.service import JobState, JobStatus
from nnilite.services.job_watch import SeenJob, keeper_status
from nnilite_dlc._api import DlcJob

WAITING: Mapping[str, str] = {
    "creating": "DLC has accepted the job",
    "created": "DLC has accepted the job",
    "waiting": "queued",
    "queued": "queued",
    "queuing": "queued",
    "dequeued": "the job has left the queue",
    "bidding": "DLC is bidding for a spot instance",
    "envpreparing": "the job's pods are being prepared",
    "sanitychecking": "DLC is checking its nodes",
}
RUNNING: Mapping[str, str] = {"running": "", "stopping": "the job is being stopped"}
SUCCEEDED = ("succeeded", "completed", "succeededreserving")
FAILED = ("failed", "failedreserving")
STOPPED = ("stopped",)
ENDED = (*SUCCEEDED, *FAILED, *STOPPED)
RESERVING = ("succeededreserving", "failedreserving")
RESTARTING = "restarting"
_REASON_CHARS = 1500
_EXIT_CODE = re.compile(r"(?:exit code|exitcode|exited with code|exit status)[\s:=]+(\d{1,3})\b", re.IGNORECASE)
_TAKEN_AWAY = re.compile(
    r"preempt|evict|reclaim|\bspot|node\W?(lost|shutdown|failure|not\W?ready)|node [^.]{0,40}\b(lost|failed|down)\b",
    re.IGNORECASE,
)


def state_of(job: DlcJob) -> str:
    """Return the state in small letters: NNI knew states in capitals."""
    return job.status.lower()


def seen(job: DlcJob) -> SeenJob:
    """Return the state of a job in DLC's answer."""
    state = state_of(job)
    node = next((pod.node for pod in job.pods if pod.node), "")
    if state in ENDED:
        end = JobState.SUCCEEDED if state in SUCCEEDED else JobState.FAILED
        end = JobState.CANCELED if state in STOPPED else end
        return SeenJob(end, started=job.started, host=node, holds=state in RESERVING)
    if state == RESTARTING or job.restarts:
        # The command would start again within the same attempt, so the job counts as lost, and is removed.
        what = "DLC took the job off its nodes to start it again"
        reason = "; ".join(filter(None, (what, describe_state(job))))[:_REASON_CHARS]
        return SeenJob(JobState.LOST, reason, job.started, node)
    if state in WAITING:
        reason = "; ".join(filter(None, (WAITING[state], describe_state(job))))[:_REASON_CHARS]
        return SeenJob(JobState.WAITING, reason, job.started, node)
    if state in RUNNING:
        return SeenJob(JobState.RUNNING, RUNNING[state], job.started, node, is_stopping=state == "stopping")
    return SeenJob(JobState.UNKNOWN, f"DLC reported the unknown state {job.status!r:.40}")


def describe_state(job: DlcJob) -> str:
    """Return DLC's words on a job's state."""
    return ": ".join(filter(None, (job.code, job.reason)))


def taken_away(job: DlcJob) -> bool:
    """Return whether DLC says that its nodes were taken away, or have failed."""
    return any(pod.evicted for pod in job.pods) or bool(_TAKEN_AWAY.search(describe_state(job)))


def judge_end(job: DlcJob, word: Exited | None, ran: bool) -> JobStatus:
    """Return how a job has ended. `word` is the keeper's report; `ran`: whether it has ever run."""
    times = JobStatus(JobState.UNKNOWN, started=job.started, ended=job.ended)
    found = _judge_by_keeper(job, word, times) if word is not None else _judge_by_dlc(job, ran, times)
    return replace(found, reason=found.reason[:_REASON_CHARS])


def _judge_by_keeper(job: DlcJob, word: Exited, times: JobStatus) -> JobStatus:
    status = keeper_status(word, times.started)
    if status.state is JobState.SUCCEEDED:
        return status
    away = taken_away(job)
    if state_of(job) in STOPPED and not away:
        return replace(status, state=JobState.CANCELED, reason="canceled")
    if word.cause is EndCause.INTERRUPTED or away:
        why = "; ".join(filter(None, (word.message, describe_state(job))))
        return replace(status, state=JobState.LOST, reason=f"DLC ended the job: {why}", exit_code=None)
    return status


def _judge_by_dlc(job: DlcJob, ran: bool, times: JobStatus) -> JobStatus:
    """Return the end without a keeper's report: what was wrong before the job began, or after it was killed."""
    state, words = state_of(job), describe_state(job)
    if state in SUCCEEDED:
        return replace(times, state=JobState.SUCCEEDED, exit_code=0)
    if taken_away(job):
        return replace(times, state=JobState.LOST, reason=f"DLC took the job's nodes away: {words}")
    if state in STOPPED:
        return replace(times, state=JobState.CANCELED, reason="canceled")
    code = _EXIT_CODE.search(words)
    if code is None and (ran or not words):
        reason = f"DLC says: {words}" if words else "DLC gives no reason"
        return replace(times, state=JobState.LOST, reason=f"the job ended, and its keeper reported no end; {reason}")
    exit_code = int(code.group(1)) if code else None
    return replace(times, state=JobState.FAILED, reason=f"DLC says: {words}", exit_code=exit_code)
