"""Further nodes of elastic trials: each is a job of one node, whose keeper joins those that run.

A trial begins with an allocation of at least the fewest nodes. Slurm lets few allocations grow (permit_job_expansion),
but a job of its own can join at any time. All jobs that may join a trial have one name, so Slurm's queue knows all that
a further manager has to know.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nnilite.errors import Conflict, NniliteError
from nnilite.records import NodeCounts
from nnilite.service import Handle, JobState, JobStatus
from nnilite.services.cluster.queued_job import QueuedJob, QueuePhase
from nnilite.services.task_ends import end_tasks
from nnilite_slurm._api import SlurmApi

log = logging.getLogger(__name__)

_CLEANUP_S = 1.0  # time for a process of a canceled task to end
_AGAIN_S = 10.0
_STEADY_S = 300.0  # how long a joiner runs at least where nothing is wrong
_LONGEST_PAUSE_S = 1800.0
_GIVES_WAY_S = 60.0
_TAKEN_S = 30.0  # from the moment a drill takes a node until another one may come


def name_joining_jobs(job: str) -> str:
    """Return the name of all jobs that may join a trial's.

    >>> name_joining_jobs("nni-e-t-0")
    'nni-e-t-0+'
    """
    return f"{job}+"


def lost_first_node(job: QueuedJob | None) -> str:
    """Return which node Slurm has taken out of a job although its script ran there; "" if none.

    With --no-kill such a job would never end.
    """
    is_lost = job is not None and job.phase is QueuePhase.RUNNING and bool(job.nodes) and job.host not in job.nodes
    return job.host if job is not None and is_lost else ""


@dataclass
class _Growth:
    """What this manager has done for one trial."""

    asked: set[str] = field(default_factory=set)  # the joining jobs that it has submitted
    taken: set[str] = field(default_factory=set)  # by drills: joining jobs by their ids, and nodes by their names
    refusals: int = 0  # consecutive refusals by Slurm
    again_s: float = 0.0

    def wait(self, seconds: float) -> None:
        self.again_s = max(self.again_s, time.monotonic() + seconds)

    def forget_if_steady(self, joining: Sequence[QueuedJob]) -> None:
        """Forgive joining jobs that have ended, once one has run for some time."""
        if any(time.time() - (job.started or time.time()) > _STEADY_S for job in joining):
            self.asked = {job.id for job in joining}


class JoiningJobs:
    """Submits and ends the jobs that join. `script`: theirs, of a name and GPUs."""

    def __init__(self, api: SlurmApi, counts: NodeCounts, script: Callable[[str, int | None], str]) -> None:
        self._api = api
        self._counts = counts
        self._script = script
        self._gives_way_until_s = 0.0
        self._growths: dict[str, _Growth] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}  # what is being done, by trial

    async def close(self) -> None:
        await end_tasks(self._tasks.values(), _CLEANUP_S)

    def look_after(
        self,
        running: Sequence[tuple[Handle, QueuedJob]],
        statuses: Sequence[JobStatus],
        listed: Mapping[str, QueuedJob],
    ) -> None:
        """Let the trials that run grow, each by one node, unless others wait for nodes."""
        joining = _by_name(listed)
        others_wait = any(status.state is JobState.WAITING for status in statuses)
        others_wait = others_wait or time.monotonic() < self._gives_way_until_s
        for handle, main in running:
            name = str(handle["job"])
            mine = joining.get(name_joining_jobs(name), [])
            growth = self._growths.setdefault(name, _Growth())
            growth.forget_if_steady(mine)
            if any(job.phase is QueuePhase.WAITING for job in mine):
                if others_wait:
                    self._do(name, self._api.end_joining_jobs(name_joining_jobs(name), only_waiting=True))
                continue
            lacks = bool(main.nodes) and len(main.nodes) + len(mine) < self._counts.most
            if lacks and not others_wait and time.monotonic() >= growth.again_s:
                self._do(name, self._grow(handle, growth, [main, *mine]))

    def give_way(self) -> None:
        """Leave room in the queue to a trial that Slurm has not accepted."""
        self._gives_way_until_s = time.monotonic() + _GIVES_WAY_S

    async def _grow(self, handle: Handle, growth: _Growth, parts: Sequence[QueuedJob]) -> None:
        """Submit one more joiner. `parts`: the jobs that the trial has."""
        ended = len(growth.asked - {job.id for job in parts})  # soon, so that the next one has to wait for longer
        name = name_joining_jobs(str(handle["job"]))
        growth.wait(min(_AGAIN_S * 2 ** min(ended + growth.refusals, 10), _LONGEST_PAUSE_S))
        growth.refusals += 1
        gpus = handle["gpus"] if isinstance(handle["gpus"], int) else None
        taken = [node for job in parts for node in job.nodes]
        job = await self._api.join(str(handle["folder"]), self._script(name, gpus), taken)
        growth.refusals = 0
        if job:
            growth.asked.add(job)
            log.info("the job %s may join %s, when Slurm has a node for it", job, handle["job"])

    def _do(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Do some work for a trial, unless other work is being done for it."""
        if name in self._tasks:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(_do_quietly(name, work))
        self._tasks[name] = task
        task.add_done_callback(lambda _: self._tasks.pop(name, None))

    async def end(self, job: str, only_waiting: bool = False) -> None:
        """End the joining jobs of a trial that is to end, or has ended. Raises: ServiceError."""
        task = self._tasks.get(job)
        if task is not None:
            await asyncio.wait([task])
        await self._api.end_joining_jobs(name_joining_jobs(job), only_waiting)
        if not only_waiting:
            self._growths.pop(job, None)

    async def take_node(self, handle: Handle, main: QueuedJob | None, listed: Mapping[str, QueuedJob]) -> None:
        """Take a node away, but not the first one. Raises: Conflict if there is none to spare, ServiceError."""
        name = str(handle["job"])
        growth = self._growths.setdefault(name, _Growth())
        if main is None or main.phase is not QueuePhase.RUNNING:
            raise Conflict("the trial has no node to spare now")
        joined = [job for job in _by_name(listed).get(name_joining_jobs(name), []) if job.phase is QueuePhase.RUNNING]
        own = [node for node in main.nodes if node != main.host and node not in growth.taken]
        others = [*own, *(job.id for job in joined if job.id not in growth.taken)]
        if len(others) < max(1, self._counts.fewest):
            raise Conflict("the trial has no node to spare now")
        growth.wait(_TAKEN_S)
        one = random.choice(others)
        growth.taken.add(one)
        if one in own:
            await self._api.release(main.id, [node for node in main.nodes if node not in growth.taken])
        else:
            await self._api.ask_to_end(one)


def _by_name(listed: Mapping[str, QueuedJob]) -> dict[str, list[QueuedJob]]:
    """Return the joining jobs that have not ended, by their names."""
    found: dict[str, list[QueuedJob]] = {}
    for job in listed.values():
        if job.name.endswith("+") and not job.phase.is_over:
            found.setdefault(job.name, []).append(job)
    return found


async def _do_quietly(name: str, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except NniliteError as error:
        log.warning("%s cannot grow now: %s", name, error)
