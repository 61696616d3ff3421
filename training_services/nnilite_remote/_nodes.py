"""A trial on several machines: all are booked at once, each gets a keeper, and their handles are one.

The machines of a job are booked by one write, or none is: no trial ever holds some of its machines and waits for the
others. If a machine cannot start its keeper after others have, the attempt is lost, since it has begun: the others are
ended, and the trial is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from nnilite.errors import ConfigError, NniliteError, Place
from nnilite.records import Json
from nnilite.service import Handle, Job, ServiceContext
from nnilite.services.section_fields import nodes_of, nodes_place
from nnilite_remote._bookings import Booking
from nnilite_remote._config import RemoteConfig
from nnilite_remote._machine import Machine

log = logging.getLogger(__name__)

MEMBERS, LOST = "members", "lost"
"""In a handle: the handles of the job's other nodes; why the job was lost at its start."""


NO_KEEPER: Json = {"pid": 0, "start": "", "boot": ""}


def name_of(job: str, node: int) -> str:
    """Return the name under which a node of a job is booked.

    >>> name_of("nni-e-t-0", 0), name_of("nni-e-t-0", 1)
    ('nni-e-t-0', 'nni-e-t-0/1')
    """
    return f"{job}/{node}" if node else job


def name_of_folder(attempt: str, node: int) -> str:
    """Return the folder of a node, given that of its attempt: machines may have a disk in common.

    >>> name_of_folder("e/trials/t/0", 0), name_of_folder("e/trials/t/0", 1)
    ('e/trials/t/0', 'e/trials/t/0.1')
    """
    return f"{attempt}.{node}" if node else attempt


def handle_of(name: str, booking: Booking, keeper: Json) -> Handle:
    """Return the handle of a node, which is booked under this name."""
    return {
        "job": name,
        "machine": booking.machine,
        "directory": booking.directory,
        "gpus": None if booking.gpus is None else list(booking.gpus),
        **{name: keeper[name] for name in ("pid", "start", "boot")},
        "server": str(keeper.get("server") or ""),
    }


def unanswered(name: str, booking: Booking) -> Handle:
    """Return the handle of a node whose start was not answered, or is not known any more."""
    return handle_of(name, booking, NO_KEEPER)


def parts_of(handle: Handle) -> list[Handle]:
    """Return the handles of all nodes of a job, the first one's first."""
    members: Any = handle.get(MEMBERS) or []
    return [handle, *members]


def check_nodes(config: RemoteConfig, context: ServiceContext) -> None:
    """Check that trials of several nodes can run on these machines. Raises: ConfigError."""
    nodes = nodes_of(context)
    fitting = [one for one in config.machine_list if set(config.machine_labels) <= set(one.labels)]
    if nodes > len(fitting):
        few = f"is {nodes}, but machineList has {len(fitting)} machines for trials; name more, or use fewer nodes"
        raise ConfigError(few, nodes_place(context))
    if nodes > 1 and config.max_slots is not None:
        # Each machine gives out its slots itself, so two experiments could each hold some and wait for the rest.
        why = "cannot be used for trials of several nodes; set slots of each machine instead"
        raise ConfigError(why, Place(field="maxSlots"))


def find_lacking(machine: Machine, context: ServiceContext) -> str:
    """Return a sentence on the launcher that a machine lacks for trials of this experiment; "" if it lacks none."""
    launcher = str((context.defaults.get("distributed") or {}).get("launcher"))
    program = {"mpi": "mpirun", "horovod": "horovodrun"}.get(launcher, "")
    if not program or not machine.up or program in machine.facts.get("launchers", (program,)):
        return ""
    return f"has no {program}, which launcher {launcher} needs; install it there, or set another launcher"


def node_job(job: Job, node: int, first: Machine, asked: int = 0) -> Job:
    """Return the job of one node. Only the first node reports. `asked`: how many of an elastic job begin together."""
    distributed = job.spec.get("distributed")
    if not distributed:
        return job
    addresses = list(dict.fromkeys([first.config.host, str(first.facts.get("host") or first.config.host)]))
    begin = {"nodes": asked} if asked else {}
    more: dict[str, Json] = {"distributed": {**distributed, **begin, "node": node, "first": addresses}}
    if node and job.spec.get("storage"):
        more["storage"] = {**job.spec["storage"], "read_only": True}
    return replace(job, name=name_of(job.name, node), spec={**job.spec, **more})


async def start_nodes(
    jobs: Sequence[Job],
    placed: Sequence[tuple[Machine, Booking]],
    start: Callable[[Job, Machine, Booking], Awaitable[Handle]],
    is_booked: Callable[[str], bool],
    end: Callable[[Handle], Awaitable[None]],
) -> Handle:
    """Start a keeper on each machine, that of the first node last. Return the handle of all.

    `is_booked`: whether a job may have been started; then an error is raised, and the call can be made again.
    Raises: what `start` raises, if nothing was started or that is unknown.
    """
    started: list[Handle] = []
    for job, (machine, booking) in reversed(list(zip(jobs, placed, strict=True))):
        try:
            started.insert(0, await start(job, machine, booking))
        except NniliteError as error:
            if is_booked(job.name) or not started:
                raise
            log.warning("%s is given up: %s", jobs[0].name, error)
            for handle in started:
                await end(handle)
            lost = {**started[0], "job": jobs[0].name, LOST: f"not all of its machines could start it: {error}"}
            return {**lost, MEMBERS: started}
    first, *members = started
    return {**first, MEMBERS: members} if members else first
