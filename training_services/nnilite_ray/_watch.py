"""What is known of one job: only a cache, but for requests that are still to be sent."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnilite.platform_http import Problem
from nnilite.records import Json, KeeperEvent
from nnilite.service import Handle, JobState, JobStatus
from nnilite.services.job_watch import Patience
from nnilite_ray import _convert as convert
from nnilite_ray._api import RayApi
from nnilite_ray._log import RayLog
from nnilite_ray._resources import Usage, waiting, wanted

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RayPatience(Patience):
    """How long is waited for what on Ray, in seconds."""

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


class RayWatch:
    """`status` is what is told of a job. All methods raise Problem."""

    def __init__(self, handle: Handle, supply: Callable[[str], Awaitable[bool]], patience: RayPatience) -> None:
        """`supply` sees to it that Ray has a package of this name; False if that cannot be."""
        self.name = str(handle["job"])
        self.end: JobStatus | None = None
        self.canceled: float | None = None  # when, by the monotonic clock
        self.host = ""
        """The node on which it was last seen to run."""
        self.log = RayLog()
        self._supply = supply
        self._patience = patience
        self._session = str(handle.get("session") or "")
        self._with_output = handle.get("report") == "stdout"
        self._events: list[KeeperEvent] = []
        self._ended: float | None = None  # when the end was seen first, by the monotonic clock
        self._anew: dict[str, Json] | None = None  # the request of a job that Ray is to be given once more
        self._has_ender = False
        self._log_is_gone = False

    async def status(self, api: RayApi, found: Mapping[str, Any] | None, usage: Usage) -> JobStatus:
        """`found`: what Ray tells of the job; None if its list does not have it."""
        if self.end is not None:
            return self.end
        told = await self._status(api, found, usage)
        if told.state.ended:
            self.end = told
        return told

    async def _status(self, api: RayApi, found: Mapping[str, Any] | None, usage: Usage) -> JobStatus:
        if self._anew is not None:
            return await self._start_anew(api, self._anew)
        found = found or await api.job(self.name)
        if found is None:
            return await self._missing(api)
        state = found.get("status")
        if state in convert.ENDED:
            return await self._at_end(api, found)
        if state == convert.PENDING:
            return await self._pending(api, found, usage)
        if state != convert.RUNNING:
            return JobStatus(JobState.UNKNOWN, f"Ray tells a state that is not known here: {state!r:.40}")
        if self.log.started is None and await self._has_not_begun(api):
            return JobStatus(JobState.WAITING, "its command is being started on the node")
        self.host = convert.host_of(found)
        return JobStatus(JobState.RUNNING, "", host=self.host, started=self.log.started)

    async def _has_not_begun(self, api: RayApi) -> bool:
        """Whether the log has not told yet when the job began: the time that Ray tells is that of the submission."""
        try:
            await self._read(api)
        except Problem as problem:
            log.debug("when %s began cannot be told: %s", self.name, problem)
            return False
        return self.log.started is None

    # ------------------------------------------------------------ waiting

    async def _pending(self, api: RayApi, found: Mapping[str, Any], usage: Usage) -> JobStatus:
        if self.canceled is None:
            said = str(found.get("message") or "")
            return JobStatus(JobState.WAITING, waiting(wanted(convert.again(found)), usage, said))
        waited_s = time.monotonic() - self.canceled
        if waited_s > self._patience.give_up_pending_s:
            # Ray stops it as soon as it begins: it will not run.
            return JobStatus(JobState.CANCELED, "canceled while it waited")
        if waited_s > self._patience.end_pending_s and not self._has_ender:
            await api.submit(convert.ender(self.name))
            self._has_ender = True
        return JobStatus(JobState.WAITING, "it is being canceled")

    async def _start_anew(self, api: RayApi, request: dict[str, Json]) -> JobStatus:
        """Give Ray a job once more that it has given up: its trial goes on waiting."""
        if self.canceled is not None:
            self._anew = None
            return JobStatus(JobState.CANCELED, "canceled while it waited")
        # Ray drops the package with the last job that names it.
        if not await self._supply(convert.package_of(request)):
            self._anew = None
            return JobStatus(JobState.LOST, "Ray could not start it in time, and has dropped its code meanwhile")
        await api.delete(self.name)
        await api.submit(request)
        self._anew = None
        return JobStatus(JobState.WAITING, "Ray could not start it within its time limit, and has it once more")

    async def _missing(self, api: RayApi) -> JobStatus:
        if self.canceled is not None:
            return JobStatus(JobState.CANCELED, "canceled")
        session = str((await api.version()).get("session_name") or "")
        why = f" ({self._session} is over)" if self._session and session and session != self._session else ""
        known = "the cluster was started anew and does not know the job" if why else "the cluster has forgotten the job"
        return JobStatus(JobState.LOST, known + why, started=self.log.started)

    # ------------------------------------------------------------ the end

    async def _at_end(self, api: RayApi, found: Mapping[str, Any]) -> JobStatus:
        if convert.timed_out(found):
            self._anew = convert.again(found)
            log.info("Ray has given up to start %s in time; it gets it once more", self.name)
            # At the next look: Ray is still at ending what it has given up, and that has the name of the job.
            return JobStatus(JobState.WAITING, "Ray could not start it within its time limit")
        if self._has_ender and await self._ends_still(api):
            return JobStatus(JobState.WAITING, "it is being canceled")
        self._ended = self._ended or time.monotonic()
        complete = True
        try:
            await self._read(api)
        except Problem as problem:
            # The log is on the node, and goes with it.
            if not convert.was_lost(found) and time.monotonic() - self._ended < self._patience.log_lag_s:
                raise
            log.warning("the log of %s cannot be read, so Ray's word has to do: %s", self.name, problem)
            complete, self._log_is_gone = False, True
        word = convert.LogWord(self.log.exited, self.log.started, complete)
        return convert.end_of(found, word, self.canceled is not None)

    async def _ends_still(self, api: RayApi) -> bool:
        """Whether the job that has ended this one runs still."""
        ender = await api.job(convert.ender_name(self.name))
        return ender is not None and ender.get("status") not in convert.ENDED

    # ------------------------------------------------------------ the log

    async def events(self, api: RayApi) -> Sequence[KeeperEvent]:
        """What the log tells that was not told before."""
        if not self._log_is_gone and (self.end is not None or time.monotonic() >= self.log.next_reading):
            await self._read(api, self._patience.log_pause_s)
        found, self._events = self._events, []
        return found

    async def _read(self, api: RayApi, pause_s: float = 0.0) -> None:
        self._events += self.log.take(await api.log(self.name), self._with_output, pause_s)
