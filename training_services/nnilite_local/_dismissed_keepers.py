"""Keepers that were asked to leave and may still be at work. Files that only they need are removed when they have left.

A manager that dies before this leaves these files, which then have no use.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from nnilite.service import Handle
from nnilite.services.worker_side import FolderLook
from nnilite_local._attempt_folder import AttemptFolder
from nnilite_local._keeper_watch import LocalWatch
from nnilite_local._keepers import Keepers
from nnilite_local._second_keepers import SecondKeepers

log = logging.getLogger(__name__)

_ASKED_TO_LEAVE, _BETWEEN_S = 2, 0.05


class DismissedKeepers:
    """The dismissed keepers of one service."""

    def __init__(self, watch: LocalWatch, keepers: Keepers, second_keepers: SecondKeepers) -> None:
        self._watch = watch
        self._keepers = keepers
        self._second_keepers = second_keepers
        self._waiting: dict[str, tuple[AttemptFolder, Handle]] = {}  # by the folder of the attempt
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, folder: AttemptFolder, handle: Handle) -> None:
        """Note that the keeper of a folder was asked to leave."""
        self._waiting[str(folder.path)] = (folder, handle)

    def look_soon(self) -> None:
        """Have `tidy_up` called: a keeper has left."""
        if self._waiting:
            task = asyncio.get_running_loop().create_task(self.tidy_up())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def tidy_up(self) -> None:
        """Remove the files that only departed keepers needed."""
        waiting = list(self._waiting.items())
        looks = [FolderLook(path, "tidy", partial(self._tidy_one, *one)) for path, one in waiting]
        for (path, _), seen in zip(waiting, await self._watch.look_at_all(looks), strict=True):
            if seen.error is not None:
                log.info("cannot check %s: %s", path, seen.error.strerror)
            if seen.error is not None or seen.value:
                self._waiting.pop(path, None)

    async def close(self) -> None:
        """Ask the keepers that are still running again: one that is asked twice waits for no other manager."""
        for _ in range(_ASKED_TO_LEAVE):
            await self.tidy_up()
            for folder, handle in list(self._waiting.values()):
                await self._keepers.try_to_terminate(folder, handle)
            await asyncio.sleep(_BETWEEN_S if self._waiting else 0)

    async def wait_for_looks(self) -> None:
        """Wait for the looks that were begun: a task that outlives its event loop is never done."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _tidy_one(self, folder: AttemptFolder, handle: Handle) -> bool:
        """Return whether the keeper has left, and its files are removed."""
        # One that is just ending may have left the process table, and still hold its lock for a moment.
        if self._keepers.has(folder, handle) or self._second_keepers.is_at_work(folder):
            return False
        tidy(folder)
        return True


def tidy(folder: AttemptFolder) -> None:
    """Remove the keeper's own files, if that is possible now. Blocks."""
    try:
        folder.tidy()
    except OSError as error:
        log.info("cannot tidy up %s: %s", folder.path, error.strerror)
