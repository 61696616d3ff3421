"""The section `trainingService: {platform: local}`: NNI's fields, and `isolateCode`."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from nnilite.errors import ConfigError, Place
from nnilite.service import IgnoredOption, ServiceContext
from nnilite.services.preloading import PreloadedModules, check_modules
from nnilite.services.section_fields import GPU_OPTION, ReuseMode, TrialGpuNumber, needs_assigned_gpus
from nnilite.services.trial_command import find_missing_program, find_other_python
from nnilite.units import GpuIndices, Niceness, PositiveInt


@dataclass(frozen=True)
class LocalConfig:
    """The local service's settings. Raises: ConfigError where two of them do not fit together."""

    use_active_gpu: Annotated[
        bool | None, "whether trials may get GPUs that other programs use; required if trials get GPUs"
    ] = None
    max_trial_number_per_gpu: Annotated[PositiveInt, "how many trials of this experiment may share a GPU"] = 1
    gpu_indices: Annotated[
        GpuIndices | None, "the GPUs that trials may get, as nvidia-smi numbers them; all if not set"
    ] = None
    isolate_code: Annotated[
        bool, "run each trial in a copy of the code as it was at the start, not in the folder itself"
    ] = False
    max_slots: Annotated[
        PositiveInt | None,
        "how many trials run at once on this machine, in all experiments that set this; default: no limit",
    ] = None
    priority: Annotated[int, "with maxSlots: experiments with a higher value are served first; may be negative"] = 0
    niceness: Annotated[
        Niceness, "how far trials give way to all other programs, as the command `nice` counts; 0: they share equally"
    ] = 0
    preload: PreloadedModules = field(default_factory=list)
    reuse_mode: ReuseMode = False
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
                    f"must be true or false if {GPU_OPTION} is above 0: "
                    "may trials get GPUs on which programs of others run?",
                    Place(field="useActiveGpu"),
                )
            if self.gpu_indices is not None and len(set(self.gpu_indices)) < self.trial_gpu_number:
                raise ConfigError(
                    f"names fewer GPUs than the {self.trial_gpu_number} that {GPU_OPTION} asks for, so no "
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


def find_odd_program(context: ServiceContext) -> str:
    """Return a sentence on the program of the trial command, if this machine has none or another one; else ""."""
    command, code = str(context.defaults.get("trialCommand") or ""), context.code_directory
    fault = find_missing_program(command, code) or find_other_python(command, code)
    return f"trialCommand: {fault}" if fault else ""


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
    needs_assigned_gpus("useActiveGpu", ", for the value `true`", lambda config, settings: config.use_active_gpu),
    needs_assigned_gpus("gpuIndices"),
    needs_assigned_gpus("maxTrialNumberPerGpu"),
)
"""What has no effect where trials run on the manager's machine."""
