"""Convert a trial's job to a command job of Azure, as arguments of `azure.ai.ml.command`. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from nnilite.errors import ConfigError
from nnilite.service import Job
from nnilite.services.bootstrap import Instructions, Supply, environment
from nnilite.services.delivery import START_VARIABLE, keeper_spec
from nnilite_aml._config import AmlConfig, AmlDistribution
from nnilite_aml._snapshot import KEEPER_FILE, START_FILE, CodeSnapshot

MOUNT = "checkpoints"
_LARGEST_BYTES = 1_000_000
"""The limit on the variables of a job: Linux accepts 2 MB of them, and Azure 4 MB in a whole request."""
_IDENTITIES = {"managed": "managed", "user": "user_identity", "token": "aml_token"}


def make_azure_name(job: str) -> str:
    """Return the name of a job on Azure, whose library writes names in small letters.

    >>> make_azure_name("nni-Xy12z-Ab34c-0")
    'nni-xy12z-ab34c-0-3e48f3'
    """
    return f"{job.lower()}-{hashlib.sha256(job.encode()).hexdigest()[:6]}"


def make_tag(experiment: str) -> str:
    """Return the name of the tag that finds all jobs of an experiment."""
    return f"nnilite_{experiment}"


def experiment_name(config: AmlConfig, experiment: str) -> str:
    """Return the name under which Azure shows the jobs; by default NNI's."""
    return config.experiment_name or f"nni_exp_{experiment}"


def variables(job: Job, snapshot: CodeSnapshot, callback: str) -> Mapping[str, str]:
    """Return the environment variables that hold a job's specification.

    It holds the trial's token only if the trial calls the manager. Raises: ConfigError if it is too large.
    """
    instructions = Instructions(
        keeper_spec(job, "", callback),
        Supply(file=KEEPER_FILE),
        snapshot.keeper_sha256,
        Supply(file=f"{snapshot.code_hash}.tar.gz"),
        snapshot.code_hash,
        log_tells_end=True,
        shared=True,
    )
    found = environment(START_VARIABLE, instructions.packed())
    size = sum(map(len, found.values()))
    if size > _LARGEST_BYTES:
        raise ConfigError(
            f"the parameters of {job.name} take {size} bytes, and a job of Azure can have {_LARGEST_BYTES}: let the "
            "trial make large values itself"
        )
    return found


def arguments(
    job: Job, config: AmlConfig, code: str, environment_id: str, own_variables: Mapping[str, str]
) -> dict[str, Any]:
    """Return the fields of the command job, without those that are None."""
    name = make_azure_name(job.name)
    mount = f" ${{{{outputs.{MOUNT}}}}}" if config.checkpoint_datastore else ""
    found: dict[str, Any] = {
        "name": name,
        "display_name": job.name,
        "description": f"nnilite experiment {job.experiment}, trial {job.trial}, attempt {job.attempt}",
        "experiment_name": experiment_name(config, job.experiment),
        "tags": {**config.tags, "nnilite": job.experiment, make_tag(job.experiment): job.name},
        "command": f"sh ./{START_FILE}{mount}",
        "code": code,
        "environment": environment_id,
        "environment_variables": {**config.environment_variables, **own_variables},
        "compute": None if config.serverless else config.compute_target,
        "instance_type": config.instance_type,
        "instance_count": config.instance_count,
        "shm_size": f"{config.shm_size}m" if config.shm_size else None,
        "distribution": _make_distribution(config.distribution) if config.distribution else None,
        "identity": _identity(config),
        "queue_settings": {"job_tier": "Spot"} if config.serverless and config.low_priority else None,
        "outputs": _outputs(job, config),
    }
    return {name: value for name, value in found.items() if value is not None}


def _outputs(job: Job, config: AmlConfig) -> dict[str, Any] | None:
    """Return the outputs. Checkpoints lie in a datastore, in the same folder for all attempts of a trial."""
    if not config.checkpoint_datastore:
        return None
    path = f"azureml://datastores/{config.checkpoint_datastore}/paths/nnilite/{job.experiment}/{job.trial}/"
    return {MOUNT: {"type": "uri_folder", "mode": "rw_mount", "path": path}}


def _make_distribution(given: AmlDistribution) -> dict[str, Any]:
    if given.type == "TensorFlow":
        counts = {"worker_count": given.worker_count, "parameter_server_count": given.parameter_server_count}
        return {"type": "tensorflow", **counts}
    return {"type": given.type.lower(), "process_count_per_instance": given.process_count_per_instance}


def _identity(config: AmlConfig) -> dict[str, str] | None:
    given = config.identity
    if given is None:
        return None
    found = {"type": _IDENTITIES[given.type]}
    return {**found, "client_id": given.client_id} if given.client_id else found
