"""Each attempt of a trial is a job of PAI-DLC.

DLC gives a new job its id, and takes none from its caller. So before a job is made, a note on the manager's disk
records the attempt, and its name is looked for among the existing jobs. Where the answer to an earlier try was lost,
also by the end of the manager, nothing is made before DLC has had time to list what it may have made then. If there are
two nevertheless, all but the first are stopped.

A handle is {"job": its name, "id": of the job on DLC, "report": how it reports, "soft_s": how long its keeper gets to
end the trial}.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar
from urllib.parse import quote

from nnilite.errors import ConfigError, NotFound, ServiceError
from nnilite.platform_http import (
    AccessRefused,
    CallRefused,
    Missing,
    Outage,
    Problem,
    RequestTooLarge,
    Throttled,
    Untrusted,
)
from nnilite.records import Json
from nnilite.service import Handle, Job, ServiceContext
from nnilite.services.callback_address import ExternalCallbackAddress
from nnilite.services.delivery import DeliveryCache, MountedStorage, hidden, sample_job, variable_names
from nnilite.services.node_places import LAUNCHERS
from nnilite.services.storage_service import StorageService
from nnilite_dlc._api import DlcApi, DlcJob, body_of
from nnilite_dlc._checks import check_resources, list_experiment_jobs, make_refusal
from nnilite_dlc._config import IGNORED, DlcConfig
from nnilite_dlc._delivery import choose_source, delivered, find_storage
from nnilite_dlc._job_fields import check_size, own_variables, request
from nnilite_dlc._job_pods import place_nodes, spread
from nnilite_dlc._sdk_calls import unsent
from nnilite_dlc._status import ENDED, state_of
from nnilite_dlc._submission_journal import SubmissionJournal
from nnilite_dlc._watch import DlcWatch

log = logging.getLogger(__name__)


class DlcService(StorageService[DlcApi, DlcJob]):
    """Jobs of PAI-DLC, the container service of Alibaba Cloud's Platform for AI."""

    Config = DlcConfig
    config: DlcConfig
    ignores = IGNORED
    launchers = LAUNCHERS
    platform: ClassVar[str] = "DLC"

    settle_s: ClassVar[float] = 60.0
    """How long after a try without an answer a job may still appear in DLC's lists."""

    def __init__(self, name: str, config: DlcConfig, context: ServiceContext) -> None:
        config = spread(config, context)
        address = ExternalCallbackAddress(context, config.nni_manager_ip, "DLC's pods")
        super().__init__(name, config, context, address)
        self._intents = SubmissionJournal(context.directory / "dlc")
        self._deliveries = DeliveryCache(partial(delivered, config, context), self.job_callback_url)

    # ------------------------------------------------------------ lifecycle

    def connect(self) -> DlcApi:
        return DlcApi(self.config, self.patience.call_s)

    async def log_in(self, api: DlcApi) -> None:
        self._deliveries.forget()
        self.record_jobs(collect_by_id(await list_experiment_jobs(api, self.config, self.context.experiment)))

    async def check_trials(self, api: DlcApi) -> None:
        if self.gpus:
            await check_resources(api, self.config, self.gpus)

    async def check_size(self) -> None:
        sample = sample_job(self.context, self.gpus)
        if choose_source(self.config, sample.report) != "storage":
            await self._fields(sample)

    # ------------------------------------------------------------ submitting

    async def submit(self, job: Job) -> Handle:
        fields = await self._fields(job)
        job_id = await self._found(self.api, job.name) or await self._created(self.api, job.name, fields)
        return self.handle(job, id=job_id)

    async def _fields(self, job: Job) -> dict[str, Json]:
        """Return the fields of a job. Raises: NoCapacity while there is no way back, ConfigError, ServiceError."""
        job = place_nodes(job, self.config)
        delivery = await self._deliveries.prepare(job)
        own = await asyncio.to_thread(own_variables, job, self.config, delivery)
        fields = request(job, self.config, own)
        check_size(fields)
        return fields

    async def _found(self, api: DlcApi, name: str) -> str:
        """Return the id of the job of this name that an earlier try made; "" if none did.

        Raises: ServiceError while it is not known.
        """
        tried_s = await asyncio.to_thread(self._intents.age_s, name)
        if tried_s is None:
            return ""
        try:
            made = select_same_name(await api.jobs(name), name)
        except (NotFound, ConfigError) as error:  # A refused list shows nothing about the job.
            raise ServiceError(str(error)) from error
        if made:
            await self._stop_others(api, made)
            return made[0].id
        if tried_s < self.settle_s:
            raise ServiceError(f"DLC may have accepted {name} without an answer; looking for it among the jobs")
        return ""

    async def _created(self, api: DlcApi, name: str, fields: Mapping[str, Json]) -> str:
        """Make the job. Raises: ConfigError if DLC can never take it, Problem."""
        await asyncio.to_thread(self._intents.keep, name)
        try:
            return await api.create(fields)
        except (AccessRefused, CallRefused, Missing, Throttled, RequestTooLarge, Untrusted) as problem:
            # A refusal is an answer: nothing was made.
            await asyncio.to_thread(self._intents.forget, name)
            raise make_refusal(problem) from problem
        except Outage as problem:
            # The job may have been made by now, unless the call was never sent.
            note = self._intents.forget if unsent(problem) else self._intents.keep
            await asyncio.to_thread(note, name)
            raise

    async def _stop_others(self, api: DlcApi, made: Sequence[DlcJob]) -> None:
        """Stop all jobs of one name but the first, which is the attempt."""
        for other in made[1:]:
            if state_of(other) not in (*ENDED, "stopping"):
                log.warning("DLC made %s twice; stopping %s", other.name, other.id)
                await api.stop(other.id)

    def describe(self, job: Job) -> Json:
        own = hidden(variable_names(choose_source(self.config, job.report)))
        where = self.config.endpoint or f"region {self.config.region}"
        fields = request(job, self.config, own)
        return {"name": job.name, "request": f"POST /api/v1/jobs ({where})", "body": body_of(fields)}

    # ------------------------------------------------------------ watching

    async def list_jobs(self, api: DlcApi, wanted: frozenset[str]) -> Mapping[str, DlcJob]:
        return collect_by_id(await api.jobs(f"nni-{self.context.experiment}-", wanted))

    async def listed(self, handles: Sequence[Handle], jobs: Mapping[str, DlcJob]) -> None:
        """Stop jobs with the name of a watched one, which DLC listed too late to be found."""
        ours = {str(handle["job"]): str(handle["id"]) for handle in handles}
        for job in jobs.values():
            if ours.get(job.name, job.id) != job.id and state_of(job) not in (*ENDED, "stopping"):
                log.warning("DLC made %s twice; stopping %s", job.name, job.id)
                try:
                    await self.api.stop(job.id)
                except Problem as problem:
                    log.warning("cannot stop %s now: %s", job.id, problem)

    def watch(self, api: DlcApi, handle: Handle) -> DlcWatch:
        return DlcWatch(api, handle, self._page(str(handle["id"])), self.patience)

    def _page(self, job_id: str) -> str:
        """Return the page of a job in the console."""
        region = quote(self.config.region, safe="")
        place = f"workspaceId={quote(self.config.workspace_id, safe='')}#" if self.config.workspace_id else "#"
        return f"https://pai.console.aliyun.com/?regionId={region}&{place}/dlc/jobs/{quote(job_id, safe='')}"

    # ------------------------------------------------------------ the end

    async def remove(self, handle: Handle) -> None:
        """Stop a job that still runs or waits; DLC keeps the record of ended jobs."""
        await super().remove(handle)
        await asyncio.to_thread(self._intents.forget, str(handle["job"]))

    # ------------------------------------------------------------ files

    def storage(self) -> MountedStorage:
        return find_storage(self.config, self.context.experiment)


def collect_by_id(jobs: Sequence[DlcJob]) -> Mapping[str, DlcJob]:
    """Return the jobs by their ids."""
    return {job.id: job for job in jobs}


def select_same_name(jobs: Sequence[DlcJob], name: str) -> list[DlcJob]:
    """Return the jobs of exactly this name, the first one first."""
    return sorted((job for job in jobs if job.name == name), key=lambda job: (job.created or 0.0, job.id))
