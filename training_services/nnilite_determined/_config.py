"""The section `trainingService: {platform: determined}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from nnilite.errors import ConfigError, Place
from nnilite.platform_http import HttpConfig
from nnilite.service import CHECKPOINTS_STAY, IgnoredOption, callback_is_unused
from nnilite.units import MemoryMb, NonNegativeInt, PositiveInt, Secret

# What `expconf` may not say: these are what makes a Determined experiment an attempt of a trial of ours.
_OURS = {
    "name": "each attempt has a name of its own, by which it is found again",
    "entrypoint": "trialCommand is what runs",
    "searcher": "the tuner of this experiment searches",
    "hyperparameters": "they come from searchSpace",
    "max_restarts": "maxTrialRetries says how often a trial is tried again",
}
# Fields of `expconf` that are fields of this section.
_FIELDS = {
    "workspace": "workspace",
    "project": "project",
    "labels": "labels",
    "bind_mounts": "bindMounts",
    "checkpoint_storage": "checkpointStorage",
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def about(description: str) -> dict[str, str]:
    """A field's metadata."""
    return {"description": description}


@dataclass(frozen=True, kw_only=True)
class DeterminedMount:
    """A folder of the agents' machines."""

    host_path: str = field(metadata=about("the folder on the agent's machine, absolute"))
    container_path: str = field(metadata=about("where the trial sees it"))
    read_only: bool = field(default=False, metadata=about("whether trials may not write there"))
    propagation: str = field(default="rprivate", metadata=about("Docker's bind propagation"))

    def __post_init__(self) -> None:
        if not self.host_path.startswith("/"):
            raise ConfigError("must be an absolute path", Place(field="hostPath"))
        if self.container_path == ".":
            raise ConfigError('must not be "."', Place(field="containerPath"))


@dataclass(frozen=True, kw_only=True)
class DeterminedStorage:
    """Where checkpoints go."""

    type: Literal["shared_fs", "directory", "s3"] = field(
        metadata=about(
            "`shared_fs`: a folder of all agents' machines; `directory`: one of the container; `s3`: a bucket"
        )
    )
    host_path: str | None = field(default=None, metadata=about("of shared_fs: the folder on the agents' machines"))
    storage_path: str | None = field(default=None, metadata=about("of shared_fs: a folder in it; the folder itself"))
    container_path: str | None = field(default=None, metadata=about("of directory: the folder in the container"))
    bucket: str | None = field(default=None, metadata=about("of s3: the bucket"))
    prefix: str | None = field(default=None, metadata=about("of s3: what the names of all objects begin with"))
    endpoint_url: str | None = field(default=None, metadata=about("of s3: its URL, where it is not that of AWS"))
    access_key: str | None = field(default=None, metadata=about("of s3; if not set, what the agents' machines have"))
    secret_key: Secret | None = field(default=None, metadata=about('of s3; better "${env:S3_SECRET}"'))
    save_experiment_best: NonNegativeInt = field(default=0, metadata=about("of Determined's own checkpoints, kept"))
    save_trial_best: NonNegativeInt = field(default=1, metadata=about("of Determined's own checkpoints, kept"))
    save_trial_latest: NonNegativeInt = field(default=1, metadata=about("of Determined's own checkpoints, kept"))

    def __post_init__(self) -> None:
        name, yaml = {
            "shared_fs": ("host_path", "hostPath"),
            "directory": ("container_path", "containerPath"),
            "s3": ("bucket", "bucket"),
        }[self.type]
        if not getattr(self, name):
            raise ConfigError(f"is needed for a checkpointStorage of type {self.type}", Place(field=yaml))
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("and accessKey belong together: give both, or neither", Place(field="secretKey"))


@dataclass(frozen=True, kw_only=True)
class DeterminedConfig(HttpConfig):
    """Where the cluster is, who logs in, and what each trial gets there."""

    master: str = field(metadata=about("the address of Determined's master, such as https://determined.example.org"))
    username: str = field(default="determined", metadata=about("who logs in with `password`"))
    password: Secret | None = field(default=None, metadata=about('a new token is got by it; better "${env:DET_PASS}"'))
    token: Secret | None = field(
        default=None, metadata=about("in place of a password: a session's or an access token (`det token create`)")
    )
    workspace: str | None = field(default=None, metadata=about("of all experiments there; with `project`"))
    project: str | None = field(default=None, metadata=about("of that workspace; with `workspace`"))
    resource_pool: str | None = field(default=None, metadata=about("where trials run; the cluster's default"))
    slots: NonNegativeInt | None = field(
        default=None,
        metadata=about("slots (GPUs, as a rule) of each trial, all on one machine; trialGpuNumber if not set"),
    )
    image: str | None = field(default=None, metadata=about("with Python 3.8 or later; Determined's default if not set"))
    environment: dict[str, str] = field(default_factory=dict, metadata=about("environment variables of trials"))
    bind_mounts: list[DeterminedMount] = field(default_factory=list, metadata=about("folders of the agents' machines"))
    labels: list[str] = field(default_factory=list, metadata=about("for all experiments there"))
    priority: PositiveInt | None = field(default=None, metadata=about("1 (first) to 99, with a priority scheduler"))
    weight: float | None = field(default=None, metadata=about("with a fair-share scheduler"))
    shm_size: MemoryMb | None = field(default=None, metadata=about("of /dev/shm"))
    checkpoint_storage: DeterminedStorage | None = field(
        default=None, metadata=about("for Determined's checkpoints and ours; the cluster's if not set")
    )
    code_from: Literal["context", "manager"] = field(
        default="context",
        metadata=about("where trials get the code: from Determined, as context directory, or from the manager"),
    )
    expconf: Any = field(
        default=None,
        metadata=about("more of Determined's own experiment configuration, as its documentation spells it"),
    )
    when_finished: Literal["archive", "keep", "delete"] = field(
        default="archive", metadata=about("what becomes of the experiment there when the trial's attempt has ended")
    )
    nni_manager_ip: str | None = field(
        default=None, metadata=about("where trials reach the manager: a name or an address; found out if not set")
    )
    trial_gpu_number: NonNegativeInt | None = field(default=None, metadata=about("overrides the top level's"))
    reuse_mode: bool = field(default=False, metadata=about("accepted, as in NNI; has no effect here"))

    def __post_init__(self) -> None:
        if self.token is None and self.password is None:
            raise ConfigError("is needed, or a password (an empty one is written as '')", Place(field="token"))
        if bool(self.workspace) != bool(self.project):
            missing = "project" if self.workspace else "workspace"
            raise ConfigError("is needed: workspace and project belong together", Place(field=missing))
        if self.priority is not None and self.priority > 99:
            raise ConfigError(f"must be from 1 to 99, not {self.priority}", Place(field="priority"))
        for name in self.environment:
            if not _VARIABLE.fullmatch(name):
                raise ConfigError(f"{name!r} cannot be the name of a variable", Place(field="environment"))
        _check_expconf(self.expconf)


def _check_expconf(expconf: Any) -> None:
    """Raises: ConfigError for what is not for the user to say."""
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
    IgnoredOption("trialGpuNumber", "slots counts", "with `slots`", lambda config, settings: config.slots is not None),
    callback_is_unused(),
    *CHECKPOINTS_STAY,
    IgnoredOption("reuseMode", "each attempt is an experiment of its own on Determined"),
    IgnoredOption(
        "username",
        "the token says who logs in",
        "with `token` and without `password`",
        lambda config, settings: config.password is None,
    ),
)
"""What has no effect on Determined."""
