"""Know which keepers are at work at which attempts on this machine, and end them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

from nnilite.services.worker_side import (
    PATIENCE_S,
    USUAL_GRACE_S,
    FolderLooks,
    is_stopped,
    is_there,
    kill_groups,
    running_groups,
)
from nnilite_remote._worker.attempt import HostedAttempt
from nnilite_remote._worker.keeper_starter import KeeperStarter
from nnilite_remote._worker.processes import send_signal

_LINGER_S = 12.0  # a keeper that is told a second time leaves within 10 s
_LOOK_S = 0.5


class HostedKeepers:
    """The keepers of one agent, and of earlier agents. All methods raise OSError on a disk in trouble."""

    def __init__(self, starter: KeeperStarter, looks: FolderLooks) -> None:
        self._starter = starter
        self._looks = looks
        self._killed_unresponsive: set[str] = set()  # folders of attempts that were told to end

    def has(self, attempt: HostedAttempt) -> bool:
        """Return whether the keeper of its handle is at work."""
        return self._starter.runs(attempt.name) or bool(self._other(attempt))

    def terminate(self, attempt: HostedAttempt) -> None:
        """Send SIGTERM to its keeper, if there is one."""
        self._signal(attempt, signal.SIGTERM)

    def kill_after_grace(self, attempt: HostedAttempt) -> None:
        """Kill keeper and trial if they still run when the grace is over: a stopped keeper does not react."""
        if attempt.path not in self._killed_unresponsive:
            self._killed_unresponsive.add(attempt.path)
            threading.Thread(target=self._kill_unresponsive, args=(attempt,), daemon=True).start()

    def end_given_up(self, attempt: HostedAttempt) -> list[int]:
        """End what still runs of an attempt that was given up. Returns the process groups that cannot be killed.

        One whose trial has ended may still deliver, and is left alone.
        """
        ended, at_work = False, self._starter.runs(attempt.name)
        with contextlib.suppress(OSError):  # a disk that hangs: it is not known to have ended
            ended, at_work = self._looks.look(attempt.path, "end", lambda: self._facts(attempt))
        return self._kill(attempt, ended, at_work and not ended)

    def end(self, attempts: list[HostedAttempt], grace_s: float) -> None:
        """End the keepers. One whose trial has ended still delivers, and then leaves; others end with their trial."""
        for attempt in attempts:
            self.terminate(attempt)
        deadline = time.monotonic() + grace_s + _LINGER_S
        left = attempts
        while left and time.monotonic() < deadline:
            left = [attempt for attempt in left if self._is_there(attempt)]
            time.sleep(0.05 if left else 0)
        for attempt in left:
            self._signal(attempt, signal.SIGKILL)
        for attempt in attempts:
            self._kill(attempt, True, False)

    def forget_later(self, attempt: HostedAttempt) -> None:
        """Remove the specification, which holds a secret, as soon as its keeper has left it."""
        threading.Thread(target=self._forget, args=(attempt,), daemon=True).start()

    def _forget(self, attempt: HostedAttempt) -> None:
        while True:
            with contextlib.suppress(OSError):  # a disk in trouble is asked again
                if not (self.has(attempt) or attempt.files.has_keeper()):
                    os.unlink(attempt.spec)
                    return
                if not is_there(attempt.spec):
                    return
            time.sleep(_LOOK_S)

    def _kill_unresponsive(self, attempt: HostedAttempt) -> None:
        grace_s = USUAL_GRACE_S
        with contextlib.suppress(OSError, ValueError, TypeError):
            grace_s = float(self._looks.look(attempt.path, "spec", attempt.files.spec).get("grace_s") or 0)
        time.sleep(grace_s + PATIENCE_S)
        ended, pid = False, int(attempt.job.get("pid") or 0)
        with contextlib.suppress(OSError):
            ended, at_work = self._looks.look(attempt.path, "end", lambda: self._facts(attempt))
            pid = pid if at_work else 0
        self._kill(attempt, ended, not ended and pid > 1 and is_stopped(pid))
        self._killed_unresponsive.discard(attempt.path)

    def _facts(self, attempt: HostedAttempt) -> tuple[bool, bool]:
        """Return whether an attempt has ended, by its keeper's record, and whether a keeper is at work there."""
        return attempt.files.exited() is not None, self._is_there(attempt)

    def _is_there(self, attempt: HostedAttempt) -> bool:
        return self.has(attempt) or attempt.files.has_keeper()

    def _kill(self, attempt: HostedAttempt, ended: bool, at_work: bool) -> list[int]:
        """Kill what runs of a trial, and its keeper with it. Returns the process groups that are left."""
        started = None
        with contextlib.suppress(OSError):
            started = self._looks.look(attempt.path, "started", attempt.files.started)
        where = (attempt.name, attempt.path, started)
        if not (at_work or running_groups(*where)):
            return []
        if not ended:
            self._signal(attempt, signal.SIGKILL)
        return kill_groups(*where)

    def _signal(self, attempt: HostedAttempt, number: int) -> None:
        if self._starter.end(attempt.name, number == signal.SIGKILL):
            return
        pid = 0
        with contextlib.suppress(OSError):
            pid = self._looks.look(attempt.path, "keeper", lambda: self._other(attempt) or attempt.files.keeper())
        if pid:
            send_signal(pid, number)

    def _other(self, attempt: HostedAttempt) -> int:
        """Return the process id of the handle's keeper; 0 if the running fork server is responsible for it.

        So a trial cannot pass off the keeper of another job as its own, whatever it does to its folder.
        """
        return 0 if attempt.job.get("server") == self._starter.name != "" else attempt.keeper()
