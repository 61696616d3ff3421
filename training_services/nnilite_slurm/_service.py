"""Runs trials as jobs of Slurm.

A trial's folder lies on the file system that login node and compute nodes share. Specification, keeper and code are
put there, `sbatch` gets a script that becomes the keeper, and what keeper and trial write is read from there. A look at
all jobs is one command: one `squeue`, and the sizes of the files that may have changed.

A handle is {"job": its name, "folder": relative to `directory`, "id": of Slurm, "report", "gpus", "grace_s"}. The id is
"" for a task of a job array, which is submitted later; it is then in the folder.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from nnilite.errors import ConfigError, NniliteError, NotFound, Place, ServiceError
from nnilite.records import Host, Json, KeeperEvent
from nnilite.service import Handle, Job, JobState, JobStatus, ServiceContext, TrainingService, TrialFile
from nnilite.services.callback_address import callback_address, check_callback_address, reachable_callback_address
from nnilite.services.gpu import environment
from nnilite.ssh.errors import MachineError
from nnilite_slurm._api import Look, SlurmApi
from nnilite_slurm._arrays import JobArrays, array_name
from nnilite_slurm._attempt_reader import GROWING, AttemptReader
from nnilite_slurm._config import IGNORED, SlurmConfig
from nnilite_slurm._folders import SlurmFolders
from nnilite_slurm._hanging import no_answer
from nnilite_slurm._listing import NAMELESS, RUNNING, WAITING, SlurmJob
from nnilite_slurm._login import login_host
from nnilite_slurm._script import pythons_of, run_limit_s, script_of
from nnilite_slurm._watch import SlurmWatch

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_HIDDEN = "********"
_HERE = "http://localhost"
"""Nodes reach this machine at the address that it has on the way to everywhere else, if nobody has said another."""
_KILL_AFTER_S = 30.0
"""How long a job may go on after its grace before Slurm is asked to kill it."""
_ASK_AGAIN_S = 10.0
_SILENCE_S = 30.0
_LINGER_S = 30.0
"""How long a keeper holds its node to deliver the rest."""


class SlurmService(TrainingService):
    """Jobs of Slurm, submitted on this machine or on a login node that is reached by SSH."""

    Config = SlurmConfig
    ignores = IGNORED
    reports_aside = True

    def __init__(self, name: str, config: SlurmConfig, context: ServiceContext) -> None:
        super().__init__(name, config, context)
        self._api: SlurmApi | None = None
        self._watches: dict[str, SlurmWatch] = {}
        self._readers: dict[str, AttemptReader] = {}
        self._cancels: dict[str, tuple[float, float]] = {}  # by job: when it was asked first, and last
        self._looking = asyncio.Lock()
        self._arrays: JobArrays | None = None
        self._keeper = ""
        self._archive = ""
        self._trouble = ""
        self._silent_s = 0.0  # when Slurm was last found not to answer

    # ------------------------------------------------------------ lifecycle

    async def open(self) -> None:
        await self.close()
        by_log = self.context.defaults.get("callback") == "log"
        place = (self.context, self.config.nni_manager_ip, _HERE)
        if not by_log:
            await asyncio.to_thread(check_callback_address, *place)
        api = SlurmApi(login_host(self.config))
        try:
            await self._checked(api)
            package = await asyncio.to_thread(self.context.package)
            keeper = self.context.keeper
            digest = await asyncio.to_thread(_digest, keeper)
            self._keeper, self._archive = f"keeper-{digest}.pyz", package.archive.name
            await self._bring(api, {self._keeper: keeper, self._archive: package.archive})
            if not by_log:
                address = await asyncio.to_thread(callback_address, *place)
                await api.tell_address(self.context.experiment, address)
        except BaseException:
            await api.host.close()
            raise
        self._api = api
        self._arrays = JobArrays(
            api, self.context.experiment, self._script, self.config.job_array_size, self.context.wake
        )

    async def _bring(self, api: SlurmApi, files: Mapping[str, Path]) -> None:
        """See that keeper and code are where jobs find them. Raises: ConfigError, ServiceError."""
        for name in await api.prepare(self.config.directory, files):
            stored = None if name == self._keeper else self.context.stored_code(name.partition(".")[0])
            if stored is not None:
                trouble = await api.take_code(self._keeper, name, stored, pythons_of(self.config.python_path))
                if not trouble:
                    continue
                log.warning("%s is sent the code from here: %s", api.host.title, trouble)
            await api.upload(name, files[name])

    async def _checked(self, api: SlurmApi) -> None:
        """Whether Slurm is there and would take a trial. Raises: ConfigError, ServiceError."""
        try:
            await api.check_version()
        except MachineError as error:
            if error.lasting:
                raise ConfigError(str(error), Place(field="login")) from error
            raise
        gpus = self.config.trial_gpu_number
        gpus = self.context.defaults.get("trialGpuNumber") if gpus is None else gpus
        tasks = self.config.job_array_size if self.config.job_array_size > 1 else 0
        await api.try_out(self._script("nni-test", gpus, tasks))

    async def check(self) -> None:
        api = SlurmApi(login_host(self.config))
        try:
            await self._checked(api)
        finally:
            await api.host.close()

    async def close(self) -> None:
        api, self._api = self._api, None
        if api is None:
            return
        if self._arrays is not None:
            await self._arrays.close()
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        self._watches.clear()
        try:
            await api.finish(self.context.experiment, self.config.keep)
        finally:
            await api.host.close()

    def _connected(self) -> SlurmApi:
        if self._api is None:
            raise ServiceError(f"{self.name} is not open")
        return self._api

    # ------------------------------------------------------------ submitting

    async def submit(self, job: Job) -> Handle:
        api = self._connected()
        if not _NAME.fullmatch(job.trial) or not _NAME.fullmatch(job.experiment):
            raise ConfigError(f"{job.trial!r} cannot be the name of a folder")
        # Its commands would try for a minute, and what runs is not looked after meanwhile.
        if self._silent_s and time.monotonic() - self._silent_s < _SILENCE_S:
            raise ServiceError(self._trouble)
        folder = _folder(job)
        report = str(job.spec.get("report") or "rest")
        handle: dict[str, Json] = {"job": job.name, "folder": folder, "id": "", "report": report, "gpus": job.gpus}
        handle["grace_s"] = job.spec.get("grace_s")
        callback = None
        if report != "stdout":
            given = self.config.nni_manager_ip
            callback = await asyncio.to_thread(reachable_callback_address, self.context, given, _HERE)
        fresh = await api.write_spec(folder, json.dumps(self._spec(job, api.root, callback)).encode())
        if self.config.job_array_size > 1:
            if fresh and self._arrays is not None:
                self._arrays.add(_task(folder), job.gpus)
            return handle
        return {**handle, "id": await api.submit(folder, job.name, self._script(job.name, job.gpus, 0))}

    def _script(self, name: str, gpus: int | None, tasks: int) -> str:
        comment = f"nnilite:{self.context.experiment}"
        return script_of(name, self.config, comment, self._keeper or "keeper", gpus, tasks)

    def _spec(self, job: Job, root: str, callback: str | None) -> dict[str, Json]:
        more: dict[str, Json] = {"callback": None, "report": "rest", "send_output": False}
        if callback is not None:
            more = {"callback": callback, "callback_file": f"{root}/{job.experiment}/callback", "send_output": True}
            # What a manager that is away does not take stays in the folder, and the node is free for others.
            more["linger_s"] = min(_LINGER_S, job.spec.get("linger_s") or _LINGER_S)
        if job.spec.get("checkpoint_dir"):
            more["checkpoint_dir"] = f"{root}/{job.experiment}/checkpoints/{job.trial}"
        limit_s = run_limit_s(self.config, float(job.spec.get("grace_s") or 0))
        if limit_s is not None:
            more["max_duration_s"] = min(limit_s, job.spec.get("max_duration_s") or limit_s)
        code = {"archive": f"{root}/cache/{self._archive or 'the code package'}"}
        return job.spec_for(f"{root}/{_folder(job)}", code=code, env=environment(() if job.gpus == 0 else None), **more)

    def describe(self, job: Job) -> Json:
        """The script that would be sent, and the specification beside it, without secrets."""
        directory = self.config.directory
        root = directory if directory.startswith(("/", "~")) else f"~/{directory}"
        callback = None if job.spec.get("report") == "stdout" else self.config.nni_manager_ip or ""
        spec = {**self._spec(job, root, callback), "token": _HIDDEN}
        where = "this machine" if self.config.login is None else self.config.login.title
        script = self._script(job.name, job.gpus, 0)
        reports = "by files in the folder" if callback is None else "to the manager"
        facts = {"name": job.name, "login": where, "folder": spec["directory"], "reports": reports}
        return {**facts, "script": script, "specification": spec}

    # ------------------------------------------------------------ watching

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        if not handles:
            return []
        api = self._connected()
        watches = [self._watch(handle) for handle in handles]
        by_log = [watch for watch, handle in zip(watches, handles, strict=True) if handle.get("report") == "stdout"]
        look = await self._look(api, watches, {watch.name for watch in by_log})
        self._trouble = look.trouble
        self._silent_s = time.monotonic() if look.trouble else 0.0
        if look.jobs is None:
            return [JobStatus(JobState.UNKNOWN, look.trouble) for _ in handles]
        past, trouble = await self._forgotten(api, watches, look.jobs)
        jobs = {**past, **look.jobs}
        found = []
        for watch, handle in zip(watches, handles, strict=True):
            job = jobs.get(watch.id)
            if watch.folder in look.hanging:
                found.append(JobStatus(JobState.UNKNOWN, no_answer(f"{api.root}/{watch.folder}", api.host.title)))
                continue
            if trouble and job is None and watch.id and watch.exited is None:
                found.append(JobStatus(JobState.UNKNOWN, f"squeue does not list it, and {trouble}"))
                continue
            found.append(self._status(watch, handle, job))
            await self._press(api, watch, handle, job)
        return found

    async def _look(self, api: SlurmApi, watches: Iterable[SlurmWatch], by_log: set[str]) -> Look:
        """Ask for all jobs and their files, and read what is new of the small ones."""
        files = [name for watch in watches for name in watch.files(GROWING if watch.name in by_log else ())]
        async with self._looking:  # what has come of an earlier look must not stand beside a later word of Slurm
            look = await api.look(f"nni-{self.context.experiment}-", files)
            seen = [watch for watch in watches if watch.folder not in look.hanging]
            taken = await api.take([name for watch in seen for name in watch.found(look.sizes)])
        for watch in seen:
            watch.read(taken)
            watch.sizes = {name: look.sizes.get(f"{watch.folder}/{name}", 0) for name in GROWING}
        return look

    async def _forgotten(
        self, api: SlurmApi, watches: Iterable[SlurmWatch], listed: Mapping[str, SlurmJob]
    ) -> tuple[dict[str, SlurmJob], str]:
        """What the accounting tells of jobs that are not listed and have left no word; or why it cannot be asked."""
        gone = [watch.id for watch in watches if watch.id and watch.id not in listed and watch.exited is None]
        try:
            return (await api.history(gone) if gone else {}), ""
        except ServiceError as error:
            return {}, str(error)

    def _watch(self, handle: Handle) -> SlurmWatch:
        name = str(handle["job"])
        if name not in self._watches:
            self._watches[name] = SlurmWatch(name, str(handle["folder"]), str(handle["id"]))
        return self._watches[name]

    def _status(self, watch: SlurmWatch, handle: Handle, job: SlurmJob | None) -> JobStatus:
        if not watch.id and watch.signs and not watch.canceled:
            if self._arrays is None:
                return JobStatus(JobState.UNKNOWN, f"{self.name} is not open")
            return _unsubmitted(self._arrays, watch, handle)
        ours = (watch.name, array_name(self.context.experiment, watch.text("array")), NAMELESS)
        return watch.status(job if job is not None and job.name in ours else None)

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        api, watch = self._connected(), self._watch(handle)
        by_log = handle.get("report") == "stdout"
        if not by_log or not watch.sizes:
            await self._look(api, [watch], {watch.name})
        if watch.name not in self._readers:
            self._readers[watch.name] = AttemptReader(api, watch)
        return await self._readers[watch.name].events(watch.sizes, with_output=by_log)

    async def logs(self, handle: Handle, stream: str, offset: int, limit: int) -> bytes:
        if stream not in ("stdout", "stderr"):
            raise NotFound(f"there is no stream {stream!r}: it is stdout or stderr")
        return await self._connected().piece(f"{handle['folder']}/trial.{stream}", offset, limit)

    async def fetch(self, handle: Handle, target: Path) -> None:
        await SlurmFolders(self._connected()).fetch(str(handle["folder"]), target)

    async def files(self, handle: Handle) -> Sequence[TrialFile]:
        return await SlurmFolders(self._connected()).files(str(handle["folder"]))

    async def fetch_file(self, handle: Handle, path: str, target: Path, most_bytes: int) -> None:
        await SlurmFolders(self._connected()).fetch_file(str(handle["folder"]), path, target, most_bytes)

    # ------------------------------------------------------------ canceling, the end

    async def cancel(self, handle: Handle) -> None:
        api, watch = self._connected(), self._watch(handle)
        watch.canceled = True
        if self._arrays is not None and not watch.id:
            self._arrays.forget(_task(watch.folder))
        now = time.monotonic()
        first, _ = self._cancels.get(watch.name, (now, now))
        self._cancels[watch.name] = (first, 0.0)
        await api.cancel(watch.folder, watch.id)
        self._cancels[watch.name] = (first, now)

    async def _press(self, api: SlurmApi, watch: SlurmWatch, handle: Handle, job: SlurmJob | None) -> None:
        """Ask again for the end of a job that was canceled and goes on, in the end by Slurm's own kill."""
        if not watch.canceled or job is None or job.state not in WAITING | RUNNING:
            return
        now = time.monotonic()
        first, last = self._cancels.setdefault(watch.name, (now, 0.0))
        if now - last < _ASK_AGAIN_S:
            return
        try:
            if now - first > _KILL_AFTER_S + float(handle.get("grace_s") or 0):
                await api.kill(watch.id)
            elif not last or job.state in WAITING:
                await api.cancel(watch.folder, watch.id)
            self._cancels[watch.name] = (first, now)
        except NniliteError as error:
            self._trouble = str(error)

    async def remove(self, handle: Handle) -> None:
        api, watch = self._connected(), self._watch(handle)
        if not watch.id:
            await self._look(api, [watch], set())
        if self._arrays is not None:
            self._arrays.forget(_task(watch.folder))
        await api.remove(watch.folder, watch.id)
        reader = self._readers.pop(watch.name, None)
        if reader is not None:
            reader.close()
        self._watches.pop(watch.name, None)
        self._cancels.pop(watch.name, None)

    def hosts(self) -> list[Host]:
        where = "Slurm here" if self.config.login is None else f"Slurm at {self.config.login.title}"
        state = "closed" if self._api is None else "down" if self._trouble else "up"
        version = ".".join(map(str, self._api.version)) if self._api else ""
        return [Host(where, state, self._trouble, len(self._watches), {"version": version})]


def _folder(job: Job) -> str:
    return f"{job.experiment}/trials/{job.trial}/{job.attempt}"


def _task(folder: str) -> str:
    """An attempt's folder, relative to the trials of its experiment."""
    return folder.split("/", 2)[2]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def _unsubmitted(arrays: JobArrays, watch: SlurmWatch, handle: Handle) -> JobStatus:
    """A trial that is to be a task of a job array."""
    task = _task(watch.folder)
    if task in arrays.refused:
        return JobStatus(JobState.FAILED, arrays.refused[task])
    if task not in arrays.reasons:
        # Of an earlier manager, or one whose id is just being written down.
        if "array" in watch.notes:
            arrays.go_on(watch.text("array"), handle.get("gpus"))
        elif "spec.json" in watch.signs:
            arrays.add(task, handle.get("gpus"))
    return JobStatus(JobState.WAITING, arrays.reasons.get(task, "its job array is being submitted"))
