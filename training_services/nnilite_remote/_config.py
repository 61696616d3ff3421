"""The section `trainingService: {platform: remote}`: NNI's fields, and what its users asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite.service import CHECKPOINTS_STAY, IgnoredOption
from nnilite.services.preloading import PreloadedModules, check_modules
from nnilite.services.section_fields import GPU_PLACE, ReuseMode, TrialGpuNumber, needs_assigned_gpus
from nnilite.ssh.settings import SshMachine, SshSettings, check_word
from nnilite.units import Duration, GpuIndices, PositiveInt


@dataclass(frozen=True)
class MachineConfig(SshMachine):
    """One machine. Fields that are not set come from ~/.ssh/config, as with `ssh`."""

    use_active_gpu: Annotated[bool, "whether trials may get GPUs that others use"] = False
    max_trial_number_per_gpu: Annotated[PositiveInt, "how many trials may share a GPU"] = 1
    gpu_indices: Annotated[GpuIndices | None, "the GPUs that trials may get; all if not set"] = None
    slots: Annotated[
        PositiveInt | None, "how many trials may run here at once; only trialConcurrency counts if not set"
    ] = None
    labels: Annotated[list[str], "labels with which trials can request this machine"] = field(default_factory=list)
    python_path: Annotated[
        str | None, "folder of Python (3.8 or later) on the machine, put first in the trials' PATH"
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_word("python_path", self.python_path)


@dataclass(frozen=True)
class RemoteConfig(SshSettings):
    """The SSH service's settings. Raises: ConfigError where two of them do not fit together."""

    machine_list: Annotated[list[MachineConfig], "the machines to run trials on"]
    nni_manager_ip: Annotated[
        str | None, "workers report to this address; if not set, they report through the SSH connection"
    ] = None
    machine_labels: Annotated[list[str], "trials run only on machines that have all of these labels"] = field(
        default_factory=list
    )
    remote_directory: Annotated[str, "folder on each machine for all files of nnilite; relative to the home folder"] = (
        "nnilite"
    )
    keep: Annotated[Literal["nothing", "outputs"], "what stays on the machines when the experiment has stopped"] = (
        "outputs"
    )
    keep_packages: Annotated[
        Duration | Literal["no"], "how long unused code packages stay there for later experiments, or no"
    ] = 7 * 86400
    orphan_after: Annotated[Duration, "a trial ends after this time without contact to its manager"] = 7 * 86400
    max_slots: Annotated[
        PositiveInt | None,
        "how many trials run at once on each machine, in all experiments that set this; default: no limit",
    ] = None
    priority: Annotated[int, "with maxSlots: experiments with a higher value are served first; may be negative"] = 0
    preload: PreloadedModules = field(default_factory=list)
    reuse_mode: ReuseMode = False
    trial_gpu_number: TrialGpuNumber = None

    def __post_init__(self) -> None:
        check_modules(self.preload)
        if not self.machine_list:
            raise ConfigError("names no machine", Place(field="machineList"))
        if self.priority and self.max_slots is None:
            raise ConfigError("takes effect only with maxSlots; set maxSlots, too", Place(field="priority"))
        seen: set[str] = set()
        for number, machine in enumerate(self.machine_list):
            if machine.key in seen:
                raise ConfigError("is listed twice; use `slots` for more trials", Place(field=f"machineList[{number}]"))
            seen.add(machine.key)
        wanted = self.trial_gpu_number or 0
        if all(m.gpu_indices is not None and len(set(m.gpu_indices)) < wanted for m in self.machine_list):
            raise ConfigError(
                f"is {wanted}, but no machine's gpuIndices names so many, so no trial could ever run; name more, or "
                "ask for fewer",
                GPU_PLACE,
            )
        missing = [label for label in self.machine_labels if not any(label in m.labels for m in self.machine_list)]
        if missing:
            raise ConfigError(f"no machine has the label {missing[0]!r}", Place(field="machineLabels"))
        if not self.remote_directory or "\0" in self.remote_directory:
            raise ConfigError(f"{self.remote_directory!r} cannot be used", Place(field="remoteDirectory"))

    @property
    def cache_s(self) -> int:
        """How long packages stay, in seconds; 0: not beyond the experiment."""
        return 0 if self.keep_packages == "no" else int(self.keep_packages)


def _stays_on_machines(config: RemoteConfig, settings: Mapping[str, Json]) -> bool:
    """Return whether the service does not apply this rule of `checkpoint` on the machines."""
    checkpoint = settings.get("checkpoint") or {}
    return CHECKPOINTS_STAY[0].holds(config, settings) and checkpoint.get("keep") != "none"


IGNORED = (
    IgnoredOption("callback", "trials report through the SSH connection, or to nniManagerIp"),
    replace(CHECKPOINTS_STAY[0], case="without `sharedStorage`, unless it is `none`", holds=_stays_on_machines),
    CHECKPOINTS_STAY[1],
    IgnoredOption("reuseMode", "each trial has a folder of its own on its machine"),
    needs_assigned_gpus("machineList.useActiveGpu"),
    needs_assigned_gpus("machineList.gpuIndices"),
    needs_assigned_gpus("machineList.maxTrialNumberPerGpu"),
)
"""What has no effect on machines that are reached by SSH."""
