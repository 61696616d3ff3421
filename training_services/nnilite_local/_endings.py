"""Ensure that trials which were asked to end do end.

A keeper ends its trial on request. One that was stopped (SIGSTOP), or hangs with its disk, does not, and its trial
keeps running. So this module kills what still runs when the grace is over. It finds it in the process table, since the
folder may hang. And before a trial is started again on this machine, nothing of its earlier attempts may run here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nnilite.errors import NoCapacity, ServiceError
from nnilite.service import Handle
from nnilite.services.task_ends import end_tasks
from nnilite.services.worker_side import PATIENCE_S, USUAL_GRACE_S, kill_groups, running_groups
from nnilite_local._attempt_folder import AttemptFolder
from nnilite_local._keeper_watch import LocalWatch
from nnilite_local._keepers import Keepers

log = logging.getLogger(__name__)

_CLEANUP_S = 1.0  # for a kill that a canceled task has begun

_NO_KEEPER: Handle = {"pid": 0, "start": "", "server": "unknown"}


class _AttemptFacts(NamedTuple):
    """The content of an attempt's folder; nothing while it cannot be read."""

    ended: bool = False
    trial: Mapping[str, Any] | None = None  # the record of its process
    handle: Handle | None = None
    has_keeper: bool = False


class Endings:
    """The ends of the jobs of one service."""

    def __init__(self, keepers: Keepers, watch: LocalWatch, host: str) -> None:
        self._keepers = keepers
        self._watch = watch
        self._host = host
        # Jobs that were told to end, and are not known to have ended.
        self._asked: dict[str, tuple[AttemptFolder, Handle]] = {}
        self._overdue: set[str] = set()  # jobs among them whose grace is over
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, folder: AttemptFolder, handle: Handle) -> None:
        """Begin to end a job."""
        job = str(handle["job"])
        if job not in self._asked:
            self._asked[job] = (folder, handle)
            self._tasks[job] = asyncio.get_running_loop().create_task(self._kill_unresponsive(folder, handle))

    def over(self, job: str) -> None:
        """Note that a job has ended."""
        task = self._tasks.pop(job, None)
        self._overdue.discard(job)
        if self._asked.pop(job, None) is not None and task is not None:
            task.cancel()

    async def end_earlier(self, attempts: Sequence[tuple[str, AttemptFolder]]) -> None:
        """End what still runs of attempts that were given up, by job and folder. Raises: NoCapacity if that fails."""
        for job, folder in attempts:
            facts = await self._facts(folder)
            handle = {**_NO_KEEPER, **(facts.handle or {}), "job": job}
            at_work = not facts.ended and (facts.has_keeper or self._keepers.works_at(job))
            left = await self._end(folder, handle, facts, at_work=at_work)
            if left:
                raise NoCapacity(
                    f"an earlier attempt of this trial must end first: {_describe_left(folder, self._host, left)}"
                )

    async def close(self) -> list[str]:
        """End what was asked to end and has had its grace. Return sentences on what still runs."""
        asked = {job: self._asked[job] for job in self._overdue if job in self._asked}
        await end_tasks(self._tasks.values(), _CLEANUP_S)
        found = await asyncio.gather(*(self._end_stuck(folder, handle) for folder, handle in asked.values()))
        return [
            _describe_left(folder, self._host, left)
            for (folder, _), left in zip(asked.values(), found, strict=True)
            if left
        ]

    async def _kill_unresponsive(self, folder: AttemptFolder, handle: Handle) -> None:
        try:
            grace_s = await self._watch.read(folder, "grace", folder.grace_s)
        except ServiceError:
            grace_s = USUAL_GRACE_S
        await asyncio.sleep(grace_s + PATIENCE_S)
        self._overdue.add(str(handle["job"]))
        await self._end_stuck(folder, handle)

    async def _end_stuck(self, folder: AttemptFolder, handle: Handle) -> list[int]:
        """End a job whose keeper has not ended it in time. Return the process groups that are left."""
        facts = await self._facts(folder)
        stopped = not facts.ended and await self._is_stopped(folder, handle)
        return await self._end(folder, handle, facts, at_work=stopped)

    async def _end(self, folder: AttemptFolder, handle: Handle, facts: _AttemptFacts, *, at_work: bool) -> list[int]:
        """End a trial. `at_work`: kill its keeper, too, even if nothing of the trial runs."""
        where = (str(handle["job"]), str(folder.path), facts.trial)
        groups = await asyncio.to_thread(running_groups, *where)
        if not (groups or at_work):
            return []
        log.warning("the keeper of %s does not end its trial; killing both", folder.path)
        if not facts.ended:
            try:
                await self._keepers.kill(folder, handle)
            except OSError as error:
                log.warning("cannot kill the keeper of %s: %s", folder.path, error.strerror)
        return await asyncio.to_thread(kill_groups, *where)

    async def _is_stopped(self, folder: AttemptFolder, handle: Handle) -> bool:
        try:
            return await self._keepers.is_stopped(folder, handle)
        except OSError:
            return False

    async def _facts(self, folder: AttemptFolder) -> _AttemptFacts:
        def read() -> _AttemptFacts:
            return _AttemptFacts(folder.read_end() is not None, folder.trial(), folder.handle(), folder.has_keeper())

        try:
            return await self._watch.read(folder, "end", read)
        except ServiceError as error:
            log.info("%s", error)
            return _AttemptFacts()


def _describe_left(folder: AttemptFolder, host: str, groups: Sequence[int]) -> str:
    named = " and ".join(map(str, groups))
    return (
        f"process group {named} of {folder.path} still runs on {host} and cannot be killed: it ends when the disk for"
        f" which it waits answers again, or when {host} is restarted; `ps -eo pgid,pid,stat,cmd` shows it"
    )
