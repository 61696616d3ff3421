"""The section of `platform: dlts`: NNI's fields, and what a trial may need beyond them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Literal

from nnilite.errors import ConfigError, Place
from nnilite.platform_http import HttpConfig
from nnilite.service import CHECKPOINTS_STAY, callback_is_unused
from nnilite.services.section_fields import GPU_OPTION, field_place, gpus_are_unused
from nnilite.units import Duration, NonNegativeInt, Secret, SecretText

_VARIABLES = {
    "team": ("DLTS_VC_NAME", "DLWS_VC_NAME"),
    "email": ("DLTS_USER_EMAIL", "DLWS_USER_EMAIL"),
    "password": ("DLTS_JOB_TOKEN",),
}
"""Variables that DLTS sets in its own jobs, where a manager may run, too. Older versions call it DLWS."""


@dataclass(frozen=True, kw_only=True)
class DltsConfig(HttpConfig):
    """Where DLTS is, who asks, and what a trial gets."""

    dashboard: Annotated[str, "the address of the dashboard, such as https://dlts.example.com"]
    cluster: Annotated[str, "the name of the cluster; .default is the dashboard's first"] = ".default"
    team: Annotated[str, "the team (virtual cluster) to charge; default: DLTS_VC_NAME"] = ""
    email: Annotated[str, "the email address of the user; default: DLTS_USER_EMAIL"] = ""
    password: Annotated[
        Secret, 'the key of the user, as the dashboard shows it; default: DLTS_JOB_TOKEN; better "${env:NAME}"'
    ] = ""
    image: Annotated[str, "an image with Python 3.8 or later; it needs nothing else"]
    gpu_number: Annotated[NonNegativeInt | None, f"GPUs of each trial; default: {GPU_OPTION}"] = None
    gpu_type: Annotated[str | None, "the kind of GPU; default: the team's first"] = None
    preemption_allowed: Annotated[bool, "trials may be preempted, do not count for the quota, and are retried"] = False
    work_path: Annotated[str, "the folder of the user's storage that is mounted as /work"] = ""
    data_path: Annotated[str | None, "the folder of the cluster's data that is mounted as /data; default: none"] = None
    code_from: Annotated[
        Literal["manager", "job", "home"] | None,
        "where trials get the code: from the manager, with the job, or from the home folder that a manager within DLTS "
        "shares with them; default: with the job for callback: log, else from the manager",
    ] = None
    image_pull_limit: Annotated[Duration, "how long pulling an image may fail before the trial fails"] = 600
    nni_manager_ip: Annotated[
        str | None, "the name or address at which trials reach the manager; default: detected"
    ] = None

    def __post_init__(self) -> None:
        for name, variables in _VARIABLES.items():
            if not getattr(self, name):
                object.__setattr__(self, name, _read_from_environment(name, variables))
        for name in ("dashboard", "cluster", "image"):
            if not getattr(self, name).strip():
                raise ConfigError("must not be empty", Place(field=name))
        for name in ("work_path", "data_path"):
            _check_folder(name, getattr(self, name) or "")


def _read_from_environment(name: str, variables: tuple[str, ...]) -> str:
    found = next((os.environ[variable] for variable in variables if os.environ.get(variable)), "")
    if not found:
        raise ConfigError(
            f"is not set, and neither is the environment variable {variables[0]}, which DLTS sets in its jobs",
            Place(field=name),
        )
    return SecretText(found) if name == "password" else found


def _check_folder(name: str, path: str) -> None:
    """Check a folder that DLTS would refuse. Raises: ConfigError."""
    if ".." in path or path.startswith(("/", "\\")):
        raise ConfigError(f"{path!r} must be relative to the storage of DLTS, and without '..'", field_place(name))


IGNORED = (
    gpus_are_unused("gpuNumber counts", "with `gpuNumber`", lambda config, settings: config.gpu_number is not None),
    callback_is_unused(),
    *CHECKPOINTS_STAY,
)
"""What has no effect on DLTS."""
