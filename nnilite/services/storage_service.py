"""The base of batch services whose jobs may write to a storage that both sides mount.

    class MyService(StorageService[MyApi, MyJob]):
        def storage(self) -> MountedStorage: ...        # see `nnilite.services.delivery`

What trials leave there is listed and copied from here, and a storage that hangs holds nothing else up.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nnilite._loop_waits import in_thread
from nnilite.errors import ServiceError, describe_os_error
from nnilite.service import Handle, ServiceContext, TrialFile
from nnilite.services.batch_service import ApiT, BatchService, JobT
from nnilite.services.callback_address import CallbackAddress
from nnilite.services.delivery import MountedStorage
from nnilite.services.worker_side import FolderLooks

__all__ = ["StorageService"]

_FOLDER_S = 60.0  # The threads are for a list or a file of the storage, which may hang.


class StorageService(BatchService[ApiT, JobT]):
    """The files of trials follow from `storage`."""

    def __init__(self, name: str, config: Any, context: ServiceContext, callback: CallbackAddress) -> None:
        super().__init__(name, config, context, callback)
        self._folders = FolderLooks(limit_s=_FOLDER_S)

    @abstractmethod
    def storage(self) -> MountedStorage:
        """Return the storage. Raises: NotFound if there is none, with what would be one."""

    async def fetch(self, handle: Handle, target: Path) -> None:
        await in_thread(partial(self.storage().fetch, str(handle["job"]), target))

    async def files(self, handle: Handle) -> Sequence[TrialFile]:
        job = str(handle["job"])
        found: Sequence[TrialFile] = await self._look(job, "files", partial(self.storage().files, job))
        return found

    async def fetch_file(self, handle: Handle, path: str, target: Path, most_bytes: int) -> None:
        job = str(handle["job"])
        await self._look(job, "", partial(self.storage().fetch_file, job, path, target, most_bytes))

    async def _look(self, job: str, name: str, work: Callable[[], Any]) -> Any:
        """Do some work in the folder of a job. Raises: ServiceError if it hangs, and what `work` raises."""
        try:
            return await in_thread(partial(self._folders.look, job, name, work))
        except OSError as error:
            raise ServiceError(f"the storage cannot be read now: {describe_os_error(error)}") from error
