"""Runs trials on workers that have joined a pool in Redis; neither side needs to reach the other.

The state of a job is its record, which its worker renews with every beat. A job whose record is not renewed for
`workerHealthyPeriod` is taken from its worker (fenced) and LOST; a worker that learns this later ends the trial at
once, and has stopped the trial by itself long before. Both sides restore what Redis loses in a crash: workers report
the jobs that they have, and jobs that no worker has are queued again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nnilite.errors import ConfigError, NniliteError, Place, ServiceError
from nnilite.records import Host, Json, KeeperEvent
from nnilite.service import LABELS, Handle, Job, JobStatus, ServiceContext, TrainingService, TrialFile
from nnilite.services.keeper_folder import check_folder_names, check_stream
from nnilite.services.slots import SlotTerms
from nnilite.units import HIDDEN
from nnilite_redis._api import Pool
from nnilite_redis._config import IGNORED, RedisConfig, check_label
from nnilite_redis._convert import CANCELED_IN_QUEUE, find_requirements, task_of
from nnilite_redis._keys import name_worker_party
from nnilite_redis._mailbox import PoolMessage
from nnilite_redis._session import Session, reach_files

log = logging.getLogger(__name__)


class RedisService(TrainingService):
    """Runs trials on workers that join by `nnictl worker` and take them from a queue in Redis.

    A handle is {"job", "experiment", "trial", "attempt"}: everything else is asked for in Redis.
    """

    Config = RedisConfig
    ignores = IGNORED
    reports_aside = True

    def __init__(self, name: str, config: RedisConfig, context: ServiceContext) -> None:
        super().__init__(name, config, context)
        self._terms = SlotTerms(config.max_slots, config.priority)
        self._session: Session | None = None
        self._canceled: dict[str, Handle] = {}  # cancellations not yet sent to Redis

    async def open(self) -> None:
        self._check_settings()
        if self._session is None:
            now = replace(self.config, max_slots=self._terms.limit, priority=self._terms.priority)
            self._session = await Session.begin(now, self.context)
            self._session.watch.terms = self._terms  # they may have changed meanwhile

    def _check_settings(self) -> None:
        """Check settings. Raises: ConfigError."""
        grace_s = float(self.context.defaults.get("gracePeriod") or 10)
        period_s = self.config.worker_healthy_period
        if period_s < 2 * grace_s:
            raise ConfigError(
                f"is {period_s} s, but must be at least twice gracePeriod, which is {grace_s:g} s: a trial must have "
                "ended on a silent worker before it is tried elsewhere",
                Place(field="workerHealthyPeriod"),
            )

    async def check(self) -> None:
        self._check_settings()
        pool = Pool(self.config.address, self.config.prefix)
        try:
            await reach_files(pool, self.config)
        finally:
            await pool.close()

    @property
    def _opened(self) -> Session:
        """Return the open session. Raises: ServiceError."""
        return self.check_open(self._session)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.end()

    async def submit(self, job: Job) -> Handle:
        check_folder_names(job)
        for label in job.labels:
            check_label(label, Place(field=LABELS))
        session = self._opened
        await session.queue(job)
        session.watch.submitted(job)
        return {"job": job.name, "experiment": job.experiment, "trial": job.trial, "attempt": job.attempt}

    def share_slots(self, limit: int | None, priority: int | None) -> None:
        self._terms = SlotTerms(self.config.max_slots, self.config.priority).changed(limit, priority)
        if self._session is not None:
            self._session.watch.terms = self._terms

    def describe(self, job: Job) -> Json:
        """Return the job's record in Redis, without secrets, and what it requires of its worker."""
        task = task_of(job, self.config, "the code package", "the trial keeper")
        required = find_requirements(job, self.config)
        asked = {"labels": sorted(required.labels), "gpus": required.gpus}
        spec = {**task["spec"], "token": HIDDEN}
        place = {"server": self.config.address.title, "key": f"{self.config.prefix}:job:{job.name}"}
        return {"name": job.name, "redis": place, "worker": asked, **task, "spec": spec}

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        if not handles:
            return []
        watch = self._opened.watch
        try:
            for handle in list(self._canceled.values()):
                await self.cancel(handle)
            return await watch.statuses(handles)
        except NniliteError:
            watch.note_outage()
            raise

    async def cancel(self, handle: Handle) -> None:
        name = str(handle["job"])
        self._canceled[name] = handle
        worker = await self._opened.pool.cancel(name, CANCELED_IN_QUEUE)
        self._canceled.pop(name, None)
        await self._nudge(worker)
        self.context.wake()

    async def _nudge(self, worker: str) -> None:
        """Have a worker check its jobs now, which it would otherwise do in a moment."""
        if worker:
            with contextlib.suppress(ServiceError):
                await self._opened.mail.tell(name_worker_party(worker), PoolMessage({"do": "look"}))

    async def remove(self, handle: Handle) -> None:
        name = str(handle["job"])
        session = self._opened
        worker = await session.pool.remove(name, str(handle["experiment"]))
        session.watch.forget(name)
        self._canceled.pop(name, None)
        await self._nudge(worker)

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        """Return the events on the worker's disk of a trial whose keeper died, or gave up, before all was delivered."""
        here = self.context.directory / "trials" / str(handle["trial"]) / str(handle["attempt"])
        return await self._opened.trial_files.events(handle, here)

    async def logs(self, handle: Handle, stream: str, offset: int, limit: int) -> bytes:
        check_stream(stream)
        return await self._opened.trial_files.read(handle, f"trial.{stream}", offset, limit)

    async def fetch(self, handle: Handle, target: Path) -> None:
        await self._opened.trial_files.fetch(handle, target)

    async def files(self, handle: Handle) -> Sequence[TrialFile] | None:
        return await self._opened.trial_files.listed(handle)

    async def fetch_file(self, handle: Handle, path: str, target: Path, most_bytes: int) -> None:
        await self._opened.trial_files.fetch_file(handle, path, target, most_bytes)

    def hosts(self) -> list[Host]:
        return [] if self._session is None else self._session.watch.hosts()
