"""Pure: from a trial's job to the fields of a CreateJobRequest of DLC."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping

from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite.service import Job
from nnilite.services.bootstrap import JobProcess, command
from nnilite.services.delivery import CODE_VARIABLE, START_VARIABLE, Delivery
from nnilite_dlc._config import DlcConfig
from nnilite_dlc._delivery import find_storage

LARGEST_BYTES = 65_536
"""The limit on all parameters of a job together. Source: CreateJob in Alibaba's reference of 2020-12-03."""
_GENERATED_BYTES = 512
"""Kept free for parameters that DLC adds itself, which count too; the reference does not say how long they are."""
RANK_VARIABLE = "RANK"
_GRACE_EXTRA_S = 20
_LONGEST_NAME = 256
_NAME = re.compile(r"[\w.-]+", re.ASCII)


def work_folder(job: Job, config: DlcConfig) -> str:
    """Return where a job writes: in the storage that the manager mounts too, else on the disk of its pod."""
    if config.local_storage_mount_point is not None:
        return find_storage(config, job.experiment).work_folder(job)
    return f"/tmp/nnilite/{job.name}"


def find_checkpoint_folder(job: Job, config: DlcConfig) -> str:
    """Return where checkpoints outlive the job: in the data set on NAS; "" if none has a known place."""
    if not (config.nas_data_source_id and config.container_mount):
        return ""
    return f"{config.container_mount}/nni/{job.experiment}/{job.trial}/checkpoints"


def own_variables(job: Job, config: DlcConfig, delivery: Delivery) -> Mapping[str, str]:
    """Return the environment variables that hold a job's instructions."""
    shared = config.local_storage_mount_point is not None
    instructions = delivery.instructions(job, work_folder(job, config), log_tells_end=True, shared=shared)
    return delivery.variables(instructions)


def check_size(fields: Mapping[str, Json]) -> None:
    """Check that DLC can take a job. Raises: ConfigError if it is too large."""
    size, variables = len(json.dumps(fields)), fields["Envs"]
    if size + _GENERATED_BYTES <= LARGEST_BYTES:
        return
    code = sum(len(text) for name, text in variables.items() if name.startswith(CODE_VARIABLE))
    problem = f"the job {fields['DisplayName']} has {size} bytes, and DLC takes {LARGEST_BYTES} with its own additions"
    if code:
        problem += f"; the packed code has {code} of them: exclude files with .nniignore, or have the code come from a"
        problem += " storage (localStorageMountPoint) or from the manager (codeFrom: manager, with callback: rest)"
        raise ConfigError(problem, Place(field="codeFrom"))
    problem += ": set localStorageMountPoint, so that keeper and code do not travel in the job, or shorten the trial's"
    raise ConfigError(f"{problem} parameters, its command and environmentVariables")


def request(job: Job, config: DlcConfig, own: Mapping[str, str]) -> dict[str, Json]:
    """Return the job in the names of DLC's interface, without those that are None. Raises: ConfigError."""
    if len(job.name) > _LONGEST_NAME or not _NAME.fullmatch(job.name):
        rule = f"letters, digits, '_', '.' and '-', at most {_LONGEST_NAME}"
        raise ConfigError(f"DLC does not accept the name {job.name!r:.80}; use {rule}")
    grace_s = int(float(job.spec.get("grace_s") or 0)) + _GRACE_EXTRA_S
    found: dict[str, Json] = {
        "DisplayName": job.name,
        "Description": f"nnilite experiment {job.experiment}, trial {job.trial}, attempt {job.attempt}",
        "Accessibility": "PRIVATE",  # the variables hold the trial's token
        "JobType": config.job_type,
        "JobSpecs": [_spec(config)],
        "UserCommand": job_command(job, config),
        "Envs": {**config.environment_variables, **own},
        "DataSources": _list_data_sources(config),
        "WorkspaceId": config.workspace_id,
        "ResourceId": config.quota,
        "Priority": config.priority,
        "UserVpc": _network(config),
        "Settings": {"Tags": {"nnilite": job.experiment}, "TerminationGracePeriodSeconds": grace_s},
    }
    return {name: value for name, value in found.items() if value is not None}


def job_command(job: Job, config: DlcConfig) -> str:
    """Return the command of each pod."""
    process = JobProcess(rank_variable=RANK_VARIABLE if config.pod_count > 1 else "")
    kept = find_checkpoint_folder(job, config)
    words = command(f"env:{START_VARIABLE}", work_folder(job, config), process, checkpoints=kept)
    return (f"mkdir -p {shlex.quote(kept)}; " if kept else "") + f"exec {shlex.join(words)}"


def _spec(config: DlcConfig) -> Json:
    fields: dict[str, Json] = {
        "Type": config.type,
        "Image": config.image,
        "PodCount": config.pod_count,
        "RestartPolicy": "Never",  # nnilite retries trials itself, since it can tell the attempts apart.
    }
    if config.use_spot_instance:
        fields["UseSpotInstance"] = True
    given = config.ecs_spec
    if isinstance(given, str):
        return {**fields, "EcsSpec": given}
    names = {"cpu": "CPU", "gpu": "GPU", "gputype": "GPUType", "memory": "Memory", "shared_memory": "SharedMemory"}
    return {**fields, "ResourceConfig": {names[name]: value for name, value in given.items() if name in names}}


def _list_data_sources(config: DlcConfig) -> Json:
    sources: list[Json] = []
    if config.nas_data_source_id:
        place = {"MountPath": config.container_mount} if config.container_mount else {}
        sources.append({"DataSourceId": config.nas_data_source_id, **place})
    if config.oss_data_source_id:
        sources.append({"DataSourceId": config.oss_data_source_id})
    return sources or None


def _network(config: DlcConfig) -> Json:
    if not config.vpc_id:
        return None
    return {
        "VpcId": config.vpc_id,
        "SwitchId": config.switch_id,
        "SecurityGroupId": config.security_group_id,
    }
