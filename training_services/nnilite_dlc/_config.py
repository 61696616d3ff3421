"""The section of `platform: dlc`: NNI's fields, and what a trial may need beyond them."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from nnilite.errors import ConfigError
from nnilite.platform_http import HttpConfig
from nnilite.records import Json
from nnilite.service import CHECKPOINTS_STAY, IgnoredOption, callback_is_unused
from nnilite.services.section_fields import (
    EnvironmentVariables,
    ManagerIp,
    TrialGpuNumber,
    check_variables,
    field_place,
)
from nnilite.units import DirPath, PositiveInt, Secret, SecretText

_KEYS = {
    "access_key_id": "ALIBABA_CLOUD_ACCESS_KEY_ID",
    "access_key_secret": "ALIBABA_CLOUD_ACCESS_KEY_SECRET",
    "security_token": "ALIBABA_CLOUD_SECURITY_TOKEN",
}
"""Where all of Alibaba's own programs look for a login."""
_SIZES = {"cpu": "", "gpu": "", "gputype": "", "memory": "Gi", "shared_memory": "Gi"}
"""What NNI's resource description has, each with the unit of its numbers."""
_REGION = re.compile(r"[a-z0-9-]+")


@dataclass(frozen=True)
class AccessKey:
    """An access key of Alibaba Cloud."""

    id: str
    secret: str
    token: str  # "" for a key that is not temporary


@dataclass(frozen=True, kw_only=True)
class DlcConfig(HttpConfig):
    """Which region and workspace it is, who calls, and what each trial gets there."""

    type: Annotated[str, "role of a trial's pods, one of those of `jobType`"] = "Worker"
    image: Annotated[str, "an image with Python 3.8 or later; nothing else needs to be in it"]
    job_type: Annotated[str, "kind of job, such as TFJob or PyTorchJob"] = "TFJob"
    pod_count: Annotated[
        PositiveInt, "pods of each trial; more need `jobType: PyTorchJob`, whose pods know their rank"
    ] = 1
    ecs_spec: Annotated[
        Any,
        "what a pod gets: an instance type such as ecs.gn6e-c12g1.3xlarge, or, in a quota of one's own, "
        "{resource_id: ID, cpu: 4, memory: 16, gpu: 1, gputype: TYPE, shared_memory: 8}, memory in GiB",
    ]
    region: Annotated[str, "such as cn-hangzhou; `share` as in NNI"]
    workspace_id: Annotated[str | None, "of PAI; the user's default workspace if not set"] = None
    nas_data_source_id: Annotated[str | None, "a data set of PAI on NAS, mounted at containerStorageMountPoint"] = None
    oss_data_source_id: Annotated[str | None, "another one on OSS, mounted where the data set says"] = None
    access_key_id: Annotated[str, "of who calls; ALIBABA_CLOUD_ACCESS_KEY_ID if not set"] = ""
    access_key_secret: Annotated[Secret, "of that key; better not set: then it is ALIBABA_CLOUD_ACCESS_KEY_SECRET"] = ""
    security_token: Annotated[Secret | None, "of a temporary key; ALIBABA_CLOUD_SECURITY_TOKEN if not set"] = None
    local_storage_mount_point: Annotated[
        DirPath | None, "where the data set on NAS is mounted on the manager's machine, if it is"
    ] = None
    container_storage_mount_point: Annotated[
        str | None, "where it is mounted in pods; where the data set says, if not set"
    ] = None
    resource_id: Annotated[str | None, "the resource quota that pays; public resources if not set"] = None
    priority: Annotated[PositiveInt | None, "1 to 9, of jobs in a quota; DLC's is 1"] = None
    use_spot_instance: Annotated[
        bool, "cheap instances, which may be taken away at any time; trials are tried again"
    ] = False
    vpc_id: Annotated[str | None, "the VPC that pods are in; needed to reach a NAS there"] = None
    switch_id: Annotated[str | None, "with vpcId: the vSwitch"] = None
    security_group_id: Annotated[str | None, "with vpcId: the security group"] = None
    environment_variables: EnvironmentVariables = field(default_factory=dict)
    code_from: Annotated[
        Literal["manager", "storage", "job"] | None,
        "where pods get the code; if not set: storage where the manager has it mounted, else the manager, and "
        "with callback: log the job itself, which may have 200 kB",
    ] = None
    endpoint: Annotated[str | None, "address of DLC in place of the region's, such as that of a VPC"] = None
    nni_manager_ip: ManagerIp = None
    trial_gpu_number: TrialGpuNumber = None

    def __post_init__(self) -> None:
        if self.workspace_id in ("None", ""):  # as NNI has it
            object.__setattr__(self, "workspace_id", None)
        for name in ("type", "image", "job_type"):
            if not getattr(self, name).strip():
                raise ConfigError("must not be empty", field_place(name))
        if not _REGION.fullmatch(self.region):
            raise ConfigError(f"{self.region!r} is no region, such as cn-hangzhou", field_place("region"))
        if self.pod_count > 1 and self.job_type != "PyTorchJob":
            raise ConfigError(
                f"{self.pod_count} pods of a {self.job_type} cannot tell which of them reports: set jobType: "
                "PyTorchJob, or podCount: 1",
                field_place("pod_count"),
            )
        if self.priority is not None and self.priority > 9:
            raise ConfigError("is 1 to 9 on DLC", field_place("priority"))
        object.__setattr__(self, "ecs_spec", _spec(self.ecs_spec))
        self._check_storage()
        self._check_network()
        check_variables(self.environment_variables)

    def key(self) -> AccessKey:
        """Who calls: what the section says, else what the environment says. Raises: ConfigError if neither does.

        What comes from the environment is kept nowhere.
        """
        own = bool(self.access_key_id or self.access_key_secret)
        found = {name: str(getattr(self, name) or "") for name in _KEYS}
        for name, variable in _KEYS.items():
            if own and name == "security_token":  # a token belongs to the key beside it
                continue
            found[name] = found[name] or os.environ.get(variable, "")
            if not found[name] and name != "security_token":
                raise ConfigError(f"is not set, and neither is {variable} in the environment", field_place(name))
        return AccessKey(*(SecretText(found[name]) for name in _KEYS))

    def _check_storage(self) -> None:
        there = self.container_storage_mount_point
        if there is not None and not there.startswith("/"):
            raise ConfigError(f"{there!r} must begin with /", field_place("container_storage_mount_point"))
        if self.local_storage_mount_point is not None:
            for name in ("nas_data_source_id", "container_storage_mount_point"):
                if not getattr(self, name):
                    raise ConfigError("is needed with localStorageMountPoint", field_place(name))
        elif self.code_from == "storage":
            raise ConfigError("is needed for codeFrom: storage", field_place("local_storage_mount_point"))

    def _check_network(self) -> None:
        given = [name for name in ("vpc_id", "switch_id", "security_group_id") if getattr(self, name)]
        missing = [name for name in ("vpc_id", "switch_id", "security_group_id") if name not in given]
        if given and missing:
            raise ConfigError("is needed: vpcId, switchId and securityGroupId go together", field_place(missing[0]))
        scheme, mark, host = (self.endpoint or "https://x").rpartition("://")
        if (mark and scheme not in ("http", "https")) or not host.strip("/"):
            raise ConfigError(
                f"{self.endpoint!r} is no address, such as pai-dlc.cn-hangzhou.aliyuncs.com", field_place("endpoint")
            )

    @property
    def container_mount(self) -> str:
        """Where the storage is mounted in pods, without a slash at the end."""
        return (self.container_storage_mount_point or "").rstrip("/")

    @property
    def quota(self) -> str | None:
        """The resource quota that pays, wherever it was written."""
        given = self.ecs_spec.get("resource_id") if isinstance(self.ecs_spec, dict) else None
        return self.resource_id or given


def _spec(given: Any) -> Json:
    """The name of an instance type, or NNI's description of resources, all its values texts. Raises: ConfigError."""
    found = given
    if isinstance(given, str) and given.strip().startswith("{"):  # NNI takes a Python dict as text
        try:
            found = ast.literal_eval(given.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise ConfigError(f"{given!r:.80} is not a description of resources", field_place("ecs_spec")) from error
    if isinstance(found, str) and found.strip():
        return found.strip()
    if not isinstance(found, Mapping) or not found:
        raise ConfigError("must be an instance type, or a description of resources", field_place("ecs_spec"))
    unknown = sorted(str(name) for name in found if name not in {*_SIZES, "resource_id"})
    if unknown:
        known = ", ".join(["resource_id", *_SIZES])
        raise ConfigError(f"{unknown[0]!r} is not one of {known}", field_place("ecs_spec"))
    texts = {}
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
            raise ConfigError(f"{name} must be a number or a text", field_place("ecs_spec"))
        texts[str(name)] = f"{value}{_SIZES.get(name, '')}" if not isinstance(value, str) else value
    return {"cpu": "1", "memory": "2Gi", "gpu": "0", **texts}  # as in NNI


IGNORED = (
    callback_is_unused(),
    *CHECKPOINTS_STAY,
    IgnoredOption(
        "containerStorageMountPoint",
        "it is where the data set of nasDataSourceId is mounted; set that, too",
        "without `nasDataSourceId`",
        lambda config, settings: not config.nas_data_source_id,
    ),
)
"""What has no effect on PAI-DLC."""
