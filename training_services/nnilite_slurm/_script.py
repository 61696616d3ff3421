"""Write the script that Slurm runs for a trial, or for each task of a job array.

It lies in the trial's folder and finds all files from its own place, so that it contains no path:

    DIRECTORY/cache/                              the keeper and the code, by their content
    DIRECTORY/EXPERIMENT/trials/TRIAL/ATTEMPT/    spec.json, the script, job.log, and what keeper and trial write
    DIRECTORY/EXPERIMENT/arrays/ARRAY/            the script of a job array, and the trials that are its tasks
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from nnilite.services.cluster.job_script import claim, enter, keeper_command, set_up
from nnilite.services.cluster.shell_scripts import JOB_START
from nnilite_slurm._config import SlurmConfig, SlurmContainerConfig, strip_option
from nnilite_slurm._shell import JOB_OF_ARRAY

_ID = "${SLURM_ARRAY_TASK_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}"
_AGAIN = "Slurm started the job again (restart ${SLURM_RESTART_COUNT:-0})"
_LOADS_MODULES = "type module >/dev/null 2>&1 || . /etc/profile\n"


FIRST_NODE = "NNILITE_FIRST_NODE"
_ON_ALL_NODES = (
    f'export {FIRST_NODE}="$(hostname),$SLURMD_NODENAME"\n',
    "srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0{cpus} ",
)
"""The first node is the one on which the script runs. If a process fails, the keepers end the others themselves."""


def make_script(
    name: str, config: SlurmConfig, comment: str, keeper: str, gpus: int | None, tasks: int = 0, nodes: int = 0
) -> str:
    """Return the script of a job.

    `keeper` is its file in the cache; `tasks`: size of a job array, 0 for a plain job; `nodes`: of a distributed trial,
    which has a keeper on each; 0 for other trials.
    """
    parts = ["#!/bin/bash\n", *_options(name, config, comment, gpus, tasks, nodes), enter('"$SLURM_SUBMIT_DIR"')]
    if tasks:
        parts.append(JOB_OF_ARRAY)
    parts += [claim(_ID, _AGAIN), *_set_up(config), JOB_START]
    before = _container(config.container, nodes)
    if nodes:
        cpus = f" --cpus-per-task={config.cpus}" if config.cpus else ""
        first, step = _ON_ALL_NODES
        parts.append(first)
        before = step.format(nodes=nodes, cpus=cpus) + before
    parts.append(f"exec {keeper_command(keeper, config.python_path, before)}\n")
    return "".join(parts)


def _options(name: str, config: SlurmConfig, comment: str, gpus: int | None, tasks: int, nodes: int) -> Iterator[str]:
    options = {
        "job-name": name,
        "comment": comment,
        "partition": config.partition,
        "account": config.account,
        "qos": config.qos,
        "gres": config.gres or (f"gpu:{gpus}" if gpus else None),
        "cpus-per-task": config.cpus,
        "mem": None if config.memory is None else f"{config.memory}M",
        "nodes": nodes or config.nodes,
        "ntasks-per-node": 1 if nodes else None,
        "constraint": config.constraint,
        "reservation": config.reservation,
        "time": None if config.time_limit is None else spell_slurm_time(config.time_limit),
        "output": "%a.log" if tasks else "job.log",
        "array": f"0-{tasks - 1}" if tasks else None,
    }
    for option, value in options.items():
        if value is not None:
            yield f"#SBATCH --{option}={value}\n"
    # A trial that is started again belongs to a new attempt, which the manager makes.
    yield "#SBATCH --no-requeue\n"
    for line in config.sbatch_lines:
        yield f"#SBATCH {strip_option(line)}\n"


def spell_slurm_time(seconds: int) -> str:
    """Return a time as Slurm writes it.

    >>> spell_slurm_time(93784)
    '1-02:03:04'
    """
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days}-{hour:02}:{minute:02}:{second:02}"


def _set_up(config: SlurmConfig) -> Iterator[str]:
    if config.modules:
        yield _LOADS_MODULES
    yield from set_up([f"module load {name}" for name in config.modules] + list(config.set_up))


def _container(container: SlurmContainerConfig | None, nodes: int) -> str:
    """Return the words before the command that starts the keeper, so that it runs in the container.

    `nodes`: whether `srun` starts it anyway, on all nodes.
    """
    if container is None:
        return ""
    more = "".join(f" {shlex.quote(word)}" for word in container.options)
    image = shlex.quote(container.image)
    srun = "" if nodes else "srun --ntasks=1 "
    if container.runtime == "pyxis":
        # Variables of the job are set in it, and the folder is mounted where it is.
        return f'{srun}--container-image={image} --container-mounts="$root:$root"{more} '
    if container.runtime == "oci":
        return f"{srun}--container={image}{more} "
    return f'{container.runtime} exec --bind "$root:$root" --pwd "$PWD"{more} {image} '
