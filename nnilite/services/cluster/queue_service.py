"""Trials as jobs of a scheduler, with folders on the file system that login node and compute nodes share.

Specification, keeper and code are put into a folder there, the scheduler gets a script that becomes the keeper, and
what keeper and trial write is read from there. A look at all jobs is one command: it lists the jobs, and the sizes of
the files that may have changed.

A handle is {"job": its name, "folder": relative to `directory`, "id": of the scheduler, "report", "gpus", "grace_s"}.
"""

from __future__ import annotations

import asyncio
import json
import logging
from abc import abstractmethod
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from nnilite.errors import ConfigError, Place
from nnilite.records import Host, Json, KeeperEvent
from nnilite.service import Handle, Job, JobStatus, ServiceContext, TrainingService, TrialFile
from nnilite.services.bootstrap import file_digest
from nnilite.services.callback_address import CallbackAddress
from nnilite.services.cluster.attempt_folders import AttemptFolders
from nnilite.services.cluster.attempt_spec import folder_of, spec_of
from nnilite.services.cluster.end_watch import EndWatch
from nnilite.services.cluster.job_script import pythons_of
from nnilite.services.cluster.queue_watch import QueueWatch
from nnilite.services.cluster.queued_job import QueuedJob
from nnilite.services.cluster.scheduler_api import SchedulerApi
from nnilite.services.cluster.watched_jobs import WatchedJobs
from nnilite.services.keeper_folder import check_folder_names, check_stream
from nnilite.services.section_fields import gpus_of
from nnilite.ssh.errors import MachineError
from nnilite.units import HIDDEN

log = logging.getLogger(__name__)

_HERE = "http://localhost"
"""Without `nniManagerIp`, nodes reach this machine at the address of its default route."""


SchedulerT = TypeVar("SchedulerT", bound=SchedulerApi)


class QueueService(TrainingService, Generic[SchedulerT]):
    """Jobs of a scheduler, submitted on this machine or on a login node that is reached by SSH. To be inherited.

    `Config` has the fields `login`, `directory`, `python_path`, `time_limit`, `keep` and `nni_manager_ip`.
    """

    reports_aside = True

    def __init__(self, name: str, config: object, context: ServiceContext) -> None:
        super().__init__(name, config, context)
        self._client: SchedulerT | None = None
        self._jobs = WatchedJobs(self.scheduler, context.experiment, self._status)
        self._ends: EndWatch | None = None
        self._callback = CallbackAddress(context, self.config.nni_manager_ip, _HERE)  # where nodes find the manager
        self._keeper = ""
        self._archive = ""

    # ------------------------------------------------------------ what a scheduler's own service says

    @property
    @abstractmethod
    def scheduler(self) -> str:
        """The scheduler's name, for people."""

    @abstractmethod
    def connect(self) -> SchedulerT:
        """Make the client. The scheduler is not asked yet. Raises: ConfigError."""

    @abstractmethod
    def _script(self, name: str, gpus: int | None) -> str:
        """Return the script for a job."""

    # ------------------------------------------------------------ lifecycle

    async def open(self) -> None:
        await self.close()
        await asyncio.to_thread(self._callback.check)
        api = self.connect()
        try:
            await self._checked(api)
            package = await asyncio.to_thread(self.context.package)
            keeper = self.context.keeper
            digest = (await asyncio.to_thread(file_digest, keeper))[:32]
            self._keeper, self._archive = f"keeper-{digest}.pyz", package.archive.name
            files = {self._keeper: keeper, self._archive: package.archive}
            pythons = pythons_of(self.config.python_path)
            await api.files.send_code(self.config.directory, files, self.context.stored_code, pythons)
            if not self.context.reports_by_log:
                address = await asyncio.to_thread(self._callback.find)
                await api.files.tell_address(self.context.experiment, address)
        except BaseException:
            await api.host.close()
            raise
        self._client = api
        self._ends = EndWatch(api.files, self._jobs.awaited, self.context.wake)
        self._ends.start()

    async def _checked(self, api: SchedulerT) -> None:
        """Check that the scheduler is there and would take a trial. Raises: ConfigError, ServiceError."""
        try:
            await api.check()
        except MachineError as error:
            if error.lasting:
                raise ConfigError(str(error), Place(field="login")) from error
            raise
        gpus = gpus_of(self.config, self.context)
        await api.try_out(self._test_script(gpus), gpus)

    def _test_script(self, gpus: int | None) -> str:
        """Return a script that asks for what a trial would."""
        return self._script("nni-test", gpus)

    async def check(self) -> None:
        await asyncio.to_thread(self._callback.check)
        api = self.connect()
        try:
            await self._checked(api)
        finally:
            await api.host.close()

    async def close(self) -> None:
        api, self._client = self._client, None
        if api is None:
            return
        if self._ends is not None:
            await self._ends.stop()
        self._jobs.clear()
        try:
            await api.files.finish(self.context.experiment, self.config.keep)
        finally:
            await api.host.close()

    @property
    def api(self) -> SchedulerT:
        """The open client. Raises: ServiceError if there is none."""
        return self.check_open(self._client)

    # ------------------------------------------------------------ submitting

    async def submit(self, job: Job) -> Handle:
        api = self.api
        check_folder_names(job)
        self._jobs.check_silence()
        folder = folder_of(job)
        report = job.report
        handle: dict[str, Json] = {"job": job.name, "folder": folder, "id": "", "report": report, "gpus": job.gpus}
        handle["grace_s"] = job.spec.get("grace_s")
        callback = None
        if report != "stdout":
            callback = await asyncio.to_thread(self._callback.find_or_wait)
        spec = json.dumps(spec_of(job, api.files.root, callback, self._archive, self.config.time_limit)).encode()
        fresh = await api.files.write_spec(folder, spec)
        handle["id"] = await self._enqueue(api, job, folder, fresh)
        self._jobs.watch(handle)
        return handle

    async def _enqueue(self, api: SchedulerT, job: Job, folder: str, fresh: bool) -> str:
        """Submit a job whose folder is ready; return its id. `fresh`: its folder was made now."""
        return await api.submit(folder, job.name, self._script(job.name, job.gpus), job.gpus)

    def describe(self, job: Job) -> dict[str, Json]:
        """Return the script that would be sent, and the specification with it, without secrets."""
        directory = self.config.directory
        root = directory if directory.startswith(("/", "~")) else f"~/{directory}"
        callback = None if job.report == "stdout" else self.config.nni_manager_ip or ""
        spec = spec_of(job, root, callback, self._archive or "the code package", self.config.time_limit)
        spec["token"] = HIDDEN
        if callback is None:
            # The keeper's own word, "rest", would be misread: its reports stay in the folder, and are taken from there.
            del spec["report"]
        where = "this machine" if self.config.login is None else self.config.login.title
        script = self._script(job.name, job.gpus)
        reports = "by files in the folder" if callback is None else "to the manager"
        facts = {"name": job.name, "login": where, "folder": spec["directory"], "reports": reports}
        return {**facts, "script": script, "specification": spec}

    # ------------------------------------------------------------ watching

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        return await self._jobs.poll(self.api, handles) if handles else []

    def _status(
        self, watch: QueueWatch, handle: Handle, job: QueuedJob | None, other_names: Collection[str] = ("",)
    ) -> JobStatus:
        """Return the status by what is listed under the job's number, which another job may have got.

        `other_names`: those under which the scheduler may know the job, in addition to its own.
        """
        return watch.status(job if job is not None and job.name in (watch.name, *other_names) else None)

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        return await self._jobs.reports(self.api, handle)

    async def logs(self, handle: Handle, stream: str, offset: int, limit: int) -> bytes:
        check_stream(stream)
        return await self.api.files.piece(f"{handle['folder']}/trial.{stream}", offset, limit)

    async def fetch(self, handle: Handle, target: Path) -> None:
        await AttemptFolders(self.api.files).fetch(str(handle["folder"]), target)

    async def files(self, handle: Handle) -> Sequence[TrialFile]:
        return await AttemptFolders(self.api.files).files(str(handle["folder"]))

    async def fetch_file(self, handle: Handle, path: str, target: Path, most_bytes: int) -> None:
        await AttemptFolders(self.api.files).fetch_file(str(handle["folder"]), path, target, most_bytes)

    # ------------------------------------------------------------ canceling, the end

    async def cancel(self, handle: Handle) -> None:
        await self._jobs.cancel(self.api, handle)

    async def remove(self, handle: Handle) -> None:
        api, watch = self.api, self._jobs.watch(handle)
        if not watch.id:
            await self._jobs.look(api, [watch], set())
        await api.remove(watch.folder, watch.id)
        self._jobs.drop(handle)

    def hosts(self) -> list[Host]:
        place = "here" if self.config.login is None else f"at {self.config.login.title}"
        trouble = self._jobs.trouble
        state = "closed" if self._client is None else "down" if trouble else "up"
        version = ".".join(map(str, self._client.version)) if self._client else ""
        return [Host(f"{self.scheduler} {place}", state, trouble, len(self._jobs), {"version": version})]
