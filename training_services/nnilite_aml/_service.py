"""Each attempt of a trial is a command job of an Azure Machine Learning workspace.

A job is found by its name, which is made of the attempt's, so it never exists twice. One listing, by a tag, returns the
states of all jobs; the run of a single job is asked for when it starts and when it ends.

A handle is {"job": its name here, "report": how it reports, "soft_s": how long its keeper gets to end the trial}.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from nnilite.errors import NoCapacity, ServiceError
from nnilite.platform_http import Contradiction, Problem
from nnilite.records import Json
from nnilite.service import Handle, Job, ServiceContext
from nnilite.services.batch_service import BatchService
from nnilite.services.callback_address import ExternalCallbackAddress
from nnilite.services.delivery import START_VARIABLE, hidden
from nnilite.services.node_places import LAUNCHERS
from nnilite.units import format_size
from nnilite_aml._checks import check_target, check_workspace, ensure_environment
from nnilite_aml._config import IGNORED, AmlConfig
from nnilite_aml._job_nodes import nodes_place, place_nodes, spread
from nnilite_aml._request import arguments, make_azure_name, make_tag, variables
from nnilite_aml._snapshot import CodeSnapshot, prepare
from nnilite_aml._watch import AmlPatience, AmlWatch
from nnilite_aml._workspace import AmlJob, AmlWorkspace, make_rest_body

log = logging.getLogger(__name__)


class AmlService(BatchService[AmlWorkspace, AmlJob]):
    """Command jobs of an Azure Machine Learning workspace."""

    Config = AmlConfig
    config: AmlConfig
    ignores = IGNORED
    launchers = LAUNCHERS
    platform: ClassVar[str] = "Azure"
    # Azure allows some thousand calls an hour.
    patience: ClassVar[AmlPatience] = AmlPatience(list_pause_s=3.0, log_pause_s=3.0)

    def __init__(self, name: str, config: AmlConfig, context: ServiceContext) -> None:
        address = ExternalCallbackAddress(context, config.nni_manager_ip, "Azure's nodes")
        super().__init__(name, spread(config, context), context, address)
        self._snapshot: CodeSnapshot | None = None
        self._uploading: asyncio.Task[str] | None = None
        self._environment = ""

    # ------------------------------------------------------------ lifecycle

    async def open(self) -> None:
        self._environment = ""
        # Code that is too large for Azure is refused before anything is sent.
        self._snapshot = await asyncio.to_thread(prepare, self.context)
        await super().open()

    def connect(self) -> AmlWorkspace:
        return AmlWorkspace(self.config, self.patience.call_s)

    async def check_for_dry_run(self) -> None:
        await asyncio.to_thread(self.callback.check)
        raise ServiceError(
            "a dry run does not log in to Azure; `nnictl doctor FILE` does, and checks workspace and compute target"
        )

    async def log_in(self, api: AmlWorkspace) -> None:
        await check_workspace(api, self.config)

    async def check_trials(self, api: AmlWorkspace) -> None:
        await check_target(api, self.config, self.gpus or 0, nodes_place(self.context))
        if self.config.environment is not None:
            await ensure_environment(api, self.config)

    async def close(self) -> None:
        uploading, self._uploading = self._uploading, None
        if uploading is not None:
            uploading.cancel()
        await super().close()

    # ------------------------------------------------------------ submitting

    async def submit(self, job: Job) -> Handle:
        workspace, snapshot = self.api, self.check_open(self._snapshot)
        callback = "" if job.report == "stdout" else await self.job_callback_url()
        own = await asyncio.to_thread(variables, place_nodes(job), snapshot, callback)
        code = await self._upload_code(snapshot)
        self._environment = self._environment or await ensure_environment(workspace, self.config)
        try:
            await workspace.create(arguments(job, self.config, code, self._environment, own))
        except Contradiction as problem:
            log.debug("%s already exists: %s", job.name, problem)
        return self.handle(job)

    async def _upload_code(self, snapshot: CodeSnapshot) -> str:
        """Return the id of the code on Azure. Raises: NoCapacity during the upload, Problem."""
        if self._uploading is None:
            self._uploading = asyncio.create_task(self.api.upload(snapshot.folder))
            # If no caller waits any more, its failure is of no interest.
            self._uploading.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            return await asyncio.wait_for(asyncio.shield(self._uploading), self.patience.upload_s)
        except asyncio.TimeoutError:
            raise NoCapacity(f"the code is being uploaded to Azure ({format_size(snapshot.size_bytes)})") from None
        except Problem:
            self._uploading = None  # The next trial tries the upload again.
            raise

    def describe(self, job: Job) -> Json:
        config = self.config
        own = hidden([START_VARIABLE])
        code = "(the snapshot of keeper and code)"
        workspace = f"/subscriptions/{config.subscription_id}/resourceGroups/{config.resource_group}/providers/"
        workspace += f"Microsoft.MachineLearningServices/workspaces/{config.workspace_name}"
        body = make_rest_body(arguments(job, config, code, config.environment or config.docker_image, own))
        return {"name": job.name, "request": f"PUT {workspace}/jobs/{make_azure_name(job.name)}", "body": body}

    # ------------------------------------------------------------ watching

    async def list_jobs(self, api: AmlWorkspace, wanted: frozenset[str]) -> Mapping[str, AmlJob]:
        return await api.jobs(make_tag(self.context.experiment))

    def watch(self, api: AmlWorkspace, handle: Handle) -> AmlWatch:
        return AmlWatch(api, self.config, handle, self.patience)

    async def fetch(self, handle: Handle, target: Path) -> None:
        """Fetch the files of the trial, after its end."""
        await self.api.download(make_azure_name(str(handle["job"])), target)
