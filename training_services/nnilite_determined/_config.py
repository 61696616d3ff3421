"""The section `trainingService: {platform: determined}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from nnilite.errors import ConfigError, Place
from nnilite.platform_http import HttpConfig
from nnilite.service import CHECKPOINTS_STAY, IgnoredOption, callback_is_unused
from nnilite.services.section_fields import (
    GPU_OPTION,
    ManagerIp,
    ReuseMode,
    TrialGpuNumber,
    check_variables,
    gpus_are_unused,
)
from nnilite.units import MemoryMb, NonNegativeInt, PositiveInt, Secret

# `expconf` may not have these fields: they make a Determined experiment an attempt of a trial.
_OURS = {
    "name": "each attempt has its own name, which identifies it",
    "entrypoint": "trialCommand is the command",
    "searcher": "the tuner of this experiment searches",
    "hyperparameters": "they come from searchSpace",
    "max_restarts": "maxTrialRetries sets how often a trial is retried",
}
# Fields of `expconf` that are fields of this section.
_FIELDS = {
    "workspace": "workspace",
    "project": "project",
    "labels": "labels",
    "bind_mounts": "bindMounts",
    "checkpoint_storage": "checkpointStorage",
}


@dataclass(frozen=True, kw_only=True)
class DeterminedMount:
    """A folder of the agents' machines."""

    host_path: Annotated[str, "the folder on the agent's machine, absolute"]
    container_path: Annotated[str, "where the trial sees it"]
    read_only: Annotated[bool, "whether trials may not write there"] = False
    propagation: Annotated[str, "Docker's bind propagation"] = "rprivate"

    def __post_init__(self) -> None:
        if not self.host_path.startswith("/"):
            raise ConfigError("must be an absolute path", Place(field="hostPath"))
        if self.container_path == ".":
            raise ConfigError('must not be "."', Place(field="containerPath"))


@dataclass(frozen=True, kw_only=True)
class DeterminedStorage:
    """The storage of checkpoints."""

    type: Annotated[
        Literal["shared_fs", "directory", "s3"],
        "`shared_fs`: a folder of all agents' machines; `directory`: one of the container; `s3`: a bucket",
    ]
    host_path: Annotated[str | None, "the folder on the agents' machines, for shared_fs"] = None
    storage_path: Annotated[str | None, "a folder in it, for shared_fs; default: the folder itself"] = None
    container_path: Annotated[str | None, "the folder in the container, for directory"] = None
    bucket: Annotated[str | None, "the bucket, for s3"] = None
    prefix: Annotated[str | None, "the prefix of the names of all objects, for s3"] = None
    endpoint_url: Annotated[str | None, "the URL of the store, for s3, if it is not AWS"] = None
    access_key: Annotated[str | None, "the access key, for s3; default: the one of the agents' machines"] = None
    secret_key: Annotated[Secret | None, 'the secret key, for s3; better "${env:S3_SECRET}"'] = None
    save_experiment_best: Annotated[NonNegativeInt, "number of Determined's own checkpoints to keep"] = 0
    save_trial_best: Annotated[NonNegativeInt, "number of Determined's own checkpoints to keep"] = 1
    save_trial_latest: Annotated[NonNegativeInt, "number of Determined's own checkpoints to keep"] = 1

    def __post_init__(self) -> None:
        name, yaml = {
            "shared_fs": ("host_path", "hostPath"),
            "directory": ("container_path", "containerPath"),
            "s3": ("bucket", "bucket"),
        }[self.type]
        if not getattr(self, name):
            raise ConfigError(f"is needed for a checkpointStorage of type {self.type}", Place(field=yaml))
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("and accessKey belong together: set both, or neither", Place(field="secretKey"))


@dataclass(frozen=True, kw_only=True)
class DeterminedConfig(HttpConfig):
    """The cluster, the login, and what each trial gets."""

    brings_storage: ClassVar[bool] = True
    """Whether the keepers of trials may store checkpoints without a shared storage of the experiment."""

    master: Annotated[str, "the address of Determined's master, such as https://determined.example.org"]
    username: Annotated[str, "the user who logs in with `password`"] = "determined"
    password: Annotated[Secret | None, 'the password, with which nnilite gets tokens; better "${env:DET_PASS}"'] = None
    token: Annotated[Secret | None, "instead of a password: a session's or an access token (`det token create`)"] = None
    workspace: Annotated[str | None, "the workspace of all experiments there; with `project`"] = None
    project: Annotated[str | None, "the project in that workspace; with `workspace`"] = None
    resource_pool: Annotated[str | None, "the resource pool of trials; default: the cluster's"] = None
    slots: Annotated[
        NonNegativeInt | None, f"slots (usually GPUs) of each trial, or of each of its nodes; default: {GPU_OPTION}"
    ] = None
    image: Annotated[str | None, "an image with Python 3.8 or later; default: Determined's"] = None
    environment: Annotated[dict[str, str], "environment variables of trials"] = field(default_factory=dict)
    bind_mounts: Annotated[list[DeterminedMount], "folders of the agents' machines"] = field(default_factory=list)
    labels: Annotated[list[str], "labels of all experiments there"] = field(default_factory=list)
    priority: Annotated[PositiveInt | None, "priority from 1 (first) to 99, with a priority scheduler"] = None
    weight: Annotated[float | None, "weight, with a fair-share scheduler"] = None
    shm_size: Annotated[MemoryMb | None, "of /dev/shm"] = None
    checkpoint_storage: Annotated[
        DeterminedStorage | None, "storage of Determined's checkpoints and the trial's; default: the cluster's"
    ] = None
    code_from: Annotated[
        Literal["context", "manager"],
        "where trials get the code: from Determined, as context directory, or from the manager",
    ] = "context"
    expconf: Annotated[
        Any, "further fields of Determined's experiment configuration, as its documentation spells them"
    ] = None
    when_finished: Annotated[
        Literal["archive", "keep", "delete"], "what to do with the experiment there when the trial's attempt has ended"
    ] = "archive"
    nni_manager_ip: ManagerIp = None
    trial_gpu_number: TrialGpuNumber = None
    reuse_mode: ReuseMode = False

    def __post_init__(self) -> None:
        if self.token is None and self.password is None:
            raise ConfigError("is needed, or a password (an empty one is written as '')", Place(field="token"))
        if bool(self.workspace) != bool(self.project):
            missing = "project" if self.workspace else "workspace"
            raise ConfigError("is needed, since workspace and project belong together", Place(field=missing))
        if self.priority is not None and self.priority > 99:
            raise ConfigError(f"must be from 1 to 99, not {self.priority}", Place(field="priority"))
        check_variables(self.environment, "environment")
        _check_expconf(self.expconf)


def _check_expconf(expconf: Any) -> None:
    """Check `expconf`. Raises: ConfigError for fields that users cannot set."""
    place = Place(field="expconf")
    if expconf is None:
        return
    if not isinstance(expconf, Mapping):
        raise ConfigError("must be an object, such as {log_policies: [...]}", place)
    for name, why in _OURS.items():
        if name in expconf:
            raise ConfigError(f"cannot have {name}: {why}", place)
    for name, yaml in _FIELDS.items():
        if name in expconf:
            raise ConfigError(f"cannot have {name}: it is the field {yaml} of this section", place)


IGNORED = (
    gpus_are_unused("slots counts", "with `slots`", lambda config, settings: config.slots is not None),
    callback_is_unused(),
    *CHECKPOINTS_STAY,
    IgnoredOption("reuseMode", "each attempt is an experiment of its own on Determined"),
    IgnoredOption(
        "username",
        "the token names the user",
        "with `token` and without `password`",
        lambda config, settings: config.password is None,
    ),
)
"""What has no effect on Determined."""
