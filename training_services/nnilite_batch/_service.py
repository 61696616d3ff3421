"""Runs trials by a scheduler's own commands: see `nnilite.services.cluster`.

Schedulers end jobs in ways of their own, and some by SIGKILL at once. So the script of a job itself looks into the file
`orders` of its folder, and asks the keeper to end the trial softly when the manager has written there. A file that is
opened shows on a network file system what was written before; whether a file exists may be known late.
"""

from __future__ import annotations

from dataclasses import fields

from nnilite.records import Json
from nnilite.service import Job
from nnilite.services.cluster.job_script import claim, enter, keeper_command, set_up
from nnilite.services.cluster.login import login_host
from nnilite.services.cluster.queue_service import QueueService
from nnilite.services.cluster.shell_scripts import JOB_START, read_script
from nnilite_batch._answer_reader import NOT_SEEN
from nnilite_batch._api import BatchApi
from nnilite_batch._config import IGNORED, BatchConfig
from nnilite_batch._scheduler import BatchCommands

JOB_WATCHED = read_script(__file__, "job_watched")


class BatchSchedulerService(QueueService[BatchApi]):
    """Jobs of any scheduler, submitted on this machine or on a login node that is reached by SSH."""

    Config = BatchConfig
    config: BatchConfig
    ignores = IGNORED

    @property
    def scheduler(self) -> str:
        return self.config.described.title

    def connect(self) -> BatchApi:
        config = self.config
        return BatchApi(login_host(config.login, config.scheduler_path, "batch", before=config.login_set_up), config)

    def _script(self, name: str, gpus: int | None) -> str:
        """Return the script of a job, after `folder=...`."""
        scheduler = self.config.described
        number = f"${{{scheduler.job_variable}:-}}" if scheduler.job_variable else ""
        begin = claim(number, f"{scheduler.title} has started it again")
        parts = [enter('"$folder"', NOT_SEEN), "exec >job.log 2>&1\n", begin, *set_up(self.config.set_up), JOB_START]
        command = keeper_command(self._keeper or "keeper", self.config.python_path)
        return "".join(parts) + f": >orders\n{command} &\n{JOB_WATCHED}"

    def describe(self, job: Job) -> Json:
        """Return the commands and the script that would be sent, and the specification with it, without secrets."""
        names = [one.name for one in fields(BatchCommands) if one.name != "options"]
        commands = {name: self.config.command(name, job.name, job.gpus, id="JOB", ids=["JOB"]) for name in names}
        shown: dict[str, Json] = {name: command for name, command in commands.items() if command}
        return {"commands": shown, **super().describe(job)}
