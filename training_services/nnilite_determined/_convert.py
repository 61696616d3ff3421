"""Convert a job to the request that starts it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import yaml

from nnilite.records import Json
from nnilite.service import Job
from nnilite.services.bootstrap import JobProcess, command, python_command
from nnilite.services.node_places import nodes_of_job
from nnilite_determined import _start
from nnilite_determined._config import DeterminedConfig, DeterminedMount, DeterminedStorage
from nnilite_determined._context import BUCKET, FOLDER

PAUSED_LABEL = "nnilite-paused"
"""The label of an experiment that a user has paused: the next attempt begins paused, too."""
_SHOWN_PARAMETERS = 10_000
_SAVING_S = 60  # left after the grace period, for the checkpoint that is sent then
_WORK = "nnilite-trial"


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
        "hyperparameters": _show_hyperparameters(job),
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
    nodes = nodes_of_job(job).most
    stored = "checkpoints" in ((job.spec.get("storage") or {}).get("parts") or ())  # in the shared storage
    bucket = "" if stored else f"{FOLDER}/{BUCKET}"
    about = json.dumps({"experiment": job.experiment, "trial": job.trial, "nodes": nodes, "bucket": bucket})
    words = command(f"{FOLDER}/spec", _WORK, JobProcess(rank_variable=_start.NODE if nodes > 1 else ""))
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


def _show_hyperparameters(job: Job) -> dict[str, Json]:
    """Return the trial's parameters, only for Determined's page: the keeper gives them to the trial."""
    if len(json.dumps(job.parameters)) > _SHOWN_PARAMETERS:
        return {}
    return {str(name): {"type": "const", "val": value} for name, value in job.parameters.items()}


def slots(job: Job, config: DeterminedConfig) -> int | None:
    """Return the number of slots of a job on all its nodes; None: Determined's default, one."""
    found = job.gpus if config.slots is None else config.slots
    return found and found * nodes_of_job(job).most


def _resources(job: Job, config: DeterminedConfig) -> dict[str, Json]:
    found = {
        "slots_per_trial": slots(job, config),
        "resource_pool": config.resource_pool,
        "priority": config.priority,
        "weight": config.weight,
        "shm_size": f"{config.shm_size} MiB" if config.shm_size else None,
        # On several machines there are several containers: one for each node of a distributed trial.
        "is_single_node": True if (slots(job, config) or 0) > 1 and nodes_of_job(job).most == 1 else None,
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
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        merged[name] = _merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged
