"""Choose where jobs get keeper and code: the job itself, a storage that both sides mount, or the manager."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nnilite.errors import NotFound
from nnilite.records import Json
from nnilite.service import Job, ServiceContext
from nnilite.services.delivery import CodeSource, Delivery, MountedStorage, code_source, deliver
from nnilite_openpai._config import OpenPaiConfig

_CALLBACK = "callback"
_IN_CONTAINER = "/tmp/nnilite"


def choose_source(config: OpenPaiConfig, report: Json) -> CodeSource:
    """Return where tasks get the code."""
    return code_source(config.code_from, config.local_storage_mount_point is not None, report)


def find_storage(config: OpenPaiConfig, experiment: str) -> MountedStorage:
    """Return the storage that manager and tasks have mounted. Raises: NotFound if there is none."""
    if config.local_storage_mount_point is None:
        raise NotFound(
            "a task's files are deleted with its container; set storageConfigName and localStorageMountPoint to keep "
            "them"
        )
    return MountedStorage(Path(config.local_storage_mount_point), config.container_mount, experiment)


def work_folder(job: Job, config: OpenPaiConfig) -> str:
    """Return where tasks work: in the storage, so that what a trial leaves there stays, or in the container."""
    if config.storage_config_name is None:
        return _IN_CONTAINER
    return f"{config.container_mount}/nni/{job.experiment}/{job.trial}/{job.attempt}"


def delivered(config: OpenPaiConfig, context: ServiceContext, report: Json, callback: str) -> Delivery:
    """Put keeper and code where jobs will look for them. Blocks. Raises: ConfigError, ServiceError, CodeDirError."""
    source = choose_source(config, report)
    if source != "storage":
        return deliver(context, source, report, None, callback)
    storage = find_storage(config, context.experiment)
    found = deliver(context, source, report, storage, callback)
    return replace(found, callback_file=storage.write(_CALLBACK, callback))


def announce(config: OpenPaiConfig, context: ServiceContext, callback: str) -> None:
    """Write the manager's present address for keepers of an earlier manager, if they look for it in a storage."""
    if config.local_storage_mount_point is None:
        return
    storage = find_storage(config, context.experiment)
    if storage.has(_CALLBACK):
        storage.write(_CALLBACK, callback)
