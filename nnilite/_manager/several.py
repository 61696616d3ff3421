"""Several training services in one experiment: itself a training service, which wraps the others.

A job goes to the service with the fewest jobs for its weight that takes it; one that fails or has no room is passed
over. Handles carry the name of the service that has the job.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, TypeVar

from nnilite.errors import NoCapacity, ServiceError
from nnilite.records import Host, Json, KeeperEvent
from nnilite.service import Handle, Job, JobState, JobStatus, ServiceContext, TrainingService

log = logging.getLogger(__name__)

T = TypeVar("T")
_CALL_TIMEOUT_S = 50.0
_REOPEN_EVERY_S = 60.0
_CLOSE_TIMEOUT_S = 9.0  # below the manager's own: what the others have to say must not be lost


@dataclass(frozen=True)
class Member:
    """A service, and what its trials run with."""

    service: TrainingService
    command: str
    gpus: int | None

    def own(self, job: Job) -> Job:
        """The job as this service is to run it."""
        return replace(job, spec={**job.spec, "command": self.command, "platform": self.service.name}, gpus=self.gpus)


class Several(TrainingService):
    """Hands jobs out to its members."""

    Config: ClassVar[type] = type(None)

    def __init__(self, name: str, config: Sequence[Member], context: ServiceContext) -> None:
        super().__init__(name, config, context)
        self._members = {member.service.name: member.service for member in config}
        self._own = {member.service.name: member.own for member in config}
        self._jobs = dict.fromkeys(self._members, 0)  # running ones, as last seen
        self._closed: dict[str, str] = {}  # members that could not be opened, and why
        self._next_try: dict[str, float] = {}  # when these may be opened again

    async def open(self) -> None:
        """Works as long as one member does."""
        for name, member in self._members.items():
            try:
                await _within(name, member.open())
            except ServiceError as error:
                self._closed[name] = str(error)
                log.warning("%s is set aside: %s", name, error)
        if len(self._closed) == len(self._members):
            raise ServiceError("; ".join(self._closed.values()))

    async def submit(self, job: Job) -> Handle:
        reasons: list[str] = []
        busy = False
        for name in sorted(self._members, key=lambda member: self._jobs[member]):
            try:
                await self._reopen(name)
                handle = await _within(name, self._members[name].submit(self._own[name](job)))
            except ServiceError as error:
                busy = busy or isinstance(error, NoCapacity)
                reasons.append(f"{name}: {error}")
                continue
            self._jobs[name] += 1
            return {"service": name, "handle": dict(handle)}
        raise (NoCapacity if busy else ServiceError)("; ".join(reasons))

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        """A member that cannot tell now does not hold up the others."""
        found: dict[int, JobStatus] = {}
        for name, member in self._members.items():
            mine = [(i, handle["handle"]) for i, handle in enumerate(handles) if handle["service"] == name]
            if mine:
                try:
                    await self._reopen(name)
                    statuses = await _within(name, member.poll([handle for _, handle in mine]))
                except ServiceError as error:
                    statuses = [JobStatus(JobState.UNKNOWN, f"{name} cannot be asked: {error}")] * len(mine)
                found.update(zip((i for i, _ in mine), statuses, strict=True))
            self._jobs[name] = sum(not found[i].state.ended for i, _ in mine)
        return [found[i] for i in range(len(handles))]

    async def cancel(self, handle: Handle) -> None:
        await self._member(handle).cancel(handle["handle"])

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        return await self._member(handle).reports(handle["handle"])

    async def logs(self, handle: Handle, stream: str, offset: int, limit: int) -> bytes:
        return await self._member(handle).logs(handle["handle"], stream, offset, limit)

    async def fetch(self, handle: Handle, target: Path) -> None:
        await self._member(handle).fetch(handle["handle"], target)

    async def scale(self, handle: Handle, workers: int) -> None:
        await self._member(handle).scale(handle["handle"], workers)

    async def remove(self, handle: Handle) -> None:
        await self._reopen(handle["service"])
        await self._member(handle).remove(handle["handle"])

    def describe(self, job: Job) -> Json:
        return {name: member.describe(self._own[name](job)) for name, member in self._members.items()}

    def hosts(self) -> list[Host]:
        closed = [Host(name, "down", reason) for name, reason in self._closed.items()]
        return [host for member in self._members.values() for host in member.hosts()] + closed

    async def close(self) -> None:
        closings = (asyncio.wait_for(member.close(), _CLOSE_TIMEOUT_S) for member in self._members.values())
        found = await asyncio.gather(*closings, return_exceptions=True)
        for name, error in zip(self._members, found, strict=True):
            if error is not None and not isinstance(error, ServiceError):
                log.warning("%s is not closed in good order: %r", name, error)
        left = [str(error) for error in found if isinstance(error, ServiceError)]
        if left:
            raise ServiceError("; ".join(left))

    def _member(self, handle: Handle) -> TrainingService:
        return self._members[handle["service"]]

    async def _reopen(self, name: str) -> None:
        """One that hangs over it is not tried all the time: the others wait meanwhile. Raises: ServiceError."""
        if name not in self._closed:
            return
        if time.monotonic() < self._next_try.get(name, 0.0):
            raise ServiceError(self._closed[name])
        try:
            await _within(name, self._members[name].open())
        except ServiceError as error:
            self._closed[name] = str(error)
            self._next_try[name] = time.monotonic() + _REOPEN_EVERY_S
            raise
        del self._closed[name]


async def _within(name: str, call: Awaitable[T]) -> T:
    """A member's answer within the time limit. Raises: ServiceError."""
    try:
        return await asyncio.wait_for(call, _CALL_TIMEOUT_S)
    except asyncio.TimeoutError:
        raise ServiceError(f"{name} did not answer within {_CALL_TIMEOUT_S:.0f} s") from None
