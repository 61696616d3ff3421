"""The script that a scheduler runs for a trial.

Schedulers end jobs in ways of their own, and some by SIGKILL at once. So the script itself looks into the file `orders`
of its folder, and asks the keeper to end the trial softly when the manager has written there. A file that is opened
shows on a network file system what was written before; whether a file exists may be known late.
"""

from __future__ import annotations

from nnilite.services.cluster.job_script import claim, enter, keeper_command, set_up
from nnilite.services.cluster.shell_scripts import JOB_START
from nnilite_batch._answer_reader import NOT_SEEN
from nnilite_batch._batch_shell import JOB_WATCHED
from nnilite_batch._config import BatchConfig


def script_for(config: BatchConfig, keeper: str) -> str:
    """Return the script of a job, after `folder=...`. `keeper` is the keeper's file in the cache."""
    scheduler = config.described
    number = f"${{{scheduler.job_variable}:-}}" if scheduler.job_variable else ""
    again = f"{scheduler.title} has started it again"
    command = keeper_command(keeper, config.python_path)
    log = "exec >job.log 2>&1\n"
    parts = [enter('"$folder"', NOT_SEEN), log, claim(number, again), *set_up(config.set_up), JOB_START]
    return "".join(parts) + f": >orders\n{command} &\n{JOB_WATCHED}"
