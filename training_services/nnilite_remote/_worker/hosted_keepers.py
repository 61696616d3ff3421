"""Which keepers are at work at which attempts on this machine, and how they are told to end."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

from nnilite_remote._worker.attempt import HostedAttempt
from nnilite_remote._worker.keeper_starter import KeeperStarter
from nnilite_remote._worker.processes import send_signal

_LINGER_S = 12.0  # a keeper that is told a second time leaves within 10 s
_LOOK_S = 0.5


class HostedKeepers:
    """Those of one agent, and of earlier agents. All raise OSError on a disk in trouble."""

    def __init__(self, starter: KeeperStarter) -> None:
        self._starter = starter

    def has(self, attempt: HostedAttempt) -> bool:
        """Whether the keeper of its handle is at work."""
        return self._starter.runs(str(attempt.job.get("job"))) or bool(self._other(attempt))

    def terminate(self, attempt: HostedAttempt) -> None:
        """SIGTERM to its keeper, if there is one."""
        if not self._starter.end(str(attempt.job.get("job"))):
            pid = self._other(attempt) or attempt.files.keeper()
            if pid:
                send_signal(pid, signal.SIGTERM)

    def end(self, attempts: list[HostedAttempt], grace_s: float) -> None:
        """Those whose trial has ended still deliver: they are told to leave. The others are ended with their trial."""
        for attempt in attempts:
            self.terminate(attempt)
        deadline = time.monotonic() + grace_s + _LINGER_S
        left = attempts
        while left and time.monotonic() < deadline:
            left = [attempt for attempt in left if self.has(attempt) or attempt.files.has_keeper()]
            time.sleep(0.05 if left else 0)
        for attempt in left:  # they have been told, so none of their keepers gets a further job
            pid = attempt.files.keeper() or attempt.job.get("pid")
            if pid:
                send_signal(pid, signal.SIGKILL)
        for attempt in attempts:
            attempt.end_group()

    def forget_later(self, attempt: HostedAttempt) -> None:
        """Remove the specification, which holds a secret, as soon as its keeper has left it."""
        threading.Thread(target=self._forget, args=(attempt,), daemon=True).start()

    def _forget(self, attempt: HostedAttempt) -> None:
        while True:
            with contextlib.suppress(OSError):  # a disk in trouble is asked again
                if not (self.has(attempt) or attempt.files.has_keeper()):
                    os.unlink(attempt.spec)
                    return
            if not os.path.exists(attempt.spec):
                return
            time.sleep(_LOOK_S)

    def _other(self, attempt: HostedAttempt) -> int:
        """The process id of the handle's keeper; 0 if the fork server that runs answers for it.

        So nothing that a trial does to its folder can make us take the keeper of another job for its own.
        """
        return 0 if attempt.job.get("server") == self._starter.name != "" else attempt.keeper()
