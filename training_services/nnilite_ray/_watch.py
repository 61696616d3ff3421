"""What becomes of one job: Ray's part of it, which is only a cache, but for a request that is still to be sent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from nnilite.errors import ServiceError
from nnilite.platform_http import Missing, Problem
from nnilite.records import Exited
from nnilite.service import Handle, JobState, JobStatus
from nnilite.services.job_watch import JobWatch, Patience, SeenJob
from nnilite_ray import _convert as convert
from nnilite_ray._api import RayApi
from nnilite_ray._log import RayLog
from nnilite_ray._resources import Usage, waiting, wanted

log = logging.getLogger(__name__)


Found = Mapping[str, Any]
_LOOKS, _LOOK_S = 5, 0.2


class RayWatchNeeds(NamedTuple):
    """What a watch needs of the service."""

    page: Callable[[str], str]
    """Returns the address of a job's page."""
    usage: Callable[[], Usage]
    """Returns what of the cluster is in use."""
    supply: Callable[[str], Awaitable[bool]]
    """Sees to it that Ray has a package of this name; False if that cannot be."""


@dataclass(frozen=True)
class RayPatience(Patience):
    """How long is waited for what on Ray, in seconds."""

    list_pause_s: float = 0.0
    log_lag_s: float = 20.0
    end_pending_s: float = 5.0
    """A canceled job that has not begun for so long is ended by a job made for this."""
    give_up_pending_s: float = 60.0
    """A canceled job that has not begun for so long counts as canceled: Ray stops it as soon as it begins."""
    usage_pause_s: float = 5.0
    """The cluster is asked for its use at most once in this time."""
    comes_back_s: float = 3.0
    """A job that was removed may come back within this time."""
    log_call_s: float = 5.0
    """All tries to read a log have so long: one that is gone with its node must not hold up other jobs."""


class RayWatch(JobWatch[Found]):
    """One job. Ray can give a job up before it begins, and stop only what has begun."""

    platform: ClassVar[str] = "Ray"
    log: RayLog
    patience: RayPatience

    def __init__(self, api: RayApi, handle: Handle, needs: RayWatchNeeds, patience: RayPatience) -> None:
        super().__init__(handle, RayLog(api, str(handle["job"])), patience)
        self._api = api
        self._needs = needs
        self.url = needs.page(self.name)
        self._session = str(handle.get("session") or "")
        self._session_is_over = False
        self._given_up: Found | None = None  # what Ray has given up, and is to be given once more
        self._has_ender = False

    async def fetch(self) -> Found:
        found = await self._api.job(self.name) or self._given_up
        if found is None:
            session = str((await self._api.version()).get("session_name") or "")
            self._session_is_over = bool(self._session and session and session != self._session)
            raise Missing(f"Ray has no job {self.name}")
        return found

    def words(self, found: Found) -> SeenJob:
        state = found.get("status")
        if state == convert.PENDING or convert.timed_out(found):
            return SeenJob(JobState.WAITING)
        if state == convert.RUNNING:
            return SeenJob(JobState.RUNNING)
        return SeenJob(JobState.FAILED if state in convert.ENDED else JobState.UNKNOWN)

    async def kill(self) -> None:
        await self._api.stop(self.name)

    def missing(self) -> JobStatus:
        if self._session_is_over and not self.canceled:
            why = f"the cluster was started anew and does not know the job ({self._session} is over)"
            return JobStatus(JobState.LOST, why, started=self.log.started)
        return super().missing()

    async def judged(self, found: Found) -> JobStatus:
        if self._given_up is not None:
            return await self._start_anew(self._given_up)
        state = found.get("status")
        if state in convert.ENDED:
            return await self._at_end(found)
        if state == convert.PENDING:
            return await self._pending(found)
        if state != convert.RUNNING:
            return JobStatus(JobState.UNKNOWN, f"Ray tells a state that is not known here: {state!r:.40}")
        if self.log.started is None and await self._has_not_begun():
            return JobStatus(JobState.WAITING, "its command is being started on the node")
        self.host = convert.host_of(found)
        return JobStatus(JobState.RUNNING, started=self.log.started)

    async def _has_not_begun(self) -> bool:
        """Whether the log has not told yet when the job began: the time that Ray tells is that of the submission."""
        try:
            await self.log.follow()
        except Problem as problem:
            log.debug("when %s began cannot be told: %s", self.name, problem)
            return False
        return self.log.started is None

    # ------------------------------------------------------------ waiting

    async def _pending(self, found: Found) -> JobStatus:
        waited_s = self.lasts_s("canceled", self.canceled)
        if not self.canceled:
            said = str(found.get("message") or "")
            return JobStatus(JobState.WAITING, waiting(wanted(convert.again(found)), self._needs.usage(), said))
        if waited_s > self.patience.give_up_pending_s:
            # Ray stops it as soon as it begins: it will not run.
            return JobStatus(JobState.CANCELED, "canceled while it waited")
        if waited_s > self.patience.end_pending_s and not self._has_ender:
            await self._api.submit(convert.ender(self.name))
            self._has_ender = True
        return JobStatus(JobState.WAITING, "it is being canceled")

    async def _start_anew(self, given_up: Found) -> JobStatus:
        """Give Ray a job once more that it has given up: its trial goes on waiting."""
        request = convert.again(given_up)
        if self.canceled:
            return JobStatus(JobState.CANCELED, "canceled while it waited")
        # Ray drops the package with the last job that names it.
        if not await self._needs.supply(convert.package_of(request)):
            return JobStatus(JobState.LOST, "Ray could not start it in time, and has dropped its code meanwhile")
        await self._api.delete(self.name)
        await self._api.submit(request)
        self._given_up = None
        return JobStatus(JobState.WAITING, "Ray could not start it within its time limit, and has it once more")

    # ------------------------------------------------------------ the end

    async def _at_end(self, found: Found) -> JobStatus:
        if convert.timed_out(found):
            self._given_up = found
            log.info("Ray has given up to start %s in time; it gets it once more", self.name)
            # At the next look: Ray is still at ending what it has given up, and that has the name of the job.
            return JobStatus(JobState.WAITING, "Ray could not start it within its time limit")
        if self._has_ender and await self._ends_still():
            return JobStatus(JobState.WAITING, "it is being canceled")
        late = self.lasts_s("ended") >= self.patience.log_lag_s
        try:
            await self.log.follow()
        except Problem as problem:
            # The log is on the node, and goes with it.
            if not convert.was_lost(found) and not late:
                raise
            log.warning("the log of %s cannot be read, so Ray's word has to do: %s", self.name, problem)
            self.log.is_gone = True
        return self.end(found, self.log.exited)

    def end(self, found: Found, word: Exited | None) -> JobStatus:
        return convert.end_of(found, convert.LogWord(word, self.log.started, not self.log.is_gone), self.canceled)

    async def _ends_still(self) -> bool:
        """Whether the job that has ended this one runs still."""
        ender = await self._api.job(convert.ender_name(self.name))
        return ender is not None and ender.get("status") not in convert.ENDED

    async def remove(self) -> None:
        """Take it from Ray's records, if it has ended. Raises: ServiceError while it has not, Problem."""
        if not await self.is_removed():
            await self._api.stop(self.name)
            raise ServiceError(f"{self.name} is still being ended on Ray")

    async def is_removed(self) -> bool:
        """Remove what has ended, and what has ended it; whether nothing is left. Raises: Problem."""
        found = await self._soon_ended()
        if found is not None and found.get("status") not in convert.ENDED:
            return False
        if found is not None:
            await self._api.delete(self.name)
        ender = await self._api.job(convert.ender_name(self.name))
        if ender is not None and ender.get("status") not in convert.ENDED:
            return False
        if ender is not None:
            await self._api.delete(convert.ender_name(self.name))
        return True

    async def _soon_ended(self) -> Found | None:
        """The job as Ray tells it, which hears of its end a moment after the manager."""
        for _ in range(_LOOKS):
            found = await self._api.job(self.name)
            if found is None or found.get("status") in (*convert.ENDED, convert.PENDING):
                break
            await asyncio.sleep(_LOOK_S)
        return found
