"""Take jobs from the queue, and prepare them until their keepers run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from nnilite.errors import ConfigError, NniliteError, ServiceError
from nnilite.services.task_ends import end_tasks
from nnilite_redis._api import ClaimedJob, Pool, ServerStarting
from nnilite_redis._convert import Requirements, read_requirements
from nnilite_redis._file_store import Files, files_of
from nnilite_redis._keys import name_manager_party
from nnilite_redis._mailbox import Mailbox, PoolMessage
from nnilite_redis._relay import LIMIT_S
from nnilite_redis._worker import guard
from nnilite_redis._worker.attempt import WorkerAttempt
from nnilite_redis._worker.checkpoints import Checkpoints
from nnilite_redis._worker.file_cache import FileCache
from nnilite_redis._worker.gpus import WorkerGpus
from nnilite_redis._worker.held_attempts import HeldAttempts
from nnilite_redis._worker.leases import NO_LEASE, Lease
from nnilite_redis._worker.task import BadTask, WorkerTask, read_task

log = logging.getLogger(__name__)

_PREPARE_S = 900.0
_TRY_AGAIN_S = 1.0
_LOOK_S = 0.05


class _FittingQueue(NamedTuple):
    """A queue with a job that could run here now."""

    experiment: str
    gpus: Sequence[int] | None  # that it would get


@dataclass
class Intake:
    """Fills a worker's processors."""

    pool: Pool
    mail: Mailbox
    holdings: HeldAttempts
    checkpoints: Checkpoints
    gpus: WorkerGpus
    cache: FileCache
    folder: Path
    worker: str
    processors: int
    labels: frozenset[str]
    address: Callable[[], str]  # where keepers find their manager
    changed: Callable[[], None]
    _preparing: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    @property
    def busy(self) -> bool:
        """Whether something is being prepared."""
        return bool(self._preparing)

    async def take_pending(self, beat: str) -> None:
        """Take jobs that Redis gave to this worker, whose answer was lost. Raises: NniliteError."""
        for taken in await self.pool.pending(self.worker):
            if taken.task and self.holdings.get(taken.job) is None:
                # It is not known since when the job has been ours: the next round asks whether it still is.
                await self._begin(taken, None, beat, None)
                self.changed()
            else:
                await self.pool.keep(taken)

    async def take_all(self, beat: str) -> None:
        """Take jobs while processors are free. Raises: NniliteError, OSError."""
        while len(self.holdings.live) < self.processors:
            fitting = await self._list_fitting()
            asked_s = guard.now_s()  # the answer may be read long after Redis has given it
            try:
                owners = {name: one.experiment for name, one in fitting.items()}
                taken = await self.pool.take_job(self.worker, owners) if fitting else None
            except ServerStarting:
                return
            if taken is None:
                return
            queue = fitting[taken.queue_key.removeprefix(self.pool.keys.queue_prefix)]
            await self._begin(taken, queue.gpus, beat, asked_s)

    async def _list_fitting(self) -> dict[str, _FittingQueue]:
        """Return the queues with a job that could run here now, by name."""
        found: dict[str, _FittingQueue] = {}
        for name, text in (await self.pool.queues()).items():
            required = read_requirements(text)
            if required is None or not required.labels <= self.labels or self._is_enough(required):
                continue
            gpus = await self.gpus.choose(required.gpus, self.holdings.booked) if required.gpus else None
            if gpus is not None or not required.gpus:
                found[name] = _FittingQueue(required.experiment, gpus)
        return found

    def _is_enough(self, required: Requirements) -> bool:
        """Return whether as many trials of the experiment run here as it allows."""
        running = sum(attempt.task.job.experiment == required.experiment for attempt in self.holdings.live)
        return required.most is not None and running >= required.most

    async def _begin(self, taken: ClaimedJob, gpus: Sequence[int] | None, beat: str, asked_s: float | None) -> None:
        """Begin a job of this worker: save it to disk, let Redis forget its entry, and have it prepared.

        `asked_s`: when Redis was asked for it; None if that is not known.
        """
        try:
            task = read_task(taken.task)
            self._check_place(taken, task)
        except BadTask as error:
            log.warning("%s cannot be run: %s", taken.job, error)
            report = {"state": "LOST", "reason": f"worker {self.worker}: {error}"}
            await self.pool.sync(self.worker, beat, [(taken.job, "", report)])
            await self.pool.keep(taken)
            return
        if task.job.gpus and gpus is None:
            gpus = await self.gpus.choose(task.job.gpus, self.holdings.booked) or ()
        attempt = WorkerAttempt(task, self.folder, gpus)
        attempt.save(taken.task)
        self.holdings.hold(attempt, NO_LEASE if asked_s is None else Lease.begin(asked_s, task.period_s))
        self.prepare(attempt)
        await self.pool.keep(taken)

    def _check_place(self, taken: ClaimedJob, task: WorkerTask) -> None:
        """Check that a task is of its job, and writes into no other job's folder. Raises: BadTask."""
        path = WorkerAttempt(task, self.folder, None).path
        others = [other for name, other in self.holdings.attempts.items() if name != task.name]
        if taken.job != task.name or any(other.path == path for other in others):
            raise BadTask("the task is another job's")

    def prepare(self, attempt: WorkerAttempt) -> None:
        """Have its keeper started. Returns at once."""
        work = asyncio.get_running_loop().create_task(self._start(attempt), name=f"start of {attempt.name}")
        self._preparing[attempt.name] = work
        work.add_done_callback(lambda _: self._note_prepared(attempt))

    def _note_prepared(self, attempt: WorkerAttempt) -> None:
        self._preparing.pop(attempt.name, None)
        self.changed()

    async def _start(self, attempt: WorkerAttempt) -> None:
        """Start a keeper. Errors are reported with the job, which is then tried elsewhere."""
        why = ""
        try:
            await asyncio.wait_for(self._start_keeper(attempt), _PREPARE_S)
        except asyncio.TimeoutError:
            why = "the preparation took too long"
        except (NniliteError, OSError, TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
            # Anyone with the pool's password may have written this task, so its specification may hold anything.
            why = str(error) or type(error).__name__
        if why:
            attempt.failure = f"the trial could not be prepared on worker {self.worker}: {why}"
            log.warning("%s: %s", attempt.name, attempt.failure)

    async def _start_keeper(self, attempt: WorkerAttempt) -> None:
        files = files_of(self.pool, attempt.task.files)
        keeper = await self._get(attempt, files, attempt.task.keeper, f"{attempt.task.keeper}.pyz")
        if attempt.task.code_storage is not None:
            attempt.step = "the worker is getting the code from the shared storage"
            await self.cache.take_stored(attempt.task.code, keeper, attempt.task.code_storage)
        archive = await self._get(attempt, files, attempt.task.code, attempt.task.code)
        checkpoints = None
        if attempt.task.checkpoint_s:
            attempt.step = "the worker is getting the checkpoints"
            await self.checkpoints.fetch(attempt.task, files)
            checkpoints = self.checkpoints.place(attempt.task)
        # This process may have been stopped meanwhile, and the job tried elsewhere.
        attempt.step = "the worker is waiting for an answer from Redis"
        while not self.holdings.lease[attempt.name].valid and not attempt.asked:
            await asyncio.sleep(_LOOK_S)
        if not attempt.asked:
            attempt.write_spec(archive, self.address(), self.folder / "callback", checkpoints)
            attempt.start(keeper)

    async def _get(self, attempt: WorkerAttempt, files: Files, name: str, file: str) -> Path:
        """Fetch a file into the cache; ask its manager for one that is missing. Raises: ConfigError, OSError."""
        attempt.step = "the worker is getting the code"
        while not attempt.asked:
            try:
                if await self.cache.fetch(name, file, files):
                    break
                await self.mail.ask(
                    name_manager_party(attempt.task.job.experiment), PoolMessage({"do": "provide"}), LIMIT_S
                )
            except ConfigError:
                raise
            except ServiceError as error:
                attempt.step = f"the worker cannot get the code: {error}"
            await asyncio.sleep(_TRY_AGAIN_S)
        return self.cache.place(file)

    async def close(self) -> None:
        """Stop preparing jobs: the next worker in this folder starts again."""
        await end_tasks(self._preparing.values())
