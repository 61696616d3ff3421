"""Runs trials by a scheduler's own commands: see `nnilite.services.cluster`."""

from __future__ import annotations

from dataclasses import fields

from nnilite.records import Json
from nnilite.service import Job
from nnilite.services.cluster.login import login_host
from nnilite.services.cluster.queue_service import QueueService
from nnilite_batch._api import BatchApi
from nnilite_batch._batch_script import script_for
from nnilite_batch._config import IGNORED, BatchConfig
from nnilite_batch._scheduler import BatchCommands


class BatchSchedulerService(QueueService):
    """Jobs of any scheduler, submitted on this machine or on a login node that is reached by SSH."""

    Config = BatchConfig
    ignores = IGNORED

    @property
    def scheduler(self) -> str:
        title: str = self.config.described.title
        return title

    def _new_api(self) -> BatchApi:
        config = self.config
        return BatchApi(login_host(config.login, config.scheduler_path, "batch", before=config.login_set_up), config)

    def _script(self, name: str, gpus: int | None) -> str:
        return script_for(self.config, self._keeper or "keeper")

    def describe(self, job: Job) -> Json:
        """The commands and the script that would be sent, and the specification beside it, without secrets."""
        given = {"id": "JOB", "ids": ["JOB"]}
        names = [one.name for one in fields(BatchCommands) if one.name != "options"]
        commands = {name: self.config.command(name, job.name, job.gpus, **given) for name in names}
        shown: dict[str, Json] = {name: command for name, command in commands.items() if command}
        return {"commands": shown, **super().describe(job)}
