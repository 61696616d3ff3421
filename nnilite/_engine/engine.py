"""The one task that owns all trials.

In each round the engine takes all inputs that have come, asks the rules about each, commits all records in one
transaction, answers the callers that wait for the commit, and then acts. Inputs that come during a commit are committed
together by the next one, so that commits grow with the load. Two tasks act for the engine, each on its own queue: one
calls the tuner host, the other (the service caller) the training service. Their results come back as inputs.

Only the tuner learns of a step while its commit is under way. Its process ends with the manager, without saving its
state where that commit never was. The next process receives what was committed, and its answers are committed after
that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nnilite._engine import messages
from nnilite._engine.dedupe import JobKey
from nnilite._engine.gate import BatchAnswer, EventGate, EventStore
from nnilite._engine.live_trial import ActiveTrial
from nnilite._engine.placement_notes import LivePlacementNotes
from nnilite._engine.rules import Rules
from nnilite._engine.service_caller import ServiceCaller, WakeSignal
from nnilite._engine.tuner_slowness import TunerSlowness
from nnilite._engine.usage_reports import UsageReports
from nnilite.errors import ConfigError, NniliteError, ServiceError, StoreError, TunerError
from nnilite.records import Attempt, ExperimentState, Json, KeeperEvent, Trial, Used
from nnilite.service import Job, TrainingService
from nnilite.services.task_ends import end_tasks

log = logging.getLogger(__name__)

CLEANUP_S = 1.0  # time that a canceled task of the manager has to end
_MOST_CALLS = 100  # calls of the tuner sent at once
_TICK_S = 1.0
_LATER_S = 0.05  # how long an input without an impatient caller may wait for others
# A longer time between two ticks means that the process was stopped or suspended meanwhile.
_LONGEST_TICK_S = 3.0
_STORE_RETRY_S = 2.0
# How long a stop waits for the platforms, after the time that the trials themselves have to end.
_ABANDON_AFTER_S = 30.0


class EngineStore(EventStore, Protocol):
    """Where the engine commits (the store, in a thread of its own)."""

    async def commit(self, records: Sequence[messages.Record]) -> None:
        """Write the records in one transaction. Raises: StoreError, whose `busy` says whether trying again may help."""


class TunerCalls(Protocol):
    """The tuner host. It makes calls in their order, and each may raise TunerError."""

    stop_reason: str
    """Why the assessor would stop the trial of the latest answer; "" if it says nothing."""

    async def open(self, after: int) -> bool: ...

    def answers(self, actions: Sequence[messages.TunerCall]) -> AsyncGenerator[Any, None]:
        """Yield the answer to each as it comes."""


class Watcher(Protocol):
    """Is notified of all records that were committed."""

    def committed(self, records: Sequence[messages.Record]) -> None: ...


@dataclass
class _Entry:
    message: messages.Input
    # Called when the input is committed.
    taken: Callable[[], None] | None = None
    done: asyncio.Future[bool] | None = None

    def finish(self, outcome: messages.Outcome) -> None:
        if self.taken is not None and not outcome.too_late:
            self.taken()
        if self.done is not None and not self.done.done():
            self.done.set_result(not outcome.too_late)


class Clock:
    """Wall time that never goes back during the manager's life, whatever happens to the machine's clock."""

    def __init__(self) -> None:
        self._epoch, self._started = time.time(), _read_since_boot()

    def __call__(self) -> float:
        return self._epoch + _read_since_boot() - self._started


def _read_since_boot() -> float:
    """Return the seconds since boot, including time in suspension; Linux leaves it out of `time.monotonic`."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


@dataclass(frozen=True)
class EngineParts:
    """What the engine works with."""

    rules: Rules
    store: EngineStore
    tuner: TunerCalls
    service: TrainingService
    watcher: Watcher
    job: Callable[[Trial, Attempt], Job]
    new_id: Callable[[], str]
    clock: Clock
    wake: WakeSignal
    grace_s: float = 10.0
    follow: Collection[str] = ()  # the services whose trials report by their logs
    output_cap_bytes: int = 0  # the size to which keepers cut each stream of output; 0: they do not
    ranks: int = 0  # processes of a distributed trial; 0 for others


class Engine:
    """Owns all trials while `run` runs. The other methods may be called on the event loop at any time."""

    def __init__(self, parts: EngineParts) -> None:
        self.rules = parts.rules
        self.commits_held_up = ""  # why, "" if they are not
        self._parts = parts
        self._inbox: list[_Entry] = []
        self._wakeup = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None  # wakes for inputs that are not urgent
        self._retry = asyncio.Event()
        self._closed = False
        self.uses = UsageReports(parts.rules.live)
        self.gate = EventGate(parts.store, self, parts.output_cap_bytes, parts.ranks)
        self._tuner_queue: asyncio.Queue[messages.TunerCall] = asyncio.Queue()
        self.slowness = TunerSlowness(self.now)
        self.notes = LivePlacementNotes(parts.rules, parts.clock, lambda message: self._enter(_Entry(message)))
        self.caller = ServiceCaller(parts.service, self, parts.job, parts.wake, parts.follow)
        self._share_slots_again()

    # ------------------------------------------------------------ what others call

    @property
    def trouble(self) -> str:
        """Why commits, or the output of trials, are held up; "" if they are not."""
        return self.commits_held_up or self.gate.trouble

    def now(self) -> float:
        return self._parts.clock()

    def commit_again(self) -> None:
        """Try a commit that is held up at once: something was done about it."""
        self._retry.set()

    def put(self, message: messages.Input, *, soon: bool = True) -> None:
        """Accept an input without waiting for it.

        One that is not urgent is committed together with the next one, or after a moment.
        """
        self._inbox.append(_Entry(message))
        if soon:
            self._wakeup.set()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(_LATER_S, self._wakeup.set)

    async def do(self, message: messages.Input) -> None:
        """Accept an input and wait until its records are committed. Raises: ServiceError after the engine's end."""
        await self._enter(_Entry(message))

    async def _enter(self, entry: _Entry) -> bool:
        if self._closed:
            raise _ending()
        entry.done = asyncio.get_running_loop().create_future()
        self._inbox.append(entry)
        self._wakeup.set()
        return await entry.done

    async def commit_events(
        self, trial: str, attempt: int, events: Sequence[KeeperEvent], over_gaps: bool = False
    ) -> BatchAnswer:
        """Commit the new ones among the events of a keeper: see `EventGate.commit_events`."""
        return await self.gate.commit_events((trial, attempt), events, over_gaps)

    def live_trial(self, trial: str) -> ActiveTrial | None:
        return self.rules.live.get(trial)

    def used(self, key: JobKey, used: Used) -> None:
        self.uses.record(key, used, self.now())

    def stuck(self) -> list[ActiveTrial]:
        """Return the trials that have waited in the queue of one service for longer than `moveAfter`."""
        return self.rules.stuck()

    async def commit(self, message: messages.LiveEvents | messages.LateEvents, taken: Callable[[], None]) -> bool:
        """Accept events, and call `taken` once they are committed.

        Return False if they came too late for that trial.
        """
        return await self._enter(_Entry(message, taken))

    def submitted(self) -> list[Attempt]:
        """Return the attempts that the training service has."""
        found = (live.attempt for live in self.rules.live.values())
        return [attempt for attempt in found if attempt is not None and attempt.handle is not None]

    def is_live(self, attempt: Attempt) -> bool:
        """Return whether the attempt has no known end yet."""
        live = self.rules.live.get(attempt.trial)
        return live is not None and live.trial.attempt == attempt.number

    def is_delivering(self, attempt: Attempt) -> bool:
        """Return whether new events of this attempt came in the last few seconds."""
        live = self.rules.live.get(attempt.trial)
        return live is not None and live.trial.attempt == attempt.number and self.rules.is_delivering(live)

    # ------------------------------------------------------------ the rounds

    async def run(self) -> None:
        """Work until the experiment is STOPPED and cleaned up. Raises: StoreError if the database is beyond use."""
        for live in self.rules.live.values():
            # The last manager may have ended between recording the cancellation and calling the service.
            if (live.cancel is not None or live.drilled) and live.attempt is not None:
                self.caller.put(messages.Cancel(live.attempt))
        caller = asyncio.create_task(self.caller.run())
        works = (self._keep_calling_tuner(), self._send_ticks(), self._rounds())
        tasks = [caller, *map(asyncio.create_task, works)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            self.caller.finish()
            await asyncio.wait([caller], timeout=_ABANDON_AFTER_S)
            await self._round([entry for entry in self._inbox if isinstance(entry.message, messages.Removed)])
        finally:
            await end_tasks(tasks, CLEANUP_S)

    def _share_slots_again(self) -> None:
        """Repeat to the service the limits that the user has changed under an earlier manager."""
        settings = self.rules.settings
        if (settings.max_slots, settings.priority) == (None, None):
            return
        try:
            self.caller.share_slots(settings.max_slots, settings.priority)
        except NniliteError as error:
            log.warning("using maxSlots and priority from the config, without later changes: %s", error)

    async def _rounds(self) -> None:
        while not self.rules.finished:
            await self._wakeup.wait()
            self._wakeup.clear()
            if self._later is not None:
                self._later.cancel()
                self._later = None
            entries, self._inbox = self._inbox, []
            await self._round(entries)
            if self.rules.state is ExperimentState.STOPPED:
                self.caller.expedite_removals()
        self._closed = True
        for entry in self._inbox:
            if entry.done is not None and not entry.done.done():
                entry.done.set_exception(_ending())

    async def _round(self, entries: list[_Entry]) -> None:
        outcomes = [self.rules.step(entry.message) for entry in entries]
        records = [record for outcome in outcomes for record in outcome.records]
        actions = [action for outcome in outcomes for action in outcome.actions]
        calls: list[messages.ServiceCall] = []
        for action in actions:
            if isinstance(action, messages.ServiceCall):
                calls.append(action)
            else:
                self.slowness.queued(action)
                self._tuner_queue.put_nowait(action)
        if records:
            await self._commit(records)
        for entry, outcome in zip(entries, outcomes, strict=True):
            entry.finish(outcome)
        for call in calls:
            if isinstance(call, messages.Submit) and call.new:
                self.gate.begin((call.trial.id, call.attempt.number))
            self.caller.put(call)

    async def _commit(self, records: list[messages.Record]) -> None:
        """Try until it succeeds: a full disk or a locked file pauses the experiment but does not end it."""
        while True:
            try:
                await self._parts.store.commit(records)
            except StoreError as error:
                if not error.busy:
                    raise
                if str(error) != self.commits_held_up:
                    log.error("paused: %s", error)
                self.commits_held_up = str(error)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._retry.wait(), _STORE_RETRY_S)
                self._retry.clear()
            else:
                if self.commits_held_up:
                    log.info("no longer paused")
                self.commits_held_up = ""
                self._parts.watcher.committed(records)
                return

    async def _send_ticks(self) -> None:
        """Send the rules the time, and how much of it this manager could receive reports.

        While its process was stopped, its machine suspended or a commit held up by the disk, it received none. Such
        time must not count as a trial's silence.
        """
        last, lived, stopping_for = self.now(), 0.0, 0.0
        # The ServiceError says that the experiment has stopped.
        with contextlib.suppress(ServiceError):
            while True:
                await asyncio.sleep(_TICK_S)
                now = self.now()
                since = min(max(now - last, 0.0), _LONGEST_TICK_S)
                last, lived = now, lived + since
                for key in self.gate.waiting():
                    self.rules.record_life(*key)
                await self.do(messages.Tick(now, lived))
                stopping_for += since if self.rules.state is ExperimentState.STOPPING else 0.0
                if stopping_for > self._parts.grace_s + _ABANDON_AFTER_S:
                    await self.do(messages.Abandon(now))
        await asyncio.Event().wait()

    # ------------------------------------------------------------ the tuner

    async def _keep_calling_tuner(self) -> None:
        """Call the tuner host, in the order of the rules' actions."""
        try:
            hears = await self._parts.tuner.open(self.rules.calls)
            self.put(messages.TunerReady(hears))
            while True:
                await self._call_tuner(await self._take_next_calls())
        except (TunerError, ConfigError) as error:
            log.error("%s", error)
            self.put(messages.TunerFailed(str(error)))
        # Without a tuner, the running trials may still continue to their ends.
        await asyncio.Event().wait()

    async def _take_next_calls(self) -> list[messages.TunerCall]:
        """Return all waiting calls up to the next question for parameters.

        These are committed before another call is made.
        """
        actions = [await self._tuner_queue.get()]
        while not (isinstance(actions[-1], messages.Ask) or len(actions) == _MOST_CALLS or self._tuner_queue.empty()):
            actions.append(self._tuner_queue.get_nowait())
        return actions

    async def _call_tuner(self, actions: list[messages.TunerCall]) -> None:
        waiting = iter(actions)
        self.slowness.sent(actions)
        async with contextlib.aclosing(self._parts.tuner.answers(actions)) as answers:
            async for answer in answers:
                action = next(waiting)
                self.slowness.answered(action)
                if isinstance(action, messages.Assess):
                    self.put(
                        messages.Assessed(
                            action.trial, action.attempt, bool(answer), self.now(), self._parts.tuner.stop_reason
                        )
                    )
                elif isinstance(action, messages.Ask):
                    # A ServiceError means that the experiment has stopped, so the answers are no longer needed.
                    with contextlib.suppress(ServiceError):
                        # A tuner that dies at the next call is rebuilt from the committed history, these included.
                        await self.do(self._proposed(action, answer))

    def _proposed(self, ask: messages.Ask, parameters: list[Json]) -> messages.Proposed:
        ids = ask.parameter_ids
        proposals = tuple((number, self._parts.new_id(), p) for number, p in zip(ids, parameters, strict=False))
        return messages.Proposed(proposals, len(ids), self.now())


def _ending() -> ServiceError:
    """Return the error for inputs after the end.

    Nothing is committed any more, so nothing may be acknowledged either.
    """
    return ServiceError("the experiment has stopped and its manager ends")
