"""Convert a job to the request that starts it, and Determined's answers to the state of the job. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from nnilite.records import UNSTARTED, EndCause, Json
from nnilite.service import Job, JobState, JobStatus
from nnilite.services.bootstrap import command, python_command
from nnilite_determined import _start
from nnilite_determined._config import DeterminedConfig, DeterminedMount, DeterminedStorage
from nnilite_determined._context import FOLDER

PAUSED = "nnilite-paused"
_DELETED = ("STATE_DELETED", "STATE_DELETING", "STATE_DELETE_FAILED")
TERMINAL = ("STATE_COMPLETED", "STATE_CANCELED", "STATE_ERROR", *_DELETED)
IDLE = ("STATE_QUEUED", "STATE_PAUSED")
_WAITING = {
    "STATE_ACTIVE": "Determined has accepted the job",
    "STATE_QUEUED": "queued",
    "STATE_PULLING": "the job's image is being pulled",
    "STATE_STARTING": "the job's container is being started",
    "STATE_PAUSED": "the job is paused on Determined; activate it there",
}
_SHOWN_PARAMETERS = 10_000
_SAVING_S = 60  # left after the grace period, for the checkpoint that is sent then
_WORK = "nnilite-trial"
# Determined says so of an image that does not exist; another try would not help.
_IMAGE = ("image", "pull")


def label(experiment: str, service: str) -> str:
    """Return the label that all jobs of a service have."""
    return f"nnilite:{experiment}:{service}"


def expconf(job: Job, service: str, config: DeterminedConfig, source_checkpoint: str = "") -> dict[str, Json]:
    """Return the experiment's configuration, in Determined's schema `expconf/v0`."""
    searcher = {"name": "single", "metric": "nnilite", "smaller_is_better": True}
    if source_checkpoint:
        searcher["source_checkpoint_uuid"] = source_checkpoint
    own: dict[str, Json] = {
        "name": job.name,
        "description": f"nnilite experiment {job.experiment}, trial {job.trial}, attempt {job.attempt}",
        "labels": [*config.labels, "nnilite", label(job.experiment, service)],
        "entrypoint": entrypoint(job),
        "searcher": searcher,
        "hyperparameters": _hyperparameters(job),
        "max_restarts": 0,
        "preemption_timeout": round(float(job.spec.get("grace_s") or 0)) + _SAVING_S,
        "resources": _resources(job, config),
        "environment": _environment(config),
        "bind_mounts": [_plain(mount) for mount in config.bind_mounts],
        "checkpoint_storage": storage(config.checkpoint_storage) if config.checkpoint_storage else None,
        "workspace": config.workspace,
        "project": config.project,
    }
    given = {name: value for name, value in own.items() if value not in (None, [], {})}
    return _merged(config.expconf or {}, given)


def request(conf: Mapping[str, Json], files: list[dict[str, Json]], activate: bool = True) -> dict[str, Json]:
    """Return the body of `POST /api/v1/experiments`."""
    text = yaml.safe_dump(dict(conf), sort_keys=False, allow_unicode=True, width=1_000_000)
    return {"config": text, "modelDefinition": files, "activate": activate, "validateOnly": False}


def entrypoint(job: Job) -> list[str]:
    """Return the command that starts the keeper in the folder of the context directory."""
    about = json.dumps({"experiment": job.experiment, "trial": job.trial})
    words = command(f"{FOLDER}/spec", _WORK, message_file=_start.END_FILE)
    return python_command(Path(_start.__file__).read_text(encoding="utf-8"), about, *words)


def storage(given: DeterminedStorage) -> dict[str, Json]:
    """Return the storage as expconf has it."""
    of_type = {
        "shared_fs": ("host_path", "storage_path"),
        "directory": ("container_path",),
        "s3": ("bucket", "prefix", "endpoint_url", "access_key", "secret_key"),
    }[given.type]
    names = ("type", *of_type, "save_experiment_best", "save_trial_best", "save_trial_latest")
    found = {name: getattr(given, name) for name in names}
    return {name: str(value) if isinstance(value, str) else value for name, value in found.items() if value is not None}


def _hyperparameters(job: Job) -> dict[str, Json]:
    """Return the trial's parameters, only for Determined's page: the keeper gives them to the trial."""
    record = job.spec.get("parameters") or {}
    parameters = record.get("parameters") if isinstance(record, Mapping) else None
    if not isinstance(parameters, Mapping) or len(json.dumps(parameters)) > _SHOWN_PARAMETERS:
        return {}
    return {str(name): {"type": "const", "val": value} for name, value in parameters.items()}


def slots(job: Job, config: DeterminedConfig) -> int | None:
    """Return the number of slots of a job; None: Determined's default, one."""
    return job.gpus if config.slots is None else config.slots


def _resources(job: Job, config: DeterminedConfig) -> dict[str, Json]:
    found = {
        "slots_per_trial": slots(job, config),
        "resource_pool": config.resource_pool,
        "priority": config.priority,
        "weight": config.weight,
        "shm_size": f"{config.shm_size} MiB" if config.shm_size else None,
        # On several machines there would be several containers, each of which would report as the trial.
        "is_single_node": True if (slots(job, config) or 0) > 1 else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _environment(config: DeterminedConfig) -> dict[str, Json]:
    variables = [f"{name}={value}" for name, value in config.environment.items()]
    found: dict[str, Json] = {"image": config.image} if config.image else {}
    return {**found, "environment_variables": variables} if variables else found


def _plain(mount: DeterminedMount) -> dict[str, Json]:
    return {one.name: getattr(mount, one.name) for one in fields(mount)}


def _merged(base: Mapping[str, Json], over: Mapping[str, Json]) -> dict[str, Json]:
    """Merge objects key by key; what `over` says counts."""
    found = dict(base)
    for name, value in over.items():
        below = found.get(name)
        found[name] = _merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return found


# ------------------------------------------------------------ from answers


def page_url(master: str, number: int) -> str:
    """Return the experiment's own page on Determined."""
    return f"{master.rstrip('/')}/det/experiments/{number}"


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


def live_status(state: str, started: float | None, queue: str, url: str) -> JobStatus:
    """Return the status of a job that has not ended. `queue`: what Determined says of its place in it."""
    if state in _WAITING:
        return JobStatus(JobState.WAITING, queue or _WAITING[state], url=url)
    reason = "the job is being stopped" if state.startswith("STATE_STOPPING") else ""
    return JobStatus(JobState.RUNNING, reason, url=url, started=started)


def in_queue(job: Mapping[str, Any]) -> str:
    """Return what Determined's job queue says of a job that waits."""
    ahead = (job.get("summary") or {}).get("jobsAhead")
    wanted = job.get("requestedSlots")
    pool = job.get("resourcePool")
    words = [f"queued in the resource pool {pool}" if pool else "queued"]
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        words.append(f"for {wanted} slot{'' if wanted == 1 else 's'}")
    return " ".join(words) + (f", {ahead} jobs ahead of it" if ahead else "")


def end_status(state: str, end: Mapping[str, Any] | None, said: str, url: str) -> JobStatus:
    """Return the status of an ended job.

    `end`: the report of the program in the container; `said`: Determined's words.
    """
    if state in _DELETED:
        return JobStatus(JobState.LOST, "the job's experiment was deleted on Determined", url=url)
    told = end or {}
    code = told.get("code")
    found, reason = _outcome(state, told, said)
    exit_code = code if isinstance(code, int) and not isinstance(code, bool) else None
    started, ended = _number(told, "started"), _number(told, "ended")
    return JobStatus(found, reason, exit_code, url=url, started=started, ended=ended)


def _outcome(state: str, told: Mapping[str, Any], said: str) -> tuple[JobState, str]:
    """Return state and reason."""
    code, cause, message = told.get("code"), told.get("cause") or "", str(told.get("message") or "")
    if code == 0:
        return JobState.SUCCEEDED, message
    if state == "STATE_CANCELED" or cause == "canceled":
        return JobState.CANCELED, "canceled"
    if cause == "interrupted":
        return JobState.LOST, f"Determined ended the job: {said or 'it was preempted'}"
    if cause == EndCause.MACHINE.value:
        return JobState.LOST, f"{UNSTARTED}: {message}"
    if cause == EndCause.FENCED.value:
        return JobState.LOST, message
    spoken = bool(told) and not told.get("lost") and not told.get("again")
    if spoken:
        return JobState.FAILED, message
    if all(word in said.lower() for word in _IMAGE):
        return JobState.FAILED, f"Determined says: {said}"
    reason = "; ".join(part for part in (said and f"Determined says: {said}", message) if part)
    return JobState.LOST, reason or "the job's container ended, and its keeper reported no end"


def preempted(state: str, said: str, url: str) -> JobStatus:
    """Return the status of a job that ran and waits again."""
    why = "the job was paused on Determined" if state == "STATE_PAUSED" else "Determined's scheduler preempted the job"
    return JobStatus(JobState.LOST, f"{why} ({said})" if said else why, url=url)


def _number(told: Mapping[str, Any], name: str) -> float | None:
    value = told.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
