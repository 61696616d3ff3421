"""A training service from outside of nnilite: trials of this machine that give way to everything else on it.

In the config, `trainingService: {platform: nice, niceness: 15, slots: 4}`. Each trial's keeper is nobody's child, so
it outlives the manager; all that is known of a job is in its folder, whose path is its handle.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from nnilite.errors import ConfigError, NoCapacity, NotFound, Place
from nnilite.gpu import environment
from nnilite.records import Exited, Started
from nnilite.service import JobState, JobStatus, TrainingService
from nnilite.spool import read_events
from nnilite.units import PositiveInt

# The file with the process id is made first, and only once: nothing is started twice.
_START = 'set -C; true > "$0" && { nohup "$@" >/dev/null 2>&1 </dev/null & echo $! >| "$0"; }'


@dataclass(frozen=True)
class NiceConfig:
    niceness: PositiveInt = 10
    slots: PositiveInt = 100  # jobs at a time, of this experiment


class NiceService(TrainingService):
    """Low priority for trials on this machine."""

    Config = NiceConfig

    async def open(self):
        if self.context.defaults.get("trialGpuNumber"):
            raise ConfigError("platform nice hands out no GPUs", Place(field="trialGpuNumber"))
        self._busy = set()  # the jobs that hold a slot; after a restart poll fills it again
        self._code = await asyncio.to_thread(self.context.package)
        self._address = self.context.directory / "nice-callback"  # keepers look here for a manager that moved
        self._address.write_text(self.context.callback_url())

    async def submit(self, job):
        folder = self.context.directory / "trials" / job.trial / str(job.attempt)
        if len(self._busy) >= self.config.slots and not folder.exists():
            raise NoCapacity(f"waits for one of {self.config.slots} slots")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        code, env = {"archive": str(self._code.archive)}, environment(None if job.gpus is None else ())
        spec = job.spec_for(folder, code=code, env=env, callback_file=str(self._address))
        with os.fdopen(os.open(folder / "spec.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(spec, file)  # it has the trial's token: for our eyes only
        await self._start(folder / "pid", "run", folder / "spec.json")
        self._busy.add(job.name)
        return {"job": job.name, "folder": str(folder)}

    async def _start(self, pid_file, *arguments):
        nice = ("nice", "-n", self.config.niceness, sys.executable, "-I", "-S", self.context.keeper)
        await asyncio.to_thread(_start, pid_file, map(str, nice + arguments))

    async def poll(self, handles):
        return [await self._status(handle["job"], Path(handle["folder"])) for handle in handles]

    async def _status(self, job, folder):
        runs = _runs(folder, "pid")  # asked first: the end may come in between
        events = await asyncio.to_thread(read_events, folder)
        started = next((event.time for event in events if isinstance(event, Started)), None)
        end = next((event for event in events if isinstance(event, Exited)), None)
        if end is None and (runs or await self._delivers(folder)):
            self._busy.add(job)
            return JobStatus(JobState.RUNNING if started else JobState.WAITING, started=started)
        self._busy.discard(job)
        if end is None:
            return JobStatus(JobState.LOST, "its keeper is gone")
        how = JobState.SUCCEEDED if end.code == 0 else JobState.FAILED
        how = JobState.CANCELED if end.message.startswith("canceled") else how
        return JobStatus(how, end.message, end.code, started=started, ended=end.time)

    async def _delivers(self, folder):
        """A keeper died: let another one end what it left running, and deliver what it had not."""
        if (folder / "spec.json").exists():
            await self._start(folder / "deliver-pid", "deliver", folder, folder / "spec.json")
        return _runs(folder, "deliver-pid")

    async def cancel(self, handle):
        folder = Path(handle["folder"])
        if not (folder / ".nni/exit").exists() and (keeper := _runs(folder, "pid")):
            keeper.terminate()  # it ends the trial, softly first

    async def reports(self, handle):
        return await asyncio.to_thread(read_events, Path(handle["folder"]))

    async def logs(self, handle, stream, offset, limit):
        if stream not in ("stdout", "stderr"):
            raise NotFound(f"there is no stream {stream!r}")
        place = Path(handle["folder"], f"trial.{stream}")
        return place.read_bytes()[offset : offset + limit] if place.exists() else b""

    async def fetch(self, handle, target):
        secret = shutil.ignore_patterns("spec.json")
        await asyncio.to_thread(shutil.copytree, handle["folder"], target, ignore=secret, dirs_exist_ok=True)

    async def remove(self, handle):
        self._busy.discard(handle["job"])  # a keeper may have told of its end before any poll
        Path(handle["folder"], "spec.json").unlink(missing_ok=True)


def _start(pid_file, command):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # until the keeper listens: no cancel gets lost
    try:
        subprocess.run(["sh", "-c", _START, pid_file, *command], stderr=subprocess.DEVNULL, start_new_session=True)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def _runs(folder, pid_file):
    """The keeper's process, None if it does not run. The id may be another's by now: its command line tells."""
    try:
        process = psutil.Process(int((folder / pid_file).read_text()))
        return process if str(folder / "spec.json") in process.cmdline() else None
    except (OSError, ValueError, psutil.Error):
        return None
