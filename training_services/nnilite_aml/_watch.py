"""Watch one job: what is particular to Azure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nnilite.records import Exited
from nnilite.service import Handle, JobState, JobStatus
from nnilite.services.job_watch import JobWatch, Patience, SeenJob
from nnilite_aml import _status
from nnilite_aml._config import AmlConfig
from nnilite_aml._log import AmlLog
from nnilite_aml._request import make_azure_name
from nnilite_aml._workspace import AmlJob, AmlWorkspace, RunFacts


@dataclass(frozen=True)
class AmlPatience(Patience):
    """Times that only Azure needs, in seconds."""

    silent_s: float = 600.0
    """A job counts as lost when Azure has had no contact with its node for this long."""
    upload_s: float = 40.0
    """How long `submit` waits for the upload of the code, before it says that there is no room yet."""


class AmlWatch(JobWatch[AmlJob]):
    """One job. Lists show its state; all else is in the run history."""

    platform: ClassVar[str] = "Azure"
    log: AmlLog
    patience: AmlPatience

    def __init__(self, workspace: AmlWorkspace, config: AmlConfig, handle: Handle, patience: AmlPatience) -> None:
        name = make_azure_name(str(handle["job"]))
        super().__init__({**handle, "id": name}, AmlLog(workspace, name), patience)
        self._workspace = workspace
        self._config = config
        self._facts = RunFacts()

    async def fetch(self) -> AmlJob:
        return await self._workspace.job(self.id)

    def interpret(self, job: AmlJob) -> SeenJob:
        silent_s = self.lasts_s("silent", job.status == _status.NOT_RESPONDING)
        if silent_s >= self.patience.silent_s:
            reason = f"Azure has had no contact with the job's node for {self.patience.silent_s:.0f} s"
            return SeenJob(JobState.LOST, reason, self._facts.started, url=job.url)
        return _status.seen(job, self._config, self._facts)

    async def learn(self, job: AmlJob) -> AmlJob:
        self._facts = await self._workspace.facts(self.id)
        self.log.locate(self._facts)
        return job

    def knows_enough(self) -> bool:
        return self._facts.started is not None

    def taken_away(self, job: AmlJob, seen: SeenJob) -> JobStatus:
        return _status.preempted(self._facts)

    def speaks(self, job: AmlJob, seen: SeenJob) -> bool:
        # What Azure calls canceled is canceled, whatever its keeper says.
        return self.ran and seen.state is not JobState.CANCELED

    async def kill(self) -> None:
        await self._workspace.cancel(self.id)

    def end(self, job: AmlJob, word: Exited | None) -> JobStatus:
        return _status.judge_end(job.status, word, self._facts)
