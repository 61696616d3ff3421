"""Each attempt of a trial is an experiment on Determined, with one trial and the `single` searcher.

A handle is {"job": name, "id": the experiment's number there, "report": how it reports, "grace_s": its grace period}.
One listing, by a label, returns the states of all jobs; a job is asked for by itself only when it starts and when it
ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nnilite.errors import ConfigError, Place, ServiceError
from nnilite.platform_http import CallRefused, Contradiction, Missing, Outage, Problem, as_config_error, hide
from nnilite.records import Json, KeeperEvent
from nnilite.service import Handle, Job, JobState, JobStatus, ServiceContext, TrainingService
from nnilite.services.callback_address import check_callback_address, reachable_callback_address
from nnilite.services.delivery import HIDDEN
from nnilite.services.job_turns import JobTurns
from nnilite.services.section_fields import gpus_of
from nnilite_determined import _convert
from nnilite_determined._api import DeterminedApi
from nnilite_determined._config import IGNORED, DeterminedConfig
from nnilite_determined._context import DeliveredFiles, deliver, hidden, model_definition
from nnilite_determined._log import DeterminedLog

log = logging.getLogger(__name__)

_QUEUE_EVERY_S = 5.0
_KILL_AFTER_S = 30.0  # beyond the grace period of a job that was canceled
_SAMPLE = DeliveredFiles(b"", "0" * 64, "0" * 64, b"")


@dataclass
class JobMemory:
    """The cached knowledge about a job."""

    fresh: bool = False  # it was submitted by this manager, or has been looked at
    ran: bool = False
    alive: bool = False  # its last container has not ended yet
    task: str = ""
    said: str = ""  # why its last container ended
    started: float | None = None
    canceled: float | None = None  # when, by the monotonic clock
    log: DeterminedLog | None = None
    end: JobStatus | None = None


class DeterminedService(TrainingService):
    """Experiments of one trial each, on a Determined AI cluster."""

    Config = DeterminedConfig
    ignores = IGNORED
    reports_aside = True

    def __init__(self, name: str, config: DeterminedConfig, context: ServiceContext) -> None:
        super().__init__(name, config, context)
        self._label = _convert.label(context.experiment, name)
        self._api: DeterminedApi | None = None
        self._delivered: DeliveredFiles | None = None
        self._numbers: dict[str, int] = {}  # of the experiments there, by the names of jobs
        self._paused: set[str] = set()  # names of jobs that a user has paused on Determined
        self._certain = True  # False: a job may be there that was never told of
        self._memories: dict[int, JobMemory] = {}
        self._turns = JobTurns()
        self._callback = ""  # the manager's address as jobs see it, once it is known
        self._queue: tuple[float, dict[str, str]] = (float("-inf"), {})

    # ------------------------------------------------------------ lifecycle

    async def open(self) -> None:
        self._callback = ""
        try:
            self._delivered = await asyncio.to_thread(deliver, self.context, self.config.code_from)
            await self._log_in()
            await self._note_jobs()
            if not self._numbers:  # Otherwise there are trials to be watched, whatever has changed since they began.
                await self._check()
                if self.context.defaults.get("callback") != "log":
                    given, master = self.config.nni_manager_ip, self.config.master
                    await asyncio.to_thread(check_callback_address, self.context, given, master)
        except BaseException:
            await self.close()
            raise

    async def check(self) -> None:
        try:
            await self._log_in()
            await self._check()
        finally:
            await self.close()

    async def _log_in(self) -> None:
        """Log in. Raises: ConfigError if Determined does not know the user, Problem."""
        for secret in (self.config.password, self.config.token):
            hide(str(secret or ""))
        self._api = DeterminedApi(self.config)
        with as_config_error("token" if self.config.password is None else "password"):
            await self._api.user()

    async def _check(self) -> None:
        """Check that a trial could ever run. Raises: ConfigError, Problem."""
        config, api = self.config, self._connected()
        wanted = _convert.slots(self._sample(), config)
        check_pool(await api.resource_pools(), config.resource_pool, wanted)
        if config.workspace and not await api.workspaces(config.workspace):
            place = Place(field="workspace")
            raise ConfigError(
                f"Determined has no workspace {config.workspace!r}, or {config.username} may not see it", place
            )
        conf = _convert.expconf(self._sample(), self.name, config)
        with as_config_error("project" if config.project else "master"):
            await api.submit({**_convert.request(conf, []), "validateOnly": True, "activate": False})

    def _sample(self) -> Job:
        """Return an example of the jobs to come."""
        gpus = gpus_of(self.config, self.context)
        return Job("nni-sample", self.context.experiment, "sample", 0, 0, {}, gpus)

    async def _note_jobs(self) -> None:
        """Note which jobs exist."""
        found = await self._connected().experiments({"labels": self._label})
        self._numbers = {str(one.get("name")): _number(one) for one in found}
        self._paused |= {str(one.get("name")) for one in found if _convert.PAUSED in (one.get("labels") or [])}
        self._certain = True

    async def close(self) -> None:
        api, self._api = self._api, None
        await self._turns.close()
        if api is not None:
            await api.close()

    def _connected(self) -> DeterminedApi:
        if self._api is None:
            raise ServiceError(f"{self.name} is not open")
        return self._api

    # ------------------------------------------------------------ submitting

    async def submit(self, job: Job) -> Handle:
        if not self._certain:
            await self._note_jobs()
        if job.name not in self._numbers:
            body = await self._body(job)
            try:
                made = await self._connected().submit(body)
            except Outage:
                self._certain = False  # Determined may have accepted the job nevertheless.
                raise
            self._numbers[job.name] = _number(made)
            self._memories[_number(made)] = JobMemory(fresh=True)
        return {
            "job": job.name,
            "id": self._numbers[job.name],
            "report": job.spec.get("report") or "rest",
            "grace_s": float(job.spec.get("grace_s") or 0),
        }

    async def _body(self, job: Job) -> Json:
        before = f"{job.name.rpartition('-')[0]}-{job.attempt - 1}"
        checkpoint = await self._latest_checkpoint(self._numbers.get(before))
        conf = _convert.expconf(job, self.name, self.config, checkpoint)
        delivered = self._delivered
        if delivered is None:
            raise ServiceError(f"{self.name} is not open")
        spec = await asyncio.to_thread(self._spec, job, delivered)
        files = await asyncio.to_thread(model_definition, job, spec, delivered)
        return _convert.request(conf, files, activate=before not in self._paused)

    def _spec(self, job: Job, delivered: DeliveredFiles) -> Mapping[str, Json]:
        """Return the keeper's specification; the bootstrap adds the folder."""
        env = {"CUDA_VISIBLE_DEVICES": ""} if job.gpus == 0 else {}
        more: dict[str, Json] = {"send_output": True, "env": env}
        if job.spec.get("report") != "stdout":
            # Asking costs a connection to the manager, and a way that was open stays the way.
            if not self._callback:
                given, master = self.config.nni_manager_ip, self.config.master
                self._callback = reachable_callback_address(self.context, given, master)
            more["callback"] = self._callback
        if delivered.archive is None:
            more["code"] = {"download": delivered.code_hash}
        return job.spec_for("", **more)

    async def _latest_checkpoint(self, number: int | None) -> str:
        """Return the checkpoint that Determined's own library saved in the attempt before, "" if there is none."""
        if number is None:
            return ""
        try:
            trials = await self._connected().trials(number)
            found = await self._connected().checkpoints(int(trials[-1]["id"])) if trials else []
        except Missing:
            return ""
        newest = max(found, key=lambda one: str(one.get("reportTime") or ""), default={})
        return str(newest.get("uuid") or "")

    def describe(self, job: Job) -> Json:
        conf = _convert.expconf(job, self.name, self.config)
        stored = conf.get("checkpoint_storage")
        if isinstance(stored, dict) and "secret_key" in stored:
            conf["checkpoint_storage"] = {**stored, "secret_key": HIDDEN}
        sample = _SAMPLE if self.config.code_from == "context" else DeliveredFiles(b"", "0" * 64, "0" * 64, None)
        files = hidden(model_definition(job, {}, sample))
        body = {**_convert.request(conf, files), "config": conf}
        return {"name": job.name, "request": f"POST {self.config.master}/api/v1/experiments", "body": body}

    # ------------------------------------------------------------ watching

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        if not handles:
            return []
        listed = {_number(one): one for one in await self._connected().experiments({"labels": self._label})}
        return await self._turns.statuses([(str(one["id"]), partial(self._status, one, listed)) for one in handles])

    async def _status(self, handle: Handle, listed: Mapping[int, Mapping[str, Any]]) -> JobStatus:
        number = int(handle["id"])
        try:
            found = listed.get(number) or await self._connected().experiment(number)
        except Missing:
            return JobStatus(JobState.LOST, "the job's experiment is no longer on Determined")
        except Problem as problem:
            return JobStatus(JobState.UNKNOWN, str(problem))
        if found.get("name") != handle["job"]:
            return JobStatus(JobState.LOST, "the job's experiment is no longer on Determined")
        memory = self._memories.setdefault(number, JobMemory())
        if memory.end is None:
            try:
                return await self._now(handle, found, memory)
            except Problem as problem:
                return JobStatus(JobState.UNKNOWN, str(problem), url=_convert.page_url(self.config.master, number))
        return memory.end

    async def _now(self, handle: Handle, found: Mapping[str, Any], memory: JobMemory) -> JobStatus:
        """Return the status of a job. Raises: Problem."""
        number, state = _number(found), str(found.get("state"))
        url = _convert.page_url(self.config.master, number)
        if state in _convert.TERMINAL:
            await self._learn(number, memory)
            end = await memory.log.end() if memory.log else None
            memory.end = _convert.end_status(state, end, memory.said, url)
            return memory.end
        if state in _convert.IDLE and await self._has_run(number, state, memory):
            if memory.alive:
                return JobStatus(JobState.RUNNING, "the job is being stopped", url=url, started=memory.started)
            if state == "STATE_PAUSED":
                self._paused.add(str(handle["job"]))
            return _convert.preempted(state, memory.said, url)
        if state == "STATE_RUNNING" and not memory.ran:
            await self._learn(number, memory)
        if memory.canceled and time.monotonic() - memory.canceled > float(handle.get("grace_s") or 0) + _KILL_AFTER_S:
            await self._connected().kill(number)
        queue = await self._in_queue(str(found.get("jobId"))) if state == "STATE_QUEUED" else ""
        return _convert.live_status(state, memory.started, queue, url)

    async def _has_run(self, number: int, state: str, memory: JobMemory) -> bool:
        """Return whether a job that waits has run before.

        A job that was submitted just now has not. If it has run and been preempted since the last poll, Determined
        restarts it at some time; that run ends at once and is then reported as a loss.
        """
        if memory.ran or not memory.fresh or state == "STATE_PAUSED":
            await self._learn(number, memory)
            memory.fresh = True
        return memory.ran

    async def _learn(self, number: int, memory: JobMemory) -> None:
        """Ask for the task and the containers of a job."""
        api = self._connected()
        trials = await api.trials(number)
        tasks = [str(task) for trial in trials for task in (trial.get("taskIds") or [trial.get("taskId")]) if task]
        if not tasks:
            return
        memory.task = tasks[0]
        memory.log = memory.log or DeterminedLog(api, memory.task)
        containers = [one for one in await api.allocations(memory.task) if one.get("startTime")]
        if containers:
            memory.ran = True
            memory.started = _convert.seconds(containers[0].get("startTime"))
            memory.alive = containers[-1].get("state") != "STATE_TERMINATED"
            memory.said = str(containers[-1].get("exitReason") or "")

    async def _in_queue(self, job: str) -> str:
        asked, known = self._queue
        if time.monotonic() - asked > _QUEUE_EVERY_S:
            self._queue = (time.monotonic(), known)  # for jobs that are looked at meanwhile
            found = await self._connected().queue()
            known = {str(one.get("jobId")): _convert.in_queue(one) for one in found}
            self._queue = (time.monotonic(), known)
        return known.get(job, "")

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        async with self._turns.turn(str(handle["id"])):
            memory = self._memories.setdefault(int(handle["id"]), JobMemory())
            if memory.log is None:
                try:
                    await self._learn(int(handle["id"]), memory)
                except Missing:
                    return ()
            if memory.log is None:
                return ()
            return await memory.log.read(with_output=handle.get("report") == "stdout")

    # ------------------------------------------------------------ the end

    async def cancel(self, handle: Handle) -> None:
        found = await self._mine(handle)
        if found is None or str(found.get("state")) in _convert.TERMINAL:
            return
        number, api = _number(found), self._connected()
        memory = self._memories.setdefault(number, JobMemory())
        memory.canceled = memory.canceled or time.monotonic()
        # Only what runs has something to save.
        await self._end(handle, api.cancel if found.get("state") == "STATE_RUNNING" else api.kill)

    async def _end(self, handle: Handle, call: Any) -> None:
        """Cancel or kill a job; Determined refuses that for a job that has ended meanwhile."""
        try:
            await call(int(handle["id"]))
        except Missing:
            return
        except (CallRefused, Contradiction) as problem:
            found = await self._mine(handle)
            if found is not None and str(found.get("state")) not in _convert.TERMINAL:
                raise ServiceError(str(problem)) from problem

    async def _mine(self, handle: Handle) -> Mapping[str, Any] | None:
        """Return the experiment of a job; None if it is gone."""
        try:
            found = await self._connected().experiment(int(handle["id"]))
        except Missing:
            return None
        return found if found.get("name") == handle["job"] else None

    async def remove(self, handle: Handle) -> None:
        found = await self._mine(handle)
        if found is None or str(found.get("state")).startswith("STATE_DELET"):
            return
        number, api = _number(found), self._connected()
        if found.get("state") == "STATE_PAUSED" and _convert.PAUSED not in (found.get("labels") or []):
            self._paused.add(str(handle["job"]))
            await api.set_labels(number, [*(found.get("labels") or []), _convert.PAUSED])
        if str(found.get("state")) not in _convert.TERMINAL:
            await self._end(handle, api.kill)
            found = await self._mine(handle)
            if found is not None and str(found.get("state")) not in _convert.TERMINAL:
                raise ServiceError(f"Determined is still stopping the job {handle['job']}")
        if self.config.when_finished == "delete":
            await self._end(handle, api.delete)
        elif self.config.when_finished == "archive" and not (found or {}).get("archived"):
            await self._end(handle, api.archive)
        self._memories.pop(number, None)


def check_pool(pools: Sequence[Mapping[str, Any]], name: str | None, wanted: int | None) -> None:
    """Check that a pool exists and could ever have this many slots. Raises: ConfigError."""
    names = [str(pool.get("name")) for pool in pools]
    if name and name not in names:
        raise ConfigError(
            f"Determined has no resource pool {name!r}; choose one of: {', '.join(names) or 'none'}",
            Place(field="resourcePool"),
        )
    pool = next((one for one in pools if one.get("name") == name or (not name and one.get("defaultComputePool"))), None)
    if pool is None or not wanted:
        return
    most = max(
        int(pool.get("slotsAvailable") or 0), int(pool.get("maxAgents") or 0) * int(pool.get("slotsPerAgent") or 0)
    )
    if wanted > most:
        raise ConfigError(
            f"a trial asks for {wanted} slots, but the resource pool {pool.get('name')} has {most}",
            Place(field="slots"),
        )


def _number(experiment: Mapping[str, Any]) -> int:
    """Return an experiment's number. Raises: ServiceError for an experiment without one."""
    number = experiment.get("id")
    if not isinstance(number, int):
        raise ServiceError(f"Determined answered with an experiment without a number: {str(experiment)[:200]}")
    return number
