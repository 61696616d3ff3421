"""The section `trainingService: {platform: determined}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from nnilite.errors import ConfigError, Place
from nnilite.platform_http import HttpConfig
from nnilite.service import CHECKPOINTS_STAY, IgnoredOption, callback_is_unused
from nnilite.services.section_fields import TrialGpuNumber
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
    """Where checkpoints go."""

    type: Annotated[
        Literal["shared_fs", "directory", "s3"],
        "`shared_fs`: a folder of all agents' machines; `directory`: one of the container; `s3`: a bucket",
    ]
    host_path: Annotated[str | None, "of shared_fs: the folder on the agents' machines"] = None
    storage_path: Annotated[str | None, "of shared_fs: a folder in it; the folder itself"] = None
    container_path: Annotated[str | None, "of directory: the folder in the container"] = None
    bucket: Annotated[str | None, "of s3: the bucket"] = None
    prefix: Annotated[str | None, "of s3: what the names of all objects begin with"] = None
    endpoint_url: Annotated[str | None, "of s3: its URL, where it is not that of AWS"] = None
    access_key: Annotated[str | None, "of s3; if not set, what the agents' machines have"] = None
    secret_key: Annotated[Secret | None, 'of s3; better "${env:S3_SECRET}"'] = None
    save_experiment_best: Annotated[NonNegativeInt, "of Determined's own checkpoints, kept"] = 0
    save_trial_best: Annotated[NonNegativeInt, "of Determined's own checkpoints, kept"] = 1
    save_trial_latest: Annotated[NonNegativeInt, "of Determined's own checkpoints, kept"] = 1

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

    master: Annotated[str, "the address of Determined's master, such as https://determined.example.org"]
    username: Annotated[str, "who logs in with `password`"] = "determined"
    password: Annotated[Secret | None, 'a new token is got by it; better "${env:DET_PASS}"'] = None
    token: Annotated[Secret | None, "in place of a password: a session's or an access token (`det token create`)"] = (
        None
    )
    workspace: Annotated[str | None, "of all experiments there; with `project`"] = None
    project: Annotated[str | None, "of that workspace; with `workspace`"] = None
    resource_pool: Annotated[str | None, "where trials run; the cluster's default"] = None
    slots: Annotated[
        NonNegativeInt | None, "slots (GPUs, as a rule) of each trial, all on one machine; trialGpuNumber if not set"
    ] = None
    image: Annotated[str | None, "with Python 3.8 or later; Determined's default if not set"] = None
    environment: Annotated[dict[str, str], "environment variables of trials"] = field(default_factory=dict)
    bind_mounts: Annotated[list[DeterminedMount], "folders of the agents' machines"] = field(default_factory=list)
    labels: Annotated[list[str], "for all experiments there"] = field(default_factory=list)
    priority: Annotated[PositiveInt | None, "1 (first) to 99, with a priority scheduler"] = None
    weight: Annotated[float | None, "with a fair-share scheduler"] = None
    shm_size: Annotated[MemoryMb | None, "of /dev/shm"] = None
    checkpoint_storage: Annotated[
        DeterminedStorage | None, "for Determined's checkpoints and ours; the cluster's if not set"
    ] = None
    code_from: Annotated[
        Literal["context", "manager"],
        "where trials get the code: from Determined, as context directory, or from the manager",
    ] = "context"
    expconf: Annotated[Any, "more of Determined's own experiment configuration, as its documentation spells it"] = None
    when_finished: Annotated[
        Literal["archive", "keep", "delete"], "what becomes of the experiment there when the trial's attempt has ended"
    ] = "archive"
    nni_manager_ip: Annotated[
        str | None, "where trials reach the manager: a name or an address; found out if not set"
    ] = None
    trial_gpu_number: TrialGpuNumber = None
    reuse_mode: Annotated[bool, "accepted, as in NNI; has no effect here"] = False

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
