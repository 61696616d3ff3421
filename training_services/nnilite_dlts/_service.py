"""The training service of DLTS.

The id of a job follows from its name, so that a job that may have been submitted is found again. `poll` makes one call
for all jobs; only jobs that are not listed are asked for one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

from nnilite.errors import ConfigError, JobRefused, NniliteError, NotFound, Place, ServiceError
from nnilite.platform_http import AccessRefused, Missing, as_config_error
from nnilite.records import Json
from nnilite.service import Handle, Job, ServiceContext
from nnilite.services.batch_service import BatchService
from nnilite.services.delivery import DeliveryCache, sample_job
from nnilite.services.job_watch import Patience
from nnilite_dlts import _convert as convert
from nnilite_dlts._api import DltsApi, DltsJob, parsed
from nnilite_dlts._config import IGNORED, DltsConfig
from nnilite_dlts._endpoint import DltsCallbackAddress, open_address, own_job
from nnilite_dlts._handover import delivered, described, request
from nnilite_dlts._watch import DltsWatch

_ENDED_JOBS = 50


class DltsService(BatchService[DltsApi, DltsJob]):
    """Jobs of DLTS (DLWorkspace), submitted through its dashboard."""

    Config = DltsConfig
    ignores = IGNORED
    platform: ClassVar[str] = "DLTS"
    # A poll makes several calls, and the engine gives it 60 s.
    patience: ClassVar[Patience] = Patience(call_s=20.0)

    def __init__(self, name: str, config: DltsConfig, context: ServiceContext) -> None:
        super().__init__(name, config, context, DltsCallbackAddress(context, config.nni_manager_ip, config.dashboard))
        self._deliveries = DeliveryCache(partial(delivered, config, context), self.job_callback_url)
        self._team: Mapping[str, Json] = {}

    # ------------------------------------------------------------ lifecycle

    def connect(self) -> DltsApi:
        return DltsApi(self.config, self.patience.call_s)

    async def log_in(self, api: DltsApi) -> None:
        self._deliveries.forget()
        self._team = await self._ask_for_team(api)
        self.record_jobs(await self.list_jobs(api, frozenset()))

    async def check_size(self) -> None:
        if self.context.reports_by_log:
            await self._request(sample_job(self.context, self.gpus))

    async def _ask_for_team(self, api: DltsApi) -> Mapping[str, Json]:
        """Ask for the team. Raises: ConfigError for a wrong login, team or cluster, ServiceError."""
        try:
            with as_config_error("dashboard"):
                return await api.team()
        except ConfigError as error:
            cause = error.__cause__
            if isinstance(cause, AccessRefused):
                raise ConfigError(
                    f"{cause}: check that email and password belong together; the dashboard shows you the password",
                    Place(field="password"),
                ) from error
            if isinstance(cause, Missing):
                where = f"{self.config.team!r} in the cluster {self.config.cluster!r}"
                raise ConfigError(
                    f"there is no team {where}, or you are not in it: {cause}", Place(field="team")
                ) from error
            raise

    async def check_trials(self, api: DltsApi) -> None:
        """Check that the team can ever have the GPUs of one trial."""
        kinds, kind, wanted = self._kinds(), self._choose_gpu_type(), self.gpus or 0
        if kinds and kind not in kinds:
            raise ConfigError(f"the team has no GPUs {kind!r}; it has {', '.join(kinds)}", Place(field="gpuType"))
        node = parsed(self._team.get("metadata")).get(kind)
        node = node.get("num_gpu_per_node") if isinstance(node, dict) else None
        quota = parsed(self._team.get("quota")).get(kind)
        for who, limit in (("a node", node), (f"the team {self.config.team}", quota)):
            if isinstance(limit, int) and wanted > limit:
                problem = f"a trial asks for {wanted} GPUs of type {kind}, but {who} has {limit}"
                raise ConfigError(problem, Place(field="gpuNumber"))

    def _kinds(self) -> list[str]:
        """Return the kinds of GPUs that the team has. Raises: ServiceError."""
        known = parsed(self._team.get("metadata"))
        return [kind for kind, value in known.items() if isinstance(value, dict)] or list(
            parsed(self._team.get("quota"))
        )

    def _choose_gpu_type(self) -> str:
        return self.config.gpu_type or next(iter(self._kinds()), "")

    # ------------------------------------------------------------ submitting

    async def submit(self, job: Job) -> Handle:
        job_id = convert.job_id(job.name)
        if await self._is_there(job_id, job.name):
            return self.handle(job, id=job_id)
        answer = await self.api.submit(await self._request(job))
        given = answer.get("jobId")
        if not isinstance(given, str) and not await self._is_there(job_id, job.name):
            raise self._refusal(str(answer.get("error") or "DLTS answered with neither a job nor an error"))
        return self.handle(job, id=given if isinstance(given, str) else job_id)

    async def _request(self, job: Job) -> dict[str, Json]:
        delivery = await self._deliveries.prepare(job)
        return await asyncio.to_thread(request, job, self.config, delivery, self._choose_gpu_type())

    async def _is_there(self, job_id: str, name: str) -> bool:
        """Return whether an earlier try has submitted the job."""
        try:
            return (await self.api.job(job_id)).get("jobName") == name
        except Missing:
            return False

    async def job_callback_url(self) -> str:
        if own_job() and not (self.config.nni_manager_ip or self.context.defaults.get("nniManagerIp")):
            return await open_address(self.api, self.context.callback_url(), own_job())
        return await super().job_callback_url()

    def _refusal(self, error: str) -> NniliteError:
        """Return the error of a refusal: a lasting one ends the trial; a passing one lets it wait."""
        if "Access Denied" in error:
            return JobRefused(f"{self.config.email} may not submit jobs for this team: {error}", Place(field="team"))
        if "ERROR:" in error:
            return JobRefused(f"DLTS refuses the job: {error}")
        return ServiceError(f"DLTS did not accept the job: {error}")

    def describe(self, job: Job) -> Json:
        """Return the exact request, without its login and without the trial's token."""
        url = self.connect().submission()
        return {"name": job.name, "request": f"POST {url}", "body": described(self.config, job)}

    # ------------------------------------------------------------ watching

    async def list_jobs(self, api: DltsApi, wanted: frozenset[str]) -> Mapping[str, DltsJob]:
        ours = f"nni-{self.context.experiment}-"
        jobs = await api.jobs(max(_ENDED_JOBS, 2 * len(wanted)))
        return {job_id: job for job_id, job in jobs.items() if str(job.get("jobName")).startswith(ours)}

    def watch(self, api: DltsApi, handle: Handle) -> DltsWatch:
        return DltsWatch(api, self.config, handle, self.patience)

    # ------------------------------------------------------------ files

    async def fetch(self, handle: Handle, target: Path) -> None:
        raise NotFound("the files of a trial are deleted with its container; write to /work to keep files")
