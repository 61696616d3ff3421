"""The section `platform: slurm` of a config."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Literal

from nnilite.errors import ConfigError, Place
from nnilite.service import CHECKPOINTS_STAY, IgnoredOption, callback_is_unused
from nnilite.services.cluster.queue_config import QueueConfig, check_paths, check_words
from nnilite.services.section_fields import GPU_OPTION, gpus_are_unused
from nnilite.ssh.settings import check_word
from nnilite.units import PositiveInt

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
"""Options that are not extra ones, and the fields to set instead; "": the service itself needs them."""


@dataclass(frozen=True)
class SlurmContainerConfig:
    """The container that a trial runs in, by the cluster's own means."""

    image: Annotated[str, "the image as the runtime names it: a .sif file, docker://..., a folder for oci"]
    runtime: Annotated[
        Literal["apptainer", "singularity", "pyxis", "oci"],
        "apptainer or singularity; pyxis: --container-image of srun; oci: --container of srun",
    ] = "apptainer"
    options: Annotated[list[str], "further arguments for the runtime, such as --nv or --container-mounts=..."] = field(
        default_factory=list
    )

    def __post_init__(self) -> None:
        check_word("image", self.image)
        if any("\0" in word for word in self.options):
            raise ConfigError("an argument must not contain a zero byte", Place(field="options"))


@dataclass(frozen=True, kw_only=True)
class SlurmConfig(QueueConfig):
    """Where Slurm is, and what each trial asks it for. Raises: ConfigError."""

    partition: Annotated[str | None, "one partition or several with commas; default: Slurm's"] = None
    qos: Annotated[str | None, "quality of service"] = None
    gres: Annotated[str | None, "generic resources such as gpu:a100:2; default: gpu:N for a trial of N GPUs"] = None
    nodes: Annotated[
        PositiveInt | None,
        "number of nodes of each trial; its command runs on the first, and starts the rest with srun",
    ] = None
    constraint: Annotated[str | None, "features that the nodes must have"] = None
    reservation: Annotated[str | None, "the reservation to run in"] = None
    modules: Annotated[list[str], "modules to load with `module load`"] = field(default_factory=list)
    container: Annotated[SlurmContainerConfig | None, "the container of trials"] = None
    sbatch_lines: Annotated[list[str], "further options of sbatch, such as --mail-type=FAIL"] = field(
        default_factory=list
    )
    job_array_size: Annotated[
        PositiveInt, "the largest number of trials that become one job array when they start together; 1: no arrays"
    ] = 1
    slurm_path: Annotated[str | None, "the folder of sbatch and the others on the login node, if it is not in PATH"] = (
        None
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_words(self, _WORD, "partition", "account", "qos", "gres", "constraint", "reservation")
        check_paths(self, "slurm_path")
        for number, module in enumerate(self.modules):
            if not _WORD.fullmatch(module) or module.startswith("-"):
                raise ConfigError(f"{module!r} is not the name of a module", Place(field=f"modules[{number}]"))
        for number, line in enumerate(self.sbatch_lines):
            _check_line(line, Place(field=f"sbatchLines[{number}]"))


def strip_option(line: str) -> str:
    """Return an extra option without the `#SBATCH` that may precede it."""
    return line.removeprefix("#SBATCH").strip()


def _check_line(line: str, place: Place) -> None:
    found = _OPTION.fullmatch(strip_option(line))
    if found is None:
        raise ConfigError(f"{line!r} is not an option of sbatch; write it as --mail-type=FAIL", place)
    name = found.group(1) or found.group(2)
    if name in _OURS or name.removeprefix("--no-") == "requeue":
        cure = f"set {_OURS[name]} instead" if _OURS.get(name) else "remove it, since nnilite uses it itself"
        raise ConfigError(f"{name} cannot be set here; {cure}", place)


IGNORED = (
    gpus_are_unused(
        "gres sets what a trial gets; 0 still hides all GPUs",
        "with `gres`, unless it is 0",
        lambda config, settings: config.gres is not None and bool(settings.get(GPU_OPTION)),
    ),
    IgnoredOption(
        "nodes",
        "distributed sets the nodes",
        "with `distributed`",
        lambda config, settings: bool(settings.get("distributed")),
    ),
    callback_is_unused("trials report through their folders and need no address"),
    *CHECKPOINTS_STAY,
)
"""What has no effect on Slurm."""
