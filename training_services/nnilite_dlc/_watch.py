"""What becomes of one job: from what DLC tells, its log, and what was seen of it before."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nnilite.errors import NniliteError, ServiceError
from nnilite.platform_http import CallRefused, Contradiction, Missing
from nnilite.records import KeeperEvent
from nnilite.service import Handle, JobState, JobStatus
from nnilite_dlc import _status
from nnilite_dlc._api import DlcApi, DlcJob
from nnilite_dlc._log import DlcLog

_YOUNG_S = 30.0
_GONE_S = 60.0
"""So long a job must not be there before it counts as gone."""
_LOG_LAG_S = 60.0
"""How long after a job's end its log may come to an end."""


class DlcWatch:
    """One job. All that it remembers is a cache: another one comes to the same result, if later."""

    def __init__(self, api: DlcApi, handle: Handle, page: str) -> None:
        self._api = api
        self._id, self._name = str(handle["id"]), str(handle["job"])
        self._url = page
        self.log = DlcLog(api)
        self._submitted = float("-inf")
        self._ran = False
        self._node = ""
        self._since: dict[str, float] = {}  # when something was seen first
        self._cancel_at: float | None = None
        self._canceled = False
        self._read_whole = False
        self._end: JobStatus | None = None

    def submitted(self) -> None:
        """It is there by now."""
        self._submitted = time.monotonic()

    @property
    def over(self) -> bool:
        """Whether its end is known."""
        return self._end is not None

    # ------------------------------------------------------------ its status

    async def status(self, jobs: Mapping[str, DlcJob]) -> JobStatus:
        """The status now; `jobs` are those that DLC has listed, by their ids."""
        if self._end is not None:
            return self._end
        try:
            found = jobs.get(self._id) or await self._api.job(self._id)
            status = await self._judged(found) if found.name == self._name else self._missing()
        except Missing:
            status = self._missing()
        except NniliteError as problem:  # no reason to know nothing of the other jobs
            return JobStatus(JobState.UNKNOWN, str(problem), url=self._url)
        status = replace(status, url=self._url, host=status.host or self._node)
        if status.state.ended:
            self._end = status
        return status

    def _for_s(self, what: str) -> float:
        """For how long something is so."""
        now = time.monotonic()
        return now - self._since.setdefault(what, now)

    def _missing(self) -> JobStatus:
        if time.monotonic() - self._submitted < _YOUNG_S:
            return JobStatus(JobState.WAITING, "DLC has just taken it")
        if self._for_s("missing") < _GONE_S:
            return JobStatus(JobState.UNKNOWN, "DLC does not know it at the moment")
        return JobStatus(JobState.LOST, "DLC has no such job (any more)")

    async def _judged(self, found: DlcJob) -> JobStatus:
        """Raises: Problem, ServiceError."""
        if self._cancel_at is not None and not self._canceled and time.monotonic() >= self._cancel_at:
            await self._cancel_now()
        self._since.pop("missing", None)
        state = _status.state_of(found)
        self._ran = self._ran or found.started is not None or state == "running"
        if state in _status.ENDED:
            return await self._ended()
        if state == _status.RESTARTING or (state in _status.WAITING and self._ran) or found.restarts:
            # The command would begin anew within the same attempt, so the job counts as lost, and is removed.
            return _status.lost(found, "DLC has taken it off its nodes, to start it anew")
        if state in _status.WAITING:
            reason = _status.waiting(found) if self._cancel_at is None else "it is being canceled"
            return JobStatus(JobState.WAITING, reason)
        if state in _status.RUNNING:
            return await self._running(found)
        return JobStatus(JobState.UNKNOWN, f"DLC tells a state that is not known here: {found.status!r:.40}")

    async def _running(self, found: DlcJob) -> JobStatus:
        state = _status.state_of(found)
        if state != "running" and not self._ran:
            return JobStatus(JobState.WAITING, _status.RUNNING[state])
        if not self.log.located:
            await self._learn()
        reason = "it is being canceled" if self._cancel_at is not None else _status.RUNNING[state]
        return JobStatus(JobState.RUNNING, reason, started=found.started)

    async def _learn(self) -> DlcJob:
        """Ask for its pods. Raises: Problem."""
        found = await self._api.job(self._id)
        self.log.locate(found)
        self._node = next((pod.node for pod in found.pods if pod.node), self._node)
        return found

    async def _ended(self) -> JobStatus:
        found = await self._learn()
        self._ran = self._ran or found.started is not None
        lag = self._for_s("ended")
        try:
            await self.log.follow()
        except NniliteError:
            if lag < _LOG_LAG_S:
                raise
        stopped = _status.state_of(found) in _status.STOPPED and self._canceled
        if self.log.exited is None and self._ran and not stopped and lag < _LOG_LAG_S:
            return JobStatus(JobState.RUNNING, "it has ended, and the end of its log is awaited", started=found.started)
        end = _status.ended(found, self.log.exited, self._ran)
        if self._canceled and end.state is not JobState.SUCCEEDED:
            end = replace(end, state=JobState.CANCELED, reason=end.reason or "canceled")
        return end

    # ------------------------------------------------------------ its end

    async def cancel(self, soft_s: float) -> None:
        """Ask for its end: in `soft_s` seconds if it runs, by when its keeper may have ended the trial; else now."""
        if self._end is not None or self._cancel_at is not None:
            return
        try:
            found = await self._api.job(self._id)
        except Missing:
            return
        if _status.state_of(found) in _status.ENDED:
            return
        soft_s = soft_s if _status.state_of(found) == "running" else 0.0
        if not soft_s:
            await self._cancel_now()
        self._cancel_at = time.monotonic() + soft_s

    async def _cancel_now(self) -> None:
        """Raises: Problem, ServiceError if DLC refuses it for a job that has not ended."""
        try:
            await self._api.stop(self._id)
        except Missing:
            return
        except (CallRefused, Contradiction) as problem:
            if _status.state_of(await self._api.job(self._id)) not in _status.ENDED:
                raise ServiceError(str(problem)) from problem
        self._canceled = True

    async def remove(self) -> None:
        """End it, if it has not ended, or still holds its pods. Raises: ServiceError while it goes on, Problem."""
        try:
            found = await self._api.job(self._id)
            if _status.state_of(found) in _status.RESERVING:
                await self._cancel_now()
                return
            if _status.state_of(found) not in (*_status.ENDED, "stopping"):
                await self._cancel_now()
                found = await self._api.job(self._id)
        except Missing:
            return
        if _status.state_of(found) not in _status.ENDED:
            raise ServiceError(f"job {self._id} is still being stopped on DLC")

    # ------------------------------------------------------------ its log

    async def reports(self, with_output: bool, pause_s: float) -> Sequence[KeeperEvent]:
        """What its log has that is new; once it has ended, all of it once more. Raises: Problem."""
        if self.over and not self._read_whole:
            self._read_whole = True
            self.log.rewind()
        if self.over or time.monotonic() - self.log.read >= pause_s:
            try:
                if not self.log.located:
                    await self._learn()
                await self.log.follow()
            except Missing:
                return ()
        return self.log.events(with_output)
