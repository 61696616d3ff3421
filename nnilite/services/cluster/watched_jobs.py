"""The jobs of one experiment, as they were last seen in the queue and in their folders."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from nnilite.errors import NniliteError, ServiceError
from nnilite.records import KeeperEvent
from nnilite.service import Handle, JobState, JobStatus
from nnilite.services.cluster.attempt_reader import GROWING, AttemptReader
from nnilite.services.cluster.hanging_folders import describe_hanging
from nnilite.services.cluster.queue_watch import QueueWatch
from nnilite.services.cluster.queued_job import QueuedJob, QueuePhase
from nnilite.services.cluster.scheduler_api import Look, SchedulerApi

KILL_AFTER_S = 30.0
"""How long a job may run after its grace before the scheduler is asked to kill it."""
ASK_AGAIN_S = 10.0
_SILENCE_S = 30.0

Verdict = Callable[[QueueWatch, Handle, QueuedJob | None], JobStatus]


class WatchedJobs:
    """The watches of jobs, by their names. `verdict` makes a status of what is known of one."""

    def __init__(self, scheduler: str, experiment: str, verdict: Verdict) -> None:
        self.trouble = ""
        self.listed: Mapping[str, QueuedJob] = {}  # by id, those of the last look; more than have a watch
        self._scheduler = scheduler
        self._experiment = experiment
        self._verdict = verdict
        self._watches: dict[str, QueueWatch] = {}
        self._readers: dict[str, AttemptReader] = {}
        self._cancels: dict[str, tuple[float, float]] = {}  # by job: when it was asked first, and last
        self._looking = asyncio.Lock()
        self._silent_s = 0.0  # when the scheduler last failed to answer

    def __len__(self) -> int:
        return len(self._watches)

    def watch(self, handle: Handle) -> QueueWatch:
        """Return the watch of a job."""
        name = str(handle["job"])
        if name not in self._watches:
            known = (name, str(handle["folder"]), str(handle["id"]), handle.get("report") == "stdout")
            self._watches[name] = QueueWatch(self._scheduler, *known)
        return self._watches[name]

    def awaited(self) -> list[str]:
        """Return the records of ends that are to be watched for."""
        return [watch.awaited for watch in self._watches.values() if watch.awaited]

    def check_silence(self) -> None:
        """Refuse what would wait for a scheduler that was silent just now. Raises: ServiceError."""
        # Its commands would try for a minute, and running jobs would not be watched meanwhile.
        if self._silent_s and time.monotonic() - self._silent_s < _SILENCE_S:
            raise ServiceError(self.trouble)

    async def poll(self, api: SchedulerApi, handles: Sequence[Handle]) -> list[JobStatus]:
        """Look at all of them. Raises: ServiceError."""
        watches = [self.watch(handle) for handle in handles]
        look = await self.look(api, watches, {watch.name for watch in watches if watch.by_log})
        self.trouble = look.trouble
        self._silent_s = time.monotonic() if look.trouble else 0.0
        if look.jobs is None:
            return [JobStatus(JobState.UNKNOWN, look.trouble) for _ in handles]
        past, trouble = await self._forgotten(api, watches, look.jobs)
        self.listed = look.jobs
        jobs = {**past, **look.jobs}
        statuses = []
        for watch, handle in zip(watches, handles, strict=True):
            job = jobs.get(watch.id)
            if watch.folder in look.hanging:
                where = f"{api.files.root}/{watch.folder}"
                statuses.append(JobStatus(JobState.UNKNOWN, describe_hanging(where, api.host.title)))
                continue
            if trouble and job is None and watch.id and watch.exited is None:
                statuses.append(JobStatus(JobState.UNKNOWN, f"{self._scheduler} does not list the job, and {trouble}"))
                continue
            statuses.append(self._verdict(watch, handle, job))
            await self._end_faster(api, watch, handle, job)
        return statuses

    async def look(self, api: SchedulerApi, watches: Sequence[QueueWatch], by_log: set[str]) -> Look:
        """Ask for all jobs and their files, and read what is new of the small ones."""
        files = [name for watch in watches for name in watch.files(GROWING if watch.name in by_log else ())]
        ids = [watch.id for watch in watches if watch.id]
        # The result of an earlier look must not be combined with a later answer of the scheduler.
        async with self._looking:
            look = await api.look(f"nni-{self._experiment}-", ids, files)
            seen = [watch for watch in watches if watch.folder not in look.hanging]
            taken = await api.files.read_files([name for watch in seen for name in watch.found(look.sizes)])
        for watch in seen:
            watch.read(taken)
            watch.sizes = {name: look.sizes.get(f"{watch.folder}/{name}", 0) for name in GROWING}
        return look

    async def _forgotten(
        self, api: SchedulerApi, watches: Iterable[QueueWatch], listed: Mapping[str, QueuedJob]
    ) -> tuple[Mapping[str, QueuedJob], str]:
        """Return what its records say of jobs that are not listed and left no record; or why they cannot be asked."""
        gone = [watch.id for watch in watches if watch.id and watch.id not in listed and watch.exited is None]
        try:
            return (await api.history(gone) if gone else {}), ""
        except ServiceError as error:
            return {}, str(error)

    async def reports(self, api: SchedulerApi, handle: Handle) -> Sequence[KeeperEvent]:
        """Read what a trial has reported in its folder. Raises: ServiceError."""
        watch = self.watch(handle)
        if not watch.by_log or not watch.sizes:
            await self.look(api, [watch], {watch.name})
        if watch.name not in self._readers:
            self._readers[watch.name] = AttemptReader(api.files, watch)
        return await self._readers[watch.name].events(watch.sizes, with_output=watch.by_log)

    async def cancel(self, api: SchedulerApi, handle: Handle) -> None:
        """Ask for the end of a job."""
        watch = self.watch(handle)
        watch.canceled = True
        now = time.monotonic()
        first, _ = self._cancels.get(watch.name, (now, now))
        self._cancels[watch.name] = (first, 0.0)
        await api.cancel(watch.folder, watch.id)
        self._cancels[watch.name] = (first, now)

    async def _end_faster(self, api: SchedulerApi, watch: QueueWatch, handle: Handle, job: QueuedJob | None) -> None:
        """Ask again for the end of a canceled job that still runs, finally by the scheduler's own kill."""
        if not watch.canceled or job is None or job.phase.is_over or job.phase is QueuePhase.UNKNOWN:
            return
        now = time.monotonic()
        first, last = self._cancels.setdefault(watch.name, (now, 0.0))
        if now - last < ASK_AGAIN_S:
            return
        try:
            if now - first > KILL_AFTER_S + float(handle.get("grace_s") or 0):
                await api.kill(watch.id)
            elif not last or job.phase is QueuePhase.WAITING:
                await api.cancel(watch.folder, watch.id)
            self._cancels[watch.name] = (first, now)
        except NniliteError as error:
            self.trouble = str(error)

    def drop(self, handle: Handle) -> None:
        """Forget a job that is over."""
        name = str(handle["job"])
        reader = self._readers.pop(name, None)
        if reader is not None:
            reader.close()
        self._watches.pop(name, None)
        self._cancels.pop(name, None)

    def clear(self) -> None:
        """Forget all."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        self._watches.clear()
