"""Convert a job to the parameters of DLTS, and DLTS's answers to a status. Pure: no clock, no network."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from nnilite.records import Exited, Json
from nnilite.service import Job, JobState, JobStatus
from nnilite.services.job_watch import SeenJob, keeper_status
from nnilite_dlts._config import DltsConfig

WAITING = {
    "unapproved": "DLTS has not approved the job",
    "queued": "the job is in the queue of its team",
    "scheduling": "DLTS is starting the job's container",
}
"""States before the command runs, and their meaning."""
FAILED = ("failed", "error")
ENDED = ("finished", *FAILED, "killed")
KILLABLE = ("unapproved", "queued", "scheduling", "running", "pausing", "paused")
_IMAGE = re.compile(r"ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull|ImageInspectError")
_LOST = re.compile(r"Evicted|Preempt|NodeLost|NodeShutdown|node (?:was )?(?:lost|shut)", re.IGNORECASE)
_IDS = uuid.UUID("5f0a2c5e-58a2-5d0c-9f3e-0d17c1f5d7a5")


@dataclass(frozen=True)
class Submission:
    """The fields of a submission, in addition to those of the section."""

    command: str
    variables: Mapping[str, str]
    gpus: int
    gpu_type: str


def job_id(name: str) -> str:
    """Return the id of a job of this name on DLTS: the same for each try to submit it."""
    return str(uuid.uuid5(_IDS, name))


def gpus(config: DltsConfig, job: Job) -> int | None:
    """Return the GPUs of a job; None: not set."""
    return config.gpu_number if config.gpu_number is not None else job.gpus


def params(job: Job, config: DltsConfig, submission: Submission) -> dict[str, Json]:
    """Return the request that submits a job: NNI's fields, and an id made here."""
    variables = [{"name": name, "value": value} for name, value in submission.variables.items()]
    found: dict[str, Json] = {
        "jobId": job_id(job.name),
        "jobName": job.name,
        "jobType": "training",
        "jobtrainingtype": "RegularJob",
        "team": config.team,
        "vcName": config.team,
        "userName": config.email,
        "image": config.image,
        "cmd": submission.command,
        # The API has `env`; what the versions of 2020 and later give to the container is `envs`.
        "env": variables,
        "envs": variables,
        "resourcegpu": submission.gpus,
        "preemptionAllowed": config.preemption_allowed,
        "workPath": config.work_path,
        "enableworkpath": True,
        "dataPath": config.data_path or "",
        "enabledatapath": config.data_path is not None,
        "jobPath": "",
        "enablejobpath": True,
        "mountpoints": [],
        "interactivePorts": [],
        **dict.fromkeys(("ssh", "ipython", "tensorboard", "hostNetwork", "hostIPC"), False),
        **dict.fromkeys(("isPrivileged", "useGPUTopology"), False),
    }
    return {**found, "gpuType": submission.gpu_type} if submission.gpu_type else found


def details(job: Mapping[str, Json]) -> Sequence[Mapping[str, Json]]:
    """Return DLTS's details on a job's state."""
    given = job.get("jobStatusDetail")
    return [entry for entry in given if isinstance(entry, dict)] if isinstance(given, list) else []


def describe(job: Mapping[str, Json]) -> str:
    """Return the same in words."""
    messages = [_text(entry.get("message")) or _text(entry.get("reason")) for entry in details(job)]
    return "; ".join(dict.fromkeys(part for part in messages if part))


def has_image_trouble(job: Mapping[str, Json]) -> bool:
    """Return whether a job waits for an image that cannot be pulled."""
    return job.get("jobStatus") == "scheduling" and bool(_IMAGE.search(str(job.get("jobStatusDetail"))))


def waiting(job: Mapping[str, Json]) -> str:
    """Return why a job waits."""
    meaning = WAITING[str(job.get("jobStatus"))]
    message = describe(job)
    return f"{meaning}: {message}" if message else meaning


def moment(job: Mapping[str, Json], name: str) -> float | None:
    """Return `startedAt` or `finishedAt` as seconds since the epoch."""
    for entry in details(job):
        try:
            return datetime.fromisoformat(str(entry[name]).replace("Z", "+00:00")).timestamp()
        except (KeyError, ValueError, OverflowError):
            continue
    return None


def seen(job: Mapping[str, Json]) -> SeenJob:
    """Return the state of a job in DLTS's answer."""
    state, started = str(job.get("jobStatus")), moment(job, "startedAt")
    if state in WAITING:
        return SeenJob(JobState.WAITING, waiting(job))
    if state in ENDED:
        end = JobState.SUCCEEDED if state == "finished" else JobState.FAILED
        return SeenJob(JobState.CANCELED if state == "killed" else end, started=started)
    if state == "paused":
        return SeenJob(JobState.LOST, "the job was paused on DLTS, which ends its command")
    if state == "killing":
        return SeenJob(JobState.RUNNING, "the job is being stopped", started, is_stopping=True)
    if state in ("running", "pausing"):
        return SeenJob(JobState.RUNNING, "the job was paused on DLTS" if state == "pausing" else "", started)
    return SeenJob(JobState.UNKNOWN, f"DLTS reported the unknown state {state!r:.40}")


def judge_end(job: Mapping[str, Json], word: Exited | None, message: str) -> JobStatus:
    """Return how a job has ended. `word` is the keeper's report; `message`: why it failed, by DLTS."""
    started = moment(job, "startedAt")
    if job.get("jobStatus") == "killed":
        return JobStatus(JobState.CANCELED, "canceled", started=started, ended=moment(job, "finishedAt"))
    return keeper_status(word, started) if word is not None else _judge_by_platform(job, message, started)


def _judge_by_platform(job: Mapping[str, Json], message: str, started: float | None) -> JobStatus:
    """Return the end without an exit code, except for the one that is certain."""
    finished = moment(job, "finishedAt")
    if job.get("jobStatus") == "finished":
        return JobStatus(JobState.SUCCEEDED, "", 0, started=started, ended=finished)
    reason = message or describe(job) or "DLTS gives no reason for the failure"
    state = JobState.LOST if _LOST.search(reason) else JobState.FAILED
    return JobStatus(state, reason, started=started, ended=finished)


def _text(value: Json) -> str:
    return value.strip() if isinstance(value, str) else ""
