"""The one task that owns all trials.

Round after round: take all inputs that have come, ask the rules about each, commit the records of all in one
transaction, answer those who wait for it, then act. While a commit is under way further inputs gather, so that the
commits grow with the load. Two tasks act for the engine, each on its own queue: one calls the tuner host, one (the
service desk) the training service; what they learn comes back as inputs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from nnilite._manager import steps as s
from nnilite._manager.intake import Cursor, Cursors, JobKey, Superseded, fresh
from nnilite._manager.rules import Rules
from nnilite._manager.service_desk import ServiceDesk
from nnilite._manager.tuner_host import TunerHost
from nnilite.errors import ServiceError, StoreError, TunerError
from nnilite.records import Attempt, ExperimentState, Json, KeeperEvent, Output, Trial, TrialState
from nnilite.service import Job, TrainingService

log = logging.getLogger(__name__)

_CANCELED = (TrialState.USER_CANCELED, TrialState.SYS_CANCELED, TrialState.EARLY_STOPPED)
_CANCELS = 5
_TICK_S = 1.0
_STORE_RETRY_S = 2.0
_ABANDON_AFTER_S = 30.0  # beyond the grace of the trials themselves


class Ledger(Protocol):
    """Where the engine commits (the store, in a thread of its own)."""

    async def commit(self, records: Sequence[s.Record]) -> None:
        """Raises: StoreError; `busy` tells whether trying again may help."""

    async def recall(self, key: JobKey) -> tuple[Trial, Attempt, Cursor] | None:
        """A trial, its attempt of that number and what was taken of it."""

    async def append_output(self, key: JobKey, chunks: Sequence[Output]) -> None:
        """Write output at its place in the trial's folder."""


class Watcher(Protocol):
    """Who is told of what was committed."""

    def committed(self, records: Sequence[s.Record]) -> None: ...


@dataclass(frozen=True)
class Taken:
    """The answer to a batch of events."""

    cancel: bool
    metrics: int
    output: dict[str, int]


@dataclass
class _Entry:
    given: s.Input | None
    done: asyncio.Future[None] | None


class Clock:
    """Wall time that never goes back while the manager lives, whatever happens to the machine's clock."""

    def __init__(self) -> None:
        self._epoch, self._started = time.time(), time.monotonic()

    def __call__(self) -> float:
        return self._epoch + time.monotonic() - self._started


@dataclass(frozen=True)
class Parts:
    """What the engine works with."""

    rules: Rules
    ledger: Ledger
    tuner: TunerHost
    service: TrainingService
    watcher: Watcher
    job: Callable[[Trial, Attempt], Job]
    new_id: Callable[[], str]
    clock: Clock
    grace_s: float = 10.0
    follow: bool = False  # `callback: log`


async def end_tasks(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel until they have ended: a plugin, or `wait_for` before Python 3.12, may swallow a cancellation."""
    pending = set(tasks)
    for _ in range(_CANCELS):
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=1.0)
        if not pending:
            return
    log.warning("%d tasks do not end", len(pending))


class Engine:
    """`run` until the experiment has stopped; all else may be called on the event loop at any time."""

    def __init__(self, parts: Parts) -> None:
        self.rules = parts.rules
        self.trouble = ""  # why commits are held up, "" if they are not
        self._parts = parts
        self._inbox: list[_Entry] = []
        self._wakeup = asyncio.Event()
        self._closed = False
        self._cursors = Cursors()
        self._tuner_queue: asyncio.Queue[s.Ask | s.Tell | s.Assess | s.AssessEnd] = asyncio.Queue()
        self.desk = ServiceDesk(parts.service, self, parts.job, parts.follow)

    # ------------------------------------------------------------ what others call

    def now(self) -> float:
        return self._parts.clock()

    def put(self, given: s.Input) -> None:
        """Hand over an input without waiting for it."""
        self._inbox.append(_Entry(given, None))
        self._wakeup.set()

    async def do(self, given: s.Input) -> None:
        """Hand over an input and wait until what it led to is committed. Raises: ServiceError when it has stopped."""
        await self._enter(given)

    async def flush(self) -> None:
        """Wait until all that was handed over before is committed."""
        await self._enter(None)

    async def _enter(self, given: s.Input | None) -> None:
        if self._closed:
            raise _ending()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._inbox.append(_Entry(given, done))
        self._wakeup.set()
        await asyncio.shield(done)

    async def take(self, trial: str, attempt: int, events: Sequence[KeeperEvent]) -> Taken:
        """Commit the new ones among the events of a keeper. Raises: Superseded, OutOfStep."""
        key = (trial, attempt)
        live = self.rules.live.get(trial)
        if live is not None and live.trial.attempt != attempt:
            raise Superseded
        cursor = self._cursors.get(key)
        known = None
        if cursor is None or live is None:
            known = await self._recall(key)
            self._cursors.add(key, known[2])
            cursor = self._cursors.get(key) or known[2]
        news, chunks = fresh(cursor, events)
        if chunks:
            await self._parts.ledger.append_output(key, chunks)
        await self._hand_over(key, news, known)
        return Taken(self._is_unwanted(key, known), cursor.metrics, dict(cursor.output))

    def _is_unwanted(self, key: JobKey, known: tuple[Trial, Attempt, Cursor] | None) -> bool:
        """Whether the keeper is to end its trial: somebody asked for it, perhaps while its platform was away."""
        live = self.rules.live.get(key[0])
        if live is None:
            return known is not None and known[0].state in _CANCELED
        return live.trial.attempt == key[1] and live.cancel is not None

    async def _hand_over(
        self, key: JobKey, news: list[KeeperEvent], known: tuple[Trial, Attempt, Cursor] | None
    ) -> None:
        trial, attempt = key
        if trial in self.rules.live:
            await self.do(s.Told(trial, attempt, tuple(news), self.now()))
        elif news and known is not None:
            await self.do(s.Late(known[0], known[1], tuple(news), self.now()))
        else:
            await self.flush()  # duplicates are acknowledged when the originals are committed

    async def _recall(self, key: JobKey) -> tuple[Trial, Attempt, Cursor]:
        known = await self._parts.ledger.recall(key)
        if known is None or known[0].attempt != key[1]:
            raise Superseded
        return known

    def submitted(self) -> list[Attempt]:
        """The attempts that the training service has."""
        found = (live.attempt for live in self.rules.live.values())
        return [attempt for attempt in found if attempt is not None and attempt.handle is not None]

    # ------------------------------------------------------------ the rounds

    async def run(self) -> None:
        """Work until the experiment is STOPPED. Raises: StoreError if the database is beyond use."""
        for live in self.rules.live.values():
            if live.cancel is not None and live.attempt is not None:  # the last manager may not have come to it
                self.desk.put(s.Cancel(live.attempt))
        desk = asyncio.create_task(self.desk.run())
        works = (self._tuner_task(), self._tick_task(), self._rounds())
        tasks = [desk, *map(asyncio.create_task, works)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            self.desk.finish()
            await asyncio.wait([desk], timeout=_ABANDON_AFTER_S)
            await self._round([entry for entry in self._inbox if isinstance(entry.given, s.Removed)])
        finally:
            await end_tasks(tasks)

    async def _rounds(self) -> None:
        while self.rules.state is not ExperimentState.STOPPED:
            await self._wakeup.wait()
            self._wakeup.clear()
            entries, self._inbox = self._inbox, []
            await self._round(entries)
        self._closed = True
        for entry in self._inbox:
            if entry.done is not None and not entry.done.done():
                entry.done.set_exception(_ending())

    async def _round(self, entries: list[_Entry]) -> None:
        records: list[s.Record] = []
        actions: list[s.Action] = []
        for entry in entries:
            if entry.given is not None:
                outcome = self.rules.step(entry.given)
                records += outcome.records
                actions += outcome.actions
        if records:
            await self._commit(records)
        for entry in entries:
            if entry.done is not None and not entry.done.done():
                entry.done.set_result(None)
        for action in actions:
            self._act(action)

    async def _commit(self, records: list[s.Record]) -> None:
        """Until it is done: a full disk or a locked file pauses the experiment, it does not end it."""
        while True:
            try:
                await self._parts.ledger.commit(records)
            except StoreError as error:
                if not error.busy:
                    raise
                if str(error) != self.trouble:
                    log.error("paused: %s", error)
                self.trouble = str(error)
                await asyncio.sleep(_STORE_RETRY_S)
            else:
                if self.trouble:
                    log.info("no longer paused")
                self.trouble = ""
                self._parts.watcher.committed(records)
                return

    def _act(self, action: s.Action) -> None:
        if isinstance(action, (s.Submit, s.Cancel, s.Remove)):
            self.desk.put(action)
        else:
            self._tuner_queue.put_nowait(action)

    async def _tick_task(self) -> None:
        last, stopping_for = self.now(), 0.0
        while True:
            await asyncio.sleep(_TICK_S)
            now = self.now()
            self.put(s.Tick(now))
            stopping_for += now - last if self.rules.state is ExperimentState.STOPPING else 0.0
            if stopping_for > self._parts.grace_s + _ABANDON_AFTER_S:
                self.put(s.Abandon(now))
            last = now

    # ------------------------------------------------------------ the tuner

    async def _tuner_task(self) -> None:
        """Calls the tuner host, one call after the other, in the order of the rules' actions."""
        try:
            await self._parts.tuner.open(self.rules.calls)
            self.put(s.TunerReady())
            while True:
                await self._call_tuner(await self._tuner_queue.get())
        except TunerError as error:
            log.error("%s", error)
            self.put(s.TunerFailed(str(error)))
        await asyncio.Event().wait()  # without a tuner the running trials still end in good order

    async def _call_tuner(self, action: s.Ask | s.Tell | s.Assess | s.AssessEnd) -> None:
        tuner = self._parts.tuner
        if isinstance(action, s.Ask):
            found = await tuner.generate(action.parameter_ids, action.after)
            with contextlib.suppress(ServiceError):  # the experiment has stopped, nobody wants them any more
                # a tuner that dies at the next call is rebuilt from what is committed
                await self.do(self._proposed(action, found))
        elif isinstance(action, s.Tell):
            await tuner.tell(action.number, action.call)
        elif isinstance(action, s.Assess):
            good = await tuner.assess(action)
            self.put(s.Assessed(action.trial, action.attempt, good, self.now()))
        else:
            await tuner.assess_end(action.trial, action.success, action.after)

    def _proposed(self, ask: s.Ask, found: list[Json]) -> s.Proposed:
        ids = ask.parameter_ids
        proposals = tuple((number, self._parts.new_id(), p) for number, p in zip(ids, found, strict=False))
        return s.Proposed(proposals, len(ids), self.now())


def _ending() -> ServiceError:
    """Nothing is committed any more, so nothing may be acknowledged: who asks has to ask the next manager."""
    return ServiceError("the experiment has stopped and its manager ends")
