"""The folder of one attempt, as the keeper and the agent fill it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
from typing import Any

from nnilite_remote._worker.processes import boot_id, read_json, send_signal, started_at

_PRIVATE = (".nni", "code", "spec.json", "job.json")  # not the trial's output
_SENT = ("parameter.cfg", "trial.stdout", "trial.stderr")  # the manager has it, too, once all is delivered


class Attempt:
    """The folder of one attempt, and the keeper that may be at work there."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.path: str = job["directory"]

    def inner(self, name: str) -> str:
        return os.path.join(self.path, ".nni", name)

    @property
    def spec(self) -> str:
        return os.path.join(self.path, "spec.json")

    def keeper(self) -> int:
        """The keeper's process id, if the one of the handle runs; else 0."""
        pid, start = self.job.get("pid") or 0, self.job.get("start")
        same_boot = self.job.get("boot") == boot_id()
        return pid if pid > 1 and start and same_boot and started_at(pid) == start else 0

    def locked(self) -> bool:
        """Whether some keeper is at work here. Never to be asked while one is being started."""
        try:
            lock = os.open(self.inner("lock"), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            os.close(lock)
        return False

    def lock_holder(self) -> int:
        """The process id of a keeper that the handle does not know: it was started, and its answer lost."""
        wanted = os.path.realpath(self.inner("lock"))
        for name in os.listdir("/proc") if os.path.exists("/proc/self/stat") else []:
            folder = "/proc/%s/fd" % name
            try:
                files = [os.path.join(folder, file) for file in os.listdir(folder)] if name.isdigit() else []
                if any(os.path.realpath(file) == wanted for file in files):
                    return int(name)
            except OSError:
                continue
        return 0

    def any_keeper(self) -> int:
        return self.keeper() or (self.lock_holder() if self.locked() else 0)

    def known(self) -> dict[str, Any] | None:
        """What an earlier request has started here: the handle's part that this machine knows, or None."""
        found = read_json(os.path.join(self.path, "job.json"))
        if found is None and os.path.exists(self.inner("lock")):
            pid = self.any_keeper()
            if pid or read_json(self.inner("started")) or read_json(self.inner("exit")):
                found = {"pid": pid, "start": started_at(pid) if pid else "", "boot": boot_id()}
        return found

    def _has_outputs(self) -> bool:
        delivered = (read_json(self.inner("delivered")) or {}).get("complete")
        ours = _PRIVATE + _SENT if delivered else _PRIVATE
        return os.path.isdir(self.path) and any(name not in ours for name in os.listdir(self.path))

    def end_group(self) -> None:
        """Kill what a dead keeper has left."""
        found = read_json(self.inner("started")) or {}
        pid = found.get("pid") or 0
        if pid > 1 and found.get("boot") == boot_id():
            send_signal(pid, signal.SIGKILL, group=True)

    def clean(self, keep_outputs: bool) -> None:
        """Remove the folder, or all of it that is not the trial's output."""
        if not (keep_outputs and self._has_outputs()):
            shutil.rmtree(self.path, ignore_errors=True)
            return
        for name in _PRIVATE:
            path = os.path.join(self.path, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(path)
