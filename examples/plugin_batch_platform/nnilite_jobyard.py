"""A training service of a remote batch platform, from outside of nnilite: each attempt of a trial is a job there.

Jobyard, the platform, exists in this example alone. It runs "this command in this image", lists jobs, keeps the log of
each, and is called by HTTP. In the config: `trainingService: {platform: jobyard, host: ..., token: ...}`.

Start with a copy of this file for a platform that is similar. What is not here, `BatchService` and `JobWatch` do.
"""

import asyncio
import shlex
from dataclasses import dataclass, field
from typing import Annotated

from nnilite.platform_http import Credential, HttpConfig, HttpRequest, PlatformHttp, as_config_error
from nnilite.service import CHECKPOINTS_STAY, JobState, JobStatus, callback_is_unused
from nnilite.services.batch_service import BatchService
from nnilite.services.bootstrap import command
from nnilite.services.callback_address import ExternalCallbackAddress
from nnilite.services.delivery import START_VARIABLE, code_source, deliver, hidden, variable_names
from nnilite.services.job_log import JobLog
from nnilite.services.job_watch import JobWatch, Patience, SeenJob, keeper_status
from nnilite.services.section_fields import EnvironmentVariables, ManagerIp, TrialGpuNumber, check_variables
from nnilite.units import Secret

STATES = {
    "queued": JobState.WAITING,
    "running": JobState.RUNNING,
    "stopping": JobState.RUNNING,
    "done": JobState.SUCCEEDED,
    "failed": JobState.FAILED,
    "stopped": JobState.CANCELED,
    "evicted": JobState.FAILED,
}


@dataclass(frozen=True, kw_only=True)
class JobyardConfig(HttpConfig):
    """The section of the config; HttpConfig brings caCert, insecureSkipTlsVerify and requestTimeout."""

    host: Annotated[str, "the address of Jobyard, such as https://yard.example.org"]
    token: Annotated[Secret, 'of who calls; better "${env:JOBYARD_TOKEN}"']
    image: Annotated[str, "an image with Python 3.8 or later; it needs nothing else"] = "python:3.12-slim"
    environment_variables: EnvironmentVariables = field(default_factory=dict)
    nni_manager_ip: ManagerIp = None
    trial_gpu_number: TrialGpuNumber = None

    def __post_init__(self):
        check_variables(self.environment_variables)


@dataclass(frozen=True)
class YardJob:
    """What is used of Jobyard's answer about a job."""

    name: str
    state: str
    reason: str = ""
    node: str = ""
    started: float | None = None
    ended: float | None = None


class YardApi:
    """The calls that are needed. All raise Problem."""

    def __init__(self, config, patience_s):
        self._http = PlatformHttp("Jobyard", config.host, config, Credential(config.token))
        self._patience_s = patience_s

    async def _ask(self, method, path, query=None, body=None):
        request = HttpRequest(method, path, query or {}, body, patience_s=self._patience_s)
        return await self._http.call(request)

    async def user(self):
        return (await self._ask("GET", "/user")).json()

    async def submit(self, name, body):
        await self._ask("PUT", f"/jobs/{name}", body=body)  # Jobyard takes a name once: the call can be repeated

    async def jobs(self, group):
        return {job["name"]: YardJob(**job) for job in (await self._ask("GET", "/jobs", {"group": group})).json()}

    async def job(self, name):
        return YardJob(**(await self._ask("GET", f"/jobs/{name}")).json())

    async def stop(self, name):
        await self._ask("PUT", f"/jobs/{name}/stop")

    async def log(self, name, position):
        return (await self._ask("GET", f"/jobs/{name}/log", {"from": position})).content

    async def close(self):
        await self._http.close()


class YardLog(JobLog):
    """The log of a job, read from where it was left."""

    def __init__(self, api, job):
        super().__init__()
        self._api, self._job = api, job

    async def read_on(self):
        while piece := await self._api.log(self._job, self.position):
            self.add(piece)


class YardWatch(JobWatch):
    """What becomes of one job: Jobyard's part of it."""

    platform = "Jobyard"

    def __init__(self, api, handle, patience):
        super().__init__(handle, YardLog(api, str(handle["job"])), patience)
        self._api = api

    async def fetch(self):
        return await self._api.job(self.id)

    def interpret(self, job):
        state = STATES.get(job.state, JobState.UNKNOWN)
        reason = job.reason if job.state in STATES else f"Jobyard tells an unknown state: {job.state!r:.40}"
        return SeenJob(state, reason, job.started, job.node, is_stopping=job.state == "stopping")

    def speaks(self, job, seen):
        return job.state != "evicted" and super().speaks(job, seen)

    async def kill(self):
        await self._api.stop(self.id)

    def end(self, job, word):
        if job.state == "evicted":
            return JobStatus(JobState.LOST, job.reason, started=job.started, ended=job.ended)
        if word is not None:  # Jobyard knows no exit codes, so the keeper's word comes first
            return keeper_status(word, job.started)
        return JobStatus(STATES[job.state], job.reason, started=job.started, ended=job.ended)


class JobyardService(BatchService):
    """Jobs of Jobyard, the platform of an example."""

    Config = JobyardConfig
    platform = "Jobyard"
    patience = Patience()  # how long is waited for what; tests have another one
    ignores = (callback_is_unused(), *CHECKPOINTS_STAY)

    def __init__(self, name, config, context):
        # Jobyard is far away: people give the address at which its nodes reach their manager.
        address = ExternalCallbackAddress(context, config.nni_manager_ip, "the nodes of Jobyard")
        super().__init__(name, config, context, address)

    def connect(self):
        self._delivery = {}
        return YardApi(self.config, self.patience.call_s)

    async def log_in(self, api):
        with as_config_error("token"):
            await api.user()

    async def submit(self, job):
        report = job.report
        if report not in self._delivery:  # all jobs get the code as it was at the first
            callback = "" if report == "stdout" else await self.job_callback_url()
            source = code_source(None, False, report)
            self._delivery[report] = await asyncio.to_thread(deliver, self.context, source, report, None, callback)
        delivery = self._delivery[report]
        variables = delivery.variables(delivery.instructions(job, "", log_tells_end=True))
        await self.api.submit(job.name, self._body(job, variables))
        return self.handle(job)

    def _body(self, job, variables):
        return {
            "group": job.experiment,
            "image": self.config.image,
            "command": shlex.join(command(f"env:{START_VARIABLE}", f"/tmp/nnilite/{job.name}")),
            "environment": {**self.config.environment_variables, **variables},
            "gpus": job.gpus or 0,
        }

    def describe(self, job):
        own = hidden(variable_names(code_source(None, False, job.report)))
        return {"name": job.name, "request": f"PUT {self.config.host}/jobs/{job.name}", "body": self._body(job, own)}

    async def list_jobs(self, api, wanted):
        return await api.jobs(self.context.experiment)

    def watch(self, api, handle):
        return YardWatch(api, handle, self.patience)
