"""The section `platform: slurm` of a config."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from nnilite.errors import ConfigError, Place
from nnilite.service import CHECKPOINTS_STAY, IgnoredOption, callback_is_unused
from nnilite.services.cluster.job_script import SETTLE_S
from nnilite.services.cluster.login import LoginConfig
from nnilite.ssh.settings import check_word
from nnilite.units import Duration, MemoryMb, NonNegativeInt, PositiveInt

_WORD = re.compile(r"[^\s\"'\\#`$;]+")
_OPTION = re.compile(r"(--[a-z][a-z0-9-]*)(?:[= ].*)?|(-[A-Za-z]).*")
_OURS = {
    "--array": "jobArraySize",
    "--chdir": "directory",
    "--comment": "",
    "--dependency": "",
    "--error": "",
    "--input": "",
    "--job-name": "",
    "--output": "",
    "--parsable": "",
    "--requeue": "",
    "--signal": "timeLimit and gracePeriod",
    "--wait": "",
    "--wrap": "",
    "-a": "jobArraySize",
    "-D": "directory",
    "-J": "",
    "-W": "",
    "-d": "",
    "-e": "",
    "-i": "",
    "-o": "",
    "--account": "account",
    "-A": "account",
    "--constraint": "constraint",
    "-C": "constraint",
    "--cpus-per-task": "cpus",
    "-c": "cpus",
    "--gres": "gres",
    "--mem": "memory",
    "--nodes": "nodes",
    "-N": "nodes",
    "--partition": "partition",
    "-p": "partition",
    "--qos": "qos",
    "-q": "qos",
    "--reservation": "reservation",
    "--time": "timeLimit",
    "-t": "timeLimit",
}
"""Options that are no extra ones, and the fields to set in their place; "": the service itself needs them."""


def _about(description: str) -> dict[str, str]:
    return {"description": description}


@dataclass(frozen=True)
class SlurmContainerConfig:
    """The container that a trial runs in, by the cluster's own means."""

    image: str = field(metadata=_about("what the runtime calls it: a .sif file, docker://..., a folder for oci"))
    runtime: Literal["apptainer", "singularity", "pyxis", "oci"] = field(
        default="apptainer",
        metadata=_about("apptainer or singularity; pyxis: --container-image of srun; oci: --container of srun"),
    )
    options: list[str] = field(
        default_factory=list, metadata=_about("further words for the runtime, such as --nv or --container-mounts=...")
    )

    def __post_init__(self) -> None:
        check_word("image", self.image)
        if any("\0" in word for word in self.options):
            raise ConfigError("a word with a zero byte cannot be used", Place(field="options"))


@dataclass(frozen=True)
class SlurmConfig:
    """Where Slurm is, and what each trial asks it for. Raises: ConfigError."""

    login: LoginConfig | None = field(
        default=None, metadata=_about("the login node, reached by SSH; this machine if not set")
    )
    directory: str = field(
        default="nnilite",
        metadata=_about("for all files of trials, where login node and compute nodes see it; relative to the home"),
    )
    partition: str | None = field(default=None, metadata=_about("Slurm's default if not set; several with commas"))
    account: str | None = field(default=None, metadata=_about("that pays"))
    qos: str | None = field(default=None, metadata=_about("quality of service"))
    gres: str | None = field(default=None, metadata=_about("such as gpu:a100:2; gpu:N for trialGpuNumber N if not set"))
    cpus: PositiveInt | None = field(default=None, metadata=_about("of each trial (--cpus-per-task)"))
    memory: MemoryMb | None = field(default=None, metadata=_about("of each trial on each of its nodes"))
    nodes: PositiveInt | None = field(
        default=None, metadata=_about("of each trial; its command runs on the first, and starts the rest by srun")
    )
    constraint: str | None = field(default=None, metadata=_about("features that the nodes must have"))
    reservation: str | None = field(default=None, metadata=_about("to run in"))
    time_limit: Duration | None = field(
        default=None,
        metadata=_about("of Slurm for a trial; it gets SIGTERM a minute and its gracePeriod before that"),
    )
    modules: list[str] = field(default_factory=list, metadata=_about("are loaded by `module load`"))
    set_up: list[str] = field(
        default_factory=list, metadata=_about("shell commands before the trial; it fails if one of them fails")
    )
    container: SlurmContainerConfig | None = field(default=None, metadata=_about("that trials run in"))
    sbatch_lines: list[str] = field(
        default_factory=list, metadata=_about("further options of sbatch, such as --mail-type=FAIL")
    )
    job_array_size: PositiveInt = field(
        default=1, metadata=_about("up to so many trials that start together become one job array; 1: none does")
    )
    python_path: str | None = field(
        default=None, metadata=_about("on the nodes: Python 3.8 or later, or its folder; looked for in PATH if not set")
    )
    slurm_path: str | None = field(
        default=None, metadata=_about("folder of sbatch and the others on the login node, if PATH has it not")
    )
    keep: Literal["nothing", "outputs"] = field(
        default="outputs", metadata=_about("what stays in `directory` when the experiment has stopped")
    )
    nni_manager_ip: str | None = field(
        default=None, metadata=_about("where nodes reach the manager: a name or an address; found out if not set")
    )
    trial_gpu_number: NonNegativeInt | None = field(default=None, metadata=_about("overrides the top level's"))

    def __post_init__(self) -> None:
        for name in ("partition", "account", "qos", "gres", "constraint", "reservation"):
            value = getattr(self, name)
            if value is not None and not _WORD.fullmatch(value):
                raise ConfigError(f"{value!r} cannot be used: it has to be one word", Place(field=name))
        for name in ("directory", "python_path", "slurm_path"):
            value = getattr(self, name)
            if value is not None and (not value or "\0" in value):
                raise ConfigError(f"{value!r} cannot be used", Place(field=_camel(name)))
        for number, module in enumerate(self.modules):
            if not _WORD.fullmatch(module) or module.startswith("-"):
                raise ConfigError(f"{module!r} is no name of a module", Place(field=f"modules[{number}]"))
        for number, line in enumerate(self.sbatch_lines):
            _check_line(line, Place(field=f"sbatchLines[{number}]"))
        if self.time_limit is not None and self.time_limit <= SETTLE_S:
            raise ConfigError(
                f"has to be above {SETTLE_S} s: a trial is ended that long, and its gracePeriod, before the limit",
                Place(field="timeLimit"),
            )


def option_of(line: str) -> str:
    """An extra option, without the `#SBATCH` that may stand before it."""
    return line.removeprefix("#SBATCH").strip()


def _check_line(line: str, place: Place) -> None:
    found = _OPTION.fullmatch(option_of(line))
    if found is None:
        raise ConfigError(f"{line!r} is no option of sbatch; write it as --mail-type=FAIL", place)
    name = found.group(1) or found.group(2)
    if name in _OURS or name.removeprefix("--no-") == "requeue":
        cure = f"set {_OURS[name]} instead" if _OURS.get(name) else "leave it out: nnilite needs it itself"
        raise ConfigError(f"{name} cannot be set here; {cure}", place)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


IGNORED = (
    IgnoredOption(
        "trialGpuNumber",
        "gres says what a trial gets; 0 still hides all GPUs",
        "with `gres`, unless it is 0",
        lambda config, settings: config.gres is not None and bool(settings.get("trialGpuNumber")),
    ),
    callback_is_unused("trials report by their folders and need no address"),
    *CHECKPOINTS_STAY,
)
"""What has no effect on Slurm."""
