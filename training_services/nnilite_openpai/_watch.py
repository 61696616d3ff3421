"""Watch one job: what is particular to OpenPAI."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import ClassVar

from nnilite.platform_http import Problem
from nnilite.records import Exited, Json
from nnilite.service import Handle, JobStatus
from nnilite.services.job_watch import JobWatch, Patience, SeenJob
from nnilite_openpai import _status
from nnilite_openpai._api import Pai, PaiJob
from nnilite_openpai._log import TaskLog

log = logging.getLogger(__name__)


class PaiWatch(JobWatch[PaiJob]):
    """One job. Lists do not show its tasks, and the log is that of a task."""

    platform: ClassVar[str] = "PAI"
    log: TaskLog

    def __init__(self, api: Pai, handle: Handle, patience: Patience, ask_pause_s: float) -> None:
        self._role = str(handle["role"])
        super().__init__(handle, TaskLog(api, str(handle["job"]), self._role), patience)
        self._api = api
        self.url = api.page(self.name)
        self._ask_pause_s = ask_pause_s
        self._asked = float("-inf")
        self._warnings: Sequence[Mapping[str, Json]] = ()

    async def status(self, jobs: Mapping[str, PaiJob]) -> JobStatus:
        found = jobs.get(self.id)
        if self.over is None and found is not None and _status.waits(found):
            await self._ask_why()
        return await super().status(jobs)

    async def _ask_why(self) -> None:
        """Ask why the job waits, unless that was asked just now."""
        if time.monotonic() - self._asked < self._ask_pause_s:
            return
        self._asked = time.monotonic()
        try:
            self._warnings = await self._api.warnings(self.name)
        except Problem as error:
            log.debug("cannot find out why %s waits: %s", self.name, error)
            self._warnings = ()

    async def fetch(self) -> PaiJob:
        return await self._api.job(self.name)

    def interpret(self, job: PaiJob) -> SeenJob:
        return _status.seen(job, self._role, self._warnings)

    async def learn(self, job: PaiJob) -> PaiJob:
        job = await self.fetch()
        self.log.locate(job)
        return job

    def knows_enough(self) -> bool:
        return self.log.task is not None

    async def kill(self) -> None:
        await self._api.stop(self.name)

    def end(self, job: PaiJob, word: Exited | None) -> JobStatus:
        return _status.judge_end(job, word, self._role)
