"""The training service of OpenPAI: one job of protocol v2 for each attempt of a trial.

A job's name is that of the attempt, so it is found again by that alone, and is never there twice. `poll` asks for one
list of all jobs of the experiment. More is asked for single jobs only: why they wait, where they run, how they ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from nnilite.errors import ConfigError, NotFound, ServiceError
from nnilite.platform_http import Problem, as_config_error, in_thread
from nnilite.records import Host, Json, KeeperEvent
from nnilite.service import Handle, Job, JobState, JobStatus, ServiceContext, TrainingService, TrialFile
from nnilite.services.callback_address import callback_address, check_callback_address, reachable_callback_address
from nnilite.services.job_turns import JobTurns
from nnilite.services.worker_side import FolderLooks
from nnilite_openpai._api import Pai
from nnilite_openpai._checks import check_platform, check_resources
from nnilite_openpai._config import IGNORED, OpenPaiConfig
from nnilite_openpai._convert import encoded, hidden, submission
from nnilite_openpai._delivery import PaiDelivery, announce, code_source, deliver, fetch, fetch_file, listed, planned
from nnilite_openpai._log import TaskLog
from nnilite_openpai._roles import roles_of
from nnilite_openpai._status import Task, ended, keepers_word, running, state_of, task_of, waiting

log = logging.getLogger(__name__)

_SOFT_EXTRA_S = 5.0
_YOUNG_S = 30.0
_FOLDER_S = 60.0  # for a list or a file of the storage, whose threads may hang
_LOG_PATIENCE_S = 60.0
"""How long the log of an ended job is tried to be read, before PAI's exit code has to do."""


@dataclass
class _PaiJobMemory:
    """What is remembered of one job: all of it can be asked for again."""

    submitted: float = float("-inf")
    reason: str = ""
    reason_asked: float = float("-inf")
    task: Task | None = None
    ended: float | None = None
    stop_at: float | None = None
    stopped: bool = False
    end: JobStatus | None = None
    log: TaskLog = field(default_factory=TaskLog)


class OpenPaiService(TrainingService):
    """The training service `openpai`: a job for each trial, on a cluster of OpenPAI 1.0 or later.

    A handle is {"job": its name, "report": how it reports, "soft_s": how long its keeper gets to end the trial, "role":
    which role speaks for it}.
    """

    Config = OpenPaiConfig
    ignores = IGNORED
    reports_aside = True

    list_pause_s: ClassVar[float] = 2.0
    """PAI takes 60 list calls a minute of a user, whose experiments may be several."""
    ask_pause_s: ClassVar[float] = 10.0
    """So often at most it is asked why a job waits."""
    log_pause_s: ClassVar[float] = 5.0
    """So often at most the log of a running job is fetched, all of it each time."""

    def __init__(self, name: str, config: OpenPaiConfig, context: ServiceContext) -> None:
        super().__init__(name, config, context)
        self._config = config
        self._pai: Pai | None = None
        self._delivery: dict[str, PaiDelivery] = {}
        self._turns = JobTurns()
        self._folders = FolderLooks(limit_s=_FOLDER_S)
        self._known: defaultdict[str, _PaiJobMemory] = defaultdict(_PaiJobMemory)
        self._jobs: Mapping[str, Mapping[str, Json]] = {}
        self._listed = float("-inf")

    # ------------------------------------------------------------ lifecycle

    async def open(self) -> None:
        self._pai, self._delivery = Pai(self._config), {}
        self._listed = float("-inf")
        self._known.clear()
        try:
            await self._check(self._pai)
        except BaseException:
            await self.close()
            raise

    async def _check(self, pai: Pai) -> None:
        await check_platform(pai, self._config)
        with as_config_error("token" if self._config.token else "password"):
            jobs = await self._list()
            if not jobs:
                # With jobs there are trials to be watched, whatever has changed since they began.
                gpus = self.context.defaults.get("trialGpuNumber")
                await check_resources(pai, self._config, roles_of(self._config, gpus))
        place = (self.context, self._config.nni_manager_ip, self._config.host)
        if jobs:
            address = await asyncio.to_thread(callback_address, *place)
            await asyncio.to_thread(announce, self._config, self.context, address)
        elif self.context.defaults.get("callback") != "log":
            await asyncio.to_thread(check_callback_address, *place)

    async def close(self) -> None:
        pai, self._pai = self._pai, None
        await self._turns.close()
        if pai is not None:
            await pai.close()

    def _connected(self) -> Pai:
        if self._pai is None:
            raise ServiceError(f"{self.name} is not open")
        return self._pai

    # ------------------------------------------------------------ submitting

    async def submit(self, job: Job) -> Handle:
        report = str(job.spec.get("report") or "rest")
        body = encoded(submission(job, self._config, await self._delivered(report)))
        await self._connected().submit(job.name, body)
        self._known[job.name].submitted = time.monotonic()
        role = next(role.name for role in roles_of(self._config, job.gpus) if role.reports)
        soft_s = 0.0
        if report == "rest":
            soft_s = float(job.spec.get("grace_s") or 0) + float(job.spec.get("heartbeat_s") or 0) + _SOFT_EXTRA_S
        return {"job": job.name, "report": report, "soft_s": soft_s, "role": role}

    async def _delivered(self, report: str) -> PaiDelivery:
        if report not in self._delivery:
            callback = ""
            if report == "rest":
                given, host = self._config.nni_manager_ip, self._config.host
                callback = await asyncio.to_thread(reachable_callback_address, self.context, given, host)
            found = await asyncio.to_thread(deliver, self._config, self.context, report, callback)
            self._delivery[report] = found
        return self._delivery[report]

    def describe(self, job: Job) -> Json:
        report = job.spec.get("report")
        content = submission(job, self._config, planned(self._config, self.context.experiment, report))
        return {
            "request": f"POST {self._config.host}/rest-server/api/v2/jobs",
            "codeFrom": code_source(self._config, report),
            "job": hidden(content),
        }

    # ------------------------------------------------------------ polling

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        if not handles:
            return []
        jobs = await self._list()
        return await self._turns.statuses([(str(one["job"]), partial(self._status, one, jobs)) for one in handles])

    async def _list(self) -> Mapping[str, Mapping[str, Json]]:
        """All jobs of the experiment, at most so old as `list_pause_s`."""
        if time.monotonic() - self._listed >= self.list_pause_s:
            try:
                self._jobs = await self._connected().jobs(f"nni-{self.context.experiment}-")
            except (NotFound, ConfigError) as error:
                # A list that is refused says nothing of the jobs.
                raise ServiceError(str(error)) from error
            self._listed = time.monotonic()
        return self._jobs

    async def _status(self, handle: Handle, jobs: Mapping[str, Mapping[str, Json]]) -> JobStatus:
        """What is known of one job; UNKNOWN where the others' status must not wait for it."""
        name = str(handle["job"])
        known = self._known[name]
        if known.end is not None:
            return known.end
        try:
            found = await self._asked(handle, known, jobs.get(name))
        except Problem as error:
            log.debug("the status of %s cannot be told: %s", name, error)
            found = JobStatus(JobState.UNKNOWN, str(error))
        found = replace(found, url=self._connected().page(name))
        if found.state.ended:
            known.end = found
        return found

    async def _asked(self, handle: Handle, known: _PaiJobMemory, summary: Mapping[str, Json] | None) -> JobStatus:
        name = str(handle["job"])
        if summary is None:
            detail = await self._connected().job(name)
            if detail is None:
                return _missing(known)
            status = detail.get("jobStatus")
            summary = status if isinstance(status, Mapping) else {}
        state = state_of(summary)
        if state is JobState.WAITING:
            return JobStatus(state, await self._why(name, known, summary))
        if state is JobState.RUNNING:
            return await self._running(handle, known, summary)
        if state.ended:
            return await self._ended(handle)
        return JobStatus(JobState.UNKNOWN, "PAI itself does not know its state")

    async def _why(self, name: str, known: _PaiJobMemory, summary: Mapping[str, Json]) -> str:
        if known.stop_at is not None:
            await self._stop(name, known)
            return "it is being canceled"
        if time.monotonic() - known.reason_asked >= self.ask_pause_s:
            known.reason_asked = time.monotonic()
            try:
                known.reason = waiting(summary, await self._connected().warnings(name))
            except Problem as error:
                log.debug("why %s waits cannot be told: %s", name, error)
                known.reason = waiting(summary, [])
        return known.reason

    async def _running(self, handle: Handle, known: _PaiJobMemory, summary: Mapping[str, Json]) -> JobStatus:
        name = str(handle["job"])
        # The command may have run before, while no manager was there: then its reports would be mixed with new ones.
        if summary.get("retries"):
            await self._stop(name, known)
            reason = "PAI has started it anew after a failure of its own; nnilite does so itself, as another attempt"
            return JobStatus(JobState.LOST, reason)
        if known.stop_at is not None and time.monotonic() >= known.stop_at:
            await self._stop(name, known)
        if known.task is None:
            known.task = task_of(await self._connected().job(name) or {}, str(handle["role"]))
        found = running(summary)
        host = known.task.host if known.task else ""
        return replace(found, host=host, reason="it is being canceled" if known.stop_at else found.reason)

    async def _ended(self, handle: Handle) -> JobStatus:
        name, role = str(handle["job"]), str(handle["role"])
        known = self._known[name]
        detail = await self._connected().job(name)
        if detail is None:
            return _missing(known)
        known.task = task_of(detail, role)
        known.ended = known.ended or time.monotonic()
        try:
            content = await self._log_of(handle, known)
        except Problem as error:
            if time.monotonic() - known.ended < _LOG_PATIENCE_S:
                raise
            log.warning("the log of %s cannot be read, so PAI's exit code has to do: %s", name, error)
            content = None
        found = ended(detail, keepers_word(content or b""), role)
        asked = known.stopped and found.state is not JobState.SUCCEEDED
        return replace(found, state=JobState.CANCELED) if asked else found

    # ------------------------------------------------------------ canceling

    async def cancel(self, handle: Handle) -> None:
        """The keeper of a running trial hears it from the manager first, and ends the trial softly.

        PAI's STOP is a hard end: its runtime does not hand SIGTERM on to the command. So it comes later, from `poll`.
        """
        name = str(handle["job"])
        known = self._known[name]
        if known.end is not None or known.stop_at is not None:
            return
        soft_s = float(handle.get("soft_s") or 0)
        detail = await self._connected().job(name)
        status = detail.get("jobStatus") if detail else None
        state = state_of(status) if isinstance(status, Mapping) else JobState.UNKNOWN
        if state.ended:
            return
        known.stop_at = time.monotonic() + (soft_s if state is JobState.RUNNING else 0)
        if state is not JobState.RUNNING or not soft_s:
            await self._stop(name, known)

    async def _stop(self, name: str, known: _PaiJobMemory) -> None:
        if not known.stopped:
            await self._connected().stop(name)
            known.stopped, known.stop_at = True, known.stop_at or time.monotonic()

    async def remove(self, handle: Handle) -> None:
        """PAI keeps ended jobs for its own records; one that still runs is stopped."""
        name = str(handle["job"])
        detail = await self._connected().job(name)
        status = detail.get("jobStatus") if detail else None
        if isinstance(status, Mapping) and not state_of(status).ended:
            await self._connected().stop(name)
        self._known.pop(name, None)

    # ------------------------------------------------------------ logs

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        async with self._turns.turn(str(handle["job"])):
            known = self._known[str(handle["job"])]
            if known.end is None and time.monotonic() - known.log.fetched < self.log_pause_s:
                return ()
            content = await self._log_of(handle, known)
            return known.log.take(content, with_output=handle["report"] == "stdout") if content is not None else ()

    async def logs(self, handle: Handle, stream: str, offset: int, limit: int) -> bytes:
        """PAI's log of the reporting task, which is the keeper's.

        With `callback: log` it has the trial's output, both streams as one.
        """
        if stream not in ("stdout", "stderr"):
            raise NotFound(f"there is no stream {stream!r}: it is stdout or stderr")
        known = self._known.get(str(handle["job"]))
        if stream == "stderr" or known is None:
            return b""
        return known.log.output[offset : offset + limit]

    async def fetch(self, handle: Handle, target: Path) -> None:
        await in_thread(partial(fetch, self._config, self.context.experiment, str(handle["job"]), target))

    async def files(self, handle: Handle) -> Sequence[TrialFile]:
        job = str(handle["job"])
        work = partial(listed, self._config, self.context.experiment, job)
        return await in_thread(partial(self._folders.look, job, "files", work))

    async def fetch_file(self, handle: Handle, path: str, target: Path, most_bytes: int) -> None:
        job = str(handle["job"])
        work = partial(fetch_file, self._config, self.context.experiment, job, path, target, most_bytes)
        await in_thread(partial(self._folders.look, job, "", work))

    async def _log_of(self, handle: Handle, known: _PaiJobMemory) -> bytes | None:
        name = str(handle["job"])
        if known.task is None:
            known.task = task_of(await self._connected().job(name) or {}, str(handle["role"]))
        if known.task is None:
            return None
        return await self._connected().log(name, known.task.place, "stdout")

    def hosts(self) -> list[Host]:
        """The nodes on which trials were last seen to run."""
        running_on: dict[str, int] = {}
        for known in self._known.values():
            if known.task is not None and known.task.host and known.end is None:
                running_on[known.task.host] = running_on.get(known.task.host, 0) + 1
        return [Host(name, "up", running=number) for name, number in sorted(running_on.items())]


def _missing(known: _PaiJobMemory) -> JobStatus:
    """A job that PAI does not know (any more)."""
    if time.monotonic() - known.submitted < _YOUNG_S:
        return JobStatus(JobState.WAITING, "PAI has just taken it")
    if known.stopped:
        return JobStatus(JobState.CANCELED, "canceled")
    return JobStatus(JobState.LOST, "PAI has no such job any more")
