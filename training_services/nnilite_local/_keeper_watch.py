"""Looks at jobs: at their folders, each within a time limit, and at their keepers.

A trial can make its folder hang, as a network file system does without its server. Then this job is UNKNOWN, with the
reason, and nothing else waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from nnilite.errors import ServiceError, describe_os_error
from nnilite.service import Handle, JobState, JobStatus
from nnilite.services.worker_side import FolderHangs, FolderLook, FolderLooks, LookResult, is_there
from nnilite_local._attempt_folder import AttemptFolder
from nnilite_local._keepers import Keepers
from nnilite_local._second_keepers import SecondKeepers

T = TypeVar("T")


class LocalWatch:
    """Finds the status of one service's jobs in the process table and on the disk."""

    def __init__(self, looks: FolderLooks, keepers: Keepers, second_keepers: SecondKeepers, host: str) -> None:
        self._looks = looks
        self._keepers = keepers
        self._second_keepers = second_keepers
        self._host = host

    async def read(self, folder: AttemptFolder, name: str, work: Callable[[], T]) -> T:
        """Return what `work` finds in the folder. Raises: ServiceError where the disk is in trouble, or hangs.

        If this is canceled, the look continues, and the folder is set aside only if it hangs.
        """
        # Each trial is looked at so, and a thread of its own to wait for the one that looks would cost more than that.
        loop = asyncio.get_running_loop()
        over = asyncio.Event()

        def ended() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(over.set)

        result = self._looks.begin(FolderLook(str(folder.path), name, work), ended)
        timer = loop.call_later(self._looks.limit_s, over.set)
        try:
            await over.wait()
        except asyncio.CancelledError:
            # To ask for the result now would give the look up.
            loop.call_at(timer.when(), result)
            raise
        finally:
            timer.cancel()
        try:
            return cast(T, result().get())
        except OSError as error:
            raise ServiceError(f"{folder.path} cannot be read now: {describe_os_error(error)}") from error

    async def look_at_all(self, looks: Sequence[FolderLook]) -> list[LookResult]:
        """Look at the folders, and do not wait for any that hangs."""
        return await asyncio.to_thread(self._looks.look_at_all, looks) if looks else []

    async def statuses(self, handles: Sequence[Handle]) -> list[JobStatus]:
        """Return the status of each job; UNKNOWN if its disk does not answer."""
        folders = [folder_of(handle) for handle in handles]
        looks = [
            FolderLook(str(folder.path), "status", partial(self._look, folder, handle))
            for folder, handle in zip(folders, handles, strict=True)
        ]
        found = await self.look_at_all(looks)
        return [self._status(folder, seen) for folder, seen in zip(folders, found, strict=True)]

    def runs(self, directory: Path) -> bool:
        """Return whether the job in this folder runs, and so still holds its bookings. Blocks only for a moment."""
        try:
            return bool(self._looks.look(str(directory), "runs", lambda: self._runs(AttemptFolder(directory))))
        except FolderHangs:  # assume so: the job keeps what it holds
            return True

    def _look(self, folder: AttemptFolder, handle: Handle) -> tuple[JobStatus, bool]:
        """Return the status of the job, and whether a second keeper can finish a lost one."""
        status = folder.status(lambda: self._keepers.has(folder, handle), self._host)
        return status, status.state is JobState.LOST and is_there(folder.spec_file)

    def _status(self, folder: AttemptFolder, seen: LookResult) -> JobStatus:
        if seen.error is not None:
            reason = f"its folder {folder.path} cannot be read now: {describe_os_error(seen.error)}"
            return JobStatus(JobState.UNKNOWN, reason, host=self._host)
        status, has_specification = seen.get()
        return self._abandoned(folder, status, has_specification) if status.state is JobState.LOST else status

    def _abandoned(self, folder: AttemptFolder, status: JobStatus, has_specification: bool) -> JobStatus:
        """Return the status of a job whose keeper is gone without a report."""
        if not has_specification:
            return JobStatus(JobState.LOST, f"its folder {folder.path} is gone", host=self._host)
        self._second_keepers.start(folder)
        if self._second_keepers.is_at_work(folder):
            reason = "its keeper was killed; the trial is being ended"
            return JobStatus(JobState.RUNNING, reason, host=self._host, started=status.started)
        return JobStatus(JobState.LOST, "its keeper was killed", host=self._host, started=status.started)

    def _runs(self, folder: AttemptFolder) -> bool:
        handle = folder.handle()
        if handle is None or folder.read_end(self._host) is not None:
            return False
        return self._keepers.has(folder, handle) or self._second_keepers.is_at_work(folder)


def folder_of(handle: Handle) -> AttemptFolder:
    """Return the folder of a job."""
    return AttemptFolder(Path(str(handle["directory"])))
