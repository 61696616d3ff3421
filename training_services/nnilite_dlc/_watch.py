"""Watch one job: what is particular to DLC."""

from __future__ import annotations

from typing import ClassVar

from nnilite.records import Exited
from nnilite.service import Handle, JobStatus
from nnilite.services.job_watch import JobWatch, Patience, SeenJob
from nnilite_dlc import _status
from nnilite_dlc._api import DlcApi, DlcJob
from nnilite_dlc._log import DlcLog


class DlcWatch(JobWatch[DlcJob]):
    """One job. Lists do not show its pods, and the log is that of a pod."""

    platform: ClassVar[str] = "DLC"
    log: DlcLog

    def __init__(self, api: DlcApi, handle: Handle, page: str, patience: Patience) -> None:
        super().__init__(handle, DlcLog(api, str(handle["id"])), patience)
        self._api = api
        self.url = page

    async def fetch(self) -> DlcJob:
        return await self._api.job(self.id)

    def is_this(self, job: DlcJob) -> bool:
        return job.name == self.name

    def interpret(self, job: DlcJob) -> SeenJob:
        return _status.seen(job)

    async def learn(self, job: DlcJob) -> DlcJob:
        job = await self._api.job(self.id)
        self.log.locate(job)
        return job

    def knows_enough(self) -> bool:
        return self.log.located

    async def kill(self) -> None:
        await self._api.stop(self.id)

    def end(self, job: DlcJob, word: Exited | None) -> JobStatus:
        return _status.judge_end(job, word, self.ran)
