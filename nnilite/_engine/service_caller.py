"""The one task that calls the training service. It submits, cancels and polls, each within a time limit.

If the plugin hangs, raises or returns nonsense, the task turns that into an input for the rules and continues.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from nnilite._engine import messages as s
from nnilite._engine.call_queue import CallQueue, Scaling, Waiting
from nnilite._engine.guarded_calls import PluginFault, guarded
from nnilite._engine.hybrid import HybridService, PlacementNotes
from nnilite._engine.live_trial import Live
from nnilite._engine.report_reader import ReportReader
from nnilite.errors import CodeDirError, ConfigError, NniliteError, NoCapacity, PluginError, ServiceError
from nnilite.records import Attempt, KeeperEvent, Trial
from nnilite.service import Handle, Job, JobState, JobStatus, TrainingService
from nnilite.services.keeper_events import check_value

log = logging.getLogger(__name__)

T = TypeVar("T")

SUBMIT_TIMEOUT_S = 300.0  # may upload the code package first
ASKED_TIMEOUT_S = 15.0  # a person waits for the answer
POLL_EVERY_S = 5.0
_LONGEST_PAUSE_S = 60.0


class EngineInbox(Protocol):
    """What the service caller needs of the engine."""

    @property
    def notes(self) -> PlacementNotes:
        """The notes for a hybrid service."""

    def now(self) -> float: ...

    def put(self, message: s.Input, *, soon: bool = True) -> None:
        """Accept an input without waiting for it.

        One that is not urgent is taken with the next one, or later.
        """

    async def take(self, trial: str, attempt: int, events: Sequence[KeeperEvent], over_gaps: bool = False) -> object:
        """Accept events that the service read itself."""

    def stuck(self) -> list[Live]:
        """Return the trials that have waited in the queue of one service for longer than `moveAfter`."""

    def submitted(self) -> list[Attempt]:
        """Return the attempts that the service has, which are to be polled."""

    def is_live(self, attempt: Attempt) -> bool:
        """Return whether the attempt has no known end yet."""

    def is_delivering(self, attempt: Attempt) -> bool:
        """Return whether new events of this attempt came in the last few seconds."""


class WakeSignal:
    """Lets a service request a poll now. It is made on the event loop, before service and caller."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._polls = False

    def ring(self) -> None:
        """Ask for a poll. May be called from any thread."""
        self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        self._polls = True
        self.event.set()

    def take(self) -> bool:
        """Return whether `ring` was called since the last call of this method."""
        rung, self._polls = self._polls, False
        return rung


class ServiceCaller:
    """Owns the training service and makes all calls that may change something there."""

    def __init__(
        self,
        service: TrainingService,
        inbox: EngineInbox,
        job: Callable[[Trial, Attempt], Job],
        wake: WakeSignal,
        follow: Collection[str] = (),
    ) -> None:
        self.service = service
        if isinstance(service, HybridService):
            service.notes = inbox.notes
        self._follow = follow  # services whose trials report by their logs, which are read during the run, too
        self.trouble = ""  # why the last poll failed, "" if it did not
        self._inbox = inbox
        self._job = job
        self._reader = ReportReader(service, inbox)
        self._calls = CallQueue()
        self._wake = wake
        self._failures = 0
        self._open = False
        self._closing = False

    def put(self, action: s.ServiceCall) -> None:
        self._calls.put(action, asyncio.get_running_loop().time())
        self._wake.event.set()

    async def scale(self, handle: Handle, workers: int) -> None:
        """Change the number of workers of a job, in its turn among the other calls. Only the platform keeps the number.

        Raises: Conflict, NotFound, ServiceError, as the service says.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[None] = loop.create_future()
        self._calls.put(Scaling(handle, workers, answer), loop.time())
        self._wake.event.set()
        try:
            await asyncio.wait_for(answer, ASKED_TIMEOUT_S)
        except asyncio.TimeoutError:
            busy = f"{self.service.name} did not get to it within {ASKED_TIMEOUT_S:.0f} s; try again later"
            raise ServiceError(busy) from None

    def share_slots(self, limit: int | None, priority: int | None) -> None:
        """Change how the experiment shares slots with others: see `TrainingService.share_slots`.

        Raises: ConfigError if that can have no effect, ServiceError if the plugin fails.
        """
        try:
            self.service.share_slots(limit, priority)
        except NniliteError:
            raise
        # A plugin may raise anything, and a person waits for the answer.
        except Exception as error:
            log.exception("the training service %s failed", self.service.name)
            raise ServiceError(f"{self.service.name} failed with {type(error).__name__}: {error}") from error
        self._wake.ring()

    def finish(self) -> None:
        """Let `run` end once all calls are made."""
        self._closing = True
        self._calls.close(asyncio.get_running_loop().time())
        self._wake.event.set()

    async def open(self, *, resumed: bool = False) -> None:
        """Open the service. Raises: ConfigError if it can never work, ServiceError if it cannot work now."""
        service = self.service
        opening = service.open(resumed=resumed) if isinstance(service, HybridService) else service.open()
        await guarded(self.service.name, opening, SUBMIT_TIMEOUT_S)
        self._open = True

    async def run(self) -> None:
        """Work until `finish`."""
        try:
            await self._open_patiently()
            await self._work()
        finally:
            await self._reader.stop()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        next_poll = loop.time()
        while self._calls or not self._closing:
            # `wait_for` is not used: before Python 3.12 it can swallow a cancellation that comes with the wake-up.
            timer = loop.call_at(min(next_poll, self._calls.next_removal), self._wake.event.set)
            await self._wake.event.wait()
            timer.cancel()
            self._wake.event.clear()
            await self._make_calls()
            if self._wake.take() or loop.time() >= next_poll:
                await self._poll()
                next_poll = loop.time() + min(POLL_EVERY_S * 2**self._failures, _LONGEST_PAUSE_S)

    async def _open_patiently(self) -> None:
        """Try until the service can be opened: at a resume the platform may be unreachable while its jobs still run."""
        while not (self._open or self._closing):
            try:
                await self.open(resumed=True)
            except NniliteError as error:
                self.trouble = str(error)
                self._failures = min(self._failures + 1, 6)
                log.warning("%s cannot be opened: %s", self.service.name, error)
                await asyncio.sleep(min(2.0**self._failures, _LONGEST_PAUSE_S))
        self.trouble, self._failures = "", 0

    async def _make_calls(self) -> None:
        """Make the calls that wait and are due."""
        loop = asyncio.get_running_loop()
        while True:
            if submits := self._calls.submits(max(1, self.service.submits_at_once), loop.time()):
                await self._submit_in_turn(submits)
            elif call := self._calls.other(loop.time()):
                await self._do(call)
            else:
                return

    async def _do(self, call: Waiting) -> None:
        if isinstance(call, Scaling):
            await self._scale(call)
            return
        attempt, handle = call.attempt, call.attempt.handle
        if handle is None:
            return
        if isinstance(call, s.Cancel):
            await self._tell("cancel", attempt.trial, self.service.cancel(handle))
            return
        await self._reader.stop(attempt)
        done = await self._tell("clean up after", attempt.trial, self.service.remove(handle))
        self._inbox.put(s.Removed(attempt.trial, attempt.number, done, self._inbox.now()), soon=False)

    async def _remove_all(self) -> None:
        while call := self._calls.removal():
            await self._do(call)

    async def _submit_in_turn(self, actions: list[s.Submit]) -> None:
        # What is left of a trial's last attempt must not meet the next one.
        if any(action.attempt.number for action in actions):
            await self._remove_all()
        refused = [action for action in await asyncio.gather(*map(self._submit_once, actions)) if action is not None]
        if refused:
            # They may find the room that ended jobs still have.
            await self._remove_all()
        for action in refused:
            self._inbox.put(await self._submit(action))

    async def _submit_once(self, action: s.Submit) -> s.Submit | None:
        """Submit a job. Return the action if it is to be repeated after the waiting removals."""
        answer = await self._submit(action)
        if isinstance(answer, s.SubmitRefused) and answer.busy and self._calls.has_removals:
            return action
        self._inbox.put(answer, soon=isinstance(answer, s.SubmitRefused))
        return None

    async def _tell(self, what: str, trial: str, call: Awaitable[None]) -> bool:
        """Make a call without result. Return False if it failed."""
        try:
            await guarded(self.service.name, call)
        except NniliteError as error:
            log.warning("cannot %s trial %s: %s", what, trial, error)
            return False
        return True

    async def _submit(self, action: s.Submit) -> s.Submitted | s.SubmitRefused:
        trial, attempt = action.trial.id, action.attempt.number
        try:
            job = self._job(action.trial, action.attempt)
            handle = await guarded(self.service.name, self.service.submit(job), SUBMIT_TIMEOUT_S)
        except NoCapacity as error:
            return s.SubmitRefused(trial, attempt, str(error), busy=True, now=self._inbox.now())
        except (ConfigError, CodeDirError, PluginError) as error:
            return s.SubmitRefused(trial, attempt, str(error), busy=False, now=self._inbox.now(), final=True)
        except NniliteError as error:
            log.warning("trial %s was not taken: %s", trial, error)
            lasting = isinstance(error, PluginFault) or not isinstance(error, ServiceError)
            return s.SubmitRefused(trial, attempt, str(error), busy=False, now=self._inbox.now(), lasting=lasting)
        known, problem = check_value(dict(handle) if isinstance(handle, Mapping) else None)
        if not isinstance(known, dict):
            reason = f"{self.service.name} gave {handle!r:.200} in place of a handle, which is a JSON object {problem}"
            return s.SubmitRefused(trial, attempt, reason.strip(), busy=False, now=self._inbox.now())
        return s.Submitted(trial, attempt, self.service.name, known, self._inbox.now())

    async def _scale(self, asked: Scaling) -> None:
        # The caller has given up waiting.
        if asked.answer.done():
            return
        error: NniliteError | None = None
        try:
            await guarded(self.service.name, self.service.scale(asked.handle, asked.workers))
        except NniliteError as refusal:
            error = refusal
        if asked.answer.done():
            return
        if error is None:
            asked.answer.set_result(None)
        else:
            asked.answer.set_exception(error)

    # ------------------------------------------------------------ polling

    async def _poll(self) -> None:
        attempts = [a for a in self._inbox.submitted() if a.handle is not None]
        if not attempts:
            return
        try:
            handles = [a.handle for a in attempts if a.handle is not None]
            found = await guarded(self.service.name, self.service.poll(handles))
            statuses = self._checked(found, len(attempts))
        except NniliteError as error:
            if str(error) != self.trouble:
                log.warning("%s cannot be polled: %s", self.service.name, error)
            self.trouble = str(error)
            self._failures = min(self._failures + 1, 6)
            return
        self.trouble, self._failures = "", 0
        self._reader.begin_poll()
        for attempt, status in zip(attempts, statuses, strict=True):
            await self._report(attempt, status)
        self._move()

    def _move(self) -> None:
        """Take trials out of queues in which they have waited long, as far as other services have room."""
        if not isinstance(self.service, HybridService):
            return
        moving: Counter[str] = Counter()
        for live in self._inbox.stuck():
            if live.attempt is None:
                continue
            service = live.attempt.service
            target = self.service.place_to_move(self._job(live.trial, live.attempt), moving, {*live.tried, service})
            if target:
                moving[target] += 1
                reason = f"moved, for it waited long in the queue of {service} and {target} has room"
                log.info("trial %s is %s", live.trial.id, reason)
                self._inbox.put(s.Move(live.trial.id, live.attempt.number, reason, self._inbox.now()))

    def _checked(self, found: object, expected: int) -> list[JobStatus]:
        """Check the answer of a plugin, like anything from outside. Raises: ServiceError."""
        if not isinstance(found, (list, tuple)) or len(found) != expected:
            raise ServiceError(f"{self.service.name} gave no list of {expected} statuses when polled")
        for status in found:
            if not (isinstance(status, JobStatus) and isinstance(status.state, JobState)):
                raise ServiceError(f"{self.service.name} gave {status!r:.200} in place of a JobStatus")
            if status.cost is not None and not (isinstance(status.cost, (int, float)) and 0 <= status.cost < math.inf):
                raise ServiceError(f"{self.service.name} gave {status.cost!r:.60} in place of a cost")
        return list(found)

    async def _report(self, attempt: Attempt, status: JobStatus) -> None:
        """Hand a status to the rules; if the platform reports an end, after all events that the keeper left."""
        # Since the poll began, the keeper may have reported the end: then everything before it is stored.
        if not self._inbox.is_live(attempt):
            self._reader.forget(attempt)
            return
        if self._is_left_to_keeper(attempt, status):
            return
        if (status.state.ended or attempt.service in self._follow) and attempt.handle is not None:
            await self._reader.hand_over(attempt, attempt.handle, status)
        else:
            self._inbox.put(s.Polled(attempt.trial, attempt.number, status, self._inbox.now()))

    def _is_left_to_keeper(self, attempt: Attempt, status: JobStatus) -> bool:
        """Return whether to wait for the next poll, since the ended command's keeper is still delivering.

        Reading the whole spool at the same time would do the same work twice, which takes seconds for 100,000 reports.
        """
        told = status.state.ended and status.state is not JobState.LOST and attempt.service not in self._follow
        return told and self._inbox.is_delivering(attempt)
