"""The section `trainingService: {platform: local}`: NNI's fields, and `isolateCode`."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nnilite.errors import ConfigError, Place
from nnilite.service import IgnoredOption, ServiceContext
from nnilite.services.preloading import PreloadedModules, check_modules
from nnilite.services.section_fields import TrialGpuNumber
from nnilite.services.trial_command import find_missing_program
from nnilite.units import GpuIndices, Niceness, PositiveInt


def _about(description: str) -> dict[str, str]:
    return {"description": description}


@dataclass(frozen=True)
class LocalConfig:
    """The local service's settings. Raises: ConfigError where two of them do not fit together."""

    use_active_gpu: bool | None = field(
        default=None,
        metadata=_about("whether trials may get GPUs that other programs use; required if trials get GPUs"),
    )
    max_trial_number_per_gpu: PositiveInt = field(
        default=1, metadata=_about("how many trials of this experiment may share a GPU")
    )
    gpu_indices: GpuIndices | None = field(
        default=None, metadata=_about("the GPUs that trials may get, as nvidia-smi numbers them; all if not set")
    )
    isolate_code: bool = field(
        default=False,
        metadata=_about("run each trial in a copy of the code as it was at the start, not in the folder itself"),
    )
    max_slots: PositiveInt | None = field(
        default=None,
        metadata=_about("how many trials run at once on this machine, in all experiments that set this; default: any"),
    )
    priority: int = field(
        default=0, metadata=_about("with maxSlots: experiments with a higher value are served first; may be negative")
    )
    niceness: Niceness = field(
        default=0,
        metadata=_about(
            "how far trials give way to all other programs, as the command `nice` counts; 0: they share equally"
        ),
    )
    preload: PreloadedModules = field(default_factory=list)
    reuse_mode: bool = field(default=False, metadata=_about("accepted, as in NNI; has no effect here"))
    trial_gpu_number: TrialGpuNumber = None

    @property
    def note(self) -> str:
        """Return a note for readers of these trials' times; "" if there is nothing to note."""
        if self.niceness == 0:
            return ""
        return (
            f"trials give way to other programs (niceness {self.niceness}): "
            "times and latencies that they measure differ from those on an idle machine"
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        return (f"{self.note}; leave niceness out, and trials share equally",) if self.note else ()

    def __post_init__(self) -> None:
        check_modules(self.preload)
        if self.priority and self.max_slots is None:
            raise ConfigError("takes effect only with maxSlots; set maxSlots, too", Place(field="priority"))
        if self.trial_gpu_number:
            if self.use_active_gpu is None:
                raise ConfigError(
                    "must be true or false if trialGpuNumber is above 0: "
                    "may trials get GPUs on which programs of others run?",
                    Place(field="useActiveGpu"),
                )
            if self.gpu_indices is not None and len(set(self.gpu_indices)) < self.trial_gpu_number:
                raise ConfigError(
                    f"names fewer GPUs than the {self.trial_gpu_number} that trialGpuNumber asks for, so no "
                    "trial could ever run; name more, or ask for fewer",
                    Place(field="gpuIndices"),
                )


_PROGRAMS = {"mpi": "mpirun", "horovod": "horovodrun"}


def check_launcher(distributed: Any) -> None:
    """Check that this machine has the program that starts the processes of a trial. Raises: ConfigError."""
    launcher = distributed.get("launcher") if isinstance(distributed, Mapping) else None
    program = _PROGRAMS.get(launcher or "")
    if program and shutil.which(program) is None:
        raise ConfigError(
            f"is {launcher}, but this machine has no {program}; install it, or set another launcher",
            Place(field="distributed.launcher"),
        )


def find_missing(context: ServiceContext) -> str:
    """Return a sentence on the program of the trial command, if this machine has none of that name; else ""."""
    said = find_missing_program(str(context.defaults.get("trialCommand") or ""), context.code_directory)
    return f"trialCommand: {said}" if said else ""


def _has_no_gpus(config: LocalConfig, settings: object) -> bool:
    return not config.trial_gpu_number


IGNORED = (
    IgnoredOption("callback", "trials report on this machine itself, which needs no log"),
    IgnoredOption("nniManagerIp", "trials run on the manager's machine and need no address"),
    IgnoredOption(
        "codeLimits",
        "trials run in the code directory itself, and nothing is packed",
        "without `isolateCode`",
        lambda config, settings: not config.isolate_code,
    ),
    IgnoredOption("reuseMode", "starting a trial here costs next to nothing"),
    IgnoredOption(
        "useActiveGpu",
        "trials see all GPUs, or none; set trialGpuNumber to have GPUs assigned",
        "unless `trialGpuNumber` is above 0, for the value `true`",
        lambda config, settings: config.use_active_gpu and not config.trial_gpu_number,
    ),
    IgnoredOption(
        "gpuIndices",
        "trials see all GPUs, or none; set trialGpuNumber to have GPUs assigned",
        "unless `trialGpuNumber` is above 0",
        _has_no_gpus,
    ),
    IgnoredOption(
        "maxTrialNumberPerGpu",
        "trials see all GPUs, or none; set trialGpuNumber to have GPUs assigned",
        "unless `trialGpuNumber` is above 0",
        _has_no_gpus,
    ),
)
"""What has no effect where trials run on the manager's machine."""
