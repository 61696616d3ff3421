"""Manage all machines of the service.

Open them, send them what they have missed, ask for their jobs, and close them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from typing import Any

from nnilite.errors import ConfigError, NotFound, Place, ServiceError
from nnilite.service import Handle, JobState, JobStatus, ServiceContext
from nnilite.services.gpu import GpuRules, impossible
from nnilite.services.section_fields import GPU_PLACE
from nnilite.services.task_ends import end_tasks
from nnilite.ssh.errors import MachineError
from nnilite_remote._agent_answers import read_status, refusing
from nnilite_remote._bookings import Bookings
from nnilite_remote._config import RemoteConfig
from nnilite_remote._machine import Machine, MachineSupply
from nnilite_remote._machine_choice import HostCandidate
from nnilite_remote._pending_commands import CANCEL, FINISH, REMOVE, PendingCommands

log = logging.getLogger(__name__)

_FIRST_S = 60.0  # how long opening waits for a first machine
_PATIENCE_S = 10.0  # ... where all have failed in ways that may pass
_OTHERS_S = 1.0  # ... and then for the others
_POLL_S = 12.0
_CALL_S = 20.0


class Machines:
    """The machines of `machineList`, by their keys, and the commands that are still to be sent to them."""

    def __init__(self, config: RemoteConfig, context: ServiceContext, pending: PendingCommands) -> None:
        self._config = config
        self._context = context
        self._pending = pending
        self._known: dict[str, Machine] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._canceled: dict[str, Handle] = {}  # by job
        self._chores: set[asyncio.Task[None]] = set()
        self._catching_up: set[str] = set()  # machines that are just being told what they have missed

    def __contains__(self, key: object) -> bool:
        return key in self._known

    def __getitem__(self, key: str) -> Machine:
        return self._known[key]

    def get(self, key: str) -> Machine | None:
        return self._known.get(key)

    def all(self) -> list[Machine]:
        return list(self._known.values())

    @property
    def are_running(self) -> bool:
        return bool(self._tasks)

    def start(self, supply: MachineSupply) -> None:
        """Connect to all of them, each in a task of its own."""
        self._pending.load()
        self._canceled |= self._pending.jobs(CANCEL)
        for config in self._config.machine_list:
            self._known[config.key] = Machine(config, self._config, supply, self._changed)
        self._tasks = [asyncio.create_task(m.run(), name=m.title) for m in self._known.values()]

    async def cancel(self, handle: Handle) -> None:
        """Ask for a job's end, now or when its machine is reachable again."""
        self._canceled[str(handle["job"])] = handle
        await self._send_command(CANCEL, handle)

    async def remove(self, handle: Handle) -> None:
        """Free what a job holds on its machine, now or when the machine is reachable again."""
        await self._send_command(REMOVE, handle)

    def settled(self, handle: Handle) -> None:
        """Note that a job has ended: no machine needs to end it any more."""
        self._pending.settle(CANCEL, handle)

    async def wait_for_one(self) -> None:
        """Wait until one machine is up, or all have failed; more may come later. Raises: ConfigError, ServiceError."""
        machines = list(self._known.values())
        began_s = time.monotonic()
        while not self._is_decided(time.monotonic() - began_s):
            await asyncio.sleep(0.02)
        if any(m.up for m in machines):
            waits = [asyncio.create_task(m.tried.wait()) for m in machines]
            await asyncio.wait(waits, timeout=_OTHERS_S)
            for wait in waits:
                wait.cancel()
            return
        reasons = "; ".join(f"{m.title} {m.trouble or m.state}" for m in machines)
        if any(_is_being_prepared(m) for m in machines):
            return  # it takes long, but it works
        why = f"none of the machines can be used: {reasons}"
        if not all(m.lasting for m in machines):
            raise ServiceError(why)
        fields = {m.field for m in machines}
        raise ConfigError(why, Place(field=fields.pop()) if len(fields) == 1 and "" not in fields else None)

    def _is_decided(self, waited_s: float) -> bool:
        """Return whether it is certain that the service works, or does not: passing failures get some time."""
        machines = self._known.values()
        if any(m.up for m in machines) or waited_s > _FIRST_S:
            return True
        if not all(m.tried.is_set() for m in machines):
            return False
        busy = any(_is_being_prepared(m) for m in machines)
        return all(m.lasting for m in machines) or (waited_s > _PATIENCE_S and not busy)

    async def check_gpus(self, wanted: int | None) -> None:
        """Check at the start that some machine can provide the GPUs. Raises: ConfigError."""
        if not wanted:
            return
        await self.read_gpus()
        machines = list(self._known.values())
        reasons = []
        for machine in machines:
            if not machine.up:
                return
            never = impossible(machine.gpus or (), wanted, make_gpu_rules(machine))
            if machine.gpus is not None and never is None:
                return
            reasons.append(f"{machine.title}: {never if machine.gpus is not None else machine.trouble}")
        raise ConfigError(f"is {wanted}, but " + "; ".join(reasons), GPU_PLACE)

    async def close(self) -> None:
        await end_tasks([*self._tasks, *self._chores])
        self._tasks = []
        machines, self._known = self._known, {}
        left = await asyncio.gather(*(self._let_go(machine) for machine in machines.values()))
        if any(left):
            raise ServiceError("; ".join(filter(None, left)))

    async def _let_go(self, machine: Machine) -> str:
        """Return a sentence on what is left on the machine, and how to remove it; "" if nothing is."""
        key = machine.config.key
        over = {**self._pending.jobs(REMOVE), **self._canceled}
        mine = [dict(handle) for handle in over.values() if handle["machine"] == key]
        if not await machine.close(mine) and self._pending.to(key):
            return machine.left_behind(self._context.experiment)
        for what, handle in self._pending.to(key):
            self._pending.settle(what, handle)
        return ""

    def _changed(self) -> None:
        """Note that a machine has come, gone, or reported an end."""
        for key, machine in self._known.items():
            missed = any(what != FINISH for what, _ in self._pending.to(key))
            if machine.up and missed and key not in self._catching_up:
                self._catching_up.add(key)
                self.do_aside(self._catch_up(key))
        self._context.wake()

    def finish_later(self, machine: str) -> None:
        """Send `finish` to every machine that has had a job, now or when it is reachable again."""
        try:
            self._pending.add(FINISH, {"machine": machine, "job": ""})
        # The next poll asks for it again.
        except ServiceError as error:
            log.warning("%s", error)

    def do_aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    async def _catch_up(self, key: str) -> None:
        """Send a machine that is reachable again what it has missed."""
        try:
            for what, handle in self._pending.to(key):
                if what != FINISH:  # only for the end of the experiment
                    await self._send_command(what, handle)
        finally:
            self._catching_up.discard(key)

    async def _send_command(self, what: str, handle: Handle) -> None:
        """Cancel or remove a job on its machine: the command stays pending until the machine has confirmed it."""
        machine = self._known.get(str(handle["machine"]))
        if machine is None:
            return
        try:
            await asyncio.wait_for(
                (machine.attempts.cancel if what == CANCEL else machine.attempts.remove)(dict(handle)), _CALL_S
            )
        except (MachineError, asyncio.TimeoutError) as error:
            log.info("%s of %s is postponed until its machine is reachable again: %s", what, handle["job"], error)
            self._pending.add(what, handle)
        else:
            self._pending.settle(what, handle)

    async def read_gpus(self) -> None:
        await asyncio.gather(*(self._read_gpus_of_one(machine) for machine in self._known.values() if machine.up))

    @staticmethod
    async def _read_gpus_of_one(machine: Machine) -> None:
        try:
            await machine.read_gpus()
            machine.trouble = ""
        except MachineError as error:
            machine.gpus, machine.trouble = None, str(error)

    async def statuses(self, key: str, handles: list[Handle]) -> dict[str, JobStatus]:
        """Return the status of each job of this machine, by job; UNKNOWN while the machine does not say it."""
        machine = self._known.get(key)
        if machine is None:
            return _unknown(handles, key, f"its machine {key} is no longer in machineList")
        title = machine.title
        if not machine.up:
            return _unknown(handles, title, f"{title} {machine.away()}")
        asked = machine.attempts.statuses([dict(handle) for handle in handles])
        try:
            with refusing("jobs"):
                found = await asyncio.wait_for(asked, _POLL_S)
                return {str(h["job"]): read_status(facts, title) for h, facts in zip(handles, found, strict=True)}
        except asyncio.TimeoutError:
            return _unknown(handles, title, f"{title}: does not answer")
        except MachineError as error:
            return _unknown(handles, title, f"{title}: {error}")

    def find(self, handle: Handle) -> Machine:
        machine = self._known.get(str(handle["machine"]))
        if machine is None:
            raise NotFound(f"the machine {handle['machine']} is no longer in machineList")
        return machine


async def list_candidates(machines: Machines, bookings: Bookings, gpus: bool) -> list[HostCandidate]:
    """Return the machines as they are now. `gpus`: whether theirs are needed."""
    if gpus:
        await machines.read_gpus()
    return [_make_candidate(machine, bookings, gpus) for machine in machines.all()]


def _make_candidate(machine: Machine, bookings: Bookings, gpus: bool) -> HostCandidate:
    trouble = machine.avoided
    if not machine.up:
        trouble = machine.away()
    elif gpus and machine.gpus is None:
        trouble = machine.trouble or "has not reported its GPUs yet"
    return HostCandidate(
        key=machine.config.key,
        title=machine.title,
        trouble=trouble,
        slots=machine.config.slots,
        labels=frozenset(machine.config.labels),
        rules=make_gpu_rules(machine),
        gpus=machine.gpus,
        own_pids=machine.own_pids,
        jobs=bookings.on(machine.config.key),
    )


def _is_being_prepared(machine: Machine) -> bool:
    """Return whether keeper and code are on their way to it."""
    return machine.state.startswith(("preparing", "uploading"))


def make_gpu_rules(machine: Machine) -> GpuRules:
    config = machine.config
    return GpuRules(config.gpu_indices, config.max_trial_number_per_gpu, config.use_active_gpu)


def _unknown(handles: Sequence[Handle], title: str, reason: str) -> dict[str, JobStatus]:
    return {str(handle["job"]): JobStatus(JobState.UNKNOWN, reason, host=title) for handle in handles}
