"""Each attempt of a trial is a job of PAI-DLC.

DLC gives a new job its id, and takes none from its caller. So before a job is made, it is noted on the manager's disk
that it will be, and its name is looked for among the jobs that are there. Where the answer to an earlier try was lost,
also by the end of the manager, nothing is made before DLC has had time to list what it may have made then. Should there
be two all the same, all but the first are stopped.

A handle is {"job": its name, "id": of the job on DLC, "report": how it reports, "soft_s": how long its keeper gets to
end the trial}.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from nnilite.errors import ConfigError, NoCapacity, NotFound, ServiceError
from nnilite.platform_http import AccessRefused, CallRefused, Missing, Outage, Problem, Throttled, Untrusted, in_thread
from nnilite.records import Json, KeeperEvent
from nnilite.service import Handle, Job, JobStatus, ServiceContext, TrainingService, TrialFile
from nnilite.services.job_turns import JobTurns
from nnilite.services.worker_side import FolderLooks
from nnilite_dlc._api import DlcApi, DlcJob, body_of
from nnilite_dlc._checks import address_for_jobs, check_resources, experiment_jobs, refused_job
from nnilite_dlc._config import IGNORED, DlcConfig
from nnilite_dlc._delivery import DlcDelivery, deliver, fetch, fetch_file, listed, variable_names
from nnilite_dlc._intents import Intents
from nnilite_dlc._job_fields import hidden, own_variables, request
from nnilite_dlc._sdk_calls import unsent
from nnilite_dlc._status import ENDED, state_of
from nnilite_dlc._watch import DlcWatch

log = logging.getLogger(__name__)

_SOFT_EXTRA_S = 5.0
_FOLDER_S = 60.0  # for a list or a file of the storage, whose threads may hang


class DlcService(TrainingService):
    """Jobs of PAI-DLC, the container service of Alibaba Cloud's Platform for AI."""

    Config = DlcConfig
    ignores = IGNORED
    reports_aside = True

    list_pause_s: ClassVar[float] = 5.0
    """So often at most jobs are listed: Alibaba allows some calls a second, of all experiments of an account."""
    log_pause_s: ClassVar[float] = 5.0
    """So often at most the log of a running job is read on."""
    settle_s: ClassVar[float] = 60.0
    """So long after a try without an answer a job may still appear in DLC's lists."""

    def __init__(self, name: str, config: DlcConfig, context: ServiceContext) -> None:
        super().__init__(name, config, context)
        self._config = config
        self._api: DlcApi | None = None
        self._intents = Intents(context.directory / "dlc")
        self._delivery: dict[str, DlcDelivery] = {}
        self._watches: dict[tuple[str, str], DlcWatch] = {}  # by names and ids
        self._turns = JobTurns()
        self._folders = FolderLooks(limit_s=_FOLDER_S)
        self._jobs: Mapping[str, DlcJob] = {}
        self._listed = float("-inf")

    # ------------------------------------------------------------ lifecycle

    async def open(self) -> None:
        self._api = DlcApi(self._config)
        self._delivery, self._watches, self._listed = {}, {}, float("-inf")
        try:
            found = await experiment_jobs(self._api, self._config, self.context.experiment)
            if not found:  # else there are trials to be watched, whatever has changed since they began
                await self._check(self._api)
        except BaseException:
            await self.close()
            raise

    async def check(self) -> None:
        api = DlcApi(self._config)
        await experiment_jobs(api, self._config, self.context.experiment)
        await self._check(api)

    async def _check(self, api: DlcApi) -> None:
        """Whether a trial could ever run. Raises: ConfigError, Problem."""
        if self.context.defaults.get("callback") != "log":
            address_for_jobs(self.context, self._config.nni_manager_ip)
        gpus = self._config.trial_gpu_number
        gpus = self.context.defaults.get("trialGpuNumber") if gpus is None else gpus
        if gpus:
            await check_resources(api, self._config, int(gpus))

    async def close(self) -> None:
        self._api = None
        await self._turns.close()

    def _connected(self) -> DlcApi:
        if self._api is None:
            raise ServiceError(f"{self.name} is not open")
        return self._api

    # ------------------------------------------------------------ submitting

    async def submit(self, job: Job) -> Handle:
        api = self._connected()
        report, soft_s = str(job.spec.get("report") or "rest"), 0.0
        if report == "rest":
            soft_s = float(job.spec.get("grace_s") or 0) + float(job.spec.get("heartbeat_s") or 0) + _SOFT_EXTRA_S
        fields = await self._fields(job, report)
        job_id = await self._found(api, job.name) or await self._created(api, job.name, fields)
        handle = {"job": job.name, "id": job_id, "report": report, "soft_s": soft_s}
        self._watch(handle).submitted()
        return handle

    async def _fields(self, job: Job, report: str) -> dict[str, Json]:
        """What a job is made of. Raises: NoCapacity while there is no way back, ConfigError, ServiceError."""
        if report not in self._delivery:
            callback = ""
            if report == "rest":
                try:
                    callback = address_for_jobs(self.context, self._config.nni_manager_ip)
                except ConfigError as error:  # trials of a resumed experiment that run must not end with it
                    raise NoCapacity(str(error)) from error
            self._delivery[report] = await asyncio.to_thread(deliver, self._config, self.context, report, callback)
        delivery = self._delivery[report]
        own = await asyncio.to_thread(own_variables, job, self._config, delivery)
        return request(job, self._config, own)

    async def _found(self, api: DlcApi, name: str) -> str:
        """The id of the job of this name that an earlier try has made; "" if none has.

        Raises: ServiceError while it is not known.
        """
        tried_s = await asyncio.to_thread(self._intents.age_s, name)
        if tried_s is None:
            return ""
        try:
            made = same_name(await api.jobs(name), name)
        except (NotFound, ConfigError) as error:  # a list that is refused says nothing of the job
            raise ServiceError(str(error)) from error
        if made:
            await self._stop_others(api, made)
            return made[0].id
        if tried_s < self.settle_s:
            raise ServiceError(f"DLC may have taken {name} without an answer: it is looked for among its jobs")
        return ""

    async def _created(self, api: DlcApi, name: str, fields: Mapping[str, Json]) -> str:
        """Make the job. Raises: ConfigError if DLC can never take it, Problem."""
        await asyncio.to_thread(self._intents.keep, name)
        try:
            return await api.create(fields)
        except (AccessRefused, CallRefused, Missing, Throttled, Untrusted) as problem:
            # A refusal is an answer: nothing was made.
            await asyncio.to_thread(self._intents.forget, name)
            raise refused_job(problem) from problem
        except Outage as problem:
            # It may have been made up to now, unless the question was never sent.
            note = self._intents.forget if unsent(problem) else self._intents.keep
            await asyncio.to_thread(note, name)
            raise

    async def _stop_others(self, api: DlcApi, made: Sequence[DlcJob]) -> None:
        """Of the jobs of one name, only the first is the attempt."""
        for other in made[1:]:
            if state_of(other) not in (*ENDED, "stopping"):
                log.warning("DLC has made %s twice; %s is stopped", other.name, other.id)
                await api.stop(other.id)

    def describe(self, job: Job) -> Json:
        own = hidden(dict.fromkeys(variable_names(self._config, job.spec.get("report")), ""))
        where = self._config.endpoint or f"region {self._config.region}"
        fields = request(job, self._config, own)
        return {"name": job.name, "request": f"POST /api/v1/jobs ({where})", "body": body_of(fields)}

    # ------------------------------------------------------------ watching

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        if not handles:
            return []
        watches = [self._watch(handle) for handle in handles]
        wanted = frozenset(str(handle["id"]) for handle, watch in zip(handles, watches, strict=True) if not watch.over)
        jobs = await self._list(wanted)
        await self._stop_strays(handles, jobs)
        calls = [partial(watch.status, jobs) for watch in watches]
        return await self._turns.statuses(list(zip(map(_turn, handles), calls, strict=True)))

    async def _list(self, wanted: frozenset[str]) -> Mapping[str, DlcJob]:
        """The jobs of the experiment by their ids, at most so old as `list_pause_s`."""
        if wanted and time.monotonic() - self._listed >= self.list_pause_s:
            try:
                found = await self._connected().jobs(f"nni-{self.context.experiment}-", wanted)
            except (NotFound, ConfigError) as error:
                # A list that is refused says nothing of the jobs.
                raise ServiceError(str(error)) from error
            self._jobs, self._listed = {job.id: job for job in found}, time.monotonic()
        return self._jobs

    async def _stop_strays(self, handles: Sequence[Handle], jobs: Mapping[str, DlcJob]) -> None:
        """Jobs of the same name as one that is watched, which DLC has listed too late to be found."""
        ours = {str(handle["job"]): str(handle["id"]) for handle in handles}
        for job in jobs.values():
            if ours.get(job.name, job.id) != job.id and state_of(job) not in (*ENDED, "stopping"):
                log.warning("DLC has made %s twice; %s is stopped", job.name, job.id)
                try:
                    await self._connected().stop(job.id)
                except Problem as problem:
                    log.warning("%s cannot be stopped now: %s", job.id, problem)

    def _watch(self, handle: Handle) -> DlcWatch:
        key = _key(handle)
        if key not in self._watches:
            self._watches[key] = DlcWatch(self._connected(), handle, self._page(key[1]))
        return self._watches[key]

    def _page(self, job_id: str) -> str:
        """The page of a job in the console, for people."""
        region = quote(self._config.region, safe="")
        place = f"workspaceId={quote(self._config.workspace_id, safe='')}#" if self._config.workspace_id else "#"
        return f"https://pai.console.aliyun.com/?regionId={region}&{place}/dlc/jobs/{quote(job_id, safe='')}"

    # ------------------------------------------------------------ the end

    async def cancel(self, handle: Handle) -> None:
        """The keeper of a running trial hears it from the manager first, and ends the trial softly.

        Whether a pod's command gets SIGTERM from DLC is not documented. So DLC is asked when the time for a soft end
        is over, by `poll`; at once where the keeper does not hear the manager, or the trial does not run yet.
        """
        await self._watch(handle).cancel(float(handle.get("soft_s") or 0))

    async def remove(self, handle: Handle) -> None:
        """DLC keeps the record of ended jobs; one that still runs or waits is stopped."""
        await self._watch(handle).remove()
        self._watches.pop(_key(handle), None)
        await asyncio.to_thread(self._intents.forget, str(handle["job"]))

    # ------------------------------------------------------------ logs and files

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        async with self._turns.turn(_turn(handle)):
            return await self._watch(handle).reports(handle["report"] == "stdout", self.log_pause_s)

    async def logs(self, handle: Handle, stream: str, offset: int, limit: int) -> bytes:
        """The output of the pod that reports; DLC keeps what it prints in one log."""
        if stream not in ("stdout", "stderr"):
            raise NotFound(f"there is no stream {stream!r}: it is stdout or stderr")
        return bytes(self._watch(handle).log.output[offset : offset + limit]) if stream == "stdout" else b""

    async def fetch(self, handle: Handle, target: Path) -> None:
        """The files that the trial has left in the storage, if it has one."""
        await in_thread(partial(fetch, self._config, self.context.experiment, str(handle["job"]), target))

    async def files(self, handle: Handle) -> Sequence[TrialFile]:
        job = str(handle["job"])
        work = partial(listed, self._config, self.context.experiment, job)
        return await in_thread(partial(self._folders.look, job, "files", work))

    async def fetch_file(self, handle: Handle, path: str, target: Path, most_bytes: int) -> None:
        job = str(handle["job"])
        work = partial(fetch_file, self._config, self.context.experiment, job, path, target, most_bytes)
        await in_thread(partial(self._folders.look, job, "", work))


def same_name(jobs: Sequence[DlcJob], name: str) -> list[DlcJob]:
    """The jobs of exactly this name, the first one first."""
    return sorted((job for job in jobs if job.name == name), key=lambda job: (job.created or 0.0, job.id))


def _turn(handle: Handle) -> str:
    """By what a job is known to the turns."""
    return " ".join(_key(handle))


def _key(handle: Handle) -> tuple[str, str]:
    return str(handle["job"]), str(handle["id"])
