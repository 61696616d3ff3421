"""Convert a trial's job to a job of OpenPAI's protocol v2. Pure.

Every task runs the command that becomes the keeper. Its instructions are a secret of the job: PAI's runtime puts it
into the command within the container, and never shows it. The user's commands are part of that secret.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import yaml

from nnilite.errors import ConfigError
from nnilite.records import Json
from nnilite.service import Job
from nnilite.services.bootstrap import Instructions, JobProcess, command
from nnilite.services.delivery import CODE_VARIABLE, KEEPER_VARIABLE, START_VARIABLE, Delivery
from nnilite.units import HIDDEN
from nnilite_openpai._config import OpenPaiConfig
from nnilite_openpai._delivery import work_folder
from nnilite_openpai._roles import PaiRole, make_roles, name_images

INDEX_VARIABLE = "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"
LARGEST_BODY = 102_400
"""The limit in bytes. Source: the REST server's body parser has its default limit, and answers 413 to more."""
_SECRETS = {START_VARIABLE: "nnilite_start", KEEPER_VARIABLE: "nnilite_keeper", CODE_VARIABLE: "nnilite_code"}
_PASSWORD = "nnilite_registry_password"


def own_secrets(job: Job, config: OpenPaiConfig, delivery: Delivery) -> dict[str, bytes]:
    """Return the variables with instructions, keeper and code for the tasks of a job."""
    return {START_VARIABLE: _instructions(job, config, delivery).packed(), **delivery.contents}


def submission(job: Job, config: OpenPaiConfig, own: Mapping[str, bytes]) -> dict[str, Json]:
    """Return the job for PAI. `own` are nnilite's variables."""
    roles = make_roles(config, job.gpus)
    found: dict[str, Json] = deepcopy(dict(config.template or {}))
    values = {_SECRETS[name]: base64.b64encode(content).decode() for name, content in own.items()}
    found.update(
        protocolVersion=2,
        name=job.name,
        type="job",
        # nnilite retries trials itself, as another attempt.
        jobRetryCount=0,
        prerequisites=[*(found.get("prerequisites") or []), *_list_images(config)],
        secrets={**(found.get("secrets") or {}), **values},
        taskRoles={role.name: {**role.body, "commands": _commands(job, config, role, own)} for role in roles},
        extras=_extras(config, roles, found.get("extras") or {}),
    )
    if config.registry_login is not None and config.template is None:
        found["secrets"][_PASSWORD] = str(config.registry_login.password)
    if config.virtual_cluster:
        found["defaults"] = {**(found.get("defaults") or {}), "virtualCluster": config.virtual_cluster}
    return found


def encoded(content: Mapping[str, Json]) -> bytes:
    """Return the body of the request. Raises: ConfigError if it is larger than PAI accepts."""
    body = yaml.safe_dump(dict(content), sort_keys=False, width=1 << 30).encode()
    if len(body) > LARGEST_BODY:
        raise ConfigError(
            f"the job {content['name']} has {len(body)} bytes, and PAI accepts {LARGEST_BODY}: shorten its parameters "
            "or its code; with localStorageMountPoint, or codeFrom: manager, the code does not travel in the job"
        )
    return body


def without_secrets(content: Mapping[str, Json]) -> dict[str, Json]:
    """Return a job without its secrets."""
    shown = deepcopy(dict(content))
    shown["secrets"] = dict.fromkeys(shown.get("secrets") or {}, HIDDEN)
    return shown


def _instructions(job: Job, config: OpenPaiConfig, delivery: Delivery) -> Instructions:
    roles = make_roles(config, job.gpus)
    folder = work_folder(job, config)
    # A role may have GPUs where the experiment asks for none.
    more: dict[str, Json] = {"env": {}} if any(role.total("gpu") for role in roles) else {}
    each = {
        role.name: {"reports": role.reports, "spec": {"command": role.command} if role.command else {}}
        for role in roles
    }
    return delivery.instructions(
        job,
        folder,
        spec=delivery.spec(job, folder, **more),
        roles=each,
        log_tells_end=True,
        shared=config.storage_config_name is not None,
    )


def _commands(job: Job, config: OpenPaiConfig, role: PaiRole, variables: Iterable[str]) -> list[str]:
    """Return lines of the shell. Older servers join them by &&, newer ones by line ends."""
    exports = " ".join(f"{name}='<% $secrets.{_SECRETS[name]} %>'" for name in variables)
    checkpoints = ""
    if config.storage_config_name is not None:
        checkpoints = f"{config.container_mount}/nni/{job.experiment}/checkpoints/{job.trial}"
    process = JobProcess(role.name, INDEX_VARIABLE)
    words = command(f"env:{START_VARIABLE}", work_folder(job, config), process, checkpoints=checkpoints)
    return [f"export {exports}", f"exec {shlex.join(words)}"]


def _list_images(config: OpenPaiConfig) -> list[Json]:
    if config.template is not None:
        return []
    login: dict[str, Json] = {}
    if config.registry_login is not None:
        auth = {"username": config.registry_login.username, "password": f"<% $secrets.{_PASSWORD} %>"}
        if config.registry_login.registry_uri:
            auth["registryuri"] = config.registry_login.registry_uri
        login = {"auth": auth}
    return [{"type": "dockerimage", "name": name, "uri": uri, **login} for uri, name in name_images(config).items()]


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
