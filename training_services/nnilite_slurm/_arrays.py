"""Build job arrays: trials that start together are submitted together, as the tasks of one job.

The array's folder lists the folders of its tasks' trials before anything is submitted, so that the next manager finds
the array again, or submits it if this one could not.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from nnilite.errors import ConfigError, NniliteError, NoCapacity
from nnilite.services.task_ends import end_tasks
from nnilite_slurm._api import SlurmApi

log = logging.getLogger(__name__)

_CLEANUP_S = 1.0  # time for a process of a canceled task to end
_TOGETHER_S = 0.5
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 60.0


def make_array_name(experiment: str, array: str) -> str:
    """Return the name of an array's job."""
    return f"nni-{experiment}-array-{array}"


@dataclass
class JobArrays:
    """The arrays of one experiment that have not been submitted yet."""

    api: SlurmApi
    experiment: str
    script: Callable[[str, int | None, int], str]  # makes the script for a name, GPUs and tasks
    size: int
    wake: Callable[[], None]
    reasons: dict[str, str] = field(default_factory=dict)  # why trials wait, by their folders
    refused: dict[str, str] = field(default_factory=dict)  # why they never will run
    _waiting: dict[str, int | None] = field(default_factory=dict)  # GPUs, by folders
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _resumed: set[str] = field(default_factory=set)

    def add(self, folder: str, gpus: int | None) -> None:
        """Submit a trial soon, with others. `folder`: relative to the trials of the experiment."""
        if folder in self._waiting or folder in self.reasons:
            return
        self._waiting[folder] = gpus
        self.reasons[folder] = "the trial is being gathered with others for a job array"
        if len(self._waiting) == 1:
            self._start(self._gather())

    def forget(self, folder: str) -> None:
        """Forget a trial that was canceled before it was submitted."""
        self._waiting.pop(folder, None)
        self.reasons.pop(folder, None)
        self.refused.pop(folder, None)

    def go_on(self, array: str, gpus: int | None) -> None:
        """Submit an array of an earlier manager, unless it was submitted."""
        if array not in self._resumed:
            self._resumed.add(array)
            self._start(self._resume(array, gpus))

    async def close(self) -> None:
        """Stop; the next manager submits what has not been submitted."""
        await end_tasks(self._tasks, _CLEANUP_S)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _gather(self) -> None:
        await asyncio.sleep(_TOGETHER_S)
        while self._waiting:
            gpus = next(iter(self._waiting.values()))
            folders = [folder for folder, wanted in self._waiting.items() if wanted == gpus][: self.size]
            for folder in folders:
                del self._waiting[folder]
            self._start(self._submit(secrets.token_hex(4), folders, gpus, written=False))

    async def _resume(self, array: str, gpus: int | None) -> None:
        place = f"{self.experiment}/arrays/{array}/tasks"
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                taken = await self.api.files.read_files([place])
                break
            except NniliteError as error:
                log.warning("cannot check the job array %s: %s", array, error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        folders = taken.get(place, b"").decode("ascii", "replace").split()
        if folders:
            await self._submit(array, folders, gpus, written=True)

    async def _submit(self, array: str, folders: list[str], gpus: int | None, written: bool) -> None:
        """Submit an array, however long it takes."""
        name, place = make_array_name(self.experiment, array), f"{self.experiment}/arrays/{array}"
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                if not written:
                    await self.api.write_tasks(place, folders)
                    written = True
                await self.api.submit(place, name, self.script(name, gpus, len(folders)), gpus)
                break
            except ConfigError as error:
                self.refused.update(dict.fromkeys(folders, str(error)))
                break
            except NniliteError as error:
                level = logging.INFO if isinstance(error, NoCapacity) else logging.WARNING
                log.log(level, "Slurm did not accept the job array %s: %s", name, error)
                self.reasons.update(dict.fromkeys(folders, str(error)))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        for folder in folders:
            self.reasons.pop(folder, None)
        self.wake()
