"""A training service from outside of nnilite: trials of this machine that give way to everything else on it.

In the config, `trainingService: {platform: nice, niceness: 15, slots: 4}`. Each trial's keeper is nobody's child, so
it outlives the manager; all that is known of a job is in its folder, whose path is its handle.
"""

import asyncio
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

from nnilite.errors import ConfigError, NoCapacity, NotFound
from nnilite.service import JobState, JobStatus, TrainingService
from nnilite.services.gpu import environment
from nnilite.services.keeper_folder import KeeperFolder
from nnilite.services.section_fields import GPU_PLACE, gpus_of
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
        if gpus_of(self.config, self.context):
            raise ConfigError("platform nice hands out no GPUs", GPU_PLACE)
        self._busy = set()  # the jobs that hold a slot; after a restart poll fills it again
        self._code = await asyncio.to_thread(self.context.package)
        self._address = self.context.directory / "nice-callback"  # keepers look here for a manager that moved
        self._address.write_text(self.context.callback_url())

    async def submit(self, job):
        folder = KeeperFolder(self.context.directory / "trials" / job.trial / str(job.attempt))
        if len(self._busy) >= self.config.slots and not folder.path.exists():
            raise NoCapacity(f"waits for one of {self.config.slots} slots")
        code, env = {"archive": str(self._code.archive)}, environment(None if job.gpus is None else ())
        folder.create(job.spec_for(folder.path, code=code, env=env, callback_file=str(self._address)))
        await self._start(folder.path / "pid", folder.run_command(self.context.keeper))
        self._busy.add(job.name)
        return {"job": job.name, "folder": str(folder.path)}

    async def _start(self, pid_file, command):
        await asyncio.to_thread(_start, pid_file, ["nice", "-n", str(self.config.niceness), *command])

    async def poll(self, handles):
        return [await self._status(handle["job"], KeeperFolder(Path(handle["folder"]))) for handle in handles]

    async def _status(self, job, folder):
        status = await asyncio.to_thread(folder.status, lambda: _runs(folder, "pid"))
        if status.state is JobState.LOST and await self._delivers(folder):
            status = JobStatus(JobState.RUNNING, "its keeper was killed; the trial is being ended")
        (self._busy.discard if status.state.ended else self._busy.add)(job)
        return status

    async def _delivers(self, folder):
        """A keeper died: let another one end what it left running, and deliver what it had not."""
        if folder.spec_file.exists():
            await self._start(folder.path / "deliver-pid", folder.deliver_command(self.context.keeper))
        return _runs(folder, "deliver-pid")

    async def cancel(self, handle):
        folder = KeeperFolder(Path(handle["folder"]))
        if not folder.read_end() and (keeper := _runs(folder, "pid")):
            keeper.terminate()  # it ends the trial, softly first

    async def reports(self, handle):
        return await asyncio.to_thread(KeeperFolder(Path(handle["folder"])).events)

    async def logs(self, handle, stream, offset, limit):
        if stream not in ("stdout", "stderr"):
            raise NotFound(f"there is no stream {stream!r}")
        return KeeperFolder(Path(handle["folder"])).output(stream, offset, limit)

    async def fetch(self, handle, target):
        secret = shutil.ignore_patterns("spec.json")
        await asyncio.to_thread(shutil.copytree, handle["folder"], target, ignore=secret, dirs_exist_ok=True)

    async def remove(self, handle):
        self._busy.discard(handle["job"])  # a keeper may have told of its end before any poll
        KeeperFolder(Path(handle["folder"])).forget_spec()


def _start(pid_file, command):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # until the keeper listens: no cancel gets lost
    try:
        subprocess.run(["sh", "-c", _START, pid_file, *command], stderr=subprocess.DEVNULL, start_new_session=True)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def _runs(folder, pid_file):
    """The keeper's process, None if it does not run. The id may be another's by now: its command line tells."""
    try:
        process = psutil.Process(int((folder.path / pid_file).read_text()))
        command = process.cmdline()  # empty for a moment while the shell becomes the keeper
        return process if not command or str(folder.spec_file) in command else None
    except (OSError, ValueError, psutil.Error):
        return None
