"""Where jobs get keeper and code, as the section says it."""

from __future__ import annotations

from pathlib import Path

from nnilite.errors import ConfigError, NotFound, Place
from nnilite.records import Json
from nnilite.service import ServiceContext
from nnilite.services.delivery import CODE_VARIABLE, CodeSource, Delivery, MountedStorage, code_source, deliver
from nnilite_dlc._config import DlcConfig

_LARGEST_CODE_BYTES = 200_000


def source_of(config: DlcConfig, report: Json) -> CodeSource:
    """Return where jobs get the code."""
    return code_source(config.code_from, config.local_storage_mount_point is not None, report)


def storage_of(config: DlcConfig, experiment: str) -> MountedStorage:
    """Return the storage that manager and pods have mounted. Raises: NotFound if there is none."""
    if config.local_storage_mount_point is None:
        raise NotFound("a trial's files go with its pod: nasDataSourceId and localStorageMountPoint keep them")
    return MountedStorage(Path(config.local_storage_mount_point), config.container_mount, experiment)


def delivered(config: DlcConfig, context: ServiceContext, report: Json, callback: str) -> Delivery:
    """Put keeper and code where jobs will look for them. Blocks. Raises: ConfigError, ServiceError, CodeDirError."""
    source = source_of(config, report)
    storage = storage_of(config, context.experiment) if source == "storage" else None
    found = deliver(context, source, report, storage, callback)
    size = len(found.contents.get(CODE_VARIABLE, b""))
    if size > _LARGEST_CODE_BYTES:
        raise ConfigError(
            f"the code is {size} bytes when packed, and a job takes {_LARGEST_CODE_BYTES} along: leave files out by "
            ".nniignore, or give a storage by localStorageMountPoint",
            Place(field="codeFrom"),
        )
    return found
