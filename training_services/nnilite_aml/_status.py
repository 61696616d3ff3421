"""Convert Azure's answers to the status of a job. Pure.

The keeper's report, the last event in a job's log, comes first: Azure reports no exit code, and cannot distinguish a
trial that was killed from one that failed by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from nnilite.records import EndCause, Exited
from nnilite.service import JobState, JobStatus
from nnilite.services.job_watch import SeenJob, keeper_status
from nnilite_aml._config import AmlConfig
from nnilite_aml._workspace import AmlJob, RunFacts

WAITING: Mapping[str, str] = {
    "NotStarted": "Azure has accepted the job",
    "Starting": "Azure is starting the job",
    "Provisioning": "Azure is creating nodes for the job",
    "Preparing": "the job's environment is being prepared, which takes long the first time",
    "Queued": "queued",
    "Paused": "the job is paused on Azure; resume it there",
}
RUNNING: Mapping[str, str] = {
    "Running": "",
    "Finalizing": "the job's outputs are being stored",
    "CancelRequested": "the job is being canceled",
}
ENDED: Mapping[str, JobState] = {
    "Completed": JobState.SUCCEEDED,
    "Failed": JobState.FAILED,
    "Canceled": JobState.CANCELED,
}
NOT_RESPONDING = "NotResponding"
_REASON_CHARS = 1500
_EXIT_CODE = re.compile(r"(?:status code|exit code|exited with code)[:\s]+(\d{1,3})\b", re.IGNORECASE)
_TAKEN_AWAY = re.compile(r"preempt|evict|node[^.]{0,40}\b(lost|unusable|failed|unhealthy|rebooted)", re.IGNORECASE)


def seen(job: AmlJob, config: AmlConfig, facts: RunFacts) -> SeenJob:
    """Return the state of a job in Azure's answer."""
    status = job.status
    if status in ENDED:
        return SeenJob(ENDED[status], started=facts.started, url=job.url)
    if status in WAITING:
        return SeenJob(JobState.WAITING, _why(status, config, facts.warnings), facts.started, url=job.url)
    if status in RUNNING:
        stopping = status == "CancelRequested"
        return SeenJob(JobState.RUNNING, RUNNING[status], facts.started, url=job.url, is_stopping=stopping)
    if status == NOT_RESPONDING:  # its node may come back
        return SeenJob(JobState.UNKNOWN, "Azure has no contact with the job's node", facts.started, url=job.url)
    return SeenJob(JobState.UNKNOWN, f"Azure reported the unknown state {status!r:.40}", url=job.url)


def _why(status: str, config: AmlConfig, warnings: tuple[str, ...]) -> str:
    """Return why a job waits."""
    words = WAITING[status]
    if status == "Queued":
        nodes = "a node" if config.instance_count == 1 else f"{config.instance_count} nodes"
        where = f"serverless compute ({config.instance_type})" if config.serverless else config.compute_target
        words = f"queued for {nodes} of {where}"
    return "; ".join([words, *warnings])[:_REASON_CHARS]


def preempted(facts: RunFacts) -> JobStatus:
    """Return the status of a job that has run and waits again."""
    why = "; ".join(filter(None, [*facts.warnings, facts.error]))
    reason = "Azure took the job's node away and put the job into the queue again" + (f": {why}" if why else "")
    return JobStatus(JobState.LOST, reason[:_REASON_CHARS], started=facts.started)


def judge_end(status: str, word: Exited | None, facts: RunFacts) -> JobStatus:
    """Return how a job has ended. `word` is the keeper's report."""
    times = JobStatus(JobState.UNKNOWN, started=facts.started, ended=facts.ended)
    if word is not None:
        judged = _judge_by_keeper(status, word, facts, times)
        return replace(judged, reason=judged.reason[:_REASON_CHARS])
    if status == "Completed":
        return replace(times, state=JobState.SUCCEEDED, exit_code=0)
    if status == "Canceled":
        return replace(times, state=JobState.CANCELED, reason="canceled")
    return _judge_by_azure(facts, times)


def _judge_by_keeper(status: str, word: Exited, facts: RunFacts, times: JobStatus) -> JobStatus:
    judged = keeper_status(word, times.started)
    if judged.state is JobState.SUCCEEDED:
        return judged
    if status == "Canceled":
        return replace(judged, state=JobState.CANCELED, reason="canceled")
    if word.cause is EndCause.INTERRUPTED:
        why = "; ".join(part for part in (word.message, facts.error) if part)
        return replace(judged, state=JobState.LOST, reason=f"Azure ended the job: {why}", exit_code=None)
    return judged


def _judge_by_azure(facts: RunFacts, times: JobStatus) -> JobStatus:
    """Return the end without a keeper's report: what was wrong before the job began, or after it was killed."""
    message = " ".join(facts.error.split())
    code = _EXIT_CODE.search(message)
    lost = _TAKEN_AWAY.search(message) or (facts.error_code not in ("UserError", "") and code is None)
    if lost or not message:
        reason = (
            f"Azure says: {message}"
            if message
            else "the job ended, its keeper reported no end, and Azure gives no reason"
        )
        return replace(times, state=JobState.LOST, reason=reason[:_REASON_CHARS])
    exit_code = int(code.group(1)) if code else None
    return replace(times, state=JobState.FAILED, reason=f"Azure says: {message}"[:_REASON_CHARS], exit_code=exit_code)
