"""What the manager's side sees of its jobs and of the pool, and what it makes of it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from nnilite.records import Host
from nnilite.service import Handle, Job, JobState, JobStatus
from nnilite.services.slots import SlotTerms
from nnilite_redis._api import JobRecord, Pool, PoolShares
from nnilite_redis._config import RedisConfig
from nnilite_redis._convert import (
    PoolView,
    Wants,
    silent_status,
    start_command,
    status_of,
    wants_of,
    whom_it_waits_for,
    why_waits,
    worker_facts,
)
from nnilite_redis._silence import Silence

log = logging.getLogger(__name__)

QUIET_S = 8.0
"""Some beats: what is said of a job is old then."""

_REAPPEAR_S = 10.0  # how long workers get to tell of a job that Redis has forgotten


class PoolWatch:
    """Knows what was seen last; all that must last is in Redis.

    `queue` puts a job into its queue again.
    """

    def __init__(
        self, pool: Pool, config: RedisConfig, experiment: str, queue: Callable[[Job], Awaitable[None]]
    ) -> None:
        self._pool = pool
        self._config = config
        self._experiment = experiment
        self.terms = SlotTerms(config.max_slots, config.priority)  # may be set while trials wait and run
        self._told_terms: SlotTerms | None = None
        self._queue = queue
        self._silence = Silence()
        self._jobs: dict[str, Job] = {}  # that were submitted by this manager and have not ended
        self._owners: dict[str, str] = {}  # the worker of each job that runs
        self._view = PoolView(period_s=config.worker_healthy_period)

    def submitted(self, job: Job) -> None:
        """Remember a job: it can be queued anew if Redis forgets it."""
        self._jobs[job.name] = job

    def forget(self, job: str) -> None:
        """The job has ended."""
        self._jobs.pop(job, None)
        self._owners.pop(job, None)

    def hosts(self) -> list[Host]:
        return self._view.hosts(self._owners)

    def is_quiet(self, worker: str) -> bool:
        """Whether nothing was heard of a worker for some beats."""
        return self._view.silent_s.get(worker, 0.0) > QUIET_S

    def was_deaf(self) -> None:
        """Redis has not answered."""
        self._silence.was_deaf()

    async def look_around(self) -> None:
        """See who is there and who waits. Raises: ServiceError."""
        await self._tell_terms()
        places, records = await self._pool.places(), await self._pool.workers()
        shares = await self._pool.shares() if self.terms.limit is not None else PoolShares()
        self._silence.listened()
        silent_s = {record.id: self._silence.of(f"worker {record.id}", record.beat) for record in records}
        facts = [worker_facts(record) for record in records]
        self._view = PoolView(facts, silent_s, places, self._config.worker_healthy_period, shares)

    async def _tell_terms(self) -> None:
        """Again and again, since Redis may forget them. Raises: ServiceError.

        Those of one that takes no part are told once: an earlier manager may have told others.
        """
        terms = self.terms
        if terms != self._told_terms or terms != SlotTerms():
            await self._pool.set_terms(self._experiment, terms, self._config.worker_healthy_period)
            self._told_terms = terms

    async def statuses(self, handles: Sequence[Handle]) -> list[JobStatus]:
        """Of all these jobs, in their order. Raises: ServiceError."""
        names = [str(handle["job"]) for handle in handles]
        records = await self._pool.jobs(names)
        await self.look_around()
        self._silence.keep({*names, *(f"worker {worker.id}" for worker in self._view.workers)})
        found = []
        for name, record in zip(names, records, strict=True):
            if record is not None and record.worker:
                self._owners[name] = record.worker
            found.append(await self._status(name, record))
            if found[-1].state.ended:
                self.forget(name)
        return found

    async def _status(self, name: str, record: JobRecord | None) -> JobStatus:
        if record is None:
            return await self._forgotten(name)
        told = status_of(record)
        if record.report and told.state.ended:
            return told
        if record.fenced:
            return JobStatus(JobState.LOST, f"its worker {record.worker} was silent for too long", host=told.host)
        if record.worker:
            return await self._held(name, record, told)
        return await self._waiting(name)

    async def _held(self, name: str, record: JobRecord, told: JobStatus) -> JobStatus:
        """Of a job that a worker has."""
        silent_s = self._silence.of(name, record.beat)
        if silent_s > self._config.worker_healthy_period:
            if await self._pool.fence(name, record.beat):
                reason = f"its worker {record.worker} has been silent for {silent_s:.0f} s and counts as unhealthy"
                return JobStatus(JobState.LOST, reason, host=told.host)
            return told
        return silent_status(record, silent_s) if silent_s > QUIET_S else told

    async def _waiting(self, name: str) -> JobStatus:
        number = self._view.numbered[name][0] if name in self._view.numbered else 0
        if number:
            self._silence.of(name, "queued")
        elif self._silence.of(name, "not in the queue") > _REAPPEAR_S:
            return await self._queue_anew(name)
        job = self._jobs.get(name)
        wants = wants_of(job, self._config) if job else Wants(frozenset(self._config.worker_labels))
        whom = whom_it_waits_for(name, self._experiment, self.terms, self._view)
        return JobStatus(JobState.WAITING, why_waits(number, wants, self._view, start_command(self._config), whom))

    async def _forgotten(self, name: str) -> JobStatus:
        """Of a job that Redis does not know: a worker may have it, and then will tell."""
        owner = self._owners.get(name)
        patience_s = self._config.worker_healthy_period if owner else _REAPPEAR_S
        if self._silence.of(name, "forgotten") > patience_s:
            return await self._queue_anew(name)
        who = f"its worker {owner}" if owner else "a worker that may have it"
        return JobStatus(JobState.UNKNOWN, f"Redis does not know it (any more); waits for the word of {who}")

    async def _queue_anew(self, name: str) -> JobStatus:
        """Nobody has the job. What this manager has submitted itself, it submits again."""
        job = self._jobs.get(name)
        if job is None or name in self._owners:
            return JobStatus(JobState.LOST, "Redis has forgotten it, and no worker has it")
        await self._pool.remove(name, job.experiment)
        await self._queue(job)
        log.warning("Redis had forgotten %s, which is in the queue again", name)
        return JobStatus(JobState.WAITING, "Redis had forgotten it: it is in the queue again")
