"""What the main thread waits by: signals, pokes of other threads, and time."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType
from typing import Optional


class Wake:
    """Turns signals into flags and ends waits. One per process; `listen` takes the signal handlers over.

    Handlers are Python functions, also where nothing is to be done: the trial's command then starts with the
    system's defaults, since these, unlike "ignore", come back with exec.
    """

    def __init__(self) -> None:
        self.terminations = 0  # how often somebody asked for the end: SIGTERM or Ctrl-C
        self._reader, self.writer = os.pipe()
        for end in (self._reader, self.writer):
            os.set_blocking(end, False)

    def listen(self) -> None:
        signal.set_wakeup_fd(self.writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGINT, self._end)
        for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, self.nothing)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def poke(self) -> None:
        """End the wait that is under way, or the next one. For any thread."""
        try:
            os.write(self.writer, b"\0")
        except BlockingIOError:  # full: the wait ends anyway
            return

    def wait(self, timeout_s: float, *more: int) -> bool:
        """Wait for a signal, a poke or the time, or for one of the `more` files to be readable (then True)."""
        ready, _, _ = select.select([self._reader, *more], [], [], max(0.0, timeout_s))
        if self._reader in ready:
            os.read(self._reader, 4096)
        return any(file in ready for file in more)

    def _end(self, number: int, frame: Optional[FrameType]) -> None:
        self.terminations += 1

    def nothing(self, number: int, frame: Optional[FrameType]) -> None:
        """A signal handler for what only has to end a wait."""
