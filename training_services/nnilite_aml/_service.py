"""Each attempt of a trial is a command job of an Azure Machine Learning workspace.

A job is found again by its name, which is made of the attempt's, so it is never there twice. One listing, by a tag,
tells the states of all jobs; the run of a single one is asked for when it starts and when it ends.

A handle is {"job": its name here, "report": how it reports, "soft_s": how long its keeper gets to end the trial}.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from nnilite.errors import ConfigError, NoCapacity, NotFound, ServiceError
from nnilite.platform_http import Contradiction, Problem
from nnilite.records import Json, KeeperEvent
from nnilite.service import Handle, Job, JobStatus, ServiceContext, TrainingService
from nnilite.services.callback_address import given_callback_address
from nnilite.services.job_turns import JobTurns
from nnilite.units import format_size
from nnilite_aml._checks import check_target, check_workspace, environment_of
from nnilite_aml._config import IGNORED, AmlConfig
from nnilite_aml._request import arguments, azure_name, hidden, tag_of, variables
from nnilite_aml._snapshot import CodeSnapshot, prepare
from nnilite_aml._watch import AmlWatch
from nnilite_aml._workspace import AmlJob, AmlWorkspace, rest_body

log = logging.getLogger(__name__)

_SOFT_EXTRA_S = 5.0


class AmlService(TrainingService):
    """Command jobs of an Azure Machine Learning workspace."""

    Config = AmlConfig
    ignores = IGNORED
    reports_aside = True

    list_pause_s: ClassVar[float] = 3.0
    """So often at most jobs are listed: Azure allows some thousand calls an hour."""
    log_pause_s: ClassVar[float] = 3.0
    """So often at most the log of a running job is read on."""
    upload_patience_s: ClassVar[float] = 40.0
    """So long `submit` waits for the code to be up, before it says that there is no room yet."""

    def __init__(self, name: str, config: AmlConfig, context: ServiceContext) -> None:
        super().__init__(name, config, context)
        self._config = config
        self._workspace: AmlWorkspace | None = None
        self._snapshot: CodeSnapshot | None = None
        self._uploading: asyncio.Task[str] | None = None
        self._environment = ""
        self._watches: dict[str, AmlWatch] = {}
        self._turns = JobTurns()
        self._jobs: Mapping[str, AmlJob] = {}
        self._listed = float("-inf")

    # ------------------------------------------------------------ lifecycle

    async def open(self) -> None:
        self._workspace = AmlWorkspace(self._config)
        self._watches, self._listed, self._environment = {}, float("-inf"), ""
        try:
            self._snapshot = await asyncio.to_thread(prepare, self.context)
            await check_workspace(self._workspace, self._config)
            if not await self._list():  # else there are trials to be watched, whatever has changed since they began
                await self._check(self._workspace)
        except BaseException:
            await self.close()
            raise

    async def check(self) -> None:
        workspace = AmlWorkspace(self._config)
        try:
            await check_workspace(workspace, self._config)
            await self._check(workspace)
        finally:
            await workspace.close()

    async def _check(self, workspace: AmlWorkspace) -> None:
        """Whether a trial could ever run. Raises: ConfigError, Problem."""
        if self.context.defaults.get("callback") != "log":
            given_callback_address(self.context, self._config.nni_manager_ip, "Azure's nodes")
        gpus = self._config.trial_gpu_number
        gpus = self.context.defaults.get("trialGpuNumber") if gpus is None else gpus
        await check_target(workspace, self._config, int(gpus or 0))
        if self._config.environment is not None:
            await environment_of(workspace, self._config)

    async def close(self) -> None:
        workspace, self._workspace = self._workspace, None
        uploading, self._uploading = self._uploading, None
        if uploading is not None:
            uploading.cancel()
        await self._turns.close()
        if workspace is not None:
            await workspace.close()

    def _connected(self) -> AmlWorkspace:
        if self._workspace is None:
            raise ServiceError(f"{self.name} is not open")
        return self._workspace

    def _callback(self) -> str:
        """Raises: NoCapacity, since trials of a resumed experiment that run must not end with it."""
        try:
            return given_callback_address(self.context, self._config.nni_manager_ip, "Azure's nodes")
        except ConfigError as error:
            raise NoCapacity(str(error)) from error

    # ------------------------------------------------------------ submitting

    async def submit(self, job: Job) -> Handle:
        workspace, snapshot = self._connected(), self._snapshot
        if snapshot is None:
            raise ServiceError(f"{self.name} is not open")
        report, soft_s = str(job.spec.get("report") or "rest"), 0.0
        if report == "rest":
            soft_s = float(job.spec.get("grace_s") or 0) + float(job.spec.get("heartbeat_s") or 0) + _SOFT_EXTRA_S
        own = await asyncio.to_thread(variables, job, snapshot, self._callback() if report == "rest" else None)
        code = await self._uploaded(snapshot)
        self._environment = self._environment or await environment_of(workspace, self._config)
        try:
            await workspace.create(arguments(job, self._config, code, self._environment, own))
        except Contradiction as problem:
            log.debug("%s is there already: %s", job.name, problem)
        handle = {"job": job.name, "report": report, "soft_s": soft_s}
        self._watch(handle).submitted()
        return handle

    async def _uploaded(self, snapshot: CodeSnapshot) -> str:
        """The id of the code on Azure. Raises: NoCapacity while it goes up, Problem."""
        if self._uploading is None:
            self._uploading = asyncio.create_task(self._connected().upload(snapshot.folder))
            # If nobody waits for it any more, its failure is of no interest.
            self._uploading.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            return await asyncio.wait_for(asyncio.shield(self._uploading), self.upload_patience_s)
        except asyncio.TimeoutError:
            raise NoCapacity(f"its code goes up to Azure ({format_size(snapshot.size_bytes)})") from None
        except Problem:
            self._uploading = None  # the next trial tries it again
            raise

    def describe(self, job: Job) -> Json:
        config = self._config
        own = hidden({"NNILITE_START": ""})
        code = "(the snapshot of keeper and code)"
        workspace = f"/subscriptions/{config.subscription_id}/resourceGroups/{config.resource_group}/providers/"
        workspace += f"Microsoft.MachineLearningServices/workspaces/{config.workspace_name}"
        body = rest_body(arguments(job, config, code, config.environment or config.docker_image, own))
        return {"name": job.name, "request": f"PUT {workspace}/jobs/{azure_name(job.name)}", "body": body}

    # ------------------------------------------------------------ watching

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        if not handles:
            return []
        jobs = await self._list()
        calls = [(str(handle["job"]), partial(self._watch(handle).status, jobs)) for handle in handles]
        return await self._turns.statuses(calls)

    async def _list(self) -> Mapping[str, AmlJob]:
        """All jobs of the experiment, at most so old as `list_pause_s`."""
        if time.monotonic() - self._listed >= self.list_pause_s:
            try:
                self._jobs = await self._connected().jobs(tag_of(self.context.experiment))
            except (NotFound, ConfigError) as error:
                # A list that is refused says nothing of the jobs.
                raise ServiceError(str(error)) from error
            self._listed = time.monotonic()
        return self._jobs

    def _watch(self, handle: Handle) -> AmlWatch:
        name = azure_name(str(handle["job"]))
        if name not in self._watches:
            self._watches[name] = AmlWatch(self._connected(), self._config, name)
        return self._watches[name]

    # ------------------------------------------------------------ the end

    async def cancel(self, handle: Handle) -> None:
        """The keeper of a running trial hears it from the manager first, and ends the trial softly.

        How long Azure leaves a job between its SIGTERM and the end is not documented. So Azure is asked when the time
        for that is over, by `poll`; at once where the keeper does not hear the manager, or the trial does not run yet.
        """
        await self._watch(handle).cancel(float(handle.get("soft_s") or 0))

    async def remove(self, handle: Handle) -> None:
        """Azure keeps ended jobs, and checkpoints; one that still runs or waits is canceled."""
        await self._watch(handle).remove()
        self._watches.pop(azure_name(str(handle["job"])), None)

    # ------------------------------------------------------------ logs and files

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        async with self._turns.turn(str(handle["job"])):
            return await self._watch(handle).reports(handle["report"] == "stdout", self.log_pause_s)

    async def logs(self, handle: Handle, stream: str, offset: int, limit: int) -> bytes:
        """The output of the first process; Azure keeps what a trial prints in one log."""
        if stream not in ("stdout", "stderr"):
            raise NotFound(f"there is no stream {stream!r}: it is stdout or stderr")
        return bytes(self._watch(handle).log.output[offset : offset + limit]) if stream == "stdout" else b""

    async def fetch(self, handle: Handle, target: Path) -> None:
        """The files that the trial has left, after its end."""
        await self._connected().download(azure_name(str(handle["job"])), target)
