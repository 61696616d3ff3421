"""Watch the jobs and the pool from the manager's side, and derive the status of jobs."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from nnilite.records import Host
from nnilite.service import Handle, Job, JobState, JobStatus
from nnilite.services.slots import SlotTerms
from nnilite_redis._api import JobRecord, Pool, PoolShares
from nnilite_redis._config import RedisConfig
from nnilite_redis._convert import (
    QUIET_S,
    PoolView,
    Requirements,
    explain_wait,
    find_blocking_experiment,
    find_requirements,
    judge_silent,
    read_worker_facts,
    start_command,
    status_of,
)
from nnilite_redis._silence import Silence

log = logging.getLogger(__name__)


_REAPPEAR_S = 10.0  # how long workers get to tell of a job that Redis has forgotten


class PoolWatch:
    """Holds the last view of the pool; all that must last is in Redis.

    `queue` puts a job into its queue again.
    """

    def __init__(
        self, pool: Pool, config: RedisConfig, experiment: str, queue: Callable[[Job], Awaitable[None]]
    ) -> None:
        self._pool = pool
        self._config = config
        self._experiment = experiment
        self.terms = SlotTerms(config.max_slots, config.priority)  # may change while trials wait and run
        self._sent_terms: SlotTerms | None = None
        self._queue = queue
        self._silence = Silence()
        self._jobs: dict[str, Job] = {}  # that were submitted by this manager and have not ended
        self._owners: dict[str, str] = {}  # the worker of each job that runs
        self._view = PoolView(period_s=config.worker_healthy_period)

    def submitted(self, job: Job) -> None:
        """Remember a job: it can be queued again if Redis forgets it."""
        self._jobs[job.name] = job

    def forget(self, job: str) -> None:
        """Forget a job that has ended."""
        self._jobs.pop(job, None)
        self._owners.pop(job, None)

    def hosts(self) -> list[Host]:
        return self._view.hosts(Counter(self._owners.values()))

    def is_quiet(self, worker: str) -> bool:
        """Return whether a worker has been silent for some beats."""
        return self._view.silent_s.get(worker, 0.0) > QUIET_S

    def note_outage(self) -> None:
        """Redis has not answered."""
        self._silence.note_outage()

    async def look_around(self) -> None:
        """Look which workers have joined and which jobs wait. Raises: ServiceError."""
        await self._tell_terms()
        places, records = await self._pool.places(self._experiment), await self._pool.workers()
        shares = await self._pool.shares() if self.terms.limit is not None else PoolShares()
        self._silence.note_answer()
        silent_s = {
            record.id: self._silence.measure(f"worker {record.id}", record.beat, record.age_s) for record in records
        }
        facts = [read_worker_facts(record) for record in records]
        self._view = PoolView(facts, silent_s, places, self._config.worker_healthy_period, shares)

    async def _tell_terms(self) -> None:
        """Send the terms repeatedly, since Redis may forget them. Raises: ServiceError.

        An experiment that takes no part sends them once: an earlier manager may have sent others.
        """
        terms = self.terms
        if terms != self._sent_terms or terms != SlotTerms():
            await self._pool.set_terms(self._experiment, terms, self._config.worker_healthy_period)
            self._sent_terms = terms

    async def statuses(self, handles: Sequence[Handle]) -> list[JobStatus]:
        """Return the statuses of all these jobs, in their order. Raises: ServiceError."""
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
        status = status_of(record)
        if record.report and status.state.ended:
            return status
        if record.fenced:
            return JobStatus(
                JobState.LOST, f"worker {record.worker} of the job was silent for too long", host=status.host
            )
        if record.worker:
            return await self._held(name, record, status)
        return await self._waiting(name)

    async def _held(self, name: str, record: JobRecord, status: JobStatus) -> JobStatus:
        """Return the status of a job that a worker has."""
        silent_s = self._silence.measure(name, record.beat)
        if silent_s > self._config.worker_healthy_period:
            if await self._pool.fence(name, record.beat):
                reason = (
                    f"worker {record.worker} of the job has been silent for {silent_s:.0f} s and counts as unhealthy"
                )
                return JobStatus(JobState.LOST, reason, host=status.host)
            return status
        return judge_silent(record, silent_s) if silent_s > QUIET_S else status

    async def _waiting(self, name: str) -> JobStatus:
        number = self._view.numbered[name][0] if name in self._view.numbered else 0
        if number:
            self._silence.measure(name, "queued")
        elif self._silence.measure(name, "not in the queue") > _REAPPEAR_S:
            return await self._queue_anew(name)
        job = self._jobs.get(name)
        required = find_requirements(job, self._config) if job else Requirements(frozenset(self._config.worker_labels))
        whom = find_blocking_experiment(name, self._experiment, self.terms, self._view)
        return JobStatus(
            JobState.WAITING, explain_wait(number, required, self._view, start_command(self._config), whom)
        )

    async def _forgotten(self, name: str) -> JobStatus:
        """Return the status of a job that Redis does not know: a worker may have it, and then reports it."""
        owner = self._owners.get(name)
        patience_s = self._config.worker_healthy_period if owner else _REAPPEAR_S
        if self._silence.measure(name, "forgotten") > patience_s:
            return await self._queue_anew(name)
        who = f"worker {owner}" if owner else "a worker that may have the job"
        return JobStatus(JobState.UNKNOWN, f"Redis has lost this job; waiting for {who} to report")

    async def _queue_anew(self, name: str) -> JobStatus:
        """Queue a job again that no worker has, if this manager submitted it."""
        job = self._jobs.get(name)
        if job is None or name in self._owners:
            return JobStatus(JobState.LOST, "Redis lost the job, and no worker has it")
        await self._pool.remove(name, job.experiment)
        await self._queue(job)
        log.warning("Redis had lost %s; put it into the queue again", name)
        return JobStatus(JobState.WAITING, "Redis had lost the job; it is in the queue again")
