"""Runs trials on other machines over SSH.

    _machines          all of them: opens them, sends what they have missed, closes them
    _machine           one machine: connected, prepared, watched, and connected again; owns its agent and its tunnel
    _machine_choice    chooses the machine of a job, or gives the reason why none can take it
    _host_checkpoints  brings the checkpoints of earlier attempts to that machine
    _worker            the worker's end: starts keepers, reports their state, moves files

The state of a job is in its folder on its machine; each poll asks for it there. Jobs of a machine that does not answer
are UNKNOWN: they may run or have ended. They are LOST when their machine reports it: it was restarted, or their keeper
is gone without a report.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

from nnilite.codedir import CodePackage
from nnilite.errors import ConfigError, NoCapacity, NotFound, ServiceError
from nnilite.records import Host, Json, KeeperEvent
from nnilite.service import Handle, Job, JobState, JobStatus, ServiceContext, TrainingService, TrialFile
from nnilite.services.bootstrap import file_digest
from nnilite.services.callback_address import callback_socket
from nnilite.services.gpu import environment, use_of
from nnilite.services.keeper_folder import check_folder_names, check_stream, missing_output
from nnilite.services.node_places import ELASTIC_LAUNCHERS, LAUNCHERS, nodes_of_job
from nnilite.services.preloading import make_order
from nnilite.services.section_fields import gpus_of
from nnilite.services.slots import SlotTerms
from nnilite.ssh.errors import MachineError, OutcomeUnknown, RemoteFileMissing
from nnilite.units import HIDDEN
from nnilite_remote._bookings import Booking, Bookings
from nnilite_remote._config import IGNORED, RemoteConfig
from nnilite_remote._elastic_jobs import ElasticJobs
from nnilite_remote._host_checkpoints import HostCheckpoints, rank
from nnilite_remote._machine import Machine, MachineSupply
from nnilite_remote._machine_choice import Choice, choose_machines
from nnilite_remote._machines import Machines, list_candidates
from nnilite_remote._nodes import (
    LOST,
    MEMBERS,
    check_nodes,
    find_lacking,
    handle_of,
    name_of,
    name_of_folder,
    node_job,
    parts_of,
    start_nodes,
    unanswered,
)
from nnilite_remote._pending_commands import PendingCommands

log = logging.getLogger(__name__)

_SETTLE_S = 30.0  # how long a job waits to hear from its machine whether it was started there


class SlotsTaken(NoCapacity):
    """The slots of one machine are taken, or others are ahead; another machine may have one."""


class RemoteService(TrainingService):
    """Runs trials on other machines, which it reaches by SSH.

    A handle is {"job", "machine", "directory", "gpus", "pid", "start", "boot", "server"}: pid, start and boot are the
    keeper's, on its machine; pid 0 where the answer to its start was lost. `server` names the fork server that has
    started it; handles of earlier versions have none, and their keepers ran one job. A trial on several machines has
    the handle of its first node, with those of the others in "members".
    """

    Config = RemoteConfig
    ignores = IGNORED
    reports_aside = True
    launchers = LAUNCHERS
    elastic_launchers = ELASTIC_LAUNCHERS

    def __init__(self, name: str, config: RemoteConfig, context: ServiceContext) -> None:
        super().__init__(name, config, context)
        self._bookings = Bookings(context.directory / f"{name}-jobs.json")
        self._checkpoints = HostCheckpoints(context.directory)
        self._package: CodePackage | None = None
        self._terms = SlotTerms(config.max_slots, config.priority)
        self.machines = Machines(config, context, PendingCommands(context.directory / f"{name}-owed.json"))
        place = context.directory / f"{name}-elastic.json"
        start = partial(self._start, False)
        self._elastic = ElasticJobs(place, self._bookings, self.machines, self._choose_more, start)

    # ------------------------------------------------------------ opening and closing

    async def open(self) -> None:
        check_nodes(self.config, self.context)
        if not self.machines.are_running:
            self._bookings.load()
            self._elastic.load()
            self._package = await asyncio.to_thread(self.context.package)
            self.machines.start(await asyncio.to_thread(self._supply))
        await self.machines.wait_for_one()
        await self.machines.check_gpus(gpus_of(self.config, self.context))

    async def check(self) -> None:
        check_nodes(self.config, self.context)
        _make_preload_order(self.config, self.context)

    def _supply(self) -> MachineSupply:
        keeper, defaults = self.context.keeper, self.context.defaults
        checkpoint = defaults.get("checkpoint") or {}
        return MachineSupply(
            experiment=self.context.experiment,
            service=self.name,
            keeper=keeper,
            keeper_name=f"keeper-{file_digest(keeper)[:32]}.pyz",
            archive=lambda: self._packed().archive,
            stored_code=self.context.stored_code,
            manager=self.context.callback_url,
            manager_socket=callback_socket(self.context),
            grace_s=float(defaults.get("gracePeriod") or 10),
            keep_checkpoints=self.config.keep == "outputs" and checkpoint.get("keep") != "none",
            preload=_make_preload_order(self.config, self.context),
        )

    def _packed(self) -> CodePackage:
        if self._package is None or not self._package.archive.exists():
            self._package = self.context.package()
        return self._package

    async def close(self) -> None:
        await self._checkpoints.close()
        await self.machines.close()

    # ------------------------------------------------------------ submitting

    async def submit(self, job: Job) -> Handle:
        check_folder_names(job)
        lost = await _give_up_if_machine_is_gone(job, self._bookings, self.machines)
        if lost is not None:
            return lost
        booking = self._bookings.get(job.name)
        machine = self.machines.get(booking.machine) if booking else None
        is_whole = len(self._bookings.parts(job.name)) >= nodes_of_job(job).fewest
        if booking is not None and machine is not None and is_whole:
            placed = _placed(job, self._bookings, self.machines)
            if machine.up:
                return await self._start_all(job, placed, again=True)
            if machine.silent_s > _SETTLE_S:  # `poll` will learn what became of it
                return _unanswered(job, placed)
            raise ServiceError(f"waits for {machine.title} to confirm whether it was started there ({machine.trouble})")
        waits: dict[str, str] = {}
        while True:
            placed = await self._choose(job, waits)
            self._elastic.keep(job, len(placed))
            self._bookings.book_all({name_of(job.name, node): booking for node, (_, booking) in enumerate(placed)})
            try:
                handle = await self._start_all(job, placed)
            except SlotsTaken as wait:
                if len(placed) > 1:
                    raise
                waits[placed[0][1].machine] = str(wait)
            else:
                _withdraw(self.machines, job, waits)
                return handle

    async def _start_all(self, job: Job, placed: Sequence[tuple[Machine, Booking]], again: bool = False) -> Handle:
        """Start a keeper on each machine of a job. `again`: an earlier call may have done so.

        Raises: NoCapacity, ServiceError, ConfigError.
        """
        jobs = _jobs_of_nodes(job, placed)
        booked = self._bookings.get
        try:
            return await start_nodes(
                jobs, placed, partial(self._start, again), lambda name: booked(name) is not None, self.machines.cancel
            )
        except (NoCapacity, ServiceError, ConfigError):
            if any(booked(one.name) is None for one in jobs):  # nothing runs
                for one in jobs:
                    self._bookings.free(one.name)
            raise

    async def _choose(self, job: Job, waits: Mapping[str, str]) -> list[tuple[Machine, Booking]]:
        """Choose a machine for each node of the job.

        `waits`: the machines that were asked for a slot, and the experiment that the job waits for there.

        Raises: NoCapacity, ConfigError.
        """
        machines = self.machines.all()
        traces = await self._checkpoints.traces(job.trial, machines) if job.attempt else {}
        found = await list_candidates(self.machines, self._bookings, bool(job.gpus))
        ranks = {machine.config.key: rank(machine, traces) for machine in machines}
        candidates = [replace(one, rank=ranks[one.key], slot_wait=waits.get(one.key, "")) for one in found]
        labels = _labels(job, self.config)
        with self._elastic.give_way():
            counts = nodes_of_job(job)
            choices = choose_machines(candidates, job.gpus, labels, counts.most, counts.fewest)
        if job.spec.get("checkpoint_dir"):
            self._checkpoints.transfer(job.trial, self.machines[choices[0].key], traces)
        folder = f"{job.experiment}/trials/{job.trial}/{job.attempt}"
        chosen = [(self.machines[choice.key], choice) for choice in choices]
        return [
            (machine, Booking(one.key, f"{machine.root}/{name_of_folder(folder, node)}", one.gpus))
            for node, (machine, one) in enumerate(chosen)
        ]

    async def _choose_more(self, job: Job, used: AbstractSet[str]) -> Choice:
        """Choose one more machine for an elastic job. Raises: NoCapacity, ConfigError."""
        found = await list_candidates(self.machines, self._bookings, bool(job.gpus))
        [choice] = choose_machines([one for one in found if one.key not in used], job.gpus, _labels(job, self.config))
        return choice

    async def _start(self, again: bool, job: Job, machine: Machine, booking: Booking) -> Handle:
        spec = self._spec(job, machine, booking)
        self.machines.finish_later(booking.machine)
        try:
            answer = await machine.attempts.start(spec, self._terms, again)
        except OutcomeUnknown as error:  # it may have been started: the booking stays
            raise ServiceError(f"{machine.title}: {error}; it will be asked again whether the trial runs") from error
        except MachineError as error:
            self._bookings.free(job.name)
            _withdraw(self.machines, job, [booking.machine] if self._terms.limit else [])
            if error.lasting:
                raise ConfigError(f"{machine.title} will never start the trial: {error}") from error
            machine.avoid(str(error))
            raise ServiceError(f"{machine.title} could not start the trial: {error}") from error
        if "missing" in answer:
            self._bookings.free(job.name)
            self.machines.do_aside(machine.send_code_again())
            raise ServiceError(f"{machine.title} has lost {answer['missing']}; it is being sent again")
        if "waits" in answer:
            self._bookings.free(job.name)
            raise SlotsTaken(answer["waits"])
        return handle_of(job.name, booking, answer)

    def _spec(self, job: Job, machine: Machine, booking: Booking) -> dict[str, Json]:
        archive = f"{machine.root}/cache/{self._packed().archive.name}"
        checkpoints = f"{machine.root}/{job.experiment}/checkpoints/{job.trial}"
        reports = {
            "callback": machine.callback_route.address,
            "callback_file": machine.callback_file,
            "send_output": True,
            "orphan_s": self.config.orphan_after,
        }
        if (job.spec.get("distributed") or {}).get("node"):  # its first node reports
            reports = {"callback": None, "callback_file": None}
        return job.spec_for(
            booking.directory,
            code={"archive": archive},
            env=environment(booking.gpus),
            checkpoint_dir=checkpoints if job.spec.get("checkpoint_dir") else None,
            **reports,
        )

    # ------------------------------------------------------------ watching

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        found: dict[str, JobStatus] = {}
        by_machine: dict[str, list[Handle]] = {}
        for handle in handles:
            if handle.get(LOST):
                found[str(handle["job"])] = JobStatus(JobState.LOST, str(handle[LOST]))
            else:
                by_machine.setdefault(str(handle["machine"]), []).append(handle)
        for key in by_machine:
            self.machines.finish_later(key)
        for statuses in await asyncio.gather(*(self.machines.statuses(key, mine) for key, mine in by_machine.items())):
            found.update(statuses)
        ordered = [found[str(handle["job"])] for handle in handles]
        for handle, status in zip(handles, ordered, strict=True):
            self._note(handle, status)
        await self._elastic.look_after(handles, ordered)
        return ordered

    def _note(self, handle: Handle, status: JobStatus) -> None:
        """Update the bookings to these statuses."""
        if status.state.ended and not handle.get(LOST):
            self.machines.settled(handle)
        changes = str(handle["job"]) in self._elastic and not status.state.ended
        if changes and self._bookings.get(str(handle["job"])) is not None:  # its parts come and go
            return
        if not changes:
            self._elastic.end(handle)
        for part in parts_of(handle):
            job = str(part["job"])
            if status.state.ended:
                self._bookings.free(job)
            elif self._bookings.get(job) is None and part["machine"] in self.machines:
                gpus = part["gpus"]
                booking = Booking(part["machine"], part["directory"], None if gpus is None else tuple(gpus))
                with contextlib.suppress(ServiceError):
                    self._bookings.book(job, booking)

    async def cancel(self, handle: Handle) -> None:
        self._elastic.grow_no_more(handle)
        await asyncio.gather(*map(self.machines.cancel, [*parts_of(handle), *self._elastic.joined(handle)]))

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        machine, directory = self.machines.find(handle), str(handle["directory"])
        here = self.context.directory.joinpath("trials", *PurePosixPath(directory).parts[-2:])
        try:
            events = await machine.attempts.events(directory)
            output = await missing_output(here, lambda name, at: machine.attempts.piece(directory, name, at), events)
        except MachineError as error:
            raise ServiceError(f"{machine.title}: {error}") from error
        return [*output, *events]

    async def logs(self, handle: Handle, stream: str, offset: int, limit: int) -> bytes:
        check_stream(stream)
        machine = self.machines.find(handle)
        try:
            return await machine.attempts.read(str(handle["directory"]), f"trial.{stream}", offset, limit) or b""
        except MachineError as error:
            raise ServiceError(f"{machine.title}: {error}") from error

    async def fetch(self, handle: Handle, target: Path) -> None:
        machine = self.machines.find(handle)
        with _name_machine(machine):
            await machine.attempts.fetch(str(handle["directory"]), target)

    async def files(self, handle: Handle) -> Sequence[TrialFile]:
        machine = self.machines.find(handle)
        with _name_machine(machine):
            return await machine.attempts.files(str(handle["directory"]))

    async def fetch_file(self, handle: Handle, path: str, target: Path, most_bytes: int) -> None:
        machine = self.machines.find(handle)
        with _name_machine(machine):
            await machine.attempts.fetch_file(str(handle["directory"]), path, target, most_bytes)

    async def remove(self, handle: Handle) -> None:
        """Remove secrets and large files now; the trial's folder goes when the experiment stops."""
        parts = [*parts_of(handle), *self._elastic.joined(handle)]
        for part in parts:
            self._bookings.free(str(part["job"]))
        await asyncio.gather(*map(self.machines.remove, parts))

    async def take_node(self, handle: Handle) -> None:
        await self._elastic.take_node(handle)

    def share_slots(self, limit: int | None, priority: int | None) -> None:
        terms = SlotTerms(self.config.max_slots, self.config.priority).changed(limit, priority)
        # These say what does not fit together.
        check_nodes(replace(self.config, max_slots=terms.limit, priority=terms.priority), self.context)
        self._terms = terms

    def describe(self, job: Job) -> Json:
        """Return the keeper's specification, without secrets, and the machines that may get it."""
        labels = _labels(job, self.config)
        machines = [m.title for m in self.config.machine_list if labels <= set(m.labels)]
        place = f"~/{self.config.remote_directory}/{job.experiment}/trials/{job.trial}/{job.attempt}"
        gpus = {} if job.gpus is None else {"gpus": job.gpus}
        spec = job.spec_for(place, code={"archive": "the code package"}, callback=self.config.nni_manager_ip or "")
        return {"name": job.name, "machines": machines, **gpus, **spec, "token": HIDDEN}

    def hosts(self) -> list[Host]:
        return [
            _describe_host(machine, self._bookings, find_lacking(machine, self.context))
            for machine in self.machines.all()
        ]


def _describe_host(machine: Machine, bookings: Bookings, lacking: str) -> Host:
    jobs = bookings.on(machine.config.key)
    details: dict[str, Json] = {"slots": machine.config.slots, "labels": machine.config.labels}
    details |= {name: machine.facts.get(name) for name in ("host", "python", "root")}
    details |= machine.use
    if machine.gpus is not None:
        details["gpus"] = [gpu.name for gpu in machine.gpus]
        details["gpuUse"] = use_of(machine.gpus)
    return Host(machine.title, machine.state, machine.trouble or lacking, len(jobs), details)


def _make_preload_order(config: RemoteConfig, context: ServiceContext) -> dict[str, Json] | None:
    """Return what each machine is to import for its trials. Raises: ConfigError where that has no effect."""
    return make_order(config.preload, context) if config.preload else None


def _withdraw(machines: Machines, job: Job, keys: Iterable[str]) -> None:
    """Withdraw the job's request for a slot there. On an unreachable machine, the request ends by itself."""
    for key in keys:
        machines.do_aside(_request_quietly(machines[key].attempts.withdraw(job.name)))


async def _give_up_if_machine_is_gone(job: Job, bookings: Bookings, machines: Machines) -> Handle | None:
    """Return the handle of a lost job if a machine on which a part of it may run is no longer in machineList."""
    booked = bookings.parts(job.name)
    gone = [one.machine for _, one in booked if one.machine not in machines]
    if nodes_of_job(job).most == 1 or len(booked) < nodes_of_job(job).fewest or not gone:
        return None
    parts = [unanswered(name, one) for name, one in booked]
    for part in parts:
        await machines.cancel(part)
    reason = f"{gone[0]}, which may run a part of it, is no longer in machineList"
    return {**parts[0], MEMBERS: parts[1:], LOST: reason}


def _placed(job: Job, bookings: Bookings, machines: Machines) -> list[tuple[Machine, Booking]]:
    """Return the machines that are booked for a job; all of them are in machineList."""
    return [(machines[one.machine], one) for _, one in bookings.parts(job.name)]


def _jobs_of_nodes(job: Job, placed: Sequence[tuple[Machine, Booking]]) -> list[Job]:
    """Return the jobs of the nodes with which a job begins."""
    asked = len(placed) if nodes_of_job(job).is_elastic else 0
    return [node_job(job, node, placed[0][0], asked) for node in range(len(placed))]


def _unanswered(job: Job, placed: Sequence[tuple[Machine, Booking]]) -> Handle:
    """Return the handle of a job whose start was not answered."""
    first, *members = [unanswered(name_of(job.name, node), one) for node, (_, one) in enumerate(placed)]
    return {**first, MEMBERS: members} if members else first


def _labels(job: Job, config: RemoteConfig) -> frozenset[str]:
    """Return the labels that the machines of a job must have."""
    return frozenset((*config.machine_labels, *job.labels))


@contextlib.contextmanager
def _name_machine(machine: Machine) -> Iterator[None]:
    """Name the machine in errors about a trial's files there. Raises: NotFound, ServiceError."""
    try:
        yield
    except RemoteFileMissing as error:
        raise NotFound(f"{machine.title}: {error}") from error
    except MachineError as error:
        raise ServiceError(f"{machine.title}: {error}") from error


async def _request_quietly(request: Awaitable[None]) -> None:
    with contextlib.suppress(MachineError):
        await request
