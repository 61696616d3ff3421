"""The section of `platform: openpai`: NNI's fields, and what a job of several task roles needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from nnilite.errors import ConfigError, Place
from nnilite.platform_http import HttpConfig
from nnilite.service import CHECKPOINTS_STAY, IgnoredOption, callback_is_unused
from nnilite.services.section_fields import GPU_OPTION, ReuseMode, TrialGpuNumber, field_place
from nnilite.units import DirPath, FilePath, MemoryMb, NonNegativeInt, PositiveInt, Secret
from nnilite_openpai._template import check_template, read_template

DEFAULT_IMAGE = "msranni/nni:latest"
_ROLE_NAME = re.compile(r"[a-z][a-z0-9]{0,30}")
_PORT_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class RoleCompletion:
    """When the tasks of a role end the job."""

    min_failed_instances: Annotated[int, "number of failed tasks that fail the trial; -1: never"] = 1
    min_succeeded_instances: Annotated[
        int | None, "number of succeeded tasks that end the trial; -1: never; default: all"
    ] = None


@dataclass(frozen=True, kw_only=True)
class PaiRoleConfig:
    """One task role of a trial."""

    name: Annotated[str, "name of small letters and digits, a letter first; it is part of PAI's variables"]
    instances: Annotated[PositiveInt, "number of tasks"] = 1
    command: Annotated[str, "the command of each task; default: trialCommand"] = ""
    docker_image: Annotated[str | None, "image of its tasks; default: dockerImage of the section"] = None
    cpu_number: Annotated[PositiveInt | None, "CPU cores of each task; default: trialCpuNumber of the section"] = None
    memory_size: Annotated[MemoryMb | None, "memory of each task; default: trialMemorySize of the section"] = None
    gpu_number: Annotated[NonNegativeInt | None, f"GPUs of each task; default: {GPU_OPTION}"] = None
    gpu_type: Annotated[str | None, "SKU of its tasks; default: gpuType of the section"] = None
    shm_size: Annotated[MemoryMb | None, "size of /dev/shm; default: PAI's 512 MB"] = None
    ports: Annotated[dict[str, int], "number of host ports of a task by label, such as {grpc: 1}"] = field(
        default_factory=dict
    )
    completion: Annotated[
        RoleCompletion | None, "when tasks of this role end the trial; by default the reporting role decides"
    ] = None

    def __post_init__(self) -> None:
        if not _ROLE_NAME.fullmatch(self.name):
            raise ConfigError(
                f"{self.name!r}: use at most 31 small letters and digits, a letter first; PAI writes other names in "
                "two ways into its variables",
                Place(field="name"),
            )
        for label, number in self.ports.items():
            if not _PORT_LABEL.fullmatch(label) or isinstance(number, bool) or not 1 <= number <= 1000:
                raise ConfigError(
                    "must have labels of letters with numbers from 1, such as {grpc: 1}", Place(field="ports")
                )


@dataclass(frozen=True, kw_only=True)
class RegistryLogin:
    """The login with which PAI pulls an image that is not public."""

    username: Annotated[str, "the user at the registry"]
    password: Annotated[Secret, 'the password of that user; better "${env:REGISTRY_PASSWORD}"']
    registry_uri: Annotated[str | None, "the address of the registry; default: Docker Hub"] = None


@dataclass(frozen=True, kw_only=True)
class OpenPaiConfig(HttpConfig):
    """The section of `platform: openpai`."""

    host: Annotated[str, "address of the cluster; default scheme: https"]
    username: Annotated[str, "the user who owns the jobs"]
    token: Annotated[
        Secret | None, 'an application token of the user\'s page, which does not expire; better "${env:PAI_TOKEN}"'
    ] = None
    password: Annotated[
        Secret | None, "instead of token, on clusters with their own logins: nnilite gets tokens with it"
    ] = None
    docker_image: Annotated[str, "an image with Python 3.8 or later; it needs nothing else"] = DEFAULT_IMAGE
    registry_login: Annotated[RegistryLogin | None, "the login for images that are not public"] = None
    trial_cpu_number: Annotated[PositiveInt, "CPU cores of each task"] = 1
    trial_memory_size: Annotated[MemoryMb, "memory of each task"] = 4096
    trial_gpu_number: TrialGpuNumber = None
    gpu_type: Annotated[str | None, "the SKU of tasks, on clusters with the hived scheduler"] = None
    shm_size: Annotated[MemoryMb | None, "size of /dev/shm; default: PAI's 512 MB"] = None
    virtual_cluster: Annotated[str | None, "the virtual cluster; default: PAI's own"] = None
    job_priority: Annotated[
        Literal["prod", "test", "oppo"] | None,
        "priority of jobs, on clusters with the hived scheduler; oppo may be preempted at any time",
    ] = None
    storage_config_name: Annotated[str | None, "a storage of the cluster that is mounted into tasks"] = None
    local_storage_mount_point: Annotated[DirPath | None, "where that storage is mounted on the manager's machine"] = (
        None
    )
    container_storage_mount_point: Annotated[str | None, "where tasks mount it; default: /mnt/NAME"] = None
    code_from: Annotated[
        Literal["manager", "storage", "job"] | None,
        "where tasks get the code; if not set: storage where the manager has it mounted, else the manager, and "
        "with callback: log the job itself, which may have 100 kB",
    ] = None
    trial_command: Annotated[str, "command of task roles that have none of their own"] = ""
    task_roles: Annotated[list[PaiRoleConfig], "the roles of a trial, if it has several; the first one reports"] = (
        field(default_factory=list)
    )
    reporting_role: Annotated[str | None, "the role whose first task reports for the trial"] = None
    openpai_config: Annotated[Any, "a whole job of protocol v2 as the template of trials; replaces taskRoles"] = None
    openpai_config_file: Annotated[FilePath | None, "the same, in a file"] = None
    nni_manager_ip: Annotated[
        str | None, "where tasks reach the manager: a name or an address; detected if not set"
    ] = None
    reuse_mode: ReuseMode = False

    def __post_init__(self) -> None:
        self._check_login()
        self._check_storage()
        self._check_roles()

    def _check_login(self) -> None:
        object.__setattr__(self, "host", self.host if "://" in self.host else f"https://{self.host}")
        parts = urlsplit(self.host)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise ConfigError(
                "is not the address of a cluster; write it as https://pai.example.com", Place(field="host")
            )
        if not re.fullmatch(r"[\w.-]+", self.username):
            raise ConfigError(f"{self.username!r} is not a valid user name", Place(field="username"))
        if bool(self.token) == bool(self.password):
            message = "and password are two ways to log in: keep one" if self.token else "is needed, or password"
            raise ConfigError(message, Place(field="token"))

    def _check_storage(self) -> None:
        if self.storage_config_name is None:
            for name in ("local_storage_mount_point", "container_storage_mount_point"):
                if getattr(self, name) is not None:
                    raise ConfigError("needs storageConfigName too: the name of the storage in PAI", field_place(name))
        mount = self.container_storage_mount_point
        if mount is not None and not mount.startswith("/"):
            raise ConfigError("must be an absolute path, such as /mnt/data", Place(field="containerStorageMountPoint"))
        if self.code_from == "storage" and self.local_storage_mount_point is None:
            raise ConfigError(
                "storage needs storageConfigName, and localStorageMountPoint: where the manager can write to it",
                Place(field="codeFrom"),
            )

    def _check_roles(self) -> None:
        given = [bool(self.task_roles), self.openpai_config is not None, self.openpai_config_file is not None]
        if sum(given) > 1:
            raise ConfigError("set only one of taskRoles, openpaiConfig and openpaiConfigFile", _last(given))
        names = [role.name for role in self.task_roles]
        if len(set(names)) < len(names):
            raise ConfigError("must not have the same name twice", Place(field="taskRoles"))
        template = self.template
        if template is not None:
            check_template(template, self._find_template_place())
            names = list(template["taskRoles"])
        if self.reporting_role and self.reporting_role not in names:
            known = f"; there are {', '.join(names)}" if names else ""
            raise ConfigError(f"there is no task role {self.reporting_role!r}{known}", Place(field="reportingRole"))

    def _find_template_place(self) -> Place:
        if self.openpai_config_file is not None:
            return Place(file=str(self.openpai_config_file))
        return Place(field="openpaiConfig")

    @cached_property
    def template(self) -> Mapping[str, Any] | None:
        """Return the user's own job, as it was at the first call. Raises: ConfigError if it cannot be read."""
        if self.openpai_config_file is not None:
            return read_template(Path(self.openpai_config_file))
        found: Mapping[str, Any] | None = self.openpai_config
        return found

    @property
    def container_mount(self) -> str:
        """Return where tasks mount the storage."""
        return (self.container_storage_mount_point or f"/mnt/{self.storage_config_name}").rstrip("/")


def _last(given: list[bool]) -> Place:
    """Return the last of the fields that are given."""
    names = ("taskRoles", "openpaiConfig", "openpaiConfigFile")
    return Place(field=[name for name, there in zip(names, given, strict=True) if there][-1])


_OF_ROLES = (
    "trialCommand",
    GPU_OPTION,
    "dockerImage",
    "registryLogin",
    "trialCpuNumber",
    "trialMemorySize",
    "gpuType",
    "shmSize",
)
IGNORED = (
    *(
        IgnoredOption(
            option,
            "the job in openpaiConfig says it",
            "with `openpaiConfig` or `openpaiConfigFile`",
            lambda config, settings: config.template is not None,
        )
        for option in _OF_ROLES
    ),
    callback_is_unused(),
    *CHECKPOINTS_STAY,
    IgnoredOption("reuseMode", "each trial is a job of its own"),
)
"""What has no effect on OpenPAI."""
