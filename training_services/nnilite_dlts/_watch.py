"""Watch one job: what is particular to DLTS.

DLTS starts a job again by itself when it has lost or preempted it, or when it was paused and resumed. A trial must not
begin again within the same attempt, so such a job counts as lost; the manager has it removed and tries the trial again.
"""

from __future__ import annotations

from typing import ClassVar

from nnilite.errors import ServiceError
from nnilite.records import Exited
from nnilite.service import Handle, JobState, JobStatus
from nnilite.services.job_watch import JobWatch, Patience, SeenJob
from nnilite_dlts import _convert as convert
from nnilite_dlts._api import DltsApi, DltsJob
from nnilite_dlts._config import DltsConfig
from nnilite_dlts._log import DltsLog


class DltsWatch(JobWatch[DltsJob]):
    """One job. DLTS reports no exit code, and the reason of a failure only on a separate call."""

    platform: ClassVar[str] = "DLTS"

    def __init__(self, api: DltsApi, config: DltsConfig, handle: Handle, patience: Patience) -> None:
        super().__init__(handle, DltsLog(api, str(handle["id"])), patience)
        self._api = api
        self._config = config
        self.url = api.make_job_page(self.id)
        self._started: float | None = None
        self._message = ""

    async def fetch(self) -> DltsJob:
        return await self._api.job(self.id)

    def is_this(self, job: DltsJob) -> bool:
        return job.get("jobName") == self.name

    def interpret(self, job: DltsJob) -> SeenJob:
        seen = convert.seen(job)
        trouble = convert.has_image_trouble(job)
        if self.lasts_s("image", trouble) >= self._config.image_pull_limit and trouble:
            reason = f"given up after {self._config.image_pull_limit} s: {self._config.image}: {seen.reason}"
            return SeenJob(JobState.FAILED, reason, holds=True)
        if seen.state is JobState.RUNNING and seen.started is not None:
            self._started = self._started or seen.started
            if seen.started != self._started:
                return SeenJob(JobState.LOST, "DLTS lost the job and started it again")
        return seen

    async def learn(self, job: DltsJob) -> DltsJob:
        if job.get("jobStatus") in convert.FAILED and not self._message:
            self._message = await self._api.message(self.id)
        return job

    def speaks(self, job: DltsJob, seen: SeenJob) -> bool:
        state = job.get("jobStatus")
        return state == "failed" or (self.by_log and state == "finished")

    async def kill(self) -> None:
        answer = await self._api.kill(self.id)
        if answer.startswith("Success"):
            return
        if (await self.fetch()).get("jobStatus") in convert.KILLABLE:
            raise ServiceError(f"DLTS does not stop the job {self.name}: {answer or 'it gives no reason'}")

    def end(self, job: DltsJob, word: Exited | None) -> JobStatus:
        if job.get("jobStatus") not in convert.ENDED:
            return self.interpret(job).status()
        return convert.judge_end(job, word, self._message)
