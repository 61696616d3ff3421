"""The training service `remote`: runs trials on other machines over SSH."""

from nnilite_remote._config import MachineConfig, RemoteConfig
from nnilite_remote._known_hosts import HostKeyPolicy
from nnilite_remote._service import RemoteService

__all__ = ["HostKeyPolicy", "MachineConfig", "RemoteConfig", "RemoteService"]
