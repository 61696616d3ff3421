"""Platforms for tests of the config: `local` as the real one looks in YAML, `cloud` with all sorts of fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal

import pytest

from nnilite._plugins import lookup
from nnilite.errors import ConfigError, Place, PluginError
from nnilite.units import DirPath, FilePath, GpuIndices, MemoryMb, Port, Secret


@dataclass(frozen=True)
class LocalConfig:
    trial_gpu_number: int | None = None
    use_active_gpu: Annotated[bool | None, "also use GPUs that others work on"] = None
    max_trial_number_per_gpu: int = 1
    gpu_indices: GpuIndices | None = None

    def __post_init__(self) -> None:
        if self.trial_gpu_number and self.use_active_gpu is None:
            raise ConfigError("is needed where trialGpuNumber is set", Place(field="useActiveGpu"))


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True)
class Machine:
    host: str
    user: str
    port: Port = 22
    password: Secret | None = None
    ssh_passphrase: Secret | None = None
    ssh_key_file: FilePath | None = None


@dataclass(frozen=True)
class CloudConfig:
    machine_list: list[Machine]
    trial_command: str = ""
    memory: MemoryMb = 512
    size: Size = Size.SMALL
    mode: Literal["fast", "cheap"] = "fast"
    token: Secret | None = None
    mounts: tuple[DirPath, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    extra: Any = None
    fraction: float = 0.5
    reuse_mode: bool = True


class Local:
    Config = LocalConfig


class Cloud:
    Config = CloudConfig


_CLASSES = {"local": Local, "cloud": Cloud, "remote": Cloud}


def _service_class(name: str) -> Any:
    if name.lower() not in _CLASSES:
        raise PluginError(f"there is no training service {name!r}. Installed: cloud, local.")
    return _CLASSES[name.lower()]


def _no_algorithm(name: str) -> Any:
    raise PluginError(f"there is no such algorithm as {name!r}.")


def _names(group: str) -> list[str]:
    if group == lookup.SERVICES:
        return ["cloud", "local", "remote"]
    return ["Medianstop"] if group == lookup.ASSESSORS else ["GridSearch", "Random", "TPE"]


@pytest.fixture
def platforms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the fakes are installed."""
    monkeypatch.setattr(lookup, "training_service_class", _service_class)
    monkeypatch.setattr(lookup, "names", _names)
    monkeypatch.setattr(lookup, "tuner_class", _no_algorithm)
    monkeypatch.setattr(lookup, "assessor_class", _no_algorithm)
