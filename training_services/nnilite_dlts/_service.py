"""The training service of DLTS.

A handle is {"job": its name, "id": of the job on DLTS, "report": how it reports}. The id follows from the name, so that
a job that may have been submitted is found again. `poll` makes one call for all jobs; only jobs that are not listed are
asked for one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from nnilite.errors import ConfigError, NniliteError, NotFound, Place, ServiceError
from nnilite.platform_http import AccessRefused, Missing, as_config_error
from nnilite.records import Json, KeeperEvent
from nnilite.service import Handle, Job, JobStatus, ServiceContext, TrainingService
from nnilite.services.callback_address import check_callback_address, reachable_callback_address
from nnilite.services.job_turns import JobTurns
from nnilite_dlts import _convert as convert
from nnilite_dlts._api import DltsApi, parsed
from nnilite_dlts._config import IGNORED, DltsConfig
from nnilite_dlts._endpoint import opened_address, own_job
from nnilite_dlts._handover import Handover, described, hand_over
from nnilite_dlts._watch import DltsWatch

_ENDED_JOBS = 50


class DltsService(TrainingService):
    """Jobs of DLTS (DLWorkspace), submitted through its dashboard."""

    Config = DltsConfig
    ignores = IGNORED
    reports_aside = True

    def __init__(self, name: str, config: DltsConfig, context: ServiceContext) -> None:
        super().__init__(name, config, context)
        self._api: DltsApi | None = None
        self._watches: dict[tuple[str, str], DltsWatch] = {}  # by names and ids
        self._turns = JobTurns()
        self._handover: Handover | None = None
        self._gpu_type = config.gpu_type or ""
        self._callback = ""

    # ------------------------------------------------------------ lifecycle

    async def open(self) -> None:
        self._handover, self._callback = None, ""
        self._watches.clear()
        self._api = DltsApi(self.config)
        try:
            self._check_team(await self._team(self._api))
            await self._check_callback(self._api)
        except BaseException:
            await self.close()
            raise

    async def _team(self, api: DltsApi) -> Mapping[str, Json]:
        """Raises: ConfigError for a wrong login, team or cluster, ServiceError."""
        try:
            with as_config_error("dashboard"):
                return await api.team()
        except ConfigError as error:
            cause = error.__cause__
            if isinstance(cause, AccessRefused):
                raise ConfigError(
                    f"{cause}: see that email and password belong together; the dashboard shows the password to you",
                    Place(field="password"),
                ) from error
            if isinstance(cause, Missing):
                where = f"{self.config.team!r} in the cluster {self.config.cluster!r}"
                raise ConfigError(
                    f"there is no team {where}, or you are not in it: {cause}", Place(field="team")
                ) from error
            raise

    def _check_team(self, team: Mapping[str, Json]) -> None:
        """Whether the team can ever have the GPUs of one trial. Raises: ConfigError, ServiceError."""
        known, quota = parsed(team.get("metadata")), parsed(team.get("quota"))
        kinds = [kind for kind, value in known.items() if isinstance(value, dict)] or list(quota)
        kind = self.config.gpu_type or next(iter(kinds), "")
        if kinds and kind not in kinds:
            raise ConfigError(f"the team has no GPUs {kind!r}; it has {', '.join(kinds)}", Place(field="gpuType"))
        self._gpu_type = kind
        wanted = self.config.gpu_number
        wanted = self.context.defaults.get("trialGpuNumber") if wanted is None else wanted
        node = known.get(kind)
        node = node.get("num_gpu_per_node") if isinstance(node, dict) else None
        for who, limit in (("a node", node), (f"the team {self.config.team}", quota.get(kind))):
            if isinstance(limit, int) and (wanted or 0) > limit:
                told = f"a trial asks for {wanted} GPUs of type {kind}, and {who} has {limit}"
                raise ConfigError(told, Place(field="gpuNumber"))

    async def _check_callback(self, api: DltsApi) -> None:
        """Whether the trials of a new experiment could report. Raises: ConfigError, ServiceError."""
        if self.context.defaults.get("callback") == "log" or own_job():
            return
        ours = f"nni-{self.context.experiment}-"
        jobs = await api.jobs(_ENDED_JOBS)
        if not any(str(job.get("jobName")).startswith(ours) for job in jobs.values()):
            await asyncio.to_thread(check_callback_address, self.context, self.config.nni_manager_ip, api.page)

    async def close(self) -> None:
        api, self._api = self._api, None
        await self._turns.close()
        if api is not None:
            await api.close()

    def _connected(self) -> DltsApi:
        if self._api is None:
            raise ServiceError(f"{self.name} is not open")
        return self._api

    # ------------------------------------------------------------ submitting

    async def submit(self, job: Job) -> Handle:
        api = self._connected()
        report = job.spec.get("report") or "rest"
        handle = {"job": job.name, "id": convert.job_id(job.name), "report": report}
        if await self._ours(api, handle) is not None:
            return handle
        params = await self._params(api, job, report)
        answer = await api.submit(params)
        if not isinstance(answer.get("jobId"), str):
            if await self._ours(api, handle) is None:
                raise self._refusal(str(answer.get("error") or "DLTS tells neither a job nor an error"))
            return handle
        return {**handle, "id": answer["jobId"]}

    async def _ours(self, api: DltsApi, handle: Handle) -> Mapping[str, Json] | None:
        """The job of a handle, None if there is none."""
        found = await api.job(str(handle["id"]))
        return found if found is not None and found.get("jobName") == handle["job"] else None

    async def _params(self, api: DltsApi, job: Job, report: str) -> dict[str, Json]:
        if self._handover is None:
            self._handover = await asyncio.to_thread(hand_over, self.config, self.context, report, self._gpu_type)
        if report != "stdout" and not self._callback:
            self._callback = await self._address(api)
        return await asyncio.to_thread(self._handover.params, job, self._callback)

    async def _address(self, api: DltsApi) -> str:
        given = self.config.nni_manager_ip
        if own_job() and not (given or self.context.defaults.get("nniManagerIp")):
            return await opened_address(api, self.context.callback_url(), own_job())
        return await asyncio.to_thread(reachable_callback_address, self.context, given, api.page)

    def _refusal(self, error: str) -> NniliteError:
        """One for good ends the trial; one that may pass lets it wait."""
        if "Access Denied" in error:
            return ConfigError(f"{self.config.email} may not submit jobs for this team: {error}", Place(field="team"))
        if "ERROR:" in error:
            return ConfigError(f"DLTS refuses the job: {error}")
        return ServiceError(f"DLTS has not taken the job: {error}")

    def describe(self, job: Job) -> Json:
        """The exact request, without its login and without what holds the trial's token."""
        url = DltsApi(self.config).submission()
        return {"name": job.name, "request": f"POST {url}", "body": described(self.config, job)}

    # ------------------------------------------------------------ watching

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        if not handles:
            return []
        api = self._connected()
        watches = [self._watch(handle) for handle in handles]
        jobs = await api.jobs(max(_ENDED_JOBS, 2 * len(handles)))
        calls = [partial(watch.status, jobs) for watch in watches]
        return await self._turns.statuses(list(zip(map(_turn, handles), calls, strict=True)))

    def _watch(self, handle: Handle) -> DltsWatch:
        key = _key(handle)
        if key not in self._watches:
            self._watches[key] = DltsWatch(self._connected(), self.config, handle)
        return self._watches[key]

    # ------------------------------------------------------------ canceling, logs, the end

    async def cancel(self, handle: Handle) -> None:
        watch = self._watch(handle)
        if watch.end is not None:
            return
        state = await self._killed(handle)
        if state is None:  # its database may have failed
            raise ServiceError(f"DLTS does not know the job {handle['job']} at the moment")
        watch.canceled = state == "killing"

    async def remove(self, handle: Handle) -> None:
        """DLTS keeps the record of a job; a job that it would start anew is ended here."""
        await self._killed(handle)
        self._watches.pop(_key(handle), None)

    async def _killed(self, handle: Handle) -> str | None:
        """The state of a job after it was asked to end; None if there is no such job. Raises: ServiceError."""
        api = self._connected()
        found = await self._ours(api, handle)
        if found is None or found.get("jobStatus") not in convert.KILLABLE:
            return None if found is None else str(found.get("jobStatus"))
        said = await api.kill(str(handle["id"]))
        if said.startswith("Success"):
            return "killing"
        found = await self._ours(api, handle)
        if found is not None and found.get("jobStatus") in convert.KILLABLE:
            raise ServiceError(f"DLTS does not end the job {handle['job']}: {said or 'it does not say why'}")
        return None if found is None else str(found.get("jobStatus"))

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        watch = self._watch(handle)
        async with self._turns.turn(_turn(handle)):
            await watch.follow()
        return watch.log.events(with_output=handle.get("report") == "stdout")

    async def logs(self, handle: Handle, stream: str, offset: int, limit: int) -> bytes:
        """The log of a job has both streams in one; it is given as standard output."""
        if stream not in ("stdout", "stderr"):
            raise NotFound(f"there is no stream {stream!r}: it is stdout or stderr")
        if stream == "stderr":
            return b""
        watch = self._watch(handle)
        async with self._turns.turn(_turn(handle)):
            await watch.follow()
        return watch.log.output(offset, limit)

    async def fetch(self, handle: Handle, target: Path) -> None:
        raise NotFound("the files of a trial go with its container; write what is to stay to /work")


def _turn(handle: Handle) -> str:
    """By what a job is known to the turns."""
    return " ".join(_key(handle))


def _key(handle: Handle) -> tuple[str, str]:
    return str(handle["job"]), str(handle["id"])
