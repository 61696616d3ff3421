"""Watches for the ends of trials that report by their folders, so that the next one starts soon after.

The engine polls every few seconds, which asks the scheduler. Between polls this looks for one file of each trial, the
keeper's record of its end, and wakes the engine when one appears.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from nnilite.errors import NniliteError
from nnilite.services.cluster.shared_folder import SharedFolder

log = logging.getLogger(__name__)

_LOOKS, _PAUSE_S = 8, 0.25
"""For one command, which starts again with the trials that are there then."""
_MOST_FILES = 200
_IDLE_S = 0.5
_AFTER_TROUBLE_S = 15.0


class EndWatch:
    """One task, from `start` to `stop`. `records` returns what is to come; `wake` makes the engine poll."""

    def __init__(self, files: SharedFolder, records: Callable[[], Sequence[str]], wake: Callable[[], None]) -> None:
        self._files = files
        self._records = records
        self._wake = wake
        self._seen: frozenset[str] = frozenset()  # ends not read by a poll yet
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        while True:
            wanted = frozenset(self._records())
            self._seen &= wanted
            files = sorted(wanted - self._seen)[:_MOST_FILES]
            if not files:
                await asyncio.sleep(_IDLE_S)
                continue
            try:
                found = await self._files.await_file(files, _LOOKS, _PAUSE_S)
            except NniliteError as error:
                log.debug("cannot watch for the ends of trials: %s", error)
                await asyncio.sleep(_AFTER_TROUBLE_S)
                continue
            if found:
                self._seen |= found
                self._wake()
