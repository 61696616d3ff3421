"""The folder of one attempt, as the keeper and the agent fill it."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from nnilite.services.worker_side import (
    AttemptFiles,
    boot_id,
    is_folder_there,
    is_running,
    read_json,
    remove_tree,
    started_at,
)

_PRIVATE = (".nni", "code", "spec.json", "job.json")  # not the trial's output
_MOST_EARLIER = 10
_SENT = ("parameter.cfg", "trial.stdout", "trial.stderr")  # the manager has it, too, once all is delivered


class HostedAttempt:
    """The folder of one attempt, and the keeper that may be at work there.

    A keeper whose note names a fork server may run another job by now: the lock of the folder shows that.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.path: str = job["directory"]
        self.files = AttemptFiles(self.path)
        self.spec = self.files.spec_file

    @property
    def name(self) -> str:
        """The name of its job."""
        # The handle of another node of a trial on several machines has its number there, too.
        return str(self.job.get("job") or "").partition("/")[0]

    def earlier(self, job: str) -> list[HostedAttempt]:
        """Return the last attempts of its trial before this one, whose job is given, and earlier parts of this one.

        The folder of a part that has joined an attempt ends with its number, as "0.3".
        """
        folder, own = os.path.split(self.path)
        attempt = own.partition(".")[0]
        if not attempt.isdecimal():
            return []
        numbers = range(max(0, int(attempt) - _MOST_EARLIER), int(attempt) + 1)
        name = job.rpartition("-")[0]
        there = sorted(os.listdir(folder)) if is_folder_there(folder) else []
        return [
            HostedAttempt({"directory": os.path.join(folder, one), "job": "%s-%s" % (name, one.replace(".", "/"))})
            for one in there
            if one != own and one.partition(".")[0].isdecimal() and int(one.partition(".")[0]) in numbers
        ]

    @classmethod
    def at(cls, path: str) -> HostedAttempt:
        """Return the attempt in a folder, of any experiment, by what this machine knows about it."""
        return cls({**(AttemptFiles(path).read_note() or {}), "directory": path})

    def runs(self) -> bool | None:
        """Return whether its trial runs, or is about to; None before the start.

        The lock is not checked before the start: a keeper that is just being started would take the check for another
        keeper.
        """
        if self.files.exited() is not None:
            return False
        started = self.files.started()
        if started is not None:
            return bool(self.keeper()) or is_running(started)
        return bool(self._process()) if self.files.read_note() is not None else None

    def inner(self, name: str) -> str:
        return os.path.join(self.path, ".nni", name)

    def keeper(self) -> int:
        """Return the keeper's process id if the one of the handle is at work here; else 0."""
        pid = self._process()
        if pid and self.job.get("server") and not self.files.waits_for_keeper() and self.files.is_locked() is False:
            return 0
        return pid

    def _process(self) -> int:
        """Return the process id of the handle if that process runs; else 0."""
        pid, start = self.job.get("pid") or 0, self.job.get("start")
        same_boot = self.job.get("boot") == boot_id()
        return pid if pid > 1 and start and same_boot and started_at(pid) == start else 0

    def find_any_keeper(self) -> int:
        """Return its process id, even if the handle does not have it: the keeper was started, but the answer lost."""
        return self.keeper() or self.files.keeper()

    def find_started(self) -> dict[str, Any] | None:
        """Return what an earlier request has started here: the part of the handle that this machine knows, or None."""
        found = self.files.read_note()
        if found is None and self.files.was_begun():
            pid = self.find_any_keeper()
            if pid or self.files.started() or self.files.exited():
                found = {"pid": pid, "start": started_at(pid) if pid else "", "boot": boot_id(), "server": "unknown"}
        return found

    def _has_outputs(self) -> bool:
        delivered = (read_json(self.inner("delivered")) or {}).get("complete")
        ours = _PRIVATE + _SENT if delivered else _PRIVATE
        return is_folder_there(self.path) and any(name not in ours for name in os.listdir(self.path))

    def clean(self, keep_outputs: bool) -> None:
        """Remove the folder, or all but the trial's output."""
        if not (keep_outputs and self._has_outputs()):
            with contextlib.suppress(OSError):
                remove_tree(self.path)
            return
        for name in _PRIVATE:
            with contextlib.suppress(OSError):
                remove_tree(os.path.join(self.path, name))
