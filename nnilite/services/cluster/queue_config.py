"""The fields that the sections of all schedulers have, with their checks. `QueueService` reads most of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from nnilite.errors import ConfigError
from nnilite.services.cluster.job_script import SETTLE_S
from nnilite.services.cluster.login import LoginConfig
from nnilite.services.section_fields import field_place
from nnilite.units import Duration, MemoryMb, PositiveInt


@dataclass(frozen=True, kw_only=True)
class QueueConfig:
    """Where a scheduler is, and what each trial asks it for. Raises: ConfigError."""

    login: Annotated[LoginConfig | None, "the login node, reached by SSH; default: this machine"] = None
    directory: Annotated[
        str, "folder for all files of trials, seen by login node and compute nodes; relative to the home folder"
    ] = "nnilite"
    account: Annotated[str | None, "the account or project to charge"] = None
    cpus: Annotated[PositiveInt | None, "CPUs of a trial, on each of its nodes"] = None
    memory: Annotated[MemoryMb | None, "memory of a trial, on each of its nodes"] = None
    time_limit: Annotated[
        Duration | None, "the scheduler's limit for a trial, which gets SIGTERM a minute and its gracePeriod earlier"
    ] = None
    set_up: Annotated[list[str], "shell commands before the trial; it fails if one of them fails"] = field(
        default_factory=list
    )
    python_path: Annotated[str | None, "Python 3.8 or later on the nodes, or its folder; default: the one in PATH"] = (
        None
    )
    keep: Annotated[Literal["nothing", "outputs"], "what to keep in `directory` when the experiment has stopped"] = (
        "outputs"
    )
    nni_manager_ip: Annotated[str | None, "the name or address at which nodes reach the manager; default: detected"] = (
        None
    )

    def __post_init__(self) -> None:
        check_paths(self, "directory", "python_path")
        if self.time_limit is not None and self.time_limit <= SETTLE_S:
            raise ConfigError(
                f"must be above {SETTLE_S} s: a trial ends that long, plus its gracePeriod, before the limit",
                field_place("time_limit"),
            )


def check_paths(config: Any, *names: str) -> None:
    """Check fields that are paths. Raises: ConfigError."""
    for name in names:
        value = getattr(config, name)
        if value is not None and (not value or "\0" in value):
            raise ConfigError(f"{value!r} is not a valid value", field_place(name))


def check_words(config: Any, pattern: re.Pattern[str], *names: str) -> None:
    """Check fields that become one word of a command. Raises: ConfigError."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not pattern.fullmatch(value):
            raise ConfigError(f"{value!r} is not valid; use one word", field_place(name))
