"""The section `trainingService: {platform: ray}`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from nnilite.errors import ConfigError, Place
from nnilite.platform_http import HttpConfig
from nnilite.service import CHECKPOINTS_STAY, callback_is_unused
from nnilite.services.section_fields import GPU_OPTION, gpus_are_unused
from nnilite.units import FilePath, MemoryMb, NonNegativeInt, Secret

# What `runtimeEnv` may not say: these are what makes a Ray job an attempt of a trial of ours.
_OURS = {
    "working_dir": "trialCodeDirectory is what is sent to trials",
    "excludes": ".nniignore says what is not sent",
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIRST_RESOURCES = {"CPU": "entrypointNumCpus", "GPU": "entrypointNumGpus", "memory": "entrypointMemory"}


@dataclass(frozen=True, kw_only=True)
class RayConfig(HttpConfig):
    """The cluster, the login, and what each trial gets."""

    address: Annotated[str, "the address of Ray's dashboard, such as http://ray-head.example.org:8265"]
    token: Annotated[
        Secret | None, 'the token of a cluster with token authentication; better "${env:RAY_AUTH_TOKEN}"'
    ] = None
    token_file: Annotated[
        FilePath | None, "a file with the token, such as ~/.ray/auth_token; read again when it has expired"
    ] = None
    headers: Annotated[dict[str, Secret], "HTTP headers of each call, for a proxy in front of the cluster"] = field(
        default_factory=dict
    )
    entrypoint_num_cpus: Annotated[float, "CPU cores that Ray reserves for each trial; 0: none are reserved"] = 1
    entrypoint_num_gpus: Annotated[
        float | None, f"GPUs that Ray reserves for each trial, also parts of one; default: {GPU_OPTION}"
    ] = None
    entrypoint_memory: Annotated[MemoryMb | None, "memory that Ray reserves for each trial; it does not limit it"] = (
        None
    )
    entrypoint_resources: Annotated[
        dict[str, float], "other resources of the cluster's nodes, such as {special_hardware: 1}"
    ] = field(default_factory=dict)
    runtime_env: Annotated[
        Any, "Ray's runtime environment for each trial, as Ray spells it: {pip: [...], env_vars: {...}}"
    ] = None
    code_from: Annotated[
        Literal["package", "manager"],
        "where trials get the code: from Ray, as a package that is uploaded once, or from the manager",
    ] = "package"
    work_directory: Annotated[
        str | None, "a folder of each node for the files of its trials; default: the folder for temporary files"
    ] = None
    checkpoint_directory: Annotated[
        str | None, "a folder that all nodes share, for checkpoints; without it, they are deleted with the trial"
    ] = None
    nni_manager_ip: Annotated[
        str | None, "the name or address at which trials reach the manager; default: detected"
    ] = None
    trial_gpu_number: Annotated[NonNegativeInt | None, "overrides the one at the top level"] = None

    def __post_init__(self) -> None:
        _check_address(self.address)
        if self.token is not None and self.token_file is not None:
            raise ConfigError("cannot be combined with token", Place(field="tokenFile"))
        for name, value in self.headers.items():
            if not _HEADER.fullmatch(name) or not value.isprintable():
                raise ConfigError(f"{name!r} is not a valid HTTP header", Place(field="headers"))
        _check_amount(self.entrypoint_num_cpus, "entrypointNumCpus")
        _check_amount(self.entrypoint_num_gpus or 0, "entrypointNumGpus")
        for name, amount in self.entrypoint_resources.items():
            if name in _FIRST_RESOURCES:
                raise ConfigError(
                    f"cannot have {name}: it is the field {_FIRST_RESOURCES[name]}", Place(field="entrypointResources")
                )
            _check_amount(amount, "entrypointResources")
        for yaml, folder in (
            ("workDirectory", self.work_directory),
            ("checkpointDirectory", self.checkpoint_directory),
        ):
            if folder is not None and not folder.startswith("/"):
                raise ConfigError("must be an absolute path of the nodes", Place(field=yaml))
        _check_runtime_env(self.runtime_env)


def _check_address(address: str) -> None:
    """Check an address. Raises: ConfigError for addresses of Ray other than its REST interface."""
    parts = urlsplit(address)
    if "@" in address:
        raise ConfigError("must not hold a login; there are fields for that", Place(field="address"))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        host = parts.hostname or address.partition(":")[0]
        raise ConfigError(
            f"{address!r} is not the address of Ray's dashboard, which serves its Jobs REST interface; it is usually "
            f"http://{host}:8265",
            Place(field="address"),
        )


def _check_amount(amount: float, field_name: str) -> None:
    if not math.isfinite(amount) or amount < 0:
        raise ConfigError(f"must be a number from 0 up, not {amount}", Place(field=field_name))
    if amount > 1 and amount != int(amount):
        raise ConfigError(f"cannot be {amount}: use a fraction below 1, or a whole number", Place(field=field_name))


def _check_runtime_env(given: Any) -> None:
    """Check the runtime environment. Raises: ConfigError for fields that users cannot set, or that are not valid."""
    place = Place(field="runtimeEnv")
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise ConfigError("must be an object, such as {pip: [torch]}", place)
    for name, why in _OURS.items():
        if name in given:
            raise ConfigError(f"cannot have {name}: {why}", place)
    for name in ("py_modules", "py_executable_modules"):
        local = [one for one in given.get(name) or [] if isinstance(one, str) and "://" not in one]
        if local:
            raise ConfigError(f"cannot have {local[0]!r} in {name}: the cluster cannot see it; give a URI", place)
    _check_variables(given.get("env_vars") or {}, place)


def _check_variables(variables: Any, place: Place) -> None:
    """Check variables. Raises: ConfigError."""
    if not isinstance(variables, Mapping):
        raise ConfigError("must have an object in env_vars, such as {NAME: value}", place)
    for name, value in variables.items():
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name) or not isinstance(value, str):
            raise ConfigError(f"cannot have {name!r}: {value!r} in env_vars: Ray accepts names and texts", place)


IGNORED = (
    gpus_are_unused(
        "entrypointNumGpus counts",
        "with `entrypointNumGpus`",
        lambda config, settings: config.entrypoint_num_gpus is not None,
    ),
    callback_is_unused(),
    *CHECKPOINTS_STAY,
)
"""What has no effect on Ray."""
