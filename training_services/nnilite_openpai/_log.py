"""Read the log of a job's reporting task. PAI returns all of it each time; it is complete when the job has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from nnilite.records import Json
from nnilite.services.job_log import JobLog
from nnilite_openpai._api import Pai
from nnilite_openpai._status import Task, task_of


class TaskLog(JobLog):
    """The standard output of the first task of the role that reports."""

    lags: ClassVar[bool] = False

    def __init__(self, api: Pai, job: str, role: str) -> None:
        super().__init__()
        self._api = api
        self._job = job
        self._role = role
        self.task: Task | None = None
        """Where the log is, once that is known."""

    def locate(self, detail: Mapping[str, Json]) -> None:
        """Find the log's location in all that PAI knows of the job."""
        self.task = task_of(detail, self._role) or self.task

    async def read_on(self) -> None:
        if self.task is None:
            self.locate(await self._api.job(self._job))
        if self.task is not None:
            self.add_whole(await self._api.log(self._job, self.task.place, "stdout"))
