"""The section `trainingService: {platform: remote}`: NNI's fields, and what its users asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite.service import CHECKPOINTS_STAY, IgnoredOption
from nnilite.services.preloading import PreloadedModules, check_modules
from nnilite.services.section_fields import TrialGpuNumber
from nnilite.ssh.settings import SshMachine, SshSettings, check_word
from nnilite.units import Duration, GpuIndices, PositiveInt


def _about(description: str) -> dict[str, str]:
    return {"description": description}


@dataclass(frozen=True)
class MachineConfig(SshMachine):
    """One machine. Fields that are not set come from ~/.ssh/config, as with `ssh`."""

    use_active_gpu: bool = field(default=False, metadata=_about("whether trials may get GPUs that others use"))
    max_trial_number_per_gpu: PositiveInt = field(default=1, metadata=_about("how many trials may share a GPU"))
    gpu_indices: GpuIndices | None = field(
        default=None, metadata=_about("the GPUs that trials may get; all if not set")
    )
    slots: PositiveInt | None = field(
        default=None, metadata=_about("how many trials may run here at once; only trialConcurrency counts if not set")
    )
    labels: list[str] = field(
        default_factory=list, metadata=_about("labels with which trials can request this machine")
    )
    python_path: str | None = field(
        default=None,
        metadata=_about("on the machine: the folder of Python (3.8 or later), put first in the trials' PATH"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_word("python_path", self.python_path)


@dataclass(frozen=True)
class RemoteConfig(SshSettings):
    """The SSH service's settings. Raises: ConfigError where two of them do not fit together."""

    machine_list: list[MachineConfig] = field(metadata=_about("the machines to run trials on"))
    nni_manager_ip: str | None = field(
        default=None,
        metadata=_about("workers report to this address; if not set, they report through the SSH connection"),
    )
    machine_labels: list[str] = field(
        default_factory=list, metadata=_about("trials run only on machines that have all of these labels")
    )
    remote_directory: str = field(
        default="nnilite", metadata=_about("on each machine, for all files of nnilite; relative to the home folder")
    )
    keep: Literal["nothing", "outputs"] = field(
        default="outputs", metadata=_about("what stays on the machines when the experiment has stopped")
    )
    keep_packages: Duration | Literal["no"] = field(
        default=7 * 86400, metadata=_about("how long unused code packages stay there for later experiments, or no")
    )
    orphan_after: Duration = field(
        default=7 * 86400, metadata=_about("a trial ends after this time without contact to its manager")
    )
    max_slots: PositiveInt | None = field(
        default=None,
        metadata=_about("how many trials run at once on each machine, in all experiments that set this; default: any"),
    )
    priority: int = field(
        default=0, metadata=_about("with maxSlots: experiments with a higher value are served first; may be negative")
    )
    preload: PreloadedModules = field(default_factory=list)
    reuse_mode: bool = field(default=False, metadata=_about("accepted, as in NNI; has no effect here"))
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
                Place(field="trialGpuNumber"),
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


def _has_no_gpus(config: RemoteConfig, settings: Mapping[str, Json]) -> bool:
    return not config.trial_gpu_number


_NO_GPUS = (
    "trials see all GPUs, or none; set trialGpuNumber to have GPUs assigned",
    "unless `trialGpuNumber` is above 0",
)
IGNORED = (
    IgnoredOption("callback", "trials report through the SSH connection, or to nniManagerIp"),
    replace(CHECKPOINTS_STAY[0], case="without `sharedStorage`, unless it is `none`", holds=_stays_on_machines),
    CHECKPOINTS_STAY[1],
    IgnoredOption("reuseMode", "each trial has a folder of its own on its machine"),
    IgnoredOption("machineList.useActiveGpu", *_NO_GPUS, _has_no_gpus),
    IgnoredOption("machineList.gpuIndices", *_NO_GPUS, _has_no_gpus),
    IgnoredOption("machineList.maxTrialNumberPerGpu", *_NO_GPUS, _has_no_gpus),
)
"""What has no effect on machines that are reached by SSH."""
