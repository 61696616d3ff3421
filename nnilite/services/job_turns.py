"""Calls to a platform about single jobs: one at a time for each job, so that a slow one holds up no other job.

The log of a job may lie on a node that is down, or its folder on a disk that hangs. So a look at many jobs gives each a
limit: what takes longer continues during the other calls, and its result counts at the next look.

    self._turns = JobTurns()
    ...
    async def poll(self, handles):
        return await self._turns.statuses([(str(handle["job"]), partial(self._status, handle)) for handle in handles])

    async def reports(self, handle):
        async with self._turns.turn(str(handle["job"])):
            return await self._read(handle)

A service whose `reports` works like this sets `reports_aside`. `close` has to be awaited at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from weakref import WeakValueDictionary

from nnilite.service import JobState, JobStatus
from nnilite.services.task_ends import end_tasks

StatusCall = Callable[[], Awaitable[JobStatus]]

_LIMIT_S = 3.0
_AT_ONCE = 6  # fewer than the calls that `nnilite.platform_http` makes at once, so that lists of jobs find room


class JobTurns:
    """For one event loop. `at_once`: how many jobs are looked at at a time."""

    def __init__(self, limit_s: float = _LIMIT_S, at_once: int = _AT_ONCE) -> None:
        self._limit_s = limit_s
        self._room = asyncio.Semaphore(at_once)
        # Those in use: a service has many jobs in the course of time, and few calls at once.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._looks: dict[str, asyncio.Task[JobStatus]] = {}

    async def statuses(self, calls: Sequence[tuple[str, StatusCall]]) -> list[JobStatus]:
        """Return the status of each job, given its name and the call; UNKNOWN where it does not come within the limit.

        Raises: what a call raises.
        """
        free = [(job, call) for job, call in calls if job not in self._looks and not self._lock(job).locked()]
        begun = [self._begin(job, call) for job, call in free]
        if begun:
            await asyncio.wait(begun, timeout=self._limit_s)
        return [self._found(job) for job, _ in calls]

    @contextlib.asynccontextmanager
    async def turn(self, job: str) -> AsyncIterator[None]:
        """Wait until no other call about this job is under way, and let none begin."""
        async with self._lock(job), self._room:
            yield

    def _lock(self, job: str) -> asyncio.Lock:
        lock = self._locks.get(job)
        if lock is None:
            lock = self._locks[job] = asyncio.Lock()
        return lock

    async def close(self) -> None:
        """End the looks that are still under way."""
        left = list(self._looks.values())
        self._looks.clear()
        await end_tasks(left)

    def _begin(self, job: str, call: StatusCall) -> asyncio.Task[JobStatus]:
        look = self._looks[job] = asyncio.create_task(self._look(job, call))
        # If no caller asks for its result any more, its failure does not matter.
        look.add_done_callback(lambda look: look.cancelled() or look.exception())
        return look

    async def _look(self, job: str, call: StatusCall) -> JobStatus:
        async with self.turn(job):
            return await call()

    def _found(self, job: str) -> JobStatus:
        look = self._looks.get(job)
        if look is None or not look.done():
            return JobStatus(JobState.UNKNOWN, f"its platform has not reported on it within {self._limit_s:.0f} s")
        del self._looks[job]
        return look.result()
