"""The parts of the shell script that a scheduler runs for a trial, and that becomes its keeper.

An attempt runs once: the first job that makes the folder `claim` has it, and the file `owner` has its id. A job may
have been submitted twice, when the scheduler was slow to answer; the other one ends at once. A scheduler may also start
a job again, which the file `again` shows. The file `failed` says why a trial was not started.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from nnilite.services.cluster.shell_scripts import JOB_CLAIM, JOB_ENTER

SETTLE_S = 60
"""Time before the scheduler's limit, beyond the grace: for set-up lines, and since it checks only at intervals."""
_USUAL_PYTHONS = ("python3", "python", "/usr/bin/python3", "/usr/local/bin/python3", "/opt/conda/bin/python3")


def enter(folder: str, status: int = 70) -> str:
    """Go to the attempt's folder. `folder`: its shell word; `status`: the exit status if the node lacks it."""
    return f"folder={folder} unseen={status}\n{JOB_ENTER}"


def claim(job_id: str, again: str) -> str:
    """Run once. `job_id`: a shell word for the job's id; `again`: what to say of a job that was started again."""
    return f'me={job_id}\nagain="{again}"\n{JOB_CLAIM}'


def set_up(commands: Sequence[str]) -> Iterator[str]:
    """Run the user's commands one by one; the first that fails is named, and the trial fails."""
    for command in commands:
        yield f"{{\n{command}\n}} || fail {shlex.quote(f'this set-up line failed: {command}')}\n"


def keeper_command(keeper: str, python_path: str | None, before: str = "") -> str:
    """Return the command that becomes the keeper, after `JOB_START`. `before`: words that put it into a container."""
    pythons = " ".join(shlex.quote(path) for path in pythons_of(python_path))
    return f'{before}/bin/sh -c "$start" nnilite "$root/cache/{keeper}" "$PWD/spec.json" {pythons}'


def pythons_of(python_path: str | None) -> list[str]:
    """Return where Python may be, in the order in which it is looked for."""
    if python_path is None:
        return list(_USUAL_PYTHONS)
    folder = python_path.rstrip("/") or "/"
    return [f"{folder}/python3", f"{folder}/python", f"{folder}/bin/python3", f"{folder}/bin/python", folder]


def run_limit_s(time_limit: float | None, grace_s: float) -> float | None:
    """Return when the keeper ends the trial, in seconds from its start, to finish before the scheduler's limit."""
    return None if time_limit is None else max(1.0, time_limit - SETTLE_S - grace_s)
