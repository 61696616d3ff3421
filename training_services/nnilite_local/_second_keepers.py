"""Run second keepers: where a keeper died, another one ends its trial and delivers its remaining events."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from nnilite.services.task_ends import end_tasks
from nnilite.services.worker_side import DELIVERY_S, MOST_DELIVERIES, TAKEN_CARE_OF
from nnilite_local._attempt_folder import AttemptFolder

log = logging.getLogger(__name__)

_CLEANUP_S = 1.0  # time for a process of a canceled task to end
_PAUSE_S = 2.0  # before the next one, if one could not do its work


class SecondKeepers:
    """Runs one second keeper at a time for each attempt whose keeper has died, until one of them has done its work."""

    def __init__(self, keeper: Path, wake: Callable[[], None]) -> None:
        self._keeper = keeper
        self._wake = wake
        self._tasks: dict[str, asyncio.Task[bool]] = {}  # by the folder of the attempt
        self._started: Counter[str] = Counter()  # how many there have been, by the same

    def start(self, folder: AttemptFolder) -> None:
        """Start a second keeper, unless one is at work, or has done its work."""
        key = str(folder.path)
        if self._is_needed(key):
            if not self._started[key]:
                log.warning("the keeper of %s was killed; the rest of its trial is being ended", folder.path)
            self._started[key] += 1
            self._tasks[key] = asyncio.get_running_loop().create_task(self._deliver(folder))

    def is_at_work(self, folder: AttemptFolder) -> bool:
        task = self._tasks.get(str(folder.path))
        return task is not None and not task.done()

    async def close(self) -> None:
        await end_tasks(self._tasks.values(), _CLEANUP_S)

    def _is_needed(self, key: str) -> bool:
        """Return whether there has been none, or the last one could not do its work."""
        last = self._tasks.get(key)
        if last is None:
            return True
        return last.done() and not last.result() and self._started[key] < MOST_DELIVERIES

    async def _deliver(self, folder: AttemptFolder) -> bool:
        """Have a second keeper end the rest of the trial and deliver the remaining events. Return whether it did.

        If it did not, perhaps because of the disk, the trial may still run: the job must not count as lost yet.
        """
        done = await self._run_second_keeper(folder)
        if not done:
            await asyncio.sleep(_PAUSE_S)
        self._wake()
        return done

    async def _run_second_keeper(self, folder: AttemptFolder) -> bool:
        nothing = asyncio.subprocess.DEVNULL
        try:
            grace_s = await asyncio.to_thread(folder.grace_s)
            process = await asyncio.create_subprocess_exec(
                *folder.deliver_command(self._keeper),
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                start_new_session=True,
            )
        except OSError as error:
            log.warning("what the keeper of %s left cannot be ended: %s", folder.path, error)
            return False
        try:
            code = await asyncio.wait_for(process.wait(), grace_s + DELIVERY_S)
        except asyncio.TimeoutError:
            log.warning("what the keeper of %s left could not be delivered in time", folder.path)
            return True
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if code not in TAKEN_CARE_OF:
            log.warning("what the keeper of %s left could not be ended (exit code %d)", folder.path, code)
        return code in TAKEN_CARE_OF
