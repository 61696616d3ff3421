"""Several training services in one experiment, behind a training service that wraps them.

A job goes to the service that the placement names first (see `nnilite._engine.placement`); one that has no room or
cannot be opened is passed over. One that fails is set aside with its reason: it gets no new jobs for a while, and comes
back with its first answer. One that finally refuses job after job gets no more, also with its reason. One that fails
when it is asked may still have taken the job. Then no other is asked for this job, also by a later manager: the service
that is asked is noted in the store before it is asked. Handles carry the name of the service that has the job.

No member waits for another: each gets as many submissions at once as it takes, and one that is slow to answer is passed
over meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from nnilite._engine.guarded_calls import PluginFault
from nnilite._engine.hybrid_members import ClosedMembers, FailedMembers, MemberBusy, SubmissionLimiter, within
from nnilite._engine.member_refusals import MemberRefusals
from nnilite._engine.placement import EVERYTHING, Candidate, Placement, Share, order
from nnilite._engine.service_answers import check_handle, check_statuses
from nnilite._engine.service_choice import PlacementNotes, ServiceChoice, SingleService
from nnilite.errors import (
    CodeDirError,
    ConfigError,
    JobRefused,
    NniliteError,
    NoCapacity,
    NotFound,
    Place,
    PluginError,
    ServiceError,
)
from nnilite.records import Host, Json, KeeperEvent
from nnilite.service import Handle, Job, JobState, JobStatus, ServiceContext, TrainingService, TrialFile

log = logging.getLogger(__name__)

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
        at_once = {member.service.name: max(1, member.service.submits_at_once) for member in config}
        self.most_submits = sum(at_once.values())
        self._turns = SubmissionLimiter(at_once)
        self._noting = asyncio.Lock()
        self._members = {member.service.name: member.service for member in config}
        self._own = {member.service.name: member.own for member in config}
        self._shares = {member.service.name: member.share for member in config}
        self._closed = ClosedMembers(self._members)
        self._aside = FailedMembers()
        self._queued = dict.fromkeys(self._members, 0)  # how many jobs waited there at the last poll
        self._refusals = MemberRefusals()
        # Members that have taken a job of this experiment: their configs are known to work.
        self._taken: set[str] = set()
        self._full: dict[str, float] = {}  # members that had no room, and until when that counts

    async def open(self, *, resumed: bool = False) -> None:
        """Open all members. The experiment can run as long as one of them can be opened.

        Where it is resumed, one that can never work any more must not keep the others from their jobs.

        Raises: ServiceError if none can be opened now, NniliteError if one can never work (if resumed: if none can).
        """
        if resumed:
            self._taken.update(self._members)
        await self._closed.open_all(resumed)

    async def submit(self, job: Job) -> Handle:
        asked, now = self.notes.asked(job), asyncio.get_running_loop().time()
        candidates = _candidates(self.notes, self._shares, self._aside, job, now)
        others = [one.name for one in candidates if one.name != asked]
        never = {name: why for name in others if (why := self._refusals.of_job(name, job.name))}
        impossible = [f"{name}: {why}" for name, why in never.items()]
        candidates = [one for one in candidates if one.name not in never]
        reasons = [
            f"{one.name}: {why}"
            for one in candidates
            if one.name != asked and (why := _explain_passing(one, self._aside))
        ]
        for name in order(self.placement, candidates, asked):
            try:
                await self._closed.reopen(name)
            except NniliteError as error:
                # Only this member can say whether it has the job.
                if name == asked:
                    raise ServiceError(f"{name}: {error}") from error
                (reasons if isinstance(error, ServiceError) else impossible).append(f"{name}: {error}")
                continue
            try:
                async with self._turns.turn(name, may_have_it=name == asked):
                    if name != asked:
                        await self._note(name, job)
                    return await self._submit_to(name, job)
            except MemberBusy as refusal:
                reasons.append(f"{name}: {refusal}")
            except NoCapacity as refusal:
                self._full[name] = now + _FULL_FOR_S
                reasons.append(f"{name}: {refusal}")
            except (ConfigError, CodeDirError, PluginError) as refusal:
                self._refusals.record(name, job.name, refusal)
                impossible.append(f"{name}: {refusal}")
        if len(impossible) == len(self._members):
            raise ConfigError("no service can run this trial: " + "; ".join(impossible))
        raise NoCapacity("; ".join(reasons + impossible))

    async def _note(self, name: str, job: Job) -> None:
        """Note that a member is asked. Raises: MemberBusy if others have taken its places meanwhile."""
        async with self._noting:
            [found] = [one for one in _candidates(self.notes, self._shares, self._aside, job, 0.0) if one.name == name]
            if found.is_full:
                raise MemberBusy(_explain_passing(found, self._aside))
            await self.notes.record(job, name)

    async def _submit_to(self, name: str, job: Job) -> Handle:
        """Submit to one member.

        Raises: NoCapacity, ConfigError if it does not have the job; ServiceError if it may have it, PluginFault for a
        mistake in it.
        """
        try:
            # A mistake hardly passes by itself. The trial fails by it after some tries, as with a single service.
            answer = await within(name, lambda: self._members[name].submit(self._own[name](job)), PluginFault)
            handle = check_handle(name, answer)
        except (JobRefused, NotFound) as error:
            raise self._aside.refused(name, error, name in self._taken) from error
        except (NoCapacity, ConfigError, CodeDirError, PluginError):
            self._aside.pop(name, None)
            raise
        except PluginFault as error:
            self._aside.add(name, error)
            raise
        except NniliteError as error:
            self._aside.add(name, error)
            raise ServiceError(f"{name}: {error}") from error
        self._aside.pop(name, None)
        self._full.pop(name, None)
        self._refusals.note_taken(name)
        self._taken.add(name)
        return {"service": name, "handle": handle}

    def aside(self) -> dict[str, str]:
        """Return the members that are set aside, and why."""
        refusing = {
            name: f"it refuses all trials: {why}"
            for name in self._members
            if (why := self._refusals.explain_for_all(name))
        }
        closed = {name: str(error) for name, error in self._closed.errors.items()}
        return {**{name: one.reason for name, one in self._aside.items()}, **refusing, **closed}

    def place_to_move(self, job: Job, extra: Mapping[str, int], tried: Collection[str]) -> str:
        """Return a member with room for a job that waits elsewhere, "" if there is none.

        `extra` counts the jobs that are about to move to each member, `tried` lists the members that have had the
        trial.
        """
        now = asyncio.get_running_loop().time()
        candidates = [
            replace(one, held=one.held + extra.get(one.name, 0))
            for one in _candidates(self.notes, self._shares, self._aside, job, now)
            if one.name not in tried and one.name not in self._closed.errors and one.name not in self._aside
            if not self._refusals.of_job(one.name, job.name)
            # Jobs wait in its queue, too, or it has just refused one.
            if not self._queued[one.name] and now >= self._full.get(one.name, 0.0)
        ]
        return next(iter(order(self.placement, candidates)), "")

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        """Poll all members. The jobs of one that cannot be asked are UNKNOWN and do not hold up the others."""
        mine = {name: [i for i, handle in enumerate(handles) if handle["service"] == name] for name in self._members}
        asked = {name: [handles[i]["handle"] for i in places] for name, places in mine.items()}
        answers = await asyncio.gather(*(self._poll_member(name, asked[name]) for name in asked))
        found: dict[int, JobStatus] = {}
        for (name, places), statuses in zip(mine.items(), answers, strict=True):
            self._queued[name] = sum(status.state is JobState.WAITING for status in statuses)
            found.update(zip(places, statuses, strict=True))
        return [found[i] for i in range(len(handles))]

    async def _poll_member(self, name: str, handles: list[Handle]) -> list[JobStatus]:
        if not handles:
            return []
        try:
            await self._closed.reopen(name)
            found = await within(name, lambda: self._members[name].poll(handles))
            statuses = check_statuses(name, found, len(handles))
        except NniliteError as error:
            self._aside.add(name, error)
            return [JobStatus(JobState.UNKNOWN, f"cannot query {name}: {error}")] * len(handles)
        self._aside.pop(name, None)
        return statuses

    async def cancel(self, handle: Handle) -> None:
        await self._members[handle["service"]].cancel(handle["handle"])

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        return await self._members[handle["service"]].reports(handle["handle"])

    async def logs(self, handle: Handle, stream: str, offset: int, limit: int) -> bytes:
        return await self._members[handle["service"]].logs(handle["handle"], stream, offset, limit)

    def folder(self, handle: Handle) -> Path | None:
        return self._members[handle["service"]].folder(handle["handle"])

    async def fetch(self, handle: Handle, target: Path) -> None:
        await self._members[handle["service"]].fetch(handle["handle"], target)

    async def files(self, handle: Handle) -> Sequence[TrialFile] | None:
        return await self._members[handle["service"]].files(handle["handle"])

    async def fetch_file(self, handle: Handle, path: str, target: Path, most_bytes: int) -> None:
        await self._members[handle["service"]].fetch_file(handle["handle"], path, target, most_bytes)

    async def scale(self, handle: Handle, workers: int) -> None:
        await self._members[handle["service"]].scale(handle["handle"], workers)

    async def take_node(self, handle: Handle) -> None:
        await self._members[handle["service"]].take_node(handle["handle"])

    async def remove(self, handle: Handle) -> None:
        await self._closed.reopen(handle["service"])
        await self._members[handle["service"]].remove(handle["handle"])

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
        await _ask_all({name: member.check for name, member in self._members.items()})

    async def check_for_dry_run(self) -> None:
        await _ask_all({name: member.check_for_dry_run for name, member in self._members.items()})

    def hosts(self) -> list[Host]:
        closed = [Host(name, "down", str(reason)) for name, reason in self._closed.errors.items()]
        # Two services may have the same host.
        return [
            replace(host, details={**host.details, "service": name})
            for name, member in self._members.items()
            for host in member.hosts()
        ] + closed

    async def close(self) -> None:
        closings = (asyncio.wait_for(member.close(), _CLOSE_TIMEOUT_S) for member in self._members.values())
        found = await asyncio.gather(*closings, return_exceptions=True)
        for name, error in zip(self._members, found, strict=True):
            if error is not None and not isinstance(error, ServiceError):
                log.warning("closing %s failed: %r", name, error)
        left = [str(error) for error in found if isinstance(error, ServiceError)]
        if left:
            raise ServiceError("; ".join(left))


def find_choice(service: TrainingService) -> ServiceChoice:
    """Return what chooses among the services that this one consists of."""
    return service if isinstance(service, HybridService) else SingleService(service)


def _candidates(
    notes: PlacementNotes, shares: Mapping[str, Share], aside: FailedMembers, job: Job, now: float
) -> list[Candidate]:
    held, tried = notes.held(job), notes.tried(job)
    return [
        Candidate(name, share, held.get(name, 0), aside.is_aside(name, now), list(tried).count(name))
        for name, share in shares.items()
    ]


def _explain_passing(one: Candidate, aside: FailedMembers) -> str:
    """Return why a member is not asked, "" if it is."""
    if one.is_full:
        return f"it has {one.held} trials, and maxTrials is {one.share.max_trials}"
    return f"set aside: {aside[one.name].reason}" if one.is_aside else ""


async def _ask_all(checks: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
    """Ask all members, whatever the first ones answer. Raises: ConfigError that names those that cannot work."""
    unknown: list[str] = []
    impossible: list[str] = []
    for name, check in checks.items():
        try:
            await within(name, check)
        except ServiceError as error:
            unknown.append(f"{name}: {error}")
        except ConfigError as error:
            impossible.append(f"{name}: {error}")
    if len(impossible) == len(checks):
        raise ConfigError("no service can run a trial: " + "; ".join(impossible), Place(field="trainingService"))
    if impossible:
        raise ConfigError("; ".join(impossible), Place(field="trainingService"))
    if unknown:
        raise ServiceError("; ".join(unknown))
