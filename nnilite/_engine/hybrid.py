"""Several training services in one experiment, behind a training service that wraps them.

A job goes to the service that the placement names first (see `nnilite._engine.placement`); one that has no room or
cannot be opened is passed over. One that fails is set aside with its reason: it gets no new jobs for a while, and comes
back with its first answer. One that finally refuses job after job gets no more, also with its reason. One that fails
when it is asked may still have taken the job. Then no other is asked for this job, also by a later manager: the service
that is asked is noted in the store before it is asked. Handles carry the name of the service that has the job.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from nnilite._engine.member_refusals import MemberRefusals
from nnilite._engine.placement import EVERYTHING, Candidate, Placement, Share, order
from nnilite.errors import CodeDirError, ConfigError, NniliteError, NoCapacity, Place, PluginError, ServiceError
from nnilite.records import Host, Json, KeeperEvent
from nnilite.service import Handle, Job, JobState, JobStatus, ServiceContext, TrainingService, TrialFile

log = logging.getLogger(__name__)

T = TypeVar("T")
_CALL_TIMEOUT_S = 50.0
_REOPEN_EVERY_S = 60.0
# One that has failed is tried again after this time, and after twice the time if it fails again.
_ASIDE_S = 15.0
_LONGEST_ASIDE_S = 600.0
# How long one that had no room does not count as a place to move to.
_FULL_FOR_S = 60.0
# Shorter than the manager's own limit, so that one member that hangs does not hide what the others report.
_CLOSE_TIMEOUT_S = 9.0


@dataclass(frozen=True)
class Member:
    """A service, with the command and the GPUs of the trials that run on it, and how these report."""

    service: TrainingService
    command: str
    gpus: int | None
    share: Share = EVERYTHING
    report: str = "rest"  # or "stdout"

    def own(self, job: Job) -> Job:
        """Return the job with this service's own settings."""
        own: dict[str, Json] = {"command": self.command, "platform": self.service.name, "report": self.report}
        return replace(job, spec={**job.spec, **own}, gpus=self.gpus)


def _is_aside(aside: Aside | None, now: float) -> bool:
    return aside is not None and now < aside.until


class PlacementNotes(Protocol):
    """Knows which member was asked last to take a job. A later manager reads the notes, too."""

    def asked(self, job: Job) -> str:
        """Return the name of the member that was asked last, "" if none was."""

    def held(self, job: Job) -> Mapping[str, int]:
        """Return how many other jobs each member has, or may have."""

    def tried(self, job: Job) -> Sequence[str]:
        """Return the members that had the earlier attempts of the job's trial."""

    async def note(self, job: Job, member: str) -> None:
        """Note which member is asked, and return when that is stored.

        Raises: ServiceError if the job is not wanted any more.
        """


@dataclass(frozen=True)
class Aside:
    """A member that has failed."""

    reason: str
    until: float  # by the event loop's clock
    failures: int


class HybridService(TrainingService):
    """Hands jobs out to its members. The service caller sets `notes`."""

    Config: ClassVar[type] = type(None)
    notes: PlacementNotes

    def __init__(
        self,
        name: str,
        config: Sequence[Member],
        context: ServiceContext,
        placement: Placement = Placement.WEIGHTED,
    ) -> None:
        super().__init__(name, config, context)
        self.placement = placement
        self.reports_aside = all(member.service.reports_aside for member in config)
        self._members = {member.service.name: member.service for member in config}
        self._own = {member.service.name: member.own for member in config}
        self._shares = {member.service.name: member.share for member in config}
        self._closed: dict[str, NniliteError] = {}  # members that could not be opened, and why
        self._next_try: dict[str, float] = {}  # when these may be opened again
        self._aside: dict[str, Aside] = {}  # members whose last answer was a failure
        self._queued = dict.fromkeys(self._members, 0)  # how many jobs waited there at the last poll
        self._refusals = MemberRefusals()
        self._full: dict[str, float] = {}  # members that had no room, and until when that counts

    async def open(self, *, resumed: bool = False) -> None:
        """Open all members. The experiment can run as long as one of them can be opened.

        Where it is resumed, one that can never work any more must not keep the others from their jobs.

        Raises: ServiceError if none can be opened now, NniliteError if one can never work (if resumed: if none can).
        """
        for name, member in self._members.items():
            try:
                await _within(name, member.open())
                # It may have been closed at an earlier try to open them all.
                self._closed.pop(name, None)
            except NniliteError as error:
                self._closed[name] = error
                if not isinstance(error, ServiceError):
                    self._next_try[name] = _time_to_reopen(error)
                log.warning("%s is set aside: %s", name, error)
        never = [error for error in self._closed.values() if not isinstance(error, ServiceError)]
        if len(self._closed) == len(self._members) > len(never):
            raise ServiceError("; ".join(map(str, self._closed.values())))
        if never and (not resumed or len(never) == len(self._members)):
            raise never[0] if len(never) == 1 else ConfigError("; ".join(map(str, never)))

    async def submit(self, job: Job) -> Handle:
        asked, now = self.notes.asked(job), asyncio.get_running_loop().time()
        candidates = self._candidates(job, now)
        others = [one.name for one in candidates if one.name != asked]
        never = {name: why for name in others if (why := self._refusals.of_job(name, job.name))}
        impossible = [f"{name}: {why}" for name, why in never.items()]
        candidates = [one for one in candidates if one.name not in never]
        reasons = [
            f"{one.name}: {why}" for one in candidates if one.name != asked and (why := _passed_over(one, self._aside))
        ]
        for name in order(self.placement, candidates, asked):
            try:
                await self._reopen(name)
            except NniliteError as error:
                # Only this member can say whether it has the job.
                if name == asked:
                    raise ServiceError(f"{name}: {error}") from error
                (reasons if isinstance(error, ServiceError) else impossible).append(f"{name}: {error}")
                continue
            if name != asked:
                await self.notes.note(job, name)
            try:
                return await self._submit_to(name, job)
            except NoCapacity as refusal:
                self._full[name] = now + _FULL_FOR_S
                reasons.append(f"{name}: {refusal}")
            except (ConfigError, CodeDirError, PluginError) as refusal:
                self._refusals.note(name, job.name, refusal)
                impossible.append(f"{name}: {refusal}")
        if len(impossible) == len(self._members):
            raise ConfigError("no service can run this trial: " + "; ".join(impossible))
        raise NoCapacity("; ".join(reasons + impossible))

    def _candidates(self, job: Job, now: float) -> list[Candidate]:
        held, tried = self.notes.held(job), self.notes.tried(job)
        return [
            Candidate(name, share, held.get(name, 0), _is_aside(self._aside.get(name), now), list(tried).count(name))
            for name, share in self._shares.items()
        ]

    async def _submit_to(self, name: str, job: Job) -> Handle:
        """Submit to one member.

        Raises: NoCapacity, ConfigError if it does not have the job; ServiceError if it may have it.
        """
        try:
            handle = await _within(name, self._members[name].submit(self._own[name](job)))
        except (NoCapacity, ConfigError, CodeDirError, PluginError):
            self._aside.pop(name, None)
            raise
        except NniliteError as error:
            self._set_aside(name, error)
            raise ServiceError(f"{name}: {error}") from error
        self._aside.pop(name, None)
        self._full.pop(name, None)
        self._refusals.note_taken(name)
        return {"service": name, "handle": dict(handle)}

    def _set_aside(self, name: str, error: NniliteError) -> None:
        before = self._aside.get(name)
        failures = before.failures if before is not None else 0
        pause_s = min(_ASIDE_S * 2**failures, _LONGEST_ASIDE_S)
        if before is None:
            log.warning("%s is set aside: %s", name, error)
        until = asyncio.get_running_loop().time() + pause_s
        self._aside[name] = Aside(str(error), until, min(failures + 1, 10))

    def aside(self) -> dict[str, str]:
        """Return the members that are set aside, and why."""
        refusing = {
            name: f"it refuses all trials: {why}" for name in self._members if (why := self._refusals.of_all(name))
        }
        closed = {name: str(error) for name, error in self._closed.items()}
        return {**{name: one.reason for name, one in self._aside.items()}, **refusing, **closed}

    def place_to_move(self, job: Job, extra: Mapping[str, int], tried: Collection[str]) -> str:
        """Return a member with room for a job that waits elsewhere, "" if there is none.

        `extra` counts the jobs that are about to move to each member, `tried` lists the members that have had the
        trial.
        """
        now = asyncio.get_running_loop().time()
        candidates = [
            replace(one, held=one.held + extra.get(one.name, 0))
            for one in self._candidates(job, now)
            if one.name not in tried and one.name not in self._closed and one.name not in self._aside
            if not self._refusals.of_job(one.name, job.name)
            # Jobs wait in its queue, too, or it has just refused one.
            if not self._queued[one.name] and now >= self._full.get(one.name, 0.0)
        ]
        return next(iter(order(self.placement, candidates)), "")

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        """Poll all members. The jobs of one that cannot be asked are UNKNOWN and do not hold up the others."""
        found: dict[int, JobStatus] = {}
        for name, member in self._members.items():
            mine = [(i, handle["handle"]) for i, handle in enumerate(handles) if handle["service"] == name]
            if mine:
                try:
                    await self._reopen(name)
                    statuses = await _within(name, member.poll([handle for _, handle in mine]))
                    self._aside.pop(name, None)
                except NniliteError as error:
                    self._set_aside(name, error)
                    statuses = [JobStatus(JobState.UNKNOWN, f"{name} cannot be asked: {error}")] * len(mine)
                found.update(zip((i for i, _ in mine), statuses, strict=True))
            self._queued[name] = sum(found[i].state is JobState.WAITING for i, _ in mine)
        return [found[i] for i in range(len(handles))]

    async def cancel(self, handle: Handle) -> None:
        await self._member(handle).cancel(handle["handle"])

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        return await self._member(handle).reports(handle["handle"])

    async def logs(self, handle: Handle, stream: str, offset: int, limit: int) -> bytes:
        return await self._member(handle).logs(handle["handle"], stream, offset, limit)

    def folder(self, handle: Handle) -> Path | None:
        return self._member(handle).folder(handle["handle"])

    async def fetch(self, handle: Handle, target: Path) -> None:
        await self._member(handle).fetch(handle["handle"], target)

    async def files(self, handle: Handle) -> Sequence[TrialFile] | None:
        return await self._member(handle).files(handle["handle"])

    async def fetch_file(self, handle: Handle, path: str, target: Path, most_bytes: int) -> None:
        await self._member(handle).fetch_file(handle["handle"], path, target, most_bytes)

    async def scale(self, handle: Handle, workers: int) -> None:
        await self._member(handle).scale(handle["handle"], workers)

    async def remove(self, handle: Handle) -> None:
        await self._reopen(handle["service"])
        await self._member(handle).remove(handle["handle"])

    def share_slots(self, limit: int | None, priority: int | None) -> None:
        """Hand the terms to all members. Those that cannot use them return to the terms of their configs."""
        refusals: dict[TrainingService, ConfigError] = {}
        for member in self._members.values():
            try:
                member.share_slots(limit, priority)
            except ConfigError as error:
                refusals[member] = error
        if len(refusals) == len(self._members):
            raise ConfigError("; ".join(f"{one.name}: {error.message}" for one, error in refusals.items()))
        for member in refusals:
            with contextlib.suppress(ConfigError):  # one that has no slots refuses this, too
                member.share_slots(None, None)

    def describe(self, job: Job) -> Json:
        return {name: member.describe(self._own[name](job)) for name, member in self._members.items()}

    async def check(self) -> None:
        """Ask all members, whatever the first ones answer. Raises: ConfigError that names those that cannot work."""
        untold: list[str] = []
        impossible: list[str] = []
        for name, member in self._members.items():
            try:
                await _within(name, member.check())
            except ServiceError as error:
                untold.append(f"{name}: {error}")
            except ConfigError as error:
                impossible.append(f"{name}: {error}")
        if len(impossible) == len(self._members):
            raise ConfigError("no service can run a trial: " + "; ".join(impossible), Place(field="trainingService"))
        if impossible:
            raise ConfigError("; ".join(impossible), Place(field="trainingService"))
        if untold:
            raise ServiceError("; ".join(untold))

    def hosts(self) -> list[Host]:
        closed = [Host(name, "down", str(reason)) for name, reason in self._closed.items()]
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
        """Open a closed member again, but not too often: if it hangs, the others wait. Raises: NniliteError."""
        if name not in self._closed:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._next_try.get(name, 0.0):
            raise self._closed[name].with_traceback(None)
        try:
            await _within(name, self._members[name].open())
        except NniliteError as error:
            self._closed[name], self._next_try[name] = error, _time_to_reopen(error)
            raise
        del self._closed[name]


def _time_to_reopen(error: NniliteError) -> float:
    """Return when to open a member again. One that can never work is tried rarely: its machine may be repaired."""
    pause_s = _REOPEN_EVERY_S if isinstance(error, ServiceError) else _LONGEST_ASIDE_S
    return asyncio.get_running_loop().time() + pause_s


async def _within(name: str, call: Awaitable[T]) -> T:
    """Return a member's answer within the time limit. Raises: NniliteError, whatever goes wrong in the plugin."""
    try:
        return await asyncio.wait_for(call, _CALL_TIMEOUT_S)
    except NniliteError:
        raise
    except asyncio.TimeoutError:
        raise ServiceError(f"{name} did not answer within {_CALL_TIMEOUT_S:.0f} s") from None
    # A plugin may raise anything, and one that does must not keep the others from their jobs.
    except Exception as error:
        log.exception("the training service %s failed", name)
        raise ServiceError(f"{name} failed with {type(error).__name__}: {error}") from error


def _passed_over(one: Candidate, aside: Mapping[str, Aside]) -> str:
    """Return why a member is not asked, "" if it is."""
    if one.is_full:
        return f"it has {one.held} trials, and maxTrials is {one.share.max_trials}"
    return f"set aside: {aside[one.name].reason}" if one.is_aside else ""
