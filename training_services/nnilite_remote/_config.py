"""The section `trainingService: {platform: remote}`: NNI's fields, and what its users asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from nnilite.errors import ConfigError, Place
from nnilite.units import AnyPath, Duration, GpuIndices, NonNegativeInt, Port, PositiveInt, Secret
from nnilite_remote._known_hosts import HostKeyPolicy


def _about(description: str) -> dict[str, str]:
    return {"description": description}


@dataclass(frozen=True)
class MachineConfig:
    """One machine. What is not set here is looked up in ~/.ssh/config, as `ssh` does."""

    host: str = field(metadata=_about("its name, its address, or a Host of ~/.ssh/config"))
    port: Port | None = field(default=None, metadata=_about("of its sshd; of ~/.ssh/config, or else 22"))
    user: str | None = field(default=None, metadata=_about("of ~/.ssh/config, or else this machine's user"))
    password: Secret | None = field(
        default=None, metadata=_about('if set, no key is tried; better "${env:SSH_PASSWORD}" than in clear')
    )
    ssh_key_file: AnyPath | None = field(
        default=None, metadata=_about("the only key to be tried; if not set, ssh-agent and the usual keys are")
    )
    ssh_passphrase: Secret | None = field(default=None, metadata=_about("of the key file"))
    proxy_jump: str | None = field(
        default=None, metadata=_about("machines to go through, [user@]host[:port] with commas; as ~/.ssh/config's")
    )
    use_active_gpu: bool = field(default=False, metadata=_about("whether trials may get GPUs that others use"))
    max_trial_number_per_gpu: PositiveInt = field(default=1, metadata=_about("how many trials may share a GPU"))
    gpu_indices: GpuIndices | None = field(default=None, metadata=_about("that trials may get; all if not set"))
    slots: PositiveInt | None = field(
        default=None, metadata=_about("how many trials may run here at once; only trialConcurrency counts if not set")
    )
    labels: list[str] = field(default_factory=list, metadata=_about("by which trials may ask for this machine"))
    python_path: str | None = field(
        default=None,
        metadata=_about("on the machine: the folder of Python (3.8 or later), put in front of the trials' PATH"),
    )

    def __post_init__(self) -> None:
        for name in ("host", "user", "proxy_jump", "python_path"):
            value = getattr(self, name)
            if value is not None and (not value or value.startswith("-") or any(c in value for c in "\0\n\r")):
                raise ConfigError(f"{value!r} cannot be used", Place(field=name.replace("_p", "P")))

    @property
    def key(self) -> str:
        """Names the machine in handles, the same after a restart of the manager."""
        user = f"{self.user}@" if self.user else ""
        return f"{user}{self.host}:{self.port or ''}"

    @property
    def ssh_command(self) -> list[str]:
        """By which a person gets there."""
        options = {"-p": self.port, "-i": self.ssh_key_file, "-J": self.proxy_jump}
        given = [word for option, value in options.items() if value for word in (option, str(value))]
        return ["ssh", *given, f"{self.user}@{self.host}" if self.user else self.host]

    @property
    def title(self) -> str:
        """Names the machine to people."""
        return self.host if self.port is None else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class RemoteConfig:
    """The SSH service's settings. Raises: ConfigError where two of them do not fit together."""

    machine_list: list[MachineConfig] = field(metadata=_about("the machines to run trials on"))
    host_key_policy: HostKeyPolicy = field(
        default=HostKeyPolicy.ACCEPT_NEW,
        metadata=_about("strict: the key must be in known_hosts; accept-new: a new machine is believed; ignore"),
    )
    known_hosts_file: AnyPath | None = field(default=None, metadata=_about("instead of ~/.ssh/known_hosts"))
    ssh_config_file: AnyPath | None = field(default=None, metadata=_about("instead of ~/.ssh/config"))
    nni_manager_ip: str | None = field(
        default=None,
        metadata=_about("workers call the manager there; without it they come back through the SSH connection"),
    )
    machine_labels: list[str] = field(
        default_factory=list, metadata=_about("trials run only on machines that have all of these labels")
    )
    remote_directory: str = field(
        default="nnilite", metadata=_about("on each machine, for all files of ours; relative to the home folder")
    )
    keep: Literal["nothing", "outputs"] = field(
        default="outputs", metadata=_about("what stays on the machines when the experiment has stopped")
    )
    keep_packages: Duration | Literal["no"] = field(
        default=7 * 86400, metadata=_about("how long unused code packages stay there for later experiments, or no")
    )
    orphan_after: Duration = field(
        default=7 * 86400, metadata=_about("a trial that hears nothing of its manager for so long is ended")
    )
    reuse_mode: bool = field(default=False, metadata=_about("accepted, as in NNI; has no effect here"))
    trial_gpu_number: NonNegativeInt | None = field(default=None, metadata=_about("overrides the top level's"))

    def __post_init__(self) -> None:
        if not self.machine_list:
            raise ConfigError("names no machine", Place(field="machineList"))
        seen: set[str] = set()
        for number, machine in enumerate(self.machine_list):
            if machine.key in seen:
                raise ConfigError("is there twice; use `slots` for more trials", Place(field=f"machineList[{number}]"))
            seen.add(machine.key)
            if machine.max_trial_number_per_gpu != 1 and not self.trial_gpu_number:
                raise ConfigError(
                    "has a meaning only if trialGpuNumber is above 0",
                    Place(field=f"machineList[{number}].maxTrialNumberPerGpu"),
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

    @property
    def ssh_folder(self) -> Path:
        """Where this user's own SSH files are."""
        return Path("~/.ssh").expanduser()
