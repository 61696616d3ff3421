"""Runs trials on other machines over SSH.

    _machine      one machine: connected, prepared, watched, and connected again; owns its agent and its tunnel
    _placement    which machine gets a job, and why none does
    _checkpoints  what earlier attempts have saved is brought to that machine
    _worker       the worker's end: starts keepers, tells of them, moves files

What is true of a job stands in its folder on its machine, and is asked for there at each poll. Jobs of a machine that
does not answer are UNKNOWN: no sign of life, and none of death. They are LOST when their machine has told so: it was
restarted, or their keeper is gone without a word.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nnilite.codedir import CodePackage
from nnilite.errors import ConfigError, NotFound, ServiceError
from nnilite.gpu import GpuRules, environment, impossible
from nnilite.records import Host, Json, KeeperEvent
from nnilite.service import Handle, Job, JobState, JobStatus, ServiceContext, TrainingService
from nnilite_remote._agent_link import digest_of
from nnilite_remote._bookings import Booking, Bookings
from nnilite_remote._checkpoints import Checkpoints, rank
from nnilite_remote._config import RemoteConfig
from nnilite_remote._errors import LinkLost, MachineError
from nnilite_remote._machine import Machine, Supply
from nnilite_remote._owed import CANCEL, FINISH, REMOVE, Owed
from nnilite_remote._placement import Candidate, choose_machine

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_FIRST_S = 60.0  # how long `open` waits for a first machine
_PATIENCE_S = 10.0  # ... where all have failed in ways that may pass
_OTHERS_S = 1.0  # ... and then for the others
_POLL_S = 12.0
_CALL_S = 20.0
_SETTLE_S = 30.0  # how long a job waits to hear from its machine whether it was started there
_HIDDEN = "********"
LABELS = "_machineLabels"
"""A parameter by which one trial asks for labels: a list of them, or one."""


class RemoteService(TrainingService):
    """Runs trials on other machines, which it reaches by SSH.

    A handle is {"job", "machine", "directory", "gpus", "pid", "start", "boot"}: the last three are the keeper's, on
    its machine; pid 0 where the answer to its start was lost.
    """

    Config = RemoteConfig

    def __init__(self, name: str, config: RemoteConfig, context: ServiceContext) -> None:
        super().__init__(name, config, context)
        self._bookings = Bookings(context.directory / f"{name}-jobs.json")
        self._checkpoints = Checkpoints(context.directory)
        self._package: CodePackage | None = None
        self._machines: dict[str, Machine] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._canceled: dict[str, Handle] = {}  # by job
        self._owed = Owed(context.directory / f"{name}-owed.json")
        self._chores: set[asyncio.Task[None]] = set()
        self._catching_up: set[str] = set()  # machines that are just being told what they have missed

    # ------------------------------------------------------------ opening and closing

    async def open(self) -> None:
        if not self._tasks:
            self._bookings.load()
            self._owed.load()
            self._canceled |= self._owed.jobs(CANCEL)
            self._package = await asyncio.to_thread(self.context.package)
            supply = await asyncio.to_thread(self._supply)
            for config in self.config.machine_list:
                self._machines[config.key] = Machine(config, self.config, supply, self._changed)
            self._tasks = [asyncio.create_task(m.run(), name=m.title) for m in self._machines.values()]
        await self._await_machines()
        await self._check_gpus()

    def _supply(self) -> Supply:
        keeper, defaults = self.context.keeper, self.context.defaults
        checkpoint = defaults.get("checkpoint") or {}
        return Supply(
            experiment=self.context.experiment,
            keeper=keeper,
            keeper_name=f"keeper-{digest_of(keeper)[:32]}.pyz",
            archive=lambda: self._packed().archive,
            manager=self.context.callback_url,
            grace_s=float(defaults.get("gracePeriod") or 10),
            keep_checkpoints=self.config.keep == "outputs" and checkpoint.get("keep") != "none",
        )

    def _packed(self) -> CodePackage:
        if self._package is None or not self._package.archive.exists():
            self._package = self.context.package()
        return self._package

    async def _await_machines(self) -> None:
        """Until one is up, or all have failed; the rest may come later. Raises: ConfigError, ServiceError."""
        machines = list(self._machines.values())
        began_s = time.monotonic()
        while not self._decided(time.monotonic() - began_s):
            await asyncio.sleep(0.02)
        if any(m.up for m in machines):
            waits = [asyncio.create_task(m.tried.wait()) for m in machines]
            await asyncio.wait(waits, timeout=_OTHERS_S)
            for wait in waits:
                wait.cancel()
            return
        reasons = "; ".join(f"{m.title} {m.trouble or m.state}" for m in machines)
        if any(m.state.startswith(("preparing", "uploading")) for m in machines):
            return  # it takes long, but it works
        error = ConfigError if all(m.lasting for m in machines) else ServiceError
        raise error(f"none of the machines can be used: {reasons}")

    def _decided(self, waited_s: float) -> bool:
        """Whether it is known that the service works, or that it does not: what may pass gets some time to."""
        machines = self._machines.values()
        if any(m.up for m in machines) or waited_s > _FIRST_S:
            return True
        if not all(m.tried.is_set() for m in machines):
            return False
        busy = any(m.state.startswith(("preparing", "uploading")) for m in machines)
        return all(m.lasting for m in machines) or (waited_s > _PATIENCE_S and not busy)

    async def _check_gpus(self) -> None:
        """What can never be had on any machine is said at the start. Raises: ConfigError."""
        wanted = self.config.trial_gpu_number
        if not wanted:
            return
        await self._read_gpus()
        machines = list(self._machines.values())
        reasons = []
        for machine in machines:
            if not machine.up:
                return
            never = impossible(machine.gpus or (), wanted, _rules(machine))
            if machine.gpus is not None and never is None:
                return
            reasons.append(f"{machine.title}: {never if machine.gpus is not None else machine.trouble}")
        raise ConfigError(f"trialGpuNumber is {wanted}, but " + "; ".join(reasons))

    async def close(self) -> None:
        for task in [*self._tasks, *self._chores]:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._chores, return_exceptions=True)
        await self._checkpoints.close()
        self._tasks = []
        machines, self._machines = self._machines, {}
        left = await asyncio.gather(*(self._let_go(machine) for machine in machines.values()))
        if any(left):
            raise ServiceError("; ".join(filter(None, left)))

    async def _let_go(self, machine: Machine) -> str:
        """What is left on the machine, and what to do about it; "" if nothing is."""
        key = machine.config.key
        over = {**self._owed.jobs(REMOVE), **self._canceled}
        mine = [dict(handle) for handle in over.values() if handle["machine"] == key]
        if not await machine.close(mine) and self._owed.to(key):
            return machine.left_behind(self.context.experiment)
        for what, handle in self._owed.to(key):
            self._owed.settle(what, handle)
        return ""

    def _changed(self) -> None:
        """A machine has come, gone, or told of an end."""
        for key, machine in self._machines.items():
            missed = any(what != FINISH for what, _ in self._owed.to(key))
            if machine.up and missed and key not in self._catching_up:
                self._catching_up.add(key)
                self._chore(self._catch_up(key))
        self.context.wake()

    def _owe_finish(self, machine: str) -> None:
        """To every machine that has had a job, whenever it is asked for."""
        self._owed.add(FINISH, {"machine": machine, "job": ""})

    def _chore(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    async def _catch_up(self, key: str) -> None:
        """Tell a machine that has come back what it has missed."""
        try:
            for what, handle in self._owed.to(key):
                if what != FINISH:  # that is for the end
                    await self._tell(what, handle)
        finally:
            self._catching_up.discard(key)

    async def _tell(self, what: str, handle: Handle) -> None:
        """Cancel or remove a job on its machine: it is owed until the machine has heard of it."""
        machine = self._machines.get(str(handle["machine"]))
        if machine is None:
            return
        try:
            await asyncio.wait_for((machine.cancel if what == CANCEL else machine.remove)(dict(handle)), _CALL_S)
        except (MachineError, asyncio.TimeoutError) as error:
            log.info("%s of %s will be made up for when its machine is back: %s", what, handle["job"], error)
            self._owed.add(what, handle)
        else:
            self._owed.settle(what, handle)

    # ------------------------------------------------------------ submitting

    async def submit(self, job: Job) -> Handle:
        if not _NAME.fullmatch(job.trial) or not _NAME.fullmatch(job.experiment):
            raise ServiceError(f"{job.trial!r} cannot be the name of a folder")
        booking = self._bookings.get(job.name)
        machine = self._machines.get(booking.machine) if booking else None
        if booking is not None and machine is not None:
            if machine.up:
                return await self._start(job, machine, booking)
            if machine.silent_s > _SETTLE_S:  # `poll` will learn what became of it
                return self._handle(job, booking, {"pid": 0, "start": "", "boot": ""})
            raise ServiceError(f"waits to hear from {machine.title} whether it was started there ({machine.trouble})")
        machine, booking = await self._choose(job)
        self._bookings.book(job.name, booking)
        return await self._start(job, machine, booking)

    async def _choose(self, job: Job) -> tuple[Machine, Booking]:
        """Raises: NoCapacity, ConfigError."""
        machines = list(self._machines.values())
        traces = await self._checkpoints.traces(job.trial, machines) if job.attempt else {}
        if job.gpus:
            await self._read_gpus()
        candidates = [self._candidate(machine, bool(job.gpus), rank(machine, traces)) for machine in machines]
        choice = choose_machine(candidates, job.gpus, frozenset((*self.config.machine_labels, *labels_of(job))))
        machine = self._machines[choice.key]
        if job.spec.get("checkpoint_dir"):
            self._checkpoints.bring(job.trial, machine, traces)
        directory = f"{machine.root}/{job.experiment}/trials/{job.trial}/{job.attempt}"
        return machine, Booking(choice.key, directory, choice.gpus)

    async def _read_gpus(self) -> None:
        await asyncio.gather(*(self._read_gpus_of(machine) for machine in self._machines.values() if machine.up))

    @staticmethod
    async def _read_gpus_of(machine: Machine) -> None:
        try:
            await machine.read_gpus()
            machine.trouble = ""
        except MachineError as error:
            machine.gpus, machine.trouble = None, str(error)

    def _candidate(self, machine: Machine, gpus: bool, rank: int) -> Candidate:
        trouble = machine.avoided
        if not machine.up:
            trouble = f"is {machine.state}" + (f": {machine.trouble}" if machine.trouble else "")
        elif gpus and machine.gpus is None:
            trouble = machine.trouble or "has not told its GPUs yet"
        return Candidate(
            key=machine.config.key,
            title=machine.title,
            trouble=trouble,
            slots=machine.config.slots,
            labels=frozenset(machine.config.labels),
            rules=_rules(machine),
            gpus=machine.gpus,
            own_pids=machine.own_pids,
            jobs=self._bookings.on(machine.config.key),
            rank=rank,
        )

    async def _start(self, job: Job, machine: Machine, booking: Booking) -> Handle:
        spec = self._spec(job, machine, booking)
        self._owe_finish(booking.machine)
        try:
            answer = await machine.start(spec)
        except LinkLost as error:  # it may have been started: the booking stays
            raise ServiceError(f"{machine.title}: {error}; it will be asked again whether the trial runs") from error
        except MachineError as error:
            self._bookings.free(job.name)
            machine.avoid(str(error))
            raise ServiceError(f"{machine.title} could not start the trial: {error}") from error
        if "missing" in answer:
            self._bookings.free(job.name)
            self._chore(self._upload_again(machine))
            raise ServiceError(f"{machine.title} has lost {answer['missing']}; it is being sent again")
        return self._handle(job, booking, answer)

    @staticmethod
    async def _upload_again(machine: Machine) -> None:
        machine.avoid("is being sent the code again")
        try:
            await machine.upload_code()
            machine.avoid("", 0.0)
        except MachineError as error:
            machine.avoid(str(error))

    def _spec(self, job: Job, machine: Machine, booking: Booking) -> dict[str, Json]:
        archive = f"{machine.root}/cache/{self._packed().archive.name}"
        checkpoints = f"{machine.root}/{job.experiment}/checkpoints/{job.trial}"
        return job.spec_for(
            booking.directory,
            code={"archive": archive},
            env=environment(booking.gpus),
            callback=machine.address,
            callback_file=machine.callback_file,
            callback_ca=None,
            checkpoint_dir=checkpoints if job.spec.get("checkpoint_dir") else None,
            send_output=True,
            orphan_s=self.config.orphan_after,
        )

    def _handle(self, job: Job, booking: Booking, keeper: Json) -> Handle:
        return {
            "job": job.name,
            "machine": booking.machine,
            "directory": booking.directory,
            "gpus": None if booking.gpus is None else list(booking.gpus),
            **{name: keeper[name] for name in ("pid", "start", "boot")},
        }

    # ------------------------------------------------------------ watching

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        found: dict[str, JobStatus] = {}
        by_machine: dict[str, list[Handle]] = {}
        for handle in handles:
            by_machine.setdefault(str(handle["machine"]), []).append(handle)
        for key in by_machine:
            self._owe_finish(key)
        for statuses in await asyncio.gather(*(self._poll_machine(key, mine) for key, mine in by_machine.items())):
            found.update(statuses)
        for handle in handles:
            self._note(handle, found[str(handle["job"])])
        return [found[str(handle["job"])] for handle in handles]

    async def _poll_machine(self, key: str, handles: list[Handle]) -> dict[str, JobStatus]:
        machine = self._machines.get(key)
        if machine is None:
            reason, found = f"its machine {key} is not in machineList any more", None
        else:
            reason, found = await self._ask_machine(machine, handles)
        title = machine.title if machine else key
        if found is None:
            return {str(handle["job"]): JobStatus(JobState.UNKNOWN, reason, host=title) for handle in handles}
        return {str(h["job"]): _status(facts, title) for h, facts in zip(handles, found, strict=True)}

    @staticmethod
    async def _ask_machine(machine: Machine, handles: list[Handle]) -> tuple[str, list[Json] | None]:
        if not machine.up:
            return f"{machine.title} is {machine.state}: {machine.trouble}", None
        try:
            return "", await asyncio.wait_for(machine.statuses([dict(handle) for handle in handles]), _POLL_S)
        except MachineError as error:
            return f"{machine.title}: {error}", None
        except asyncio.TimeoutError:
            return f"{machine.title}: does not answer", None

    def _note(self, handle: Handle, status: JobStatus) -> None:
        """Keep the bookings true."""
        job = str(handle["job"])
        if status.state.ended:
            self._bookings.free(job)
            self._owed.settle(CANCEL, handle)
        elif self._bookings.get(job) is None and handle["machine"] in self._machines:
            gpus = handle["gpus"]
            booking = Booking(handle["machine"], handle["directory"], None if gpus is None else tuple(gpus))
            with contextlib.suppress(ServiceError):
                self._bookings.book(job, booking)

    async def cancel(self, handle: Handle) -> None:
        self._canceled[str(handle["job"])] = handle
        await self._tell(CANCEL, handle)

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        machine = self._machine(handle)
        try:
            return await machine.events(str(handle["directory"]))
        except MachineError as error:
            raise ServiceError(f"{machine.title}: {error}") from error

    async def logs(self, handle: Handle, stream: str, offset: int, limit: int) -> bytes:
        if stream not in ("stdout", "stderr"):
            raise NotFound(f"there is no stream {stream!r}: it is stdout or stderr")
        machine = self._machine(handle)
        try:
            return await machine.read(str(handle["directory"]), f"trial.{stream}", offset, limit) or b""
        except MachineError as error:
            raise ServiceError(f"{machine.title}: {error}") from error

    async def fetch(self, handle: Handle, target: Path) -> None:
        machine = self._machine(handle)
        try:
            await machine.fetch(str(handle["directory"]), target)
        except MachineError as error:
            if str(error).endswith("is gone"):
                raise NotFound(f"the trial's folder on {machine.title} is gone") from error
            raise ServiceError(f"{machine.title}: {error}") from error

    def _machine(self, handle: Handle) -> Machine:
        machine = self._machines.get(str(handle["machine"]))
        if machine is None:
            raise NotFound(f"the machine {handle['machine']} is not in machineList any more")
        return machine

    async def remove(self, handle: Handle) -> None:
        """What holds a secret or much space goes now; the trial's folder, when the experiment stops."""
        self._bookings.free(str(handle["job"]))
        await self._tell(REMOVE, handle)

    def describe(self, job: Job) -> Json:
        """The keeper's specification, without secrets, and the machines that may get it."""
        labels = {*self.config.machine_labels, *labels_of(job)}
        machines = [m.title for m in self.config.machine_list if labels <= set(m.labels)]
        place = f"~/{self.config.remote_directory}/{job.experiment}/trials/{job.trial}/{job.attempt}"
        gpus = {} if job.gpus is None else {"gpus": job.gpus}
        spec = job.spec_for(place, code={"archive": "the code package"}, callback=self.config.nni_manager_ip or "")
        return {"name": job.name, "machines": machines, **gpus, **spec, "token": _HIDDEN}

    def hosts(self) -> list[Host]:
        return [self._host(machine) for machine in self._machines.values()]

    def _host(self, machine: Machine) -> Host:
        jobs = self._bookings.on(machine.config.key)
        details: dict[str, Json] = {"slots": machine.config.slots, "labels": machine.config.labels}
        details |= {name: machine.facts.get(name) for name in ("host", "python", "root")}
        if machine.gpus is not None:
            details["gpus"] = [gpu.name for gpu in machine.gpus]
        return Host(machine.title, machine.state, machine.trouble, len(jobs), details)


def labels_of(job: Job) -> list[str]:
    """The labels that a trial asks for by its parameters."""
    record = job.spec.get("parameters") or {}
    parameters = record.get("parameters") if isinstance(record, dict) else None
    wanted = parameters.get(LABELS) if isinstance(parameters, dict) else None
    if isinstance(wanted, str):
        return [wanted]
    return [str(label) for label in wanted] if isinstance(wanted, list) else []


def _rules(machine: Machine) -> GpuRules:
    config = machine.config
    return GpuRules(config.gpu_indices, config.max_trial_number_per_gpu, config.use_active_gpu)


def _status(facts: Json, title: str) -> JobStatus:
    return JobStatus(
        JobState(facts["state"]),
        str(facts.get("reason") or ""),
        facts.get("exit_code"),
        title,
        started=facts.get("started"),
        ended=facts.get("ended"),
    )
