"""The section `platform: batch` of a config."""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from typing import Annotated, Literal

from nnilite.errors import ConfigError, Place
from nnilite.service import CHECKPOINTS_STAY, IgnoredOption, Settings, callback_is_unused
from nnilite.services.cluster.queue_config import QueueConfig, check_paths, check_words
from nnilite.services.section_fields import field_place
from nnilite_batch._answer_reader import PHASES
from nnilite_batch._presets import PRESETS
from nnilite_batch._scheduler import BatchCommands, BatchPatterns, Scheduler, overlaid
from nnilite_batch._templates import ShellWords, Value, check_template, find_fields, render

_WORD = re.compile(r"[^\s\0]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NEEDED = ("commands.submit", "commands.status", "commands.cancel", "patterns.jobId", "patterns.job")
_RESOURCES = {"queue": "queue", "account": "account", "cpus": "cpus", "memory": "memory", "time_limit": "seconds"}
"""The fields that only count where a template has them, with the template's name for them."""
_OTHER_UNITS = {"memory": "memoryPerCpu", "seconds": "minutes"}


@dataclass(frozen=True, kw_only=True)
class BatchConfig(QueueConfig):
    """Which scheduler it is, where, and what each trial asks it for. Raises: ConfigError."""

    scheduler: Annotated[
        Literal["gridengine", "pbs", "torque", "lsf", "htcondor"] | None,
        "a supported scheduler; without it, `commands`, `patterns` and `states` must be complete",
    ] = None
    queue: Annotated[str | None, "the queue; default: the scheduler's"] = None
    submit_options: Annotated[list[str], "more words for `submit`: [-l, arch=lx-amd64]"] = field(default_factory=list)
    values: Annotated[dict[str, str], "values of further template fields, such as parallelEnvironment"] = field(
        default_factory=dict
    )
    login_set_up: Annotated[
        list[str], "shell commands before those of the scheduler, such as `. /opt/sge/default/common/settings.sh`"
    ] = field(default_factory=list)
    scheduler_path: Annotated[
        str | None, "folder of the scheduler's commands on the login node, if it is not in PATH"
    ] = None
    commands: Annotated[BatchCommands | None, "templates of commands, in place of those of the preset"] = None
    patterns: Annotated[
        BatchPatterns | None, "patterns that read the scheduler's answers, in place of the preset's"
    ] = None
    states: Annotated[
        dict[str, str],
        "patterns of the scheduler's states, with the exit code if there is one, in place of the preset's: "
        "waiting, preparing, running, ended, canceled, timedOut, killed, lost; the first that matches counts",
    ] = field(default_factory=dict)
    job_variable: Annotated[str | None, "variable that has a job's id, in the job"] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_paths(self, "scheduler_path")
        check_words(self, _WORD, "queue", "account")
        check_words(self, _VARIABLE, "job_variable")
        _check(self.described, self._values("nni-test", 1))

    @cached_property
    def described(self) -> Scheduler:
        """The scheduler: the preset, with what the section says in its place."""
        below = PRESETS.get(self.scheduler or "") or Scheduler("the scheduler", BatchCommands(), BatchPatterns(), {})
        return Scheduler(
            below.title,
            overlaid(below.commands, self.commands),
            overlaid(below.patterns, self.patterns),
            self.states or below.states,
            {**below.values, **self.values},
            self.job_variable or below.job_variable,
        )

    def command(self, which: str, name: str = "", gpus: int | None = None, **more: Value) -> str:
        """Return a command, made of the template of this name; "" if there is none."""
        template = getattr(self.described.commands, which) or ""
        values = {**self._values(name, gpus), **more}
        words = (render(self.described.commands.options or "", values), shlex.join(self.submit_options))
        return render(template, {**values, "options": ShellWords(" ".join(filter(None, words)))})

    def _values(self, name: str, gpus: int | None) -> dict[str, Value]:
        """Return the values of the fields in templates, for the job of this name."""
        return {
            **self.described.values,
            "name": name,
            "queue": self.queue,
            "account": self.account,
            "cpus": self.cpus,
            "memory": self.memory,
            "memoryPerCpu": None if self.memory is None else math.ceil(self.memory / (self.cpus or 1)),
            "gpus": gpus or None,
            "seconds": self.time_limit,
            "minutes": None if self.time_limit is None else math.ceil(self.time_limit / 60),
            "id": "",
            "ids": (),
            "options": "",
        }


def _check(scheduler: Scheduler, values: dict[str, Value]) -> None:
    """Check that a description is whole, and can be used. Raises: ConfigError."""
    for path, text in _describe_scheduler(scheduler).items():
        if text is None and path in _NEEDED:
            raise ConfigError("has to be set where no `scheduler` is", Place(field=path))
        try:
            if path.startswith("commands."):
                check_template(text or "", values, Place(field=path))
            else:
                re.compile(text or "")
        except re.error as error:
            raise ConfigError(f"is not a regular expression: {error}", Place(field=path)) from error
    if not scheduler.states or not set(scheduler.states) <= set(PHASES):
        raise ConfigError(f"needs patterns for some of {', '.join(PHASES)}, and nothing else", Place(field="states"))


def _describe_scheduler(scheduler: Scheduler) -> dict[str, str | None]:
    """Return the texts of a description by their places in the section."""
    found: dict[str, str | None] = {f"states.{name}": pattern for name, pattern in scheduler.states.items()}
    for part, texts in (("commands", scheduler.commands), ("patterns", scheduler.patterns)):
        found |= {f"{part}.{field_place(name).field}": text for name, text in asdict(texts).items()}
    return found


def _is_left_out(name: str, config: BatchConfig, settings: Settings) -> bool:
    """Return whether a field is set and no template has it, so that the scheduler does not learn of it."""
    commands = config.described.commands
    word = _RESOURCES[name]
    used = find_fields((commands.options or "") + (commands.submit or ""))
    return getattr(config, name) is not None and used.isdisjoint({word, _OTHER_UNITS.get(word)})


def _make_unused(name: str) -> IgnoredOption:
    why = f"the scheduler's `options` have no {{{_RESOURCES[name]}}}"
    where = "where `commands.options` has no such field"
    return IgnoredOption(str(field_place(name).field), why, where, partial(_is_left_out, name))


IGNORED = (
    *map(_make_unused, _RESOURCES),
    callback_is_unused("trials report through their folders and need no address"),
    *CHECKPOINTS_STAY,
)
"""What has no effect on a scheduler."""
