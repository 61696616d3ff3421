"""Run a worker: take jobs from the pool's queue and run them, until it is stopped.

In rounds of two seconds at most: report the worker and its jobs to Redis, learn which of them were canceled, taken away
or removed, and take new ones while processors are free. A lease runs from the beginning of each round that Redis has
answered: see `guard` for what happens to trials when no round succeeds any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnilite.errors import ConfigError, Conflict, NniliteError
from nnilite.records import Json
from nnilite.services.gpu import GpuRules
from nnilite.services.task_ends import end_tasks
from nnilite.services.worker_side import is_made_by_others, is_there
from nnilite_redis._api import Pool, Synced
from nnilite_redis._connection import RedisAddress
from nnilite_redis._convert import DRAINING, UP, make_host_label
from nnilite_redis._keys import name_manager_party, name_worker_party
from nnilite_redis._mailbox import Mailbox, PoolMessage
from nnilite_redis._worker import guard
from nnilite_redis._worker.attempt import CANCEL, STOP, WorkerAttempt, list_attempts
from nnilite_redis._worker.checkpoints import Checkpoints
from nnilite_redis._worker.file_cache import FileCache
from nnilite_redis._worker.gpus import WorkerGpus
from nnilite_redis._worker.held_attempts import HeldAttempts
from nnilite_redis._worker.intake import Intake
from nnilite_redis._worker.leases import NO_LEASE, Lease
from nnilite_redis._worker.proxy import Proxy
from nnilite_redis._worker.request_handlers import Handlers
from nnilite_redis._worker.task import BadTask

log = logging.getLogger(__name__)

BEAT_S = 2.0
_BEATS_A_PERIOD = 6
_LOOK_S = 0.05
_PAUSE_S = 0.02
_LOCK_S = 3.0
_LAST_WORDS_S = 15.0


@dataclass(frozen=True)
class WorkerOptions:
    """How a worker takes part."""

    address: RedisAddress
    prefix: str
    folder: Path
    name: str = ""  # if not given: the one stored in the folder, or a new one
    processors: int = 2
    labels: Sequence[str] = ()
    gpus: GpuRules = field(default_factory=GpuRules)
    drain_limit_s: float | None = None  # how long running trials may take after it was told to stop


async def run_worker(options: WorkerOptions) -> int:
    """Work until stopped; return the exit code. Raises: ConfigError, Conflict, ServiceError, OSError."""
    is_new = not options.folder.is_dir()
    options.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if is_made_by_others(str(options.folder), is_new):
        raise ConfigError(
            f"--folder: {options.folder}, or a folder above it, is another user's, who could replace what trials run; "
            "name another one"
        )
    with _hold_lock(options.folder):
        return await Worker(options, _name(options.folder, options.name)).run()


class Worker:
    """Call `run`, which works until it is stopped. One worker works in a folder at a time."""

    def __init__(self, options: WorkerOptions, name: str) -> None:
        folder = options.folder
        self.id = name
        self._options = options
        self._labels = frozenset((*options.labels, make_host_label(socket.gethostname())))
        self._wakeup = asyncio.Event()
        self._chores: set[asyncio.Task[Any]] = set()
        self._session = secrets.token_hex(4)
        self._rounds = 0
        self._recover = True  # Redis may know things that we do not: the answer of a call was lost
        self._trouble = ""
        self._slotless: set[str] = set()  # the jobs that wait for a slot again
        self._states: dict[str, Json] = {}  # last states reported to the managers, by job
        self._stop_asked = 0
        self._end_by: float | None = None
        self._pool = Pool(options.address, options.prefix)
        self._checkpoints = Checkpoints(folder)
        self._holdings = HeldAttempts(folder, self._checkpoints)
        self._gpus = WorkerGpus(options.gpus)
        self._handlers = Handlers(self._pool, self._holdings, self._checkpoints, folder, name, look=self._wakeup.set)
        self._mail = Mailbox(self._pool, name_worker_party(name), self._handlers.serve)
        self._proxy = Proxy(lambda job, message: self._handlers.hand_on(self._mail, job, message), self._holdings.token)
        self._intake = Intake(
            pool=self._pool,
            mail=self._mail,
            holdings=self._holdings,
            checkpoints=self._checkpoints,
            gpus=self._gpus,
            cache=FileCache(folder / "cache"),
            folder=folder,
            worker=name,
            processors=options.processors,
            labels=self._labels,
            address=lambda: self._proxy.url,
            changed=self._wakeup.set,
        )

    # ------------------------------------------------------------ from start to end

    async def run(self) -> int:
        """Work until stopped; return the exit code. Raises: ConfigError, Conflict, ServiceError, OSError."""
        try:
            await self._pool.check()
            await self._start()
            await self._work()
            await self._leave()
        finally:
            await self._close()
        return 0

    async def _start(self) -> None:
        """Begin, or continue where an earlier worker of this folder stopped.

        Raises: Conflict, ServiceError, OSError.
        """
        await self._check_name()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._handle_stop)
        self._proxy.start()
        self._write_address()
        self._adopt()
        await self._mail.clear()
        await self._gpus.look()
        for work in (self._mail.run(self._wakeup.set), self._look()):
            self._start_chore(work)
        log.info("worker %s joins the pool %s at %s", self.id, self._options.prefix, self._options.address.title)

    async def _check_name(self) -> None:
        """Check the name: two workers of one name would take each other's messages. Raises: Conflict, ServiceError."""
        before = await self._read_beat_of_namesake()
        if before:
            await asyncio.sleep(1.5 * BEAT_S)
            if await self._read_beat_of_namesake() != before:
                raise Conflict(f"a worker {self.id!r} has joined already: give this one another name (--name)")

    async def _read_beat_of_namesake(self) -> str:
        return next((worker.beat for worker in await self._pool.workers() if worker.id == self.id), "")

    def _write_address(self) -> None:
        draft = self._options.folder / ".callback.new"
        draft.write_text(self._proxy.url, "ascii")
        draft.replace(self._options.folder / "callback")

    def _adopt(self) -> None:
        """Adopt trials that an earlier worker started, or whose last events are undelivered. Raises: OSError."""
        for path in list_attempts(self._options.folder):
            try:
                attempt = WorkerAttempt.found(path, self._options.folder)
            except BadTask as error:
                log.warning("ignoring %s: %s", path, error)
                continue
            if attempt is None:
                continue
            self._holdings.attempts[attempt.name] = attempt
            self._holdings.lease[attempt.name] = NO_LEASE  # until Redis has said that it is still ours
            if not attempt.begun:
                self._intake.prepare(attempt)

    def _handle_stop(self) -> None:
        """Handle a stop. The first time: take no more, finish what runs. The second time: end what runs."""
        self._stop_asked += 1
        if self._stop_asked == 1:
            running = len(self._holdings.live)
            log.info("stopping: no new trials, waiting for %d running ones (stop again to end them)", running)
            limit_s = self._options.drain_limit_s
            self._end_by = None if limit_s is None else time.monotonic() + limit_s
        else:
            self._end_by = time.monotonic()
        self._wakeup.set()

    async def _leave(self) -> None:
        """Send the last report. What could not be sent is in the folder for the next worker there."""
        try:
            await self._round()
            await self._pool.leave(self.id)
        except (NniliteError, OSError) as error:
            log.warning("cannot report to Redis that this worker leaves: %s", error)
        log.info("worker %s has left", self.id)

    async def _close(self) -> None:
        await end_tasks(self._chores)
        await self._intake.close()
        await self._mail.close()
        await self._proxy.close()
        await self._pool.close()

    def _start_chore(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    # ------------------------------------------------------------ rounds

    async def _work(self) -> None:
        """Work in rounds, until there is nothing more to do."""
        while not self._is_done():
            began = time.monotonic()
            try:
                await self._round()
                if self._trouble:
                    log.info("Redis at %s answers again", self._options.address.title)
                self._trouble = ""
            except (NniliteError, OSError) as error:
                self._note_trouble(error)
            await asyncio.sleep(_PAUSE_S)
            left_s = self._heartbeat_interval_s - (time.monotonic() - began)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wakeup.wait(), max(left_s, 0.0))
            self._wakeup.clear()

    @property
    def _heartbeat_interval_s(self) -> float:
        """Return the time between beats: some beats must fit into the shortest period of any manager."""
        periods = [attempt.task.period_s for attempt in self._holdings.live]
        return min([BEAT_S, *(period_s / _BEATS_A_PERIOD for period_s in periods)])

    def _note_trouble(self, error: Exception) -> None:
        """Redis or the disk is unavailable. Keep the state; report everything again afterwards."""
        self._recover = True
        if str(error) != self._trouble:
            log.warning("%s", error)
        self._trouble = str(error)

    def _is_done(self) -> bool:
        """Return whether the worker was stopped and may leave: nothing runs any more, and all is delivered."""
        if not self._stop_asked:
            return False
        over_s = 0.0 if self._end_by is None else time.monotonic() - self._end_by
        if over_s > 0:
            for attempt in self._holdings.live:
                attempt.ask(STOP)
        if self._holdings.live or self._intake.busy:
            return False
        return not self._holdings.kept or over_s > _LAST_WORDS_S

    async def _round(self) -> None:
        """Do one round of work. Raises: NniliteError where Redis does not answer; OSError."""
        began_s = guard.now_s()
        self._rounds += 1
        beat = f"{self._session}-{self._rounds}"
        about = await self._pool.beat(self.id, beat, self._facts(), self._holdings.experiments)
        mine = [attempt for attempt in self._holdings.attempts.values() if attempt.task.job.experiment in about]
        reports = [(a.name, a.task.job.experiment, a.report()) for a in mine]
        for attempt, answer in zip(mine, await self._pool.sync(self.id, beat, reports), strict=True):
            closed = about[attempt.task.job.experiment].get("closed") == "1"
            await self._apply(attempt, answer, closed, began_s)
        self._holdings.write_leases()
        self._holdings.sweep()
        await self._tell_managers(reports)
        if self._recover:
            await self._intake.take_pending(beat)
            self._recover = False
        if not self._stop_asked:
            await self._intake.take_all(beat)

    def _facts(self) -> dict[str, Json]:
        return {
            "host": socket.gethostname(),
            "processors": self._options.processors,
            "running": len(self._holdings.live),
            "gpus": self._gpus.count,
            "labels": sorted(self._labels),
            "state": DRAINING if self._stop_asked else UP,
            "trouble": self._checkpoints.trouble,
        }

    async def _apply(self, attempt: WorkerAttempt, answer: Synced, closed: bool, began_s: float) -> None:
        """Apply what Redis says of a job."""
        if answer.waits and attempt.name not in self._slotless:
            log.warning("pausing %s: its slot went to another trial while this worker was silent", attempt.name)
        (self._slotless.add if answer.waits else self._slotless.discard)(attempt.name)
        if answer.fenced:
            log.warning("ending %s: it was taken away while this worker was silent", attempt.name)
            self._holdings.fence(attempt)
            return
        if not answer.waits:
            self._holdings.lease[attempt.name] = Lease.begin(began_s, attempt.task.period_s)
        if answer.cancel:
            attempt.ask(CANCEL)
        if answer.removed and attempt.over:
            attempt.release()
            if attempt.removed and closed:
                attempt.clean()
                await self._pool.forget(attempt.name)
                self._holdings.forget(attempt)

    async def _tell_managers(self, reports: Sequence[tuple[str, str, Json]]) -> None:
        """Report changes to the managers, so that they need not ask all the time."""
        states = {job: report["state"] for job, _, report in reports}
        changed = {experiment for job, experiment, _ in reports if states[job] != self._states.get(job)}
        self._states = states
        for experiment in sorted(changed):
            await self._mail.tell(name_manager_party(experiment), PoolMessage({"do": "changed"}))

    async def _look(self) -> None:
        """Start a round at once when something changes; and store what trials save for other workers."""
        states: dict[str, Json] = {}
        while True:
            await asyncio.sleep(_LOOK_S)
            now = {name: attempt.report()["state"] for name, attempt in self._holdings.attempts.items()}
            if now != states:
                states = now
                self._wakeup.set()
            for attempt in self._holdings.live:
                try:
                    await self._look_after(attempt)
                except OSError as error:  # a disk in trouble; all are looked at again soon
                    log.debug("%s cannot be looked after now: %s", attempt.name, error)

    async def _look_after(self, attempt: WorkerAttempt) -> None:
        """Kill an attempt that does not obey, and store what it has saved. Raises: OSError."""
        if attempt.is_overdue():
            await asyncio.to_thread(attempt.kill_unresponsive)
        if attempt.task.checkpoint_s and attempt.begun and self._checkpoints.is_due(attempt.task):
            self._start_chore(self._handlers.save_checkpoints(attempt))


def _name(folder: Path, given: str) -> str:
    """Return a worker's id: the same after a restart in this folder. Raises: OSError."""
    place = folder / "name"
    name = given or (place.read_text("utf-8").strip() if is_there(place) else "")
    name = name or f"{socket.gethostname()}-{secrets.token_hex(2)}"
    place.write_text(name, "utf-8")
    return name


@contextlib.contextmanager
def _hold_lock(folder: Path) -> Iterator[None]:
    """Lock the folder for one worker at a time. Raises: Conflict, OSError."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _LOCK_S  # the guard asks for it, for a moment each time
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    where = f"another worker works in {folder}"
                    raise Conflict(f"{where}: stop it, or give this one a folder of its own (--folder)") from None
            time.sleep(_PAUSE_S)
        yield
    finally:
        os.close(lock)
