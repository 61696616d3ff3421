"""Pure: from Azure's answers to the status of a job.

The keeper's word, which is the last event in a job's log, comes first: Azure tells no exit code, and does not know a
trial that was killed from one that has failed by itself.
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
    "NotStarted": "Azure has taken it",
    "Starting": "Azure is starting it",
    "Provisioning": "Azure is making nodes for it",
    "Preparing": "its environment is being prepared, which takes long the first time",
    "Queued": "queued",
    "Paused": "it is paused on Azure: resume it there",
}
RUNNING: Mapping[str, str] = {
    "Running": "",
    "Finalizing": "its outputs are being kept",
    "CancelRequested": "it is being canceled",
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
    """What Azure tells of a job."""
    status = job.status
    if status in ENDED:
        return SeenJob(ENDED[status], started=facts.started, url=job.url)
    if status in WAITING:
        return SeenJob(JobState.WAITING, _why(status, config, facts.warnings), facts.started, url=job.url)
    if status in RUNNING:
        stopping = status == "CancelRequested"
        return SeenJob(JobState.RUNNING, RUNNING[status], facts.started, url=job.url, is_stopping=stopping)
    if status == NOT_RESPONDING:  # its node may come back
        return SeenJob(JobState.UNKNOWN, "Azure has no contact with its node", facts.started, url=job.url)
    return SeenJob(JobState.UNKNOWN, f"Azure reports a state that nnilite does not know: {status!r:.40}", url=job.url)


def _why(status: str, config: AmlConfig, warnings: tuple[str, ...]) -> str:
    """Why a job waits."""
    words = WAITING[status]
    if status == "Queued":
        nodes = "a node" if config.instance_count == 1 else f"{config.instance_count} nodes"
        where = f"serverless compute ({config.instance_type})" if config.serverless else config.compute_target
        words = f"queued for {nodes} of {where}"
    return "; ".join([words, *warnings])[:_REASON_CHARS]


def preempted(facts: RunFacts) -> JobStatus:
    """Of a job that has run and waits again."""
    why = "; ".join(filter(None, [*facts.warnings, facts.error]))
    reason = "Azure has taken its node away and put it in the queue again" + (f": {why}" if why else "")
    return JobStatus(JobState.LOST, reason[:_REASON_CHARS], started=facts.started)


def ended(status: str, word: Exited | None, facts: RunFacts) -> JobStatus:
    """How a job has ended. `word` is the keeper's."""
    times = JobStatus(JobState.UNKNOWN, started=facts.started, ended=facts.ended)
    if word is not None:
        told = _by_keeper(status, word, facts, times)
        return replace(told, reason=told.reason[:_REASON_CHARS])
    if status == "Completed":
        return replace(times, state=JobState.SUCCEEDED, exit_code=0)
    if status == "Canceled":
        return replace(times, state=JobState.CANCELED, reason="canceled")
    return _by_azure(facts, times)


def _by_keeper(status: str, word: Exited, facts: RunFacts, times: JobStatus) -> JobStatus:
    found = keeper_status(word, times.started)
    if found.state is JobState.SUCCEEDED:
        return found
    if status == "Canceled":
        return replace(found, state=JobState.CANCELED, reason="canceled")
    if word.cause is EndCause.INTERRUPTED:
        why = "; ".join(part for part in (word.message, facts.error) if part)
        return replace(found, state=JobState.LOST, reason=f"Azure has ended it: {why}", exit_code=None)
    return found


def _by_azure(facts: RunFacts, times: JobStatus) -> JobStatus:
    """Without the keeper's word: what was wrong before it began, or after it was killed."""
    said = " ".join(facts.error.split())
    code = _EXIT_CODE.search(said)
    lost = _TAKEN_AWAY.search(said) or (facts.error_code not in ("UserError", "") and code is None)
    if lost or not said:
        reason = f"Azure says: {said}" if said else "it has ended without a word, and Azure does not say why"
        return replace(times, state=JobState.LOST, reason=reason[:_REASON_CHARS])
    exit_code = int(code.group(1)) if code else None
    return replace(times, state=JobState.FAILED, reason=f"Azure says: {said}"[:_REASON_CHARS], exit_code=exit_code)
