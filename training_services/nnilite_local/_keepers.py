"""Know which keepers are at work in which folders, and end them.

A keeper of the fork server runs one job after the other, so its process id alone does not say which job it runs, and a
signal to it could hit the next one. While its server runs, the server knows both. Without the server, no keeper gets a
further job: then the lock of the folder shows whether it is at work.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from functools import partial

from nnilite.service import Handle
from nnilite.services.worker_side import FolderLooks, boot_id, is_stopped, started_at
from nnilite_local._attempt_folder import AttemptFolder
from nnilite_local._fork_server_client import ForkServerClient
from nnilite_local._second_keepers import SecondKeepers

log = logging.getLogger(__name__)

_MOMENT_S = 1.0


class Keepers:
    """The keepers of one service. Handles are as in `nnilite_local._service`. All methods may raise OSError."""

    def __init__(self, server: ForkServerClient, second_keepers: SecondKeepers, looks: FolderLooks) -> None:
        self._server = server
        self._second_keepers = second_keepers
        self._looks = looks
        self._tasks: set[asyncio.Task[None]] = set()

    def has(self, folder: AttemptFolder, handle: Handle) -> bool:
        """Return whether the keeper runs: that of the handle, or one that an earlier manager had started. Blocks."""
        if self._is_at_work(folder, handle):
            return True
        return not self._second_keepers.is_at_work(folder) and folder.has_keeper()

    def works_at(self, job: str) -> bool:
        """Return whether the fork server has a keeper at work for this job."""
        return self._server.runs(job)

    def terminate_later(self, folder: AttemptFolder, handle: Handle) -> None:
        """Send SIGTERM to a keeper of the fork server if it is still at work in a moment."""
        asyncio.get_running_loop().call_later(_MOMENT_S, self._terminate_late, folder, handle)

    def _terminate_late(self, folder: AttemptFolder, handle: Handle) -> None:
        if self.works_at(str(handle["job"])):
            task = asyncio.get_running_loop().create_task(self.try_to_terminate(folder, handle))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def try_to_terminate(self, folder: AttemptFolder, handle: Handle) -> None:
        """Send SIGTERM now. A disk in trouble is only logged: such a keeper leaves a day after its manager has gone."""
        try:
            await self.terminate(folder, handle)
        except OSError as error:
            log.info("cannot ask the keeper of %s to end: %s", folder.path, error.strerror)

    async def terminate(self, folder: AttemptFolder, handle: Handle) -> None:
        """Send SIGTERM: the keeper ends its trial, or, if that has ended, tries for the last time to deliver."""
        if not await self._server.end(str(handle["job"])):
            _signal(await self._process(folder, handle), signal.SIGTERM)

    async def kill(self, folder: AttemptFolder, handle: Handle) -> None:
        """Send SIGKILL to a keeper that does not react."""
        if not await self._server.end(str(handle["job"]), kill=True):
            _signal(await self._process(folder, handle), signal.SIGKILL)

    async def is_stopped(self, folder: AttemptFolder, handle: Handle) -> bool:
        """Return whether the keeper was stopped (SIGSTOP), and so does not react."""
        pid = await self._process(folder, handle)
        return pid > 0 and is_stopped(pid)

    async def _process(self, folder: AttemptFolder, handle: Handle) -> int:
        """Return the process id of the keeper at work in a folder; 0 if there is none."""
        if self._is_known(handle):
            return int(handle["pid"])
        look = partial(self._found, folder, handle)
        return int(await asyncio.to_thread(self._looks.look, str(folder.path), "keeper", look))

    def _found(self, folder: AttemptFolder, handle: Handle) -> int:
        at_work = self._is_at_work(folder, handle)
        if not at_work or (handle.get("server") and not folder.waits_for_keeper()):
            return folder.keeper()
        return int(handle["pid"])

    def _is_known(self, handle: Handle) -> bool:
        """Return whether the running fork server has the keeper of the handle at work for its job."""
        at_work = self._server.knows(str(handle["job"]), handle.get("server"))
        return bool(at_work) and bool(handle["start"]) and start_of(handle["pid"]) == handle["start"]

    def _is_at_work(self, folder: AttemptFolder, handle: Handle) -> bool:
        """Return whether the keeper of the handle is at work for its job. A handle without a known keeper has pid 0."""
        at_work = self._server.knows(str(handle["job"]), handle.get("server"))
        # So it is for each job that has just ended: nothing else need be asked.
        if at_work is False:
            return False
        if not handle["start"] or start_of(handle["pid"]) != handle["start"]:
            return False
        if at_work or not handle.get("server"):
            return True
        # Its server has gone. What the trial has done to its folder cannot make us take the keeper of another job for
        # its own.
        return folder.may_have_keeper()


def start_of(pid: int) -> str:
    """Return what distinguishes the running process of this id from later ones of the same id; "" if none runs.

    Raises: OSError where no file can be opened now, as then nothing is known of any process.
    """
    start = started_at(pid) if pid > 1 else ""
    if pid > 1 and not start:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    return mark_of(start)


def mark_of(start: str) -> str:
    """Return the same for the start that `nnilite.services.worker_side.started_at` returns."""
    return f"{boot_id()}/{start}" if start else ""


def _signal(pid: int, number: int) -> None:
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
