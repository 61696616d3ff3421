"""The base of services whose platform takes a job, lists jobs, and keeps a log of each.

    class MyService(BatchService[MyApi, MyJob]):
        Config = MyConfig
        platform = "Foo"
        patience = Patience(list_pause_s=2.0)

        def __init__(self, name, config, context):
            # Jobs reach the manager from the side of `config.host`.
            super().__init__(name, config, context, CallbackAddress(context, config.nni_manager_ip, config.host))

        def connect(self) -> MyApi: ...                            # makes the client; asks nothing yet
        async def log_in(self, api: MyApi) -> None: ...            # a wrong login is a ConfigError
        async def check_trials(self, api: MyApi) -> None: ...      # whether a trial could ever run
        async def list_jobs(self, api, wanted) -> Mapping[str, MyJob]: ...   # by the `id` of their watches
        def watch(self, api: MyApi, handle: Handle) -> MyWatch: ...          # see `nnilite.services.job_watch`
        async def submit(self, job: Job) -> Handle:
            ...
            return self.handle(job, id=made)

A handle is {"job": its name, "report": how it reports, "soft_s": how long its keeper gets to end the trial}, and what
the service adds to that, usually the platform's "id".
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from nnilite.errors import ConfigError, NotFound, ServiceError
from nnilite.records import Host, Json, KeeperEvent
from nnilite.service import Handle, Job, JobStatus, ServiceContext, TrainingService
from nnilite.services.callback_address import CallbackAddress
from nnilite.services.job_turns import JobTurns
from nnilite.services.job_watch import JobWatch, Patience
from nnilite.services.keeper_folder import check_stream
from nnilite.services.section_fields import gpus_of

__all__ = ["BatchService", "PlatformClient", "list_hosts", "output_piece"]


class PlatformClient(Protocol):
    """What a service calls its platform by."""

    async def close(self) -> None:
        """Let go of the connections."""


ApiT = TypeVar("ApiT", bound=PlatformClient)
JobT = TypeVar("JobT")


class BatchService(TrainingService, Generic[ApiT, JobT]):
    """Submitting is the service's own; watching, canceling, removing and reading logs follow from its watches."""

    platform: ClassVar[str] = ""
    """The platform's name in messages."""
    patience: ClassVar[Patience] = Patience()
    reports_aside = True

    def __init__(self, name: str, config: Any, context: ServiceContext, callback: CallbackAddress) -> None:
        super().__init__(name, config, context)
        self.callback = callback
        """Where jobs reach the manager."""
        self._client: ApiT | None = None
        self._watches: dict[tuple[str, str], JobWatch[JobT]] = {}
        self._turns = JobTurns()
        self._jobs: Mapping[str, JobT] = {}
        self._listed = float("-inf")

    # ------------------------------------------------------------ what a platform says for itself

    @abstractmethod
    def connect(self) -> ApiT:
        """Make the client. Nothing is asked yet. Raises: ConfigError."""

    async def log_in(self, api: ApiT) -> None:
        """Check whether the platform lets this user in. Raises: ConfigError if it never will, Problem."""

    async def check_trials(self, api: ApiT) -> None:
        """Check whether a trial could ever run. Raises: ConfigError if it could not, Problem."""

    async def check_size(self) -> None:
        """Check whether a job with keeper and code is small enough. Raises: ConfigError if not, ServiceError."""

    async def job_callback_url(self) -> str:
        """Return the manager's address for a job. Raises: NoCapacity while there is none, ServiceError."""
        return await asyncio.to_thread(self.callback.find_or_wait)

    way_back = job_callback_url
    """The old name, which goes with version 0.2."""

    async def take_over(self, api: ApiT) -> None:
        """Do what the jobs of an earlier manager need, such as learning where this one is. Raises: Problem."""

    @abstractmethod
    async def list_jobs(self, api: ApiT, wanted: frozenset[str]) -> Mapping[str, JobT]:
        """List the jobs of the experiment by the ids of their watches; at least `wanted`, if they are there."""

    @abstractmethod
    def watch(self, api: ApiT, handle: Handle) -> JobWatch[JobT]:
        """Make the watch of a job."""

    async def listed(self, handles: Sequence[Handle], jobs: Mapping[str, JobT]) -> None:
        """Do what the listing gives reason to, such as ending jobs that were made twice."""

    # ------------------------------------------------------------ lifecycle

    async def open(self) -> None:
        self._watches.clear()
        self._jobs, self._listed = {}, float("-inf")
        self._client = self.connect()
        try:
            await self.log_in(self._client)
            if await self.jobs():
                # Existing trials must be watched, even where no new one could start any more.
                await self.take_over(self._client)
            else:
                await self.check_trials(self._client)
                await asyncio.to_thread(self.callback.check)
                await self.check_size()
        except BaseException:
            await self.close()
            raise

    async def check(self) -> None:
        api = self.connect()
        try:
            await self.log_in(api)
            await self.check_trials(api)
        finally:
            await api.close()
        await asyncio.to_thread(self.callback.check)

    async def close(self) -> None:
        api, self._client = self._client, None
        await self._turns.close()
        if api is not None:
            await api.close()

    @property
    def api(self) -> ApiT:
        """The open client. Raises: ServiceError if there is none."""
        return self.check_open(self._client)

    @property
    def gpus(self) -> int | None:
        """The GPUs of a trial, by the section or the experiment; None if neither says anything."""
        return gpus_of(self.config, self.context)

    # ------------------------------------------------------------ handles

    def handle(self, job: Job, **more: Json) -> Handle:
        """Return the handle of a job that was just submitted, and note that it was."""
        soft_s = 0.0
        if job.report == "rest":
            # The keeper learns of a cancellation by its heartbeat; without a way back it does not.
            soft_s = float(job.spec.get("grace_s") or 0) + float(job.spec.get("heartbeat_s") or 0)
            soft_s += self.patience.soft_extra_s
        handle = {"job": job.name, "report": job.report, "soft_s": soft_s, **more}
        self.watched(handle).submitted()
        return handle

    def watched(self, handle: Handle) -> Any:
        """Return the watch of a job, made when it is first asked for. Raises: ServiceError."""
        key = _key(handle)
        if key not in self._watches:
            self._watches[key] = self.watch(self.api, handle)
        return self._watches[key]

    # ------------------------------------------------------------ watching

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        if not handles:
            return []
        watches = [self.watched(handle) for handle in handles]
        wanted = frozenset(watch.id for watch in watches if watch.over is None)
        jobs = await self.jobs(wanted) if wanted else self._jobs
        await self.listed(handles, jobs)
        calls = [partial(watch.status, jobs) for watch in watches]
        return await self._turns.statuses(list(zip(map(_turn, handles), calls, strict=True)))

    async def jobs(self, wanted: frozenset[str] = frozenset(), at_once: bool = False) -> Mapping[str, JobT]:
        """Return the jobs of the experiment, as they were at most `list_pause_s` ago; `at_once`: as they are now.

        Raises: ServiceError.
        """
        if at_once or time.monotonic() - self._listed >= self.patience.list_pause_s:
            try:
                self.record_jobs(await self.list_jobs(self.api, wanted))
            except (NotFound, ConfigError) as error:
                # A list that is refused says nothing of the jobs.
                raise ServiceError(str(error)) from error
        return self._jobs

    def record_jobs(self, jobs: Mapping[str, JobT]) -> None:
        """Use a listing that was made for another reason, such as to log in."""
        self._jobs, self._listed = jobs, time.monotonic()

    def hosts(self) -> list[Host]:
        """Return the nodes on which trials were last seen to run."""
        return list_hosts(watch.host for watch in self._watches.values() if watch.over is None)

    # ------------------------------------------------------------ the end

    async def cancel(self, handle: Handle) -> None:
        """Cancel a running trial softly: its keeper learns of it from the manager first, and ends the trial.

        A platform that has a soft end of its own is asked for it, too. `poll` asks for a hard end when the time for
        that is over; at once where the keeper does not learn of it, or the trial does not run yet.
        """
        await self.watched(handle).cancel(float(handle.get("soft_s") or 0))

    async def remove(self, handle: Handle) -> None:
        """End what still runs or waits; the platform's own records stay."""
        await self.watched(handle).remove()
        self._watches.pop(_key(handle), None)

    # ------------------------------------------------------------ logs

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        async with self._turns.turn(_turn(handle)):
            events: Sequence[KeeperEvent] = await self.watched(handle).reports()
        return events

    async def logs(self, handle: Handle, stream: str, offset: int, limit: int) -> bytes:
        """Return what the log has; it has both streams in one, which is given as standard output."""
        watch = self.watched(handle)
        if stream == "stdout":
            async with self._turns.turn(_turn(handle)):
                await watch.read_log()
        return output_piece(watch.log.output, stream, offset, limit)


def output_piece(output: bytes | bytearray, stream: str, offset: int, limit: int) -> bytes:
    """Return a piece of a log that has both streams in one, for `TrainingService.logs`. Raises: NotFound."""
    check_stream(stream)
    return bytes(output[offset : offset + limit]) if stream == "stdout" else b""


def list_hosts(nodes: Iterable[str]) -> list[Host]:
    """Return the nodes on which trials run, each with the number of these; `nodes` has one entry for each trial."""
    return [Host(name, "up", running=number) for name, number in sorted(Counter(nodes).items()) if name]


def _turn(handle: Handle) -> str:
    return "/".join(_key(handle))


def _key(handle: Handle) -> tuple[str, str]:
    return str(handle["job"]), str(handle.get("id") or "")
