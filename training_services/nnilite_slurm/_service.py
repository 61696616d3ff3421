"""Runs trials as jobs of Slurm: see `nnilite.services.cluster`.

The id in a handle is "" for a task of a job array, which is submitted later; it is then in the folder.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from nnilite.errors import NoCapacity
from nnilite.records import Json
from nnilite.service import Handle, Job, JobState, JobStatus, ServiceContext
from nnilite.services.cluster.login import login_host
from nnilite.services.cluster.queue_service import QueueService
from nnilite.services.cluster.queue_watch import QueueWatch
from nnilite.services.cluster.queued_job import QueuedJob
from nnilite.services.node_places import ELASTIC_LAUNCHERS, LAUNCHERS, nodes_of_job, on_its_nodes
from nnilite_slurm._api import SlurmApi
from nnilite_slurm._arrays import JobArrays, make_array_name
from nnilite_slurm._config import IGNORED, SlurmConfig
from nnilite_slurm._joining_jobs import JoiningJobs, lost_first_node, name_joining_jobs
from nnilite_slurm._listing import NAMELESS
from nnilite_slurm._script import COUNT_NODES, FIRST_NODE, TrialScripts

_PASSED_ON = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT")


class SlurmService(QueueService[SlurmApi]):
    """Jobs of Slurm, submitted on this machine or on a login node that is reached by SSH."""

    Config = SlurmConfig
    ignores = IGNORED
    launchers = LAUNCHERS
    elastic_launchers = ELASTIC_LAUNCHERS
    scheduler = "Slurm"

    def __init__(self, name: str, config: SlurmConfig, context: ServiceContext) -> None:
        super().__init__(name, config, context)
        self._arrays: JobArrays | None = None
        self._joining_jobs: JoiningJobs | None = None
        self._scripts = TrialScripts(config, context)

    def connect(self) -> SlurmApi:
        return SlurmApi(login_host(self.config.login, self.config.slurm_path, "slurm", surroundings(os.environ)))

    async def open(self) -> None:
        await super().open()
        self._scripts.keeper = self._keeper
        size = self.config.job_array_size
        self._arrays = JobArrays(self.api, self.context.experiment, self._scripts.task, size, self.context.wake)
        nodes = self._scripts.nodes
        self._joining_jobs = (
            JoiningJobs(self.api, nodes, self._scripts.joiner) if nodes is not None and nodes.is_elastic else None
        )

    async def close(self) -> None:
        arrays, self._arrays = self._arrays, None
        if arrays is not None:
            await arrays.close()
        joining, self._joining_jobs = self._joining_jobs, None
        if joining is not None:
            await joining.close()
        await super().close()

    async def _checked(self, api: SlurmApi) -> None:
        await super()._checked(api)
        # A quality of service may lift the limits of partitions.
        if self.config.time_limit is not None and self.config.qos is None:
            await api.check_time(self.config.partition or "", self.config.time_limit)

    # ------------------------------------------------------------ scripts

    def _script(self, name: str, gpus: int | None) -> str:
        return self._scripts.task(name, gpus, 0)

    def _test_script(self, gpus: int | None) -> str:
        size = self.config.job_array_size
        return self._scripts.task("nni-test", gpus, size if size > 1 else 0)

    async def submit(self, job: Job) -> Handle:
        try:
            return await super().submit(_on_its_nodes(job))
        except NoCapacity:
            if self._joining_jobs is not None:
                self._joining_jobs.give_way()
            raise

    def describe(self, job: Job) -> dict[str, Json]:
        facts = super().describe(_on_its_nodes(job))
        if nodes_of_job(job).is_elastic:
            facts["joinerScript"] = self._scripts.joiner(name_joining_jobs(job.name), job.gpus)
        return facts

    # ------------------------------------------------------------ nodes that come and go

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        statuses = await super().poll(handles)
        if self._joining_jobs is not None:
            listed, running = self._jobs.listed, []
            for handle, status in zip(handles, statuses, strict=True):
                watch = self._jobs.watch(handle)
                if status.state is JobState.RUNNING and not watch.canceled and watch.id in listed:
                    running.append((handle, listed[watch.id]))
            self._joining_jobs.look_after(running, statuses, listed)
        return statuses

    async def take_node(self, handle: Handle) -> None:
        if self._joining_jobs is None:
            await super().take_node(handle)
        else:
            listed = self._jobs.listed
            await self._joining_jobs.take_node(handle, listed.get(self._jobs.watch(handle).id), listed)

    # ------------------------------------------------------------ job arrays

    async def _enqueue(self, api: SlurmApi, job: Job, folder: str, fresh: bool) -> str:
        if self.config.job_array_size == 1:
            return await super()._enqueue(api, job, folder, fresh)
        if fresh and self._arrays is not None:
            self._arrays.add(_task(folder), job.gpus)
        return ""

    def _status(
        self, watch: QueueWatch, handle: Handle, job: QueuedJob | None, other_names: Collection[str] = (NAMELESS,)
    ) -> JobStatus:
        lost = lost_first_node(job) if self._joining_jobs is not None else ""
        if lost and watch.exited is None:
            return JobStatus(JobState.LOST, f"Slurm has lost {lost}, the first node of the job", host=lost)
        if watch.id or not watch.signs or watch.canceled:
            array = make_array_name(self.context.experiment, watch.text("array"))
            return super()._status(watch, handle, job, (array, *other_names))
        if self._arrays is None:
            return JobStatus(JobState.UNKNOWN, f"{self.name} is not open")
        return _judge_unsubmitted(self._arrays, watch, handle)

    async def cancel(self, handle: Handle) -> None:
        watch = self._jobs.watch(handle)
        if self._arrays is not None and not watch.id:
            self._arrays.forget(_task(watch.folder))
        await super().cancel(handle)
        if self._joining_jobs is not None:  # the first node ends those that run
            await self._joining_jobs.end(str(handle["job"]), only_waiting=True)

    async def remove(self, handle: Handle) -> None:
        if self._arrays is not None:
            self._arrays.forget(_task(str(handle["folder"])))
        if self._joining_jobs is not None:
            await self._joining_jobs.end(str(handle["job"]))
        await super().remove(handle)


def _on_its_nodes(job: Job) -> Job:
    addresses = [FIRST_NODE, "SLURM_LAUNCH_NODE_IPADDR"]
    return on_its_nodes(job, "SLURM_NODEID", addresses, shared=True, count_variable=COUNT_NODES)


def surroundings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for commands of Slurm, without the variables of a job in which the manager may run."""
    return {name: value for name, value in environment.items() if not name.startswith("SLURM_") or name in _PASSED_ON}


def _task(folder: str) -> str:
    """Return an attempt's folder, relative to the trials of its experiment."""
    return folder.split("/", 2)[2]


def _judge_unsubmitted(arrays: JobArrays, watch: QueueWatch, handle: Handle) -> JobStatus:
    """Return the status of a trial that is to be a task of a job array."""
    task = _task(watch.folder)
    if task in arrays.refused:
        return JobStatus(JobState.FAILED, arrays.refused[task])
    if task not in arrays.reasons:
        # The array is an earlier manager's, or its id is just being written down.
        if "array" in watch.notes:
            arrays.go_on(watch.text("array"), handle.get("gpus"))
        elif "spec.json" in watch.signs:
            arrays.add(task, handle.get("gpus"))
    return JobStatus(JobState.WAITING, arrays.reasons.get(task, "the trial's job array is being submitted"))
