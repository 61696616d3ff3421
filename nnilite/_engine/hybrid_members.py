"""The members of a hybrid service: which of them are closed, set aside or busy."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from nnilite._engine.guarded_calls import guarded
from nnilite.errors import ConfigError, JobRefused, NniliteError, NoCapacity, NotFound, ServiceError
from nnilite.service import TrainingService

log = logging.getLogger(__name__)

T = TypeVar("T")
_CALL_TIMEOUT_S = 50.0
_REOPEN_EVERY_S = 60.0
# One that has failed is tried again after this time, and after twice the time if it fails again.
_ASIDE_S = 15.0
_LONGEST_ASIDE_S = 600.0
# How long a job waits for a member's answer to another job, before the next member is asked.
_TURN_S = 1.0


class MemberBusy(NoCapacity):
    """Raised for a member that is not asked now, for it is busy with other jobs."""


@dataclass(frozen=True)
class FailedMember:
    """A member that has failed."""

    reason: str
    until: float  # time of the event loop's clock
    failures: int


class FailedMembers(dict[str, FailedMember]):
    """The members whose last answer was a failure, by their names."""

    def is_aside(self, name: str, now: float) -> bool:
        return name in self and now < self[name].until

    def add(self, name: str, error: NniliteError) -> None:
        """Set a member aside, for longer each time."""
        before = self.get(name)
        failures = before.failures if before is not None else 0
        pause_s = min(_ASIDE_S * 2**failures, _LONGEST_ASIDE_S)
        if before is None:
            log.warning("%s is set aside: %s", name, error)
        until = asyncio.get_running_loop().time() + pause_s
        self[name] = FailedMember(str(error), until, min(failures + 1, 10))

    def refused(self, name: str, error: JobRefused | NotFound, has_taken: bool) -> NniliteError:
        """Return what a refusal means that does not pass by itself: once jobs were taken, the platform has changed."""
        if isinstance(error, JobRefused) and not has_taken:
            self.pop(name, None)
            return error
        self.add(name, error)
        if has_taken:
            return NoCapacity(f"it takes no trials now, though it took earlier ones: {error}")
        return ServiceError(f"{name}: {error}")


class SubmissionLimiter:
    """Lets each member have as many submissions under way as it takes."""

    def __init__(self, at_once: Mapping[str, int]) -> None:
        self._turns = {name: asyncio.Semaphore(number) for name, number in at_once.items()}

    @contextlib.asynccontextmanager
    async def turn(self, name: str, may_have_it: bool) -> AsyncIterator[None]:
        """Wait for a member's answers to other jobs.

        Raises: MemberBusy if they take long, ServiceError if it may have the job that has to wait.
        """
        turns = self._turns[name]
        try:
            await asyncio.wait_for(turns.acquire(), _TURN_S)
        except asyncio.TimeoutError:
            slow = "it has not answered to another trial yet"
            raise ServiceError(f"{name}: {slow}") if may_have_it else MemberBusy(slow) from None
        try:
            yield
        finally:
            turns.release()


class ClosedMembers:
    """Opens the members, and knows those that could not be opened, and why."""

    def __init__(self, members: Mapping[str, TrainingService]) -> None:
        self.errors: dict[str, NniliteError] = {}
        self._members = members
        self._next_try: dict[str, float] = {}  # when these may be opened again
        self._opening = {name: asyncio.Lock() for name in members}

    async def open_all(self, resumed: bool) -> None:
        """Open all members, as `HybridService.open` says."""
        for name, member in self._members.items():
            try:
                await within(name, member.open)
                # It may have been closed at an earlier try to open them all.
                self.errors.pop(name, None)
            except NniliteError as error:
                self.errors[name] = error
                if not isinstance(error, ServiceError):
                    self._next_try[name] = _choose_reopen_time(error)
                log.warning("%s is set aside: %s", name, error)
        never = [error for error in self.errors.values() if not isinstance(error, ServiceError)]
        if len(self.errors) == len(self._members) > len(never):
            raise ServiceError("; ".join(map(str, self.errors.values())))
        if never and (not resumed or len(never) == len(self._members)):
            raise never[0] if len(never) == 1 else ConfigError("; ".join(map(str, never)))

    async def reopen(self, name: str) -> None:
        """Open a closed member again, but not too often: if it hangs, the others wait. Raises: NniliteError."""
        async with self._opening[name]:
            if name not in self.errors:
                return
            loop = asyncio.get_running_loop()
            if loop.time() < self._next_try.get(name, 0.0):
                raise self.errors[name].with_traceback(None)
            try:
                await within(name, self._members[name].open)
            except NniliteError as error:
                self.errors[name], self._next_try[name] = error, _choose_reopen_time(error)
                raise
            del self.errors[name]


def _choose_reopen_time(error: NniliteError) -> float:
    """Return when to open a member again. One that can never work is tried rarely: its machine may be repaired."""
    pause_s = _REOPEN_EVERY_S if isinstance(error, ServiceError) else _LONGEST_ASIDE_S
    return asyncio.get_running_loop().time() + pause_s


async def within(name: str, make: Callable[[], Awaitable[T]], fault: type[ServiceError] = ServiceError) -> T:
    """Return a member's answer within the time limit. A plugin's mistake passes as a `fault`: others may work.

    Raises: NniliteError.
    """
    return await guarded(name, make, _CALL_TIMEOUT_S, fault)
