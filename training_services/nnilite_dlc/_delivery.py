"""Choose where jobs get keeper and code, as the section says."""

from __future__ import annotations

from pathlib import Path

from nnilite.errors import NotFound
from nnilite.records import Json
from nnilite.service import ServiceContext
from nnilite.services.delivery import CodeSource, Delivery, MountedStorage, code_source, deliver
from nnilite_dlc._config import DlcConfig


def choose_source(config: DlcConfig, report: Json) -> CodeSource:
    """Return where jobs get the code."""
    return code_source(config.code_from, config.local_storage_mount_point is not None, report)


def find_storage(config: DlcConfig, experiment: str) -> MountedStorage:
    """Return the storage that manager and pods have mounted. Raises: NotFound if there is none."""
    if config.local_storage_mount_point is None:
        raise NotFound(
            "a trial's files are deleted with its pod; set nasDataSourceId and localStorageMountPoint to keep them"
        )
    return MountedStorage(Path(config.local_storage_mount_point), config.container_mount, experiment)


def delivered(config: DlcConfig, context: ServiceContext, report: Json, callback: str) -> Delivery:
    """Put keeper and code where jobs will look for them. Blocks. Raises: ConfigError, ServiceError, CodeDirError."""
    source = choose_source(config, report)
    storage = find_storage(config, context.experiment) if source == "storage" else None
    return deliver(context, source, report, storage, callback)
