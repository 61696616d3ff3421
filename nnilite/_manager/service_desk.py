"""The one task that calls the training service: submits, cancels and polls, each within a time limit.

Whatever the plugin does (hang, raise, lie), the desk turns it into an input for the rules, and goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from nnilite._manager import steps as s
from nnilite._manager.intake import OutOfStep, Superseded
from nnilite.errors import CodeDirError, ConfigError, NniliteError, NoCapacity, ServiceError
from nnilite.records import Attempt, KeeperEvent, Trial
from nnilite.service import Handle, Job, JobState, JobStatus, TrainingService

log = logging.getLogger(__name__)

T = TypeVar("T")

CALL_TIMEOUT_S = 60.0
SUBMIT_TIMEOUT_S = 300.0  # may upload the code package first
ASKED_TIMEOUT_S = 15.0  # a person waits for the answer
POLL_EVERY_S = 5.0
_LONGEST_PAUSE_S = 60.0


class Front(Protocol):
    """What the desk needs of the engine."""

    def now(self) -> float: ...

    def put(self, given: s.Input) -> None:
        """Hand over an input; does not wait."""

    async def take(self, trial: str, attempt: int, events: Sequence[KeeperEvent]) -> object:
        """Hand over events that the service read itself."""

    def submitted(self) -> list[Attempt]:
        """The attempts that the service has, to be polled."""


@dataclass(frozen=True)
class _Scaling:
    """Somebody wants another number of workers, and waits for the answer."""

    handle: Handle
    workers: int
    answer: asyncio.Future[None]


class ServiceDesk:
    """Owns the training service."""

    def __init__(
        self, service: TrainingService, front: Front, job: Callable[[Trial, Attempt], Job], follow: bool = False
    ) -> None:
        self.service = service
        self._follow = follow  # `callback: log`: the service reads the reports of running jobs too
        self.trouble = ""  # why the last poll failed, "" if it did not
        self._front = front
        self._job = job
        self._queue: deque[s.Submit | s.Cancel | s.Remove | _Scaling] = deque()
        self._wakeup = asyncio.Event()
        self._poll_now = False
        self._failures = 0
        self._open = False
        self._closing = False

    def put(self, action: s.Submit | s.Cancel | s.Remove) -> None:
        self._queue.append(action)
        self._wakeup.set()

    async def scale(self, handle: Handle, workers: int) -> None:
        """Change the number of workers of a job, when it is its turn. The platform keeps the number, nobody here.

        Raises: Conflict, NotFound, ServiceError, as the service says.
        """
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(_Scaling(handle, workers, answer))
        self._wakeup.set()
        try:
            await asyncio.wait_for(answer, ASKED_TIMEOUT_S)
        except asyncio.TimeoutError:
            busy = f"{self.service.name} did not get to it within {ASKED_TIMEOUT_S:.0f} s; try again later"
            raise ServiceError(busy) from None

    def finish(self) -> None:
        """Do what is queued, then end."""
        self._closing = True
        self._wakeup.set()

    def wake(self) -> None:
        """Poll now. Call on the event loop."""
        self._poll_now = True
        self._wakeup.set()

    async def open(self) -> None:
        """Raises: ConfigError if the service can never work, ServiceError if it cannot now."""
        await self._guarded(self.service.open(), SUBMIT_TIMEOUT_S)
        self._open = True

    async def run(self) -> None:
        """Work until `finish`."""
        await self._open_patiently()
        loop = asyncio.get_running_loop()
        next_poll = loop.time()
        while self._queue or not self._closing:
            # no wait_for here: before Python 3.12 it can swallow a cancellation that comes with the wake-up
            timer = loop.call_at(next_poll, self._wakeup.set)
            await self._wakeup.wait()
            timer.cancel()
            self._wakeup.clear()
            while self._queue:
                await self._do(self._queue.popleft())
            if self._poll_now or loop.time() >= next_poll:
                self._poll_now = False
                await self._poll()
                next_poll = loop.time() + min(POLL_EVERY_S * 2**self._failures, _LONGEST_PAUSE_S)

    async def _open_patiently(self) -> None:
        """At a resume the platform may be away for a while; its jobs go on meanwhile."""
        while not (self._open or self._closing):
            try:
                await self.open()
            except NniliteError as error:
                self.trouble = str(error)
                self._failures = min(self._failures + 1, 6)
                log.warning("%s cannot be opened: %s", self.service.name, error)
                await asyncio.sleep(min(2.0**self._failures, _LONGEST_PAUSE_S))
        self.trouble, self._failures = "", 0

    async def _do(self, action: s.Submit | s.Cancel | s.Remove | _Scaling) -> None:
        if isinstance(action, s.Submit):
            self._front.put(await self._submit(action))
            return
        if isinstance(action, _Scaling):
            await self._scale(action)
            return
        attempt, handle = action.attempt, action.attempt.handle
        if handle is None:
            return
        if isinstance(action, s.Cancel):
            await self._tell("cancel", attempt.trial, self.service.cancel(handle))
            return
        done = await self._tell("clean up after", attempt.trial, self.service.remove(handle))
        self._front.put(s.Removed(attempt.trial, attempt.number, done, self._front.now()))

    async def _tell(self, what: str, trial: str, call: Awaitable[None]) -> bool:
        """False if it cannot be done now."""
        try:
            await self._guarded(call, CALL_TIMEOUT_S)
        except NniliteError as error:
            log.warning("cannot %s trial %s: %s", what, trial, error)
            return False
        return True

    async def _submit(self, action: s.Submit) -> s.Input:
        trial, attempt = action.trial.id, action.attempt.number
        try:
            job = self._job(action.trial, action.attempt)
            handle = await self._guarded(self.service.submit(job), SUBMIT_TIMEOUT_S)
        except NoCapacity as error:
            return s.Refused(trial, attempt, str(error), busy=True, now=self._front.now())
        except (ConfigError, CodeDirError) as error:
            return s.Refused(trial, attempt, str(error), busy=False, now=self._front.now(), final=True)
        except NniliteError as error:
            log.warning("trial %s was not taken: %s", trial, error)
            return s.Refused(trial, attempt, str(error), busy=False, now=self._front.now())
        return s.Submitted(trial, attempt, self.service.name, handle, self._front.now())

    async def _scale(self, asked: _Scaling) -> None:
        if asked.answer.done():  # nobody waits any more
            return
        error: NniliteError | None = None
        try:
            await self._guarded(self.service.scale(asked.handle, asked.workers), CALL_TIMEOUT_S)
        except NniliteError as refusal:
            error = refusal
        if asked.answer.done():
            return
        if error is None:
            asked.answer.set_result(None)
        else:
            asked.answer.set_exception(error)

    async def _guarded(self, call: Awaitable[T], timeout_s: float) -> T:
        """The plugin's answer, or an NniliteError whatever it did instead."""
        try:
            return await asyncio.wait_for(call, timeout_s)
        except NniliteError:
            raise
        except asyncio.TimeoutError:
            raise ServiceError(f"{self.service.name} did not answer within {timeout_s:.0f} s") from None
        except Exception as error:  # a plugin may raise anything; one bad thing stays one bad thing
            log.exception("the training service %s failed", self.service.name)
            raise ServiceError(f"{self.service.name} failed with {type(error).__name__}: {error}") from error

    # ------------------------------------------------------------ polling

    async def _poll(self) -> None:
        attempts = [a for a in self._front.submitted() if a.handle is not None]
        if not attempts:
            return
        try:
            handles = [a.handle for a in attempts if a.handle is not None]
            found = await self._guarded(self.service.poll(handles), CALL_TIMEOUT_S)
            statuses = self._checked(found, len(attempts))
        except NniliteError as error:
            if str(error) != self.trouble:
                log.warning("%s cannot be polled: %s", self.service.name, error)
            self.trouble = str(error)
            self._failures = min(self._failures + 1, 6)
            return
        self.trouble, self._failures = "", 0
        for attempt, status in zip(attempts, statuses, strict=True):
            await self._report(attempt, status)

    def _checked(self, found: object, expected: int) -> list[JobStatus]:
        """The answer of a plugin is checked like anything from outside."""
        if not isinstance(found, (list, tuple)) or len(found) != expected:
            raise ServiceError(f"{self.service.name} gave no list of {expected} statuses when polled")
        for status in found:
            if not (isinstance(status, JobStatus) and isinstance(status.state, JobState)):
                raise ServiceError(f"{self.service.name} gave {status!r:.200} in place of a JobStatus")
        return list(found)

    async def _report(self, attempt: Attempt, status: JobStatus) -> None:
        """Before the platform's word on an end counts, what the keeper had to say is looked for."""
        if (status.state.ended or self._follow) and attempt.handle is not None:
            try:
                events = await self._guarded(self.service.reports(attempt.handle), CALL_TIMEOUT_S)
                await self._front.take(attempt.trial, attempt.number, events)
            except Superseded:
                return  # its keeper was quicker, and the trial is being tried again
            except (NniliteError, OutOfStep, OSError) as error:
                log.warning("the reports of trial %s cannot be taken: %s", attempt.trial, error)
        self._front.put(s.Seen(attempt.trial, attempt.number, status, self._front.now()))
