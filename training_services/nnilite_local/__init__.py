"""The training service of this machine: runs trials as processes beside the manager."""

from nnilite_local._config import LocalConfig
from nnilite_local._service import LocalService

__all__ = ["LocalConfig", "LocalService"]
