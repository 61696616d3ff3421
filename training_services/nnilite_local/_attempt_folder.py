"""What the service keeps in an attempt's folder, and what it reads there of the keeper's.

spec.json       the keeper's specification: holds the trial's token, so for its owner alone
job.json        the handle, once the keeper has been started
.nni/started    the keeper's: the trial's process
.nni/exit       the keeper's: how the trial ended
.nni/lock       held by the keeper as long as it lives
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from nnilite.records import Json
from nnilite.service import Handle, JobState, JobStatus

_CANCELED = "canceled"  # how the keeper's message begins if somebody asked for the end


class AttemptFolder:
    """One attempt's folder on this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spec = path / "spec.json"

    def create(self, spec: Mapping[str, Json]) -> None:
        """Make the folder with its specification, readable for its owner only. Raises: OSError."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write("spec.json", spec)

    def handle(self) -> Handle | None:
        """The handle of the job that was started here, if one was."""
        return self._read("job.json")

    def keep_handle(self, handle: Handle) -> None:
        """Raises: OSError."""
        self._write("job.json", handle)

    def ended(self, host: str) -> JobStatus | None:
        """How the trial ended, by its keeper's word; None if there is none."""
        record = self._read(".nni/exit")
        if record is None:
            return None
        code, message = record.get("code"), str(record.get("message") or "")
        if message.startswith(_CANCELED):
            state = JobState.CANCELED
        else:
            state = JobState.SUCCEEDED if code == 0 else JobState.FAILED
        return JobStatus(state, message, code, host, started=self.started(), ended=record.get("time"))

    def started(self) -> float | None:
        """When the trial's command started, in seconds since the epoch; None if it has not."""
        record = self._read(".nni/started")
        return record.get("time") if record else None

    def grace_s(self) -> float:
        """What the trial was promised between SIGTERM and SIGKILL."""
        return float((self._read("spec.json") or {}).get("grace_s") or 0)

    def gpus(self) -> list[int]:
        """The GPUs that the specification gives to the trial."""
        visible = (self._read("spec.json") or {}).get("env", {}).get("CUDA_VISIBLE_DEVICES") or ""
        return [int(index) for index in visible.split(",") if index]

    def was_begun(self) -> bool:
        """Whether a keeper has ever been at work here."""
        return (self.path / ".nni/lock").exists()

    def has_keeper(self) -> bool:
        """Whether a keeper is at work here.

        Ask only if none is being started: it would take the question for another keeper.
        """
        try:
            lock = os.open(self.path / ".nni/lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return False
        finally:
            os.close(lock)
        return False

    def keeper(self) -> int | None:
        """The process id of the keeper at work here, looked for among all processes."""
        lock = str(self.path.resolve() / ".nni/lock")
        for process in psutil.process_iter():
            try:
                if any(file.path == lock for file in process.open_files()):
                    return int(process.pid)
            except psutil.Error:  # gone, or not ours
                continue
        return None

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            value = json.loads((self.path / name).read_bytes())
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def _write(self, name: str, value: Mapping[str, Json]) -> None:
        write_private(self.path / name, json.dumps(value))


def write_private(place: Path, text: str) -> None:
    """Write ASCII text, whole or not at all, for the owner's eyes only. Raises: OSError."""
    draft = place.with_name(f".{place.name}.new")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "w", encoding="ascii") as stream:
        stream.write(text)
    draft.replace(place)


def identity(pid: int) -> str:
    """What tells the running process of this id from later ones of the same id; "" if none runs.

    A zombie does not run: in a container without an init it may stay for ever.
    """
    try:
        if not Path("/proc/self/stat").exists():
            process = psutil.Process(pid)
            return "" if process.status() == psutil.STATUS_ZOMBIE else str(process.create_time())
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (OSError, psutil.Error):
        return ""
    return "" if fields[0] in (b"Z", b"X") else f"{_boot()}/{fields[19].decode()}"


@functools.lru_cache(maxsize=1)
def _boot() -> str:
    """Changes with every start of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
