"""What becomes of one job: from what DLTS tells, its log, and what was seen of it before.

DLTS starts a job anew by itself when it has lost or preempted it, or when it was paused and resumed. A trial must not
begin anew within the same attempt, so such a job counts as lost; the manager has it removed and tries the trial again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace

from nnilite.errors import NniliteError
from nnilite.records import Json
from nnilite.service import Handle, JobState, JobStatus
from nnilite_dlts import _convert as convert
from nnilite_dlts._api import DltsApi
from nnilite_dlts._config import DltsConfig
from nnilite_dlts._log import DltsLog

_GONE_S = 10.0
"""DLTS also says that it does not know a job when its database fails for a moment."""
_LOG_LAG_S = {"rest": 15.0, "stdout": 60.0}
"""How long after a job's end its log may come to an end, by how the trial reports."""

DltsJob = Mapping[str, Json]
"""A job as DLTS tells it."""


class DltsWatch:
    """One job. All that it remembers is a cache: another one comes to the same result, if later."""

    def __init__(self, api: DltsApi, config: DltsConfig, handle: Handle) -> None:
        self._api = api
        self._config = config
        self._name, self._id = str(handle["job"]), str(handle["id"])
        self._by_log = handle.get("report") == "stdout"
        self._url = api.job_page(self._id)
        self.log = DltsLog(api, self._id)
        self.canceled = False
        self.end: JobStatus | None = None
        self._started: float | None = None
        self._ran = False
        self._since: dict[str, float] = {}  # when something was seen first
        self._reading = asyncio.Lock()

    async def follow(self) -> None:
        """Read on in the log. Raises: Problem."""
        async with self._reading:
            await self.log.fetch()

    async def status(self, jobs: Mapping[str, DltsJob]) -> JobStatus:
        """The status now; `jobs` are those that DLTS has listed."""
        if self.end is not None:
            return self.end
        try:
            found = jobs.get(self._id) or await self._api.job(self._id)
            status = await self._judged(found)
        except NniliteError as error:  # no reason to know nothing of the other jobs
            return JobStatus(JobState.UNKNOWN, str(error))
        if status.state.ended:
            self.end = status
        return status

    async def _judged(self, found: DltsJob | None) -> JobStatus:
        if found is None or found.get("jobName") != self._name:
            if self._for_s("missing") < _GONE_S:
                return JobStatus(JobState.UNKNOWN, "DLTS does not list it")
            return JobStatus(JobState.LOST, "DLTS does not know it (any more)")
        self._since.pop("missing", None)
        state = found.get("jobStatus")
        if state in convert.WAITING:
            return self._waiting(found)
        if state == "running":
            return self._running(found)
        if state in convert.ENDED:
            return await self._ended(found)
        return convert.between(found, self._url)

    def _for_s(self, what: str) -> float:
        """For how long something is so."""
        now = time.monotonic()
        return now - self._since.setdefault(what, now)

    def _waiting(self, found: DltsJob) -> JobStatus:
        reason = convert.waiting(found)
        if self._ran:
            return JobStatus(JobState.LOST, f"DLTS has taken it off its node: {reason}", url=self._url)
        if not convert.image_trouble(found):
            self._since.pop("image", None)
        elif self._for_s("image") >= self._config.image_pull_limit:
            told = f"given up after {self._config.image_pull_limit} s: {self._config.image}: {reason}"
            return JobStatus(JobState.FAILED, told, url=self._url)
        return JobStatus(JobState.WAITING, reason, url=self._url)

    def _running(self, found: DltsJob) -> JobStatus:
        started = convert.moment(found, "startedAt")
        if self._started is not None and started is not None and started != self._started:
            return JobStatus(JobState.LOST, "DLTS has lost it and started it anew", url=self._url)
        self._started, self._ran = started, True
        return JobStatus(JobState.RUNNING, url=self._url, started=started)

    async def _ended(self, found: DltsJob) -> JobStatus:
        """The keeper's word, which stands in the log, comes first: DLTS itself tells no exit code."""
        state = found.get("jobStatus")
        if state == "killed" or self.canceled:
            end = convert.by_platform(found, "canceled", self._url)
            return replace(end, state=JobState.CANCELED, reason="canceled", exit_code=None)
        speaks = state == "failed" or (self._by_log and state == "finished")
        if speaks:
            await self.follow()
        if self.log.exited is not None:
            return convert.by_keeper(self.log.exited, found, self._url)
        if speaks and self._for_s("ended") < _LOG_LAG_S["stdout" if self._by_log else "rest"]:
            return JobStatus(JobState.RUNNING, "it has ended, and the end of its log is awaited", url=self._url)
        message = "" if state == "finished" else await self._api.message(self._id)
        return convert.by_platform(found, message, self._url)
