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
"""Where Alibaba's own programs look for a login."""
_SIZES = {"cpu": "", "gpu": "", "gputype": "", "memory": "Gi", "shared_memory": "Gi"}
"""The fields of NNI's resource description, each with the unit of its numbers."""
DEFAULT_JOB_TYPE = "TFJob"  # NNI's
RANKED_JOB_TYPE = "PyTorchJob"
"""The kind of job whose pods know their rank."""
_REGION = re.compile(r"[a-z0-9-]+")


@dataclass(frozen=True)
class AccessKey:
    """An access key of Alibaba Cloud."""

    id: str
    secret: str
    token: str  # "" for a key that is not temporary


@dataclass(frozen=True, kw_only=True)
class DlcConfig(HttpConfig):
    """The region and workspace, who calls, and what each trial gets."""

    type: Annotated[str, "the role of a trial's pods, one of those of `jobType`"] = "Worker"
    image: Annotated[str, "an image with Python 3.8 or later; it needs nothing else"]
    job_type: Annotated[str, "the kind of job, such as TFJob or PyTorchJob"] = DEFAULT_JOB_TYPE
    pod_count: Annotated[
        PositiveInt, "number of pods of each trial; more than 1 needs `jobType: PyTorchJob`, whose pods know their rank"
    ] = 1
    ecs_spec: Annotated[
        Any,
        "what a pod gets: an instance type such as ecs.gn6e-c12g1.3xlarge, or, in your own quota, "
        "{resource_id: ID, cpu: 4, memory: 16, gpu: 1, gputype: TYPE, shared_memory: 8}, memory in GiB",
    ]
    region: Annotated[str, "the region, such as cn-hangzhou; `share` as in NNI"]
    workspace_id: Annotated[str | None, "the workspace of PAI; default: the user's default workspace"] = None
    nas_data_source_id: Annotated[str | None, "a data set of PAI on NAS, mounted at containerStorageMountPoint"] = None
    oss_data_source_id: Annotated[str | None, "another data set, on OSS, mounted where the data set says"] = None
    access_key_id: Annotated[str, "the ID of the access key; default: ALIBABA_CLOUD_ACCESS_KEY_ID"] = ""
    access_key_secret: Annotated[
        Secret, "the secret of that key; default, and better: ALIBABA_CLOUD_ACCESS_KEY_SECRET"
    ] = ""
    security_token: Annotated[Secret | None, "the token of a temporary key; default: ALIBABA_CLOUD_SECURITY_TOKEN"] = (
        None
    )
    local_storage_mount_point: Annotated[
        DirPath | None, "where the manager's machine mounts the data set on NAS, if it does"
    ] = None
    container_storage_mount_point: Annotated[str | None, "where pods mount it; default: where the data set says"] = None
    resource_id: Annotated[str | None, "the resource quota to charge; default: public resources"] = None
    priority: Annotated[PositiveInt | None, "priority of jobs in a quota, 1 to 9; DLC's default is 1"] = None
    use_spot_instance: Annotated[
        bool, "use cheap instances, which DLC may take away at any time; trials are retried"
    ] = False
    vpc_id: Annotated[str | None, "the VPC of the pods; needed to reach a NAS in it"] = None
    switch_id: Annotated[str | None, "with vpcId: the vSwitch"] = None
    security_group_id: Annotated[str | None, "with vpcId: the security group"] = None
    environment_variables: EnvironmentVariables = field(default_factory=dict)
    code_from: Annotated[
        Literal["manager", "storage", "job"] | None,
        "where pods get the code; default: the storage if the manager mounts it, else the manager, or with callback: "
        "log the job itself",
    ] = None
    endpoint: Annotated[str | None, "address of DLC in place of the region's, such as that of a VPC"] = None
    nni_manager_ip: ManagerIp = None
    trial_gpu_number: TrialGpuNumber = None

    def __post_init__(self) -> None:
        if self.workspace_id in ("None", ""):  # NNI's value for "none"
            object.__setattr__(self, "workspace_id", None)
        for name in ("type", "image", "job_type"):
            if not getattr(self, name).strip():
                raise ConfigError("must not be empty", field_place(name))
        if not _REGION.fullmatch(self.region):
            raise ConfigError(f"{self.region!r} is not a region; write one such as cn-hangzhou", field_place("region"))
        if self.pod_count > 1 and self.job_type != RANKED_JOB_TYPE:
            raise ConfigError(
                f"the {self.pod_count} pods of a {self.job_type} do not know which of them reports: set jobType: "
                "PyTorchJob, or podCount: 1",
                field_place("pod_count"),
            )
        if self.priority is not None and self.priority > 9:
            raise ConfigError("must be from 1 to 9", field_place("priority"))
        object.__setattr__(self, "ecs_spec", _spec(self.ecs_spec))
        self._check_storage()
        self._check_network()
        check_variables(self.environment_variables)

    def key(self) -> AccessKey:
        """Return who calls: from the section, else from the environment. Raises: ConfigError if neither says.

        Values from the environment are not stored.
        """
        own = bool(self.access_key_id or self.access_key_secret)
        parts = {name: str(getattr(self, name) or "") for name in _KEYS}
        for name, variable in _KEYS.items():
            if own and name == "security_token":  # A token belongs to its own key.
                continue
            parts[name] = parts[name] or os.environ.get(variable, "")
            if not parts[name] and name != "security_token":
                raise ConfigError(f"is not set, and neither is {variable} in the environment", field_place(name))
        return AccessKey(*(SecretText(parts[name]) for name in _KEYS))

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
                f"{self.endpoint!r} is not an address; write one such as pai-dlc.cn-hangzhou.aliyuncs.com",
                field_place("endpoint"),
            )

    @property
    def container_mount(self) -> str:
        """Return where pods mount the storage, without a slash at the end."""
        return (self.container_storage_mount_point or "").rstrip("/")

    @property
    def quota(self) -> str | None:
        """Return the resource quota to charge, wherever it was written."""
        given = self.ecs_spec.get("resource_id") if isinstance(self.ecs_spec, dict) else None
        return self.resource_id or given


def _spec(given: Any) -> Json:
    """Return the name of an instance type, or NNI's description of resources with texts as values.

    Raises: ConfigError.
    """
    parsed = given
    if isinstance(given, str) and given.strip().startswith("{"):  # NNI takes a Python dict as text
        try:
            parsed = ast.literal_eval(given.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise ConfigError(f"{given!r:.80} is not a description of resources", field_place("ecs_spec")) from error
    if isinstance(parsed, str) and parsed.strip():
        return parsed.strip()
    if not isinstance(parsed, Mapping) or not parsed:
        raise ConfigError("must be an instance type, or a description of resources", field_place("ecs_spec"))
    unknown = sorted(str(name) for name in parsed if name not in {*_SIZES, "resource_id"})
    if unknown:
        known = ", ".join(["resource_id", *_SIZES])
        raise ConfigError(f"{unknown[0]!r} is not one of {known}", field_place("ecs_spec"))
    texts = {}
    for name, value in parsed.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
            raise ConfigError(f"{name} must be a number or a text", field_place("ecs_spec"))
        texts[str(name)] = f"{value}{_SIZES.get(name, '')}" if not isinstance(value, str) else value
    return {"cpu": "1", "memory": "2Gi", "gpu": "0", **texts}  # NNI's defaults


IGNORED = (
    callback_is_unused(),
    *CHECKPOINTS_STAY,
    IgnoredOption(
        "containerStorageMountPoint",
        "is the mount point of the data set nasDataSourceId; set that, too",
        "without `nasDataSourceId`",
        lambda config, settings: not config.nas_data_source_id,
    ),
)
"""What has no effect on PAI-DLC."""
