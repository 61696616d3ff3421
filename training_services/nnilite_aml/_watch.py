"""What becomes of one job: from what Azure tells, its log, and what was seen of it before."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nnilite.errors import NniliteError, ServiceError
from nnilite.platform_http import CallRefused, Contradiction, Missing
from nnilite.records import KeeperEvent
from nnilite.service import JobState, JobStatus
from nnilite_aml import _status
from nnilite_aml._config import AmlConfig
from nnilite_aml._log import AmlLog
from nnilite_aml._workspace import AmlJob, AmlWorkspace, RunFacts

_YOUNG_S = 30.0
_LOG_LAG_S = 30.0
"""How long after a job's end its log may come to an end."""
_SILENT_S = 600.0


class AmlWatch:
    """One job. All that it remembers is a cache: another one comes to the same result, if later."""

    def __init__(self, workspace: AmlWorkspace, config: AmlConfig, name: str) -> None:
        self._workspace = workspace
        self._config = config
        self._name = name
        self.log = AmlLog(workspace, name)
        self._submitted = float("-inf")
        self._known = False  # it was submitted by this manager, or has been looked at
        self._ran = False
        self._facts = RunFacts()
        self._since: dict[str, float] = {}  # when something was seen first
        self._cancel_at: float | None = None
        self._canceled = False
        self._read_whole = False
        self._end: JobStatus | None = None

    def submitted(self) -> None:
        """It is there by now."""
        self._submitted, self._known = time.monotonic(), True

    # ------------------------------------------------------------ its status

    async def status(self, jobs: Mapping[str, AmlJob]) -> JobStatus:
        """The status now; `jobs` are those that Azure has listed."""
        if self._end is not None:
            return self._end
        url = ""
        try:
            found = jobs.get(self._name) or await self._workspace.job(self._name)
            url = found.url
            status = await self._judged(found)
        except Missing:
            status = self._missing()
        except NniliteError as problem:  # no reason to know nothing of the other jobs
            return JobStatus(JobState.UNKNOWN, str(problem), url=url)
        if status.state.ended:
            self._end = status
        return status

    def _for_s(self, what: str) -> float:
        """For how long something is so."""
        now = time.monotonic()
        return now - self._since.setdefault(what, now)

    def _missing(self) -> JobStatus:
        if time.monotonic() - self._submitted < _YOUNG_S:
            return JobStatus(JobState.WAITING, "Azure has just taken it")
        return JobStatus(JobState.LOST, "Azure has no such job (any more)")

    async def _judged(self, found: AmlJob) -> JobStatus:
        """Raises: Problem, ServiceError."""
        if self._cancel_at is not None and not self._canceled and time.monotonic() >= self._cancel_at:
            await self._cancel_now()
        if found.status == _status.NOT_RESPONDING:
            return self._silent(found)
        self._since.pop(_status.NOT_RESPONDING, None)
        if found.status in _status.ENDED:
            return await self._ended(found)
        if found.status in _status.WAITING:
            return await self._waiting(found)
        if found.status in _status.RUNNING:
            return await self._running(found)
        return JobStatus(
            JobState.UNKNOWN, f"Azure tells a state that is not known here: {found.status!r:.40}", url=found.url
        )

    async def _waiting(self, found: AmlJob) -> JobStatus:
        if not self._known:
            await self._learn()
        if self._ran:
            await self._learn()
            return _status.preempted(self._facts, found.url)
        reason = _status.waiting(found.status, self._config, self._facts.warnings)
        if self._cancel_at is not None:
            reason = "it is being canceled"
        return JobStatus(JobState.WAITING, reason, url=found.url)

    async def _running(self, found: AmlJob) -> JobStatus:
        if found.status == "CancelRequested" and not self._ran:
            return JobStatus(JobState.WAITING, _status.RUNNING[found.status], url=found.url)
        if self._facts.started is None:
            await self._learn()
        self._ran = True
        reason = "it is being canceled" if self._cancel_at is not None else _status.RUNNING[found.status]
        return JobStatus(JobState.RUNNING, reason, url=found.url, started=self._facts.started)

    async def _learn(self) -> None:
        """Ask the run history. Raises: Problem."""
        self._facts = await self._workspace.facts(self._name)
        self.log.locate(self._facts)
        self._ran = self._ran or self._facts.started is not None
        self._known = True

    def _silent(self, found: AmlJob) -> JobStatus:
        """Azure hears nothing of its node, which may come back."""
        if self._for_s(_status.NOT_RESPONDING) < _SILENT_S:
            return JobStatus(JobState.UNKNOWN, "Azure hears nothing of its node", url=found.url)
        return JobStatus(JobState.LOST, f"Azure has heard nothing of its node for {_SILENT_S:.0f} s", url=found.url)

    async def _ended(self, found: AmlJob) -> JobStatus:
        await self._learn()
        await self.log.follow()
        awaited = self.log.exited is None and self._ran and found.status != "Canceled"
        if awaited and self._for_s("ended") < _LOG_LAG_S:
            return JobStatus(JobState.RUNNING, "it has ended, and the end of its log is awaited", url=found.url)
        end = _status.ended(found.status, self.log.exited, self._facts, found.url)
        if self._canceled and end.state is not JobState.SUCCEEDED:
            end = replace(end, state=JobState.CANCELED, reason=end.reason or "canceled")
        return end

    # ------------------------------------------------------------ its end

    async def cancel(self, soft_s: float) -> None:
        """Ask for its end: in `soft_s` seconds if it runs, by when its keeper may have ended the trial; else now."""
        if self._end is not None or self._cancel_at is not None:
            return
        try:
            found = await self._workspace.job(self._name)
        except Missing:
            return
        if found.status in _status.ENDED:
            return
        soft_s = soft_s if found.status == "Running" else 0.0
        if not soft_s:
            await self._cancel_now()
        self._cancel_at = time.monotonic() + soft_s

    async def _cancel_now(self) -> None:
        """Raises: Problem, ServiceError if Azure refuses it for a job that has not ended."""
        try:
            await self._workspace.cancel(self._name)
        except Missing:
            return
        except (CallRefused, Contradiction) as problem:
            if (await self._workspace.job(self._name)).status not in _status.ENDED:
                raise ServiceError(str(problem)) from problem
        self._canceled = True

    async def remove(self) -> None:
        """End it, if it has not ended. Raises: ServiceError while it still goes on, Problem."""
        try:
            found = await self._workspace.job(self._name)
            if found.status not in (*_status.ENDED, "CancelRequested"):
                await self._cancel_now()
                found = await self._workspace.job(self._name)
        except Missing:
            return
        if found.status not in _status.ENDED:
            raise ServiceError(f"{self._name} is still being canceled on Azure")

    # ------------------------------------------------------------ its log

    async def reports(self, with_output: bool, pause_s: float) -> Sequence[KeeperEvent]:
        """What its log has that is new; once it has ended, all of it once more. Raises: Problem."""
        if self._end is not None and not self._read_whole:
            self._read_whole = True
            self.log.rewind()
        if self._end is not None or time.monotonic() - self.log.read >= pause_s:
            try:
                await self.log.follow()
            except Missing:
                return ()
        return self.log.events(with_output)
