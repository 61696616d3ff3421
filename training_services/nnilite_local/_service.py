"""Runs trials as processes of this machine.

    <experiment>/trials/<trial>/<attempt>/     an attempt's folder: see `_attempt_folder`
    <experiment>/callback                      the manager's address, which keepers read before each try
    <experiment>/gpus.json                     which job holds which GPUs

One fork server starts the keepers; each is in a session of its own and survives the server, this service and the
manager. So the state of a job is in its folder and in the process table, and each poll reads both again: first
whether the keeper runs, then how the trial ended, since the other order would miss an end in between. If a keeper
is gone without a report, a second keeper (`deliver`) ends its trial and delivers the remaining events; until then
the job counts as running.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from nnilite.codedir import CodePackage
from nnilite.errors import ConfigError, NoCapacity, ServiceError, describe_os_error
from nnilite.records import Host, Json, KeeperEvent
from nnilite.service import Handle, Job, JobState, JobStatus, ServiceContext, TrainingService
from nnilite.services.gpu import environment, use_of
from nnilite.services.keeper_folder import check_folder_names, check_stream, copy_attempt
from nnilite.services.node_places import LAUNCHERS, nodes_of_job
from nnilite.services.preloading import make_order, try_to_preload
from nnilite.services.section_fields import GPU_PLACE, gpus_of, nodes_of
from nnilite.services.slots import SlotAllocator, SlotError, SlotTerms
from nnilite.services.worker_side import FolderHangs, FolderLooks, HostMeter, started_at, write_private
from nnilite.units import HIDDEN
from nnilite_local._attempt_folder import AttemptFolder
from nnilite_local._config import IGNORED, LocalConfig, check_launcher, find_odd_program
from nnilite_local._dismissed_keepers import DismissedKeepers, tidy
from nnilite_local._endings import Endings
from nnilite_local._fork_server_client import ForkServerClient
from nnilite_local._gpus import GpuAllocator, make_gpu_rules
from nnilite_local._keeper_watch import LocalWatch, folder_of
from nnilite_local._keepers import Keepers, mark_of
from nnilite_local._second_keepers import SecondKeepers

log = logging.getLogger(__name__)

T = TypeVar("T")

_ANOTHER = "another"  # in a handle: the job was found, and its keeper may be of any fork server
_MOST_EARLIER = 10
# A keeper usually reports how its trial ended before it exits; the manager takes so long to act on that.
_END_REPORT_S = 0.2


class LocalService(TrainingService):
    """Runs trials as processes of this machine.

    A handle is {"job", "directory", "pid", "start", "server", "gpus"}: pid and start are the keeper's, server is the
    name of the fork server that may give it other jobs afterwards, gpus are the indices of the GPUs that the job holds,
    or null. Handles of earlier versions have no server: their keepers ran one job only.
    """

    Config = LocalConfig
    ignores = IGNORED
    reports_aside = True
    launchers = LAUNCHERS
    submits_at_once = 16

    def __init__(self, name: str, config: LocalConfig, context: ServiceContext) -> None:
        super().__init__(name, config, context)
        self._directory = Path(os.path.abspath(context.directory))  # noqa: PTH100 - links must stay as they are
        self._server = ForkServerClient(context.keeper, self._directory / "fork-server.log", self._handle_keeper_end)
        self._gpus = GpuAllocator(context.experiment, make_gpu_rules(config), self._directory / "gpus.json")
        slots = self._directory.parent / ".slots" / f"{context.experiment}.{name}.json"
        self._host = socket.gethostname()
        looks = FolderLooks()
        self._slots = SlotAllocator(
            slots,
            context.experiment,
            lambda directory: self._runs(directory) if _was_begun(looks, directory, self._host) else None,
        )
        self._meter = HostMeter()
        self._terms = SlotTerms(config.max_slots, config.priority)
        self._booking = asyncio.Lock()  # slots and GPUs are booked, and freed, for one job at a time
        # Remarks on this machine: a program that is missing, GPUs for fewer trials than run at once.
        self._remarks: list[str] = []
        self._address = ""
        self._package: CodePackage | None = None
        self._second_keepers = SecondKeepers(context.keeper, context.wake)
        self._keepers = Keepers(self._server, self._second_keepers, looks)
        self._watch = LocalWatch(looks, self._keepers, self._second_keepers, self._host)
        self._endings = Endings(self._keepers, self._watch, self._host)
        self._starting: set[Path] = set()  # folders of jobs that have what was booked for them, and no keeper yet
        self._at_work: set[str] = set()  # names of jobs that run, by what is known of them
        self._just_left: set[str] = set()  # jobs whose keepers have left just now, and whose ends may not be known yet
        self._removed: set[str] = set()  # jobs that nobody needs to look at when their keepers leave
        self._dismissed_keepers = DismissedKeepers(self._watch, self._keepers, self._second_keepers)

    async def open(self) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._publish_address()
        await self.check()
        for note in self._remarks:
            log.warning("%s", note)
        self._gpus.restore(self._runs)
        if self.config.isolate_code:
            await self._packed()
        if self.config.preload:
            await self._server.preload(make_order(self.config.preload, self.context))
        else:
            await self._server.start()

    async def submit(self, job: Job) -> Handle:
        folder = _find_folder(self._directory, job)
        if job.attempt:
            await self._endings.end_earlier(_list_earlier(self._directory, job))
        try:
            known = await self._known(job, folder)
        except OSError as error:
            raise ServiceError(
                f"the trial's folder {folder.path} cannot be written: {describe_os_error(error)}"
            ) from error
        if known is not None:
            return known
        try:
            async with self._booking:
                self._starting.add(folder.path)
                code, gpus = await self._prepare(job, folder)
            return await self._start(job, folder, code, gpus)
        finally:
            self._starting.discard(folder.path)

    async def _start(
        self, job: Job, folder: AttemptFolder, code: dict[str, str], gpus: tuple[int, ...] | None
    ) -> Handle:
        """Start a keeper. Raises: ConfigError, ServiceError."""
        try:
            own = {"callback": self._address, "callback_file": str(self._directory / "callback")}
            env, niceness = environment(gpus), self.config.niceness
            own["distributed"] = _nodes_here(job)
            spec = job.spec_for(folder.path, code=code, env=env, niceness=niceness, **own)
            await self._run_in_folder(job, folder, partial(folder.create, spec))
            keeper = await self._server.run(job.name, folder.spec_file)
            handle = _handle(job, folder, keeper, self._server.name, gpus)
            await self._run_in_folder(job, folder, partial(folder.keep_note, handle))
        except (OSError, ConfigError, ServiceError) as error:
            async with self._booking:
                await _free(job.name, self._gpus, self._slots)
            if not isinstance(error, OSError):
                raise
            raise ServiceError(
                f"the trial's folder {folder.path} cannot be written: {describe_os_error(error)}"
            ) from error
        self._at_work.add(job.name)
        return handle

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        statuses = await self._watch.statuses(handles)
        for handle, status in zip(handles, statuses, strict=True):
            if status.state.ended:
                self._endings.over(str(handle["job"]))
                await _free(str(handle["job"]), self._gpus, self._slots)
        pairs = zip(handles, statuses, strict=True)
        self._at_work = {str(handle["job"]) for handle, status in pairs if status.state is JobState.RUNNING}
        self._gpus.glance()
        return statuses

    async def cancel(self, handle: Handle) -> None:
        folder = folder_of(handle)
        self._endings.begin(folder, handle)
        ended = False
        # Where that cannot be read, its keeper is told anyway.
        with contextlib.suppress(ServiceError):
            ended = await self._watch.read(folder, "ended", lambda: folder.read_end(self._host) is not None)
        if ended:  # a second SIGTERM would cut short what the keeper still delivers
            return
        try:
            await self._keepers.terminate(folder, handle)
        except OSError as error:
            raise ServiceError(f"{folder.path} cannot be read now: {describe_os_error(error)}") from error

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        folder = folder_of(handle)
        return await self._watch.read(folder, "reports", folder.events)

    async def logs(self, handle: Handle, stream: str, offset: int, limit: int) -> bytes:
        check_stream(stream)
        folder = folder_of(handle)
        return await self._watch.read(folder, "", lambda: folder.output(stream, offset, limit))

    def folder(self, handle: Handle) -> Path:
        return folder_of(handle).path

    async def fetch(self, handle: Handle, target: Path) -> None:
        await asyncio.to_thread(copy_attempt, self.folder(handle), target, "job.json")

    def share_slots(self, limit: int | None, priority: int | None) -> None:
        terms = SlotTerms(self.config.max_slots, self.config.priority).changed(limit, priority)
        replace(self.config, max_slots=terms.limit, priority=terms.priority)  # it says what does not fit together
        self._terms = terms

    def describe(self, job: Job) -> Json:
        """Return the keeper's specification, without secrets."""
        code = (
            {"archive": "a copy for each trial"}
            if self.config.isolate_code
            else _describe_in_place(self.context.code_directory)
        )
        gpus = {} if job.gpus is None else {"gpus": job.gpus}
        own = {"niceness": self.config.niceness, "distributed": _nodes_here(job)}
        spec = job.spec_for(_find_folder(self._directory, job).path, code=code, **own)
        preload: dict[str, Json] = {"preload": list(self.config.preload)} if self.config.preload else {}
        return {"name": job.name, **gpus, **preload, **spec, "token": HIDDEN}

    async def check(self) -> None:
        check_launcher(self.context.defaults.get("distributed"))
        wanted = (gpus_of(self.config, self.context) or 0) * nodes_of(self.context)
        concurrency = self.context.defaults.get("trialConcurrency")
        few_gpus = await self._gpus.check(wanted, concurrency) if wanted else ""
        self._remarks = [note for note in (find_odd_program(self.context), few_gpus) if note]

    async def check_for_dry_run(self) -> None:
        if self.config.preload:
            await asyncio.to_thread(try_to_preload, make_order(self.config.preload, self.context))
        try:
            await self.check()
        except ConfigError as error:  # a config for a machine with GPUs is often checked on one without
            if error.place != GPU_PLACE:
                raise
            what, _, cure = error.message.rpartition("; ")
            raise ServiceError(f"{GPU_PLACE.field} {what}, so trials cannot run here; {cure}") from error

    def hosts(self) -> list[Host]:
        seen = self._gpus.seen
        details: dict[str, Json] = {**self._meter.read(), **({"gpuUse": use_of(seen)} if seen else {})}
        notes = [note for note in (self.config.note, *self._remarks) if note]
        if notes:
            details["note"] = "; ".join(notes)
        return [Host(self._host, "up", running=len(self._at_work), details=details)]

    async def remove(self, handle: Handle) -> None:
        """Remove the specification, which holds the trial's token, and the other files that only the keeper needed.

        A keeper at work ends now: what it still delivers is no longer needed, but it would try for a day without a
        manager, and a keeper whose trial still runs, although its end was reported, would continue. Only a keeper
        that has recorded the end gets a moment, since it is probably about to take the next job.
        """
        folder, job = folder_of(handle), str(handle["job"])
        await _free(job, self._gpus, self._slots)
        self._at_work.discard(job)  # the very last job is not polled again
        self._just_left.discard(job)
        asked = job in self._removed
        self._removed.add(job)
        at_work, ended = await self._watch.read(folder, "removal", lambda: self._forget(folder, handle))
        if not at_work:
            self._removed.discard(job)
            self._endings.over(job)
            if not self._second_keepers.is_at_work(folder):
                return
        if at_work and ended and not asked and self._keepers.works_at(job):
            self._keepers.terminate_later(folder, handle)
        else:
            await self._keepers.try_to_terminate(folder, handle)
        self._dismissed_keepers.add(folder, handle)
        if not self._keepers.works_at(job):  # else the server will tell when it has left
            await self._dismissed_keepers.tidy_up()
        # Should that keeper be killed now, what it leaves is delivered by its specification. Until it has left, that
        # stays: also where the keeper could not write down the end, and is about to leave.
        if at_work and not ended:
            self._endings.begin(folder, handle)
            raise ServiceError(f"the keeper of {folder.path} is still at work")

    def _forget(self, folder: AttemptFolder, handle: Handle) -> tuple[bool, bool]:
        """Forget what only an ended job needed. Return whether its keeper runs and has recorded the end. Blocks."""
        at_work = self._keepers.has(folder, handle)
        ended = at_work and folder.read_end(self._host) is not None
        if ended or not at_work:
            folder.forget()
        if not at_work and not self._second_keepers.is_at_work(folder):
            tidy(folder)
        return at_work, ended

    async def close(self) -> None:
        left = await self._endings.close()
        await self._dismissed_keepers.close()
        self._gpus.close()
        await self._second_keepers.close()
        await self._server.close()
        await self._dismissed_keepers.wait_for_looks()  # the server tells of keepers that leave until it is closed
        if left:
            raise ServiceError("; ".join(left))

    # starting

    async def _packed(self) -> CodePackage:
        """Return the code as it was when it was first asked for: the same for all trials."""
        if self._package is None:
            self._package = await asyncio.to_thread(self.context.package)
        return self._package

    async def _known(self, job: Job, folder: AttemptFolder) -> Handle | None:
        """Return the handle of a job that was submitted before, even if the manager died before it got that handle."""
        handle, begun = await self._run_in_folder(job, folder, lambda: (folder.handle(), folder.was_begun()))
        if handle is None and begun:
            pid = await asyncio.to_thread(folder.keeper)
            if not pid and await self._run_in_folder(job, folder, lambda: _has_not_spoken(folder, self._host)):
                return None
            keeper = (pid, started_at(pid)) if pid else (0, "")
            handle = _handle(job, folder, keeper, _ANOTHER, folder.gpus() if job.gpus else None)
            await self._run_in_folder(job, folder, partial(folder.keep_note, handle))
        if handle is not None and self._runs(folder.path):
            self._gpus.rebook(job.name, folder.path, handle["gpus"])
        return handle

    async def _run_in_folder(self, job: Job, folder: AttemptFolder, work: Callable[[], T]) -> T:
        """Do something in a new attempt's folder. Raises: OSError, ServiceError.

        An earlier attempt may have made the trial's folder hang. The folder of the first attempt is new, so it need not
        wait.
        """
        return await self._watch.read(folder, "", work) if job.attempt else work()

    async def _prepare(self, job: Job, folder: AttemptFolder) -> tuple[dict[str, str], tuple[int, ...] | None]:
        """Return the code and the GPUs that the job gets. Raises: NoCapacity."""
        self._publish_address()
        code = (
            {"archive": str((await self._packed()).archive)}
            if self.config.isolate_code
            else _describe_in_place(self.context.code_directory)
        )
        try:
            await _take_slot(self._slots, job, folder, self._terms)
            if job.gpus:
                self._gpus.restore(self._runs)  # trials that have ended since the last poll
                return code, await self._gpus.book(job.name, folder.path, job.gpus * nodes_of_job(job).most)
            return code, None if job.gpus is None else ()
        except NoCapacity:
            await asyncio.to_thread(self._slots.give_back, job.name)
            # A fork server that was slow may still have the order of an earlier try: it starts nothing without this.
            with contextlib.suppress(OSError):
                folder.forget_spec()
            raise

    def _publish_address(self) -> None:
        """Write the address that keepers of this and of earlier managers read. Raises: ServiceError."""
        address = self.context.callback_url()
        if address != self._address:
            try:
                write_private(str(self._directory / "callback"), address)
            except OSError as error:
                raise ServiceError(
                    f"{self._directory}/callback cannot be written: {describe_os_error(error)}"
                ) from error
            self._address = address

    # watching

    def _handle_keeper_end(self, job: str, delivered: bool) -> None:
        """Handle the departure of a keeper; without a job, no further departures will be reported.

        `delivered`: the manager knows how the trial ended, so nothing needs to be looked at.
        """
        if job in self._removed:
            self._removed.discard(job)
            self._dismissed_keepers.look_soon()
            return
        if delivered:
            return

        def look() -> None:
            if job in self._just_left:
                self._just_left.discard(job)
                self.context.wake()

        self._just_left.add(job)
        asyncio.get_running_loop().call_later(_END_REPORT_S if job else 0.0, look)

    def _runs(self, directory: Path) -> bool:
        """Return whether the job in this folder runs, and so still holds its bookings."""
        return directory in self._starting or self._watch.runs(directory)


def _find_folder(directory: Path, job: Job) -> AttemptFolder:
    """Return the folder of an attempt in that of the experiment. Raises: ConfigError."""
    check_folder_names(job)
    return AttemptFolder(directory / "trials" / job.trial / str(job.attempt))


def _has_not_spoken(folder: AttemptFolder, host: str) -> bool:
    """Return whether its keeper has noted neither a start nor an end."""
    return folder.started() is None and folder.read_end(host) is None


def _handle(
    job: Job, folder: AttemptFolder, keeper: tuple[int, str], server: str, gpus: Sequence[int] | None
) -> Handle:
    pid, start = keeper
    return {
        "job": job.name,
        "directory": str(folder.path),
        "pid": pid,
        "start": mark_of(start),
        "server": server,
        "gpus": None if gpus is None else list(gpus),
    }


def _nodes_here(job: Job) -> Json:
    """Return the nodes of a distributed trial, all as processes of this machine; None for other trials."""
    distributed = job.spec.get("distributed")
    return {**distributed, "node": 0, "here": distributed["nodes"]} if distributed else None


def _describe_in_place(code_directory: Path) -> dict[str, str]:
    return {"in_place": os.path.abspath(code_directory)}  # noqa: PTH100


def _list_earlier(directory: Path, job: Job) -> list[tuple[str, AttemptFolder]]:
    """Return the last attempts of its trial before this one, by job."""
    name = job.name.rpartition("-")[0]
    numbers = range(max(0, job.attempt - _MOST_EARLIER), job.attempt)
    return [(f"{name}-{number}", _find_folder(directory, replace(job, attempt=number))) for number in numbers]


def _was_begun(looks: FolderLooks, directory: Path, host: str) -> bool:
    """Return whether the job in this folder, of any experiment, was begun."""
    folder = AttemptFolder(directory)

    def begun() -> bool:
        return folder.handle() is not None or folder.read_end(host) is not None or folder.is_tidied()

    try:
        return bool(looks.look(str(directory), "begun", begun))
    except FolderHangs:  # assume that it still runs: the job keeps what it holds
        return True


async def _take_slot(slots: SlotAllocator, job: Job, folder: AttemptFolder, terms: SlotTerms) -> None:
    """Take a slot. Raises: NoCapacity that names the experiment to wait for, ServiceError."""
    if terms.limit is None:
        return
    try:
        reason = await asyncio.to_thread(slots.book, job.name, folder.path, terms)
    except SlotError as error:
        raise ServiceError(str(error)) from error
    if reason:
        raise NoCapacity(reason)


async def _free(job: str, gpus: GpuAllocator, slots: SlotAllocator) -> None:
    gpus.free(job)
    if slots.knows(job):
        await asyncio.to_thread(slots.free, job)
