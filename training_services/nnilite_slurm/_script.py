"""Write the script that Slurm runs for a trial, or for each task of a job array.

It lies in the trial's folder and finds all files from its own place, so that it contains no path:

    DIRECTORY/cache/                              the keeper and the code, by their content
    DIRECTORY/EXPERIMENT/trials/TRIAL/ATTEMPT/    spec.json, the script, job.log, and what keeper and trial write
    DIRECTORY/EXPERIMENT/arrays/ARRAY/            the script of a job array, and the trials that are its tasks

An elastic trial has another script there, `joiner`, for jobs that join it with one more node each.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from nnilite.records import NodeCounts, count_nodes
from nnilite.service import ServiceContext
from nnilite.services.cluster.job_script import claim, enter, keeper_command, set_up
from nnilite.services.cluster.shell_scripts import JOB_START
from nnilite_slurm._config import SlurmConfig, SlurmContainerConfig, strip_option
from nnilite_slurm._shell import JOB_OF_ARRAY

_ID = "${SLURM_ARRAY_TASK_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}"
_AGAIN = "Slurm started the job again (restart ${SLURM_RESTART_COUNT:-0})"
_LOADS_MODULES = "type module >/dev/null 2>&1 || . /etc/profile\n"


FIRST_NODE = "NNILITE_FIRST_NODE"
COUNT_NODES = "SLURM_STEP_NUM_NODES"
_AS_FIRST_NODE = f'export {FIRST_NODE}="$(hostname),$SLURMD_NODENAME"\n'
_ON_ALL_NODES = "srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0{more} "
"""The first node is the one on which the script runs. If a process fails, the keepers end the others themselves."""

_SHOW_FIRST_NODE = f"""{{ echo "${FIRST_NODE}"; hostname -I; }} 2>/dev/null | tr -s ' \\n' , >first-node.new
mv first-node.new first-node
"""
_FIRST_JOINER = 100_000
"""More than an allocation has nodes, so that the numbers of those that join later are their own."""
_JOIN = f"""fail() {{ echo "nnilite: $*" >&2; exit 70; }}
if [ -e canceled ] || [ -e removed ] || [ -e .nni/exit ] || [ ! -s first-node ]; then exit 0; fi
{FIRST_NODE}=$(cat first-node) NNILITE_JOINED_NODE=$(({_FIRST_JOINER} + SLURM_JOB_ID))
export {FIRST_NODE} NNILITE_JOINED_NODE
"""


class TrialScripts:
    """The scripts of the jobs of an experiment. `nodes`: of a distributed trial; None for other trials."""

    keeper = "keeper"
    """Its file in the cache, once it is there."""

    def __init__(self, config: SlurmConfig, context: ServiceContext) -> None:
        distributed = context.defaults.get("distributed")
        self.nodes = count_nodes(distributed) if distributed else None
        self._config = config
        self._comment = f"nnilite:{context.experiment}"

    def task(self, name: str, gpus: int | None, tasks: int) -> str:
        """Return the script of a job, or of a job array of `tasks` tasks."""
        return make_script(name, self._config, self._comment, self.keeper, gpus, tasks, self.nodes)

    def joiner(self, name: str, gpus: int | None) -> str:
        return make_joiner_script(name, self._config, self._comment, self.keeper, gpus)


def make_script(
    name: str,
    config: SlurmConfig,
    comment: str,
    keeper: str,
    gpus: int | None,
    tasks: int = 0,
    nodes: NodeCounts | None = None,
) -> str:
    """Return the script of a job.

    `keeper` is its file in the cache; `tasks`: size of a job array, 0 for a plain job; `nodes`: of a distributed trial,
    which has a keeper on each; None for other trials.
    """
    options = {**_options(name, config, comment, gpus), **_options_of_nodes(config, nodes)}
    if tasks:
        options.update({"output": "%a.log", "array": f"0-{tasks - 1}"})
    parts = ["#!/bin/bash\n", *_lines(options, config), enter('"$SLURM_SUBMIT_DIR"')]
    if tasks:
        parts.append(JOB_OF_ARRAY)
    parts += [claim(_ID, _AGAIN), *_set_up(config), JOB_START]
    before = _container(config.container, nodes is not None)
    if nodes is not None:
        more = f" --cpus-per-task={config.cpus}" if config.cpus else ""
        parts.append(_AS_FIRST_NODE)
        if nodes.is_elastic:
            more += " --no-kill"
            parts.append(_SHOW_FIRST_NODE)
        number = "$SLURM_JOB_NUM_NODES" if nodes.is_elastic else nodes.most
        before = _ON_ALL_NODES.format(nodes=number, more=more) + before
    parts.append(f"exec {keeper_command(keeper, config.python_path, before)}\n")
    return "".join(parts)


def make_joiner_script(name: str, config: SlurmConfig, comment: str, keeper: str, gpus: int | None) -> str:
    """Return the script of a job with one more node for an elastic trial. It runs in the folder of the attempt."""
    options = {**_options(name, config, comment, gpus), "nodes": 1, "output": "joiner-%j.log"}
    before = _container(config.container, in_step=False)
    parts = ["#!/bin/bash\n", *_lines(options, config), enter('"$SLURM_SUBMIT_DIR"')]
    parts += [_JOIN, *_set_up(config), JOB_START]
    return "".join([*parts, f"exec {keeper_command(keeper, config.python_path, before)}\n"])


_Options = dict[str, str | int | None]


def _options(name: str, config: SlurmConfig, comment: str, gpus: int | None) -> _Options:
    return {
        "job-name": name,
        "comment": comment,
        "partition": config.partition,
        "account": config.account,
        "qos": config.qos,
        "gres": config.gres or (f"gpu:{gpus}" if gpus else None),
        "cpus-per-task": config.cpus,
        "mem": None if config.memory is None else f"{config.memory}M",
        "constraint": config.constraint,
        "reservation": config.reservation,
        "time": None if config.time_limit is None else spell_slurm_time(config.time_limit),
        "output": "job.log",
    }


def _options_of_nodes(config: SlurmConfig, nodes: NodeCounts | None) -> _Options:
    """Return the options on the nodes of a trial. An elastic one gets as many as are free."""
    if nodes is None:
        return {"nodes": config.nodes}
    if nodes.is_elastic:  # with --ntasks-per-node it would get the fewest
        return {"nodes": f"{nodes.fewest}-{nodes.most}", "no-kill": ""}
    return {"nodes": nodes.most, "ntasks-per-node": 1}


def _lines(options: _Options, config: SlurmConfig) -> Iterator[str]:
    for option, value in options.items():
        if value is not None:
            yield f"#SBATCH --{option}{'=' if value != '' else ''}{value}\n"
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


def _container(container: SlurmContainerConfig | None, in_step: bool) -> str:
    """Return the words before the command that starts the keeper, so that it runs in the container.

    `in_step`: whether `srun` starts it anyway, on all nodes.
    """
    if container is None:
        return ""
    more = "".join(f" {shlex.quote(word)}" for word in container.options)
    image = shlex.quote(container.image)
    srun = "" if in_step else "srun --ntasks=1 "
    if container.runtime == "pyxis":
        # Variables of the job are set in it, and the folder is mounted where it is.
        return f'{srun}--container-image={image} --container-mounts="$root:$root"{more} '
    if container.runtime == "oci":
        return f"{srun}--container={image}{more} "
    return f'{container.runtime} exec --bind "$root:$root" --pwd "$PWD"{more} {image} '
