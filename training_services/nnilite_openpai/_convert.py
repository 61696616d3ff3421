"""From a trial's job to a job of OpenPAI's protocol v2. Pure.

What runs in every task is the command that becomes the keeper. What it needs to know is a secret of the job: PAI's
runtime puts it into the command within the container, and shows it to nobody. The user's commands are part of that.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import yaml

from nnilite.errors import ConfigError
from nnilite.records import Json
from nnilite.service import Job
from nnilite.services.bootstrap import Instructions, JobProcess, command
from nnilite.services.delivery import CODE_VARIABLE, KEEPER_VARIABLE
from nnilite_openpai._config import OpenPaiConfig
from nnilite_openpai._delivery import PaiDelivery, storage_folder
from nnilite_openpai._roles import PaiRole, images_of, roles_of

WORK_PLACE = "/tmp/nnilite"
"""Where a task works that has no storage."""
_END_PLACE = "/tmp/nnilite.end"
_START_VARIABLE = "NNILITE_START"
_INDEX_VARIABLE = "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"
_LARGEST_BODY = 102_400
"""Bytes: the REST server refuses what is longer."""
_HIDDEN = "********"
_SECRETS = {_START_VARIABLE: "nnilite_start", KEEPER_VARIABLE: "nnilite_keeper", CODE_VARIABLE: "nnilite_code"}
_PASSWORD = "nnilite_registry_password"


def submission(job: Job, config: OpenPaiConfig, delivery: PaiDelivery) -> dict[str, Json]:
    """The job as PAI gets it."""
    roles = roles_of(config, job.gpus)
    found: dict[str, Json] = deepcopy(dict(config.template or {}))
    instructions = _instructions(job, config, delivery, roles).packed()
    data = {_START_VARIABLE: instructions, **delivery.variables}
    values = {_SECRETS[name]: base64.b64encode(content).decode() for name, content in data.items()}
    found.update(
        protocolVersion=2,
        name=job.name,
        type="job",
        # nnilite tries again by itself, as another attempt.
        jobRetryCount=0,
        prerequisites=[*(found.get("prerequisites") or []), *_images(config)],
        secrets={**(found.get("secrets") or {}), **values},
        taskRoles={role.name: {**role.body, "commands": _commands(job, config, role, list(data))} for role in roles},
        extras=_extras(config, roles, found.get("extras") or {}),
    )
    if config.registry_login is not None and config.template is None:
        found["secrets"][_PASSWORD] = str(config.registry_login.password)
    if config.virtual_cluster:
        found["defaults"] = {**(found.get("defaults") or {}), "virtualCluster": config.virtual_cluster}
    return found


def encoded(content: Mapping[str, Json]) -> bytes:
    """The body of the request. Raises: ConfigError if it is larger than PAI takes."""
    body = yaml.safe_dump(dict(content), sort_keys=False, width=1 << 30).encode()
    if len(body) > _LARGEST_BODY:
        raise ConfigError(
            f"the job {content['name']} has {len(body)} bytes, and PAI takes {_LARGEST_BODY}: its parameters or its "
            "code are too long; with localStorageMountPoint, or codeFrom: manager, the code does not travel in the job"
        )
    return body


def hidden(content: Mapping[str, Json]) -> dict[str, Json]:
    """A job without its secrets."""
    shown = deepcopy(dict(content))
    shown["secrets"] = dict.fromkeys(shown.get("secrets") or {}, _HIDDEN)
    return shown


def work_folder(job: Job, config: OpenPaiConfig) -> str:
    """Where the tasks of a job work: in the storage, so that what a trial leaves there stays, or in the container."""
    if config.storage_config_name is None:
        return WORK_PLACE
    return f"{config.container_mount}/{storage_folder(job.experiment)}/{job.trial}/{job.attempt}"


def _instructions(job: Job, config: OpenPaiConfig, delivery: PaiDelivery, roles: Sequence[PaiRole]) -> Instructions:
    more: dict[str, Json] = {"send_output": True, **delivery.code_for_keeper}
    if delivery.callback:
        more["callback"] = delivery.callback
    if delivery.callback_file:
        more["callback_file"] = delivery.callback_file
    if job.gpus == 0 and not any(role.total("gpu") for role in roles):
        more["env"] = {"CUDA_VISIBLE_DEVICES": ""}
    each = {
        role.name: {"reports": role.reports, "spec": {"command": role.command} if role.command else {}}
        for role in roles
    }
    return Instructions(
        job.spec_for(work_folder(job, config), **more),
        delivery.keeper,
        delivery.keeper_sha256,
        delivery.code,
        delivery.code_hash,
        each,
        shared=config.storage_config_name is not None,
    )


def _commands(job: Job, config: OpenPaiConfig, role: PaiRole, variables: Sequence[str]) -> list[str]:
    """Lines of the shell. Older servers join them by &&, newer ones by line ends.

    PAI's runtime is no parent that hands signals on, so nothing is lost by a shell that waits here: it prints how the
    keeper ended. PAI's own exit code cannot tell a trial that was killed from one that has ended with 137.
    """
    exports = " ".join(f"{name}='<% $secrets.{_SECRETS[name]} %>'" for name in variables)
    checkpoints = ""
    if config.storage_config_name is not None:
        checkpoints = f"{config.container_mount}/{storage_folder(job.experiment)}/checkpoints/{job.trial}"
    words = command(
        f"env:{_START_VARIABLE}",
        work_folder(job, config),
        JobProcess(role.name, _INDEX_VARIABLE),
        message_file=_END_PLACE,
        checkpoints=checkpoints,
    )
    show = f"test -s {_END_PLACE} && {{ echo; cat {_END_PLACE}; echo; }}"
    return [f"export {exports}", f"{shlex.join(words)}; code=$?; {show}; exit $code"]


def _images(config: OpenPaiConfig) -> list[Json]:
    if config.template is not None:
        return []
    login: dict[str, Json] = {}
    if config.registry_login is not None:
        auth = {"username": config.registry_login.username, "password": f"<% $secrets.{_PASSWORD} %>"}
        if config.registry_login.registry_uri:
            auth["registryuri"] = config.registry_login.registry_uri
        login = {"auth": auth}
    return [{"type": "dockerimage", "name": name, "uri": uri, **login} for uri, name in images_of(config).items()]


def _extras(config: OpenPaiConfig, roles: Sequence[PaiRole], given: Mapping[str, Any]) -> dict[str, Json]:
    extras = dict(given)
    if config.storage_config_name is not None:
        others = [entry for entry in extras.get("storages") or [] if entry.get("name") != config.storage_config_name]
        extras["storages"] = [*others, {"name": config.storage_config_name, "mountPath": config.container_mount}]
    if config.job_priority or any(role.sku for role in roles):
        hived = dict(extras.get("hivedScheduler") or {})
        hived["taskRoles"] = {role.name: {"skuType": role.sku} for role in roles}
        if config.job_priority:
            hived["jobPriorityClass"] = config.job_priority
        extras["hivedScheduler"] = hived
    extras["submitFrom"] = "nnilite"
    return extras
