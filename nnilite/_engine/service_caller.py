"""The one task that calls the training service. It submits, cancels and polls, each within a time limit.

If the plugin hangs, raises or returns nonsense, the task turns that into an input for the rules and continues.

Calls come one after the other, so that services need no locks. But the wait of a platform must stop neither the look at
what runs nor the start of others: while a call takes long, calls of other kinds are made (`slow_calls`), and
a poll that is due does not wait until no call is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TypeVar

from nnilite._engine import messages
from nnilite._engine.call_queue import AskedCall, CallQueue, Waiting
from nnilite._engine.guarded_calls import PluginFault, guarded
from nnilite._engine.hybrid import find_choice
from nnilite._engine.report_reader import ReportReader
from nnilite._engine.service_answers import check_handle
from nnilite._engine.service_polling import EngineInterface, ServicePoller
from nnilite._engine.slow_calls import PATIENCE_S, SlowCalls
from nnilite.errors import (
    CodeDirError,
    ConfigError,
    JobRefused,
    NniliteError,
    NoCapacity,
    NotFound,
    PluginError,
    ServiceError,
)
from nnilite.records import Attempt, Trial
from nnilite.service import Handle, Job, TrainingService

log = logging.getLogger(__name__)

T = TypeVar("T")

SUBMIT_TIMEOUT_S = 300.0  # may upload the code package first
ASKED_TIMEOUT_S = 15.0  # a person waits for the answer
POLL_EVERY_S = 5.0
_LONGEST_PAUSE_S = 60.0


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

    def was_rung(self) -> bool:
        """Return whether `ring` was called since the last call of this method."""
        rung, self._polls = self._polls, False
        return rung


def _make_refusal(
    action: messages.Submit, reason: str, now: float, *, busy: bool = False, final: bool = False, lasting: bool = False
) -> messages.SubmitRefused:
    """Return the answer to a submission. If it is neither final nor lasting, it is made again, however often."""
    return messages.SubmitRefused(action.trial.id, action.attempt.number, reason, busy, now, final, lasting)


class ServiceCaller:
    """Owns the training service and makes all calls that may change something there."""

    def __init__(
        self,
        service: TrainingService,
        inbox: EngineInterface,
        job: Callable[[Trial, Attempt], Job],
        wake: WakeSignal,
        follow: Collection[str] = (),
    ) -> None:
        self.service = service
        self.choice = find_choice(service)
        self.choice.notes = inbox.notes
        self._inbox = inbox
        self._job = job
        self._reader = ReportReader(service, inbox)
        self._looks = ServicePoller(service, self.choice, inbox, job, self._reader, follow)
        self._calls = CallQueue()
        self._refused: list[messages.Submit] = []  # because there was no room, which ended jobs may still take up
        self._submitting, self._changing, self._looking = (SlowCalls(wake.event.set) for _ in range(3))
        self._removing = asyncio.Lock()
        self._wake = wake
        self._open = False
        self._hastens = False
        self._closing = False
        self._has_taken = False  # whether the service has taken a job of this experiment, so that its config can work

    @property
    def trouble(self) -> str:
        """Why the last poll failed, "" if it did not."""
        return self._looks.trouble

    def put(self, action: messages.ServiceCall) -> None:
        self._calls.put(action, asyncio.get_running_loop().time())
        self._wake.event.set()

    async def ask(self, make: Callable[[TrainingService], Awaitable[None]]) -> None:
        """Make a call in its turn among the others, and wait for it: a change of a job for which a person asks.

        Raises: Conflict, NotFound, ServiceError, as the service says.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[None] = loop.create_future()
        self._calls.put(AskedCall(make, answer), loop.time())
        self._wake.event.set()
        try:
            await asyncio.wait_for(answer, ASKED_TIMEOUT_S)
        except asyncio.TimeoutError:
            busy = f"{self.service.name} did not respond within {ASKED_TIMEOUT_S:.0f} s; try again later"
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

    def expedite_removals(self) -> None:
        """Make removals as they come: the experiment has stopped, and its end waits for them."""
        self._calls.expedite_removals()
        self._hastens = True
        self._wake.event.set()

    def finish(self) -> None:
        """Let `run` end once all calls are made."""
        self._closing = True
        self._calls.close(asyncio.get_running_loop().time())
        self._wake.event.set()

    async def open(self, *, resumed: bool = False) -> None:
        """Open the service. Raises: ConfigError if it can never work, ServiceError if it cannot work now."""
        self._has_taken = resumed
        await guarded(self.service.name, partial(self.choice.open, resumed=resumed), SUBMIT_TIMEOUT_S)
        self._open = True

    async def run(self) -> None:
        """Work until `finish`."""
        try:
            await self._open_patiently()
            await self._work()
        finally:
            for calls in (self._submitting, self._changing, self._looking):
                await calls.stop()
            await self._reader.stop()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        next_poll = loop.time()
        while self._calls or self._refused or self._submitting or self._changing or not self._closing:
            # `wait_for` is not used: before Python 3.12 it can swallow a cancellation that comes with the wake-up.
            timer = loop.call_at(self._find_next_call(next_poll), self._wake.event.set)
            await self._wake.event.wait()
            timer.cancel()
            self._wake.event.clear()
            await self._make_calls(next_poll)
            self._looking.check()
            if not self._looking and (self._wake.was_rung() or loop.time() >= next_poll):
                await self._looking.make([self._looks.poll()])
                next_poll = loop.time() + min(POLL_EVERY_S * 2**self._looks.failures, _LONGEST_PAUSE_S)

    @property
    def _may_change(self) -> bool:
        """Whether a call may be made that changes what a slow poll may be looking at."""
        return not (self._changing or self._looking)

    @property
    def _room(self) -> int:
        """How many submissions may begin now."""
        return min(max(1, self.service.submits_at_once), self.choice.most_submits - len(self._submitting))

    def _find_next_call(self, next_poll: float) -> float:
        """Return when there is something to do, if nothing happens before; the end of a slow call is an event."""
        if self._looking:
            return asyncio.get_running_loop().time() + POLL_EVERY_S
        return min(next_poll, self._calls.next_other) if self._may_change else next_poll

    async def _open_patiently(self) -> None:
        """Try until the service can be opened: at a resume the platform may be unreachable while its jobs still run."""
        looks = self._looks
        while not (self._open or self._closing):
            try:
                await self.open(resumed=True)
            except NniliteError as error:
                looks.trouble = str(error)
                looks.failures = min(looks.failures + 1, 6)
                log.warning("%s cannot be opened: %s", self.service.name, error)
                reason = f"{self.service.name} cannot be opened: {error}"
                while waiting := self._calls.submits(self._room):  # they come again
                    for one in waiting:
                        self._inbox.put(_make_refusal(one, reason, self._inbox.now()), soon=False)
                await asyncio.sleep(min(2.0**looks.failures, _LONGEST_PAUSE_S))
        looks.trouble, looks.failures = "", 0

    async def _make_calls(self, next_poll: float) -> None:
        """Make the calls that wait and are due, until a poll is overdue."""
        loop = asyncio.get_running_loop()
        while self._looking or loop.time() < next_poll + PATIENCE_S:
            self._submitting.check()
            self._changing.check()
            if self._may_change and self._refused:
                await self._submit_again()
            elif self._may_change and (call := self._calls.other(loop.time())):
                await self._changing.make([self._do_with_group(call)])
            elif submits := self._calls.submits(self._room):
                await self._submitting.make([self._submit_in_turn(action) for action in submits])
            else:
                return
        # What is left comes after the poll.
        self._wake.event.set()

    async def _do_with_group(self, call: Waiting) -> None:
        """Make a call, and after a removal those that wait, until something more urgent comes."""
        await self._do(call)
        while isinstance(call, messages.Remove) and not self._looking:
            following = self._calls.next_of_group(asyncio.get_running_loop().time())
            if following is None:
                return
            await self._do(following)

    async def _do(self, call: Waiting) -> None:
        if isinstance(call, AskedCall):
            await self._answer(call)
            return
        attempt, handle = call.attempt, call.attempt.handle
        if handle is None:
            return
        if isinstance(call, messages.Cancel):
            await self._command_service("cancel", attempt.trial, lambda: self.service.cancel(handle))
            return
        async with self._removing:
            await self._remove(attempt, handle)

    async def _remove(self, attempt: Attempt, handle: Handle) -> None:
        await self._reader.stop(attempt)
        done = await self._command_service("clean up after", attempt.trial, lambda: self.service.remove(handle))
        is_last = self._hastens and not self._calls.has_removals
        self._inbox.put(messages.Removed(attempt.trial, attempt.number, done, self._inbox.now()), soon=is_last)

    async def _remove_all(self) -> None:
        while call := self._calls.removal():
            await self._do(call)

    async def _submit_in_turn(self, action: messages.Submit) -> None:
        # What is left of a trial's last attempt must not meet the next one.
        if action.attempt.number:
            await self._looking.idle()
            await self._changing.idle()
            await self._remove_all()
            # Another submission may be removing it.
            async with self._removing:
                pass
        answer = await self._submit(action)
        if isinstance(answer, messages.SubmitRefused) and answer.busy and self._calls.has_removals:
            self._refused.append(action)
            return
        self._inbox.put(answer, soon=isinstance(answer, messages.SubmitRefused))

    async def _submit_again(self) -> None:
        """Submit what was refused again, after the waiting removals: it may find the room of ended jobs."""
        refused, self._refused = self._refused, []
        await self._changing.make([self._remove_all()])
        for action in refused:
            await self._submitting.make([self._submit_finally(action)])

    async def _submit_finally(self, action: messages.Submit) -> None:
        self._inbox.put(await self._submit(action))

    async def _command_service(self, what: str, trial: str, make: Callable[[], Awaitable[None]]) -> bool:
        """Make a call of the service that has no result. Return False if it failed."""
        try:
            await guarded(self.service.name, make)
        except NniliteError as error:
            log.warning("cannot %s trial %s: %s", what, trial, error)
            return False
        return True

    async def _submit(self, action: messages.Submit) -> messages.Submitted | messages.SubmitRefused:
        try:
            job = self._job(action.trial, action.attempt)
            answer = await guarded(self.service.name, lambda: self.service.submit(job), SUBMIT_TIMEOUT_S)
            handle = check_handle(self.service.name, answer)
        except NoCapacity as error:
            return _make_refusal(action, str(error), self._inbox.now(), busy=True)
        except (ConfigError, CodeDirError, PluginError, NotFound) as error:
            if self._has_taken and isinstance(error, (JobRefused, NotFound)):  # the platform has changed
                reason = f"{self.service.name} takes no trials now, though it took earlier ones: {error}"
                log.warning("trial %s waits: %s", action.trial.id, reason)
                return _make_refusal(action, reason, self._inbox.now())
            known = not isinstance(error, NotFound)
            return _make_refusal(action, str(error), self._inbox.now(), final=known, lasting=not known)
        except NniliteError as error:
            log.warning("trial %s was not accepted: %s", action.trial.id, error)
            lasting = isinstance(error, PluginFault) or not isinstance(error, ServiceError)
            return _make_refusal(action, str(error), self._inbox.now(), lasting=lasting)
        self._has_taken = True
        return messages.Submitted(action.trial.id, action.attempt.number, self.service.name, handle, self._inbox.now())

    async def _answer(self, asked: AskedCall) -> None:
        # The caller has given up waiting.
        if asked.answer.done():
            return
        error: NniliteError | None = None
        try:
            await guarded(self.service.name, lambda: asked.make(self.service))
        except NniliteError as refusal:
            error = refusal
        if asked.answer.done():
            return
        if error is None:
            asked.answer.set_result(None)
        else:
            asked.answer.set_exception(error)
