"""Watch one job: what is particular to Ray. All is a cache, except for a request that is still to be sent."""

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
from nnilite_ray._resources import Usage, named_resources, waiting, waiting_for_nodes

log = logging.getLogger(__name__)


Found = Mapping[str, Any]
_LOOKS, _LOOK_S = 5, 0.2


class RayWatchNeeds(NamedTuple):
    """The functions of the service that a watch needs."""

    page: Callable[[str], str]
    """Returns the address of a job's page."""
    usage: Callable[[], Usage]
    """Returns the use of the cluster's resources."""
    supply: Callable[[str], Awaitable[bool]]
    """Ensures that Ray has a package of this name; False if that is impossible."""


@dataclass(frozen=True)
class RayPatience(Patience):
    """The waiting times on Ray, in seconds."""

    list_pause_s: float = 0.0
    log_lag_s: float = 20.0
    end_pending_s: float = 5.0
    """A canceled job that has not begun after this time is ended by a job made for this."""
    give_up_pending_s: float = 60.0
    """A canceled job that has not begun after this time counts as canceled: Ray stops it as soon as it begins."""
    usage_pause_s: float = 5.0
    """The cluster is asked for its use at most once in this time."""
    comes_back_s: float = 3.0
    """A job that was removed may come back within this time."""
    log_call_s: float = 5.0
    """The limit on all tries to read a log: one that is gone with its node must not hold up other jobs."""


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
        self._given_up: Found | None = None  # the result for a job that Ray has given up, to be returned again
        self._has_ender = False

    async def fetch(self) -> Found:
        found = await self._api.job(self.name) or self._given_up
        if found is None:
            session = str((await self._api.version()).get("session_name") or "")
            self._session_is_over = bool(self._session and session and session != self._session)
            raise Missing(f"Ray does not know the job {self.name}")
        return found

    def interpret(self, job: Found) -> SeenJob:
        state = job.get("status")
        if state == convert.PENDING or convert.has_timed_out(job):
            return SeenJob(JobState.WAITING)
        if state == convert.RUNNING:
            return SeenJob(JobState.RUNNING)
        return SeenJob(JobState.FAILED if state in convert.ENDED else JobState.UNKNOWN)

    async def kill(self) -> None:
        await self._api.stop(self.name)

    def missing(self) -> JobStatus:
        if self._session_is_over and not self.canceled:
            why = f"the cluster was restarted and does not know the job ({self._session} is over)"
            return JobStatus(JobState.LOST, why, started=self.log.started)
        return super().missing()

    async def judged(self, job: Found) -> JobStatus:
        if self._given_up is not None:
            return await self._start_anew(self._given_up)
        state = job.get("status")
        if state in convert.ENDED:
            return await self._judge_at_end(job)
        if state == convert.PENDING:
            return await self._pending(job)
        if state != convert.RUNNING:
            return JobStatus(JobState.UNKNOWN, f"Ray reported the unknown state {state!r:.40}")
        if self.log.started is None and await self._has_not_begun():
            number, bundle = convert.find_nodes(job)
            reason = waiting_for_nodes(number, bundle, self._needs.usage()) if number else ""
            return JobStatus(JobState.WAITING, reason or "the job's command is being started on the node")
        self.host = convert.find_host(job)
        return JobStatus(JobState.RUNNING, started=self.log.started)

    async def _has_not_begun(self) -> bool:
        """Return whether the log does not show yet when the job began: Ray reports only the time of the submission."""
        try:
            await self.log.follow()
        except Problem as problem:
            log.debug("cannot find out when %s began: %s", self.name, problem)
            return False
        return self.log.started is None

    # ------------------------------------------------------------ waiting

    async def _pending(self, job: Found) -> JobStatus:
        waited_s = self.lasts_s("canceled", self.canceled)
        if not self.canceled:
            message = str(job.get("message") or "")
            return JobStatus(
                JobState.WAITING, waiting(named_resources(convert.again(job)), self._needs.usage(), message)
            )
        if waited_s > self.patience.give_up_pending_s:
            # Ray stops it as soon as it begins: it will not run.
            return JobStatus(JobState.CANCELED, "the job was canceled while it waited")
        if waited_s > self.patience.end_pending_s and not self._has_ender:
            await self._api.submit(convert.ender(self.name))
            self._has_ender = True
        return JobStatus(JobState.WAITING, "the job is being canceled")

    async def _start_anew(self, given_up: Found) -> JobStatus:
        """Submit a job again that Ray has given up: its trial keeps waiting."""
        request = convert.again(given_up)
        if self.canceled:
            return JobStatus(JobState.CANCELED, "the job was canceled while it waited")
        # Ray drops the package with the last job that names it.
        if not await self._needs.supply(convert.find_package(request)):
            return JobStatus(JobState.LOST, "Ray could not start the job in time, and dropped its code meanwhile")
        await self._api.delete(self.name)
        await self._api.submit(request)
        self._given_up = None
        return JobStatus(
            JobState.WAITING, "Ray could not start the job within its time limit; the job was submitted again"
        )

    # ------------------------------------------------------------ the end

    async def _judge_at_end(self, job: Found) -> JobStatus:
        if convert.has_timed_out(job):
            self._given_up = job
            log.info("Ray gave up starting %s in time; submitting it again", self.name)
            # The next poll submits it again: Ray is still ending the job that it gave up, which has the same name.
            return JobStatus(JobState.WAITING, "Ray could not start the job within its time limit")
        if self._has_ender and await self._ends_still():
            return JobStatus(JobState.WAITING, "the job is being canceled")
        late = self.lasts_s("ended") >= self.patience.log_lag_s
        try:
            await self.log.follow()
        except Problem as problem:
            # The log is on the node, and is lost with it.
            if not convert.was_lost(job) and not late:
                raise
            log.warning("cannot read the log of %s; using Ray's own report: %s", self.name, problem)
            self.log.is_gone = True
        return self.end(job, self.log.exited)

    def end(self, job: Found, word: Exited | None) -> JobStatus:
        return convert.end_of(job, convert.LoggedEnd(word, self.log.started, not self.log.is_gone), self.canceled)

    async def _ends_still(self) -> bool:
        """Return whether the job that ended this one is still running."""
        ender = await self._api.job(convert.name_ender(self.name))
        return ender is not None and ender.get("status") not in convert.ENDED

    async def remove(self) -> None:
        """Remove the job from Ray's records, if it has ended. Raises: ServiceError while it has not, Problem."""
        if not await self.is_removed():
            await self._api.stop(self.name)
            raise ServiceError(f"Ray is still stopping the job {self.name}")

    async def is_removed(self) -> bool:
        """Remove what has ended, and what has ended it; return whether nothing is left. Raises: Problem."""
        found = await self._wait_for_end()
        if found is not None and found.get("status") not in convert.ENDED:
            return False
        if found is not None:
            await self._api.delete(self.name)
        ender = await self._api.job(convert.name_ender(self.name))
        if ender is not None and ender.get("status") not in convert.ENDED:
            return False
        if ender is not None:
            await self._api.delete(convert.name_ender(self.name))
        return True

    async def _wait_for_end(self) -> Found | None:
        """Return the job as Ray reports it; Ray notices its end a moment after the manager."""
        for _ in range(_LOOKS):
            found = await self._api.job(self.name)
            if found is None or found.get("status") in (*convert.ENDED, convert.PENDING):
                break
            await asyncio.sleep(_LOOK_S)
        return found
