"""Lets the main thread wait for signals, pokes of other threads, and time."""

from __future__ import annotations

import os
import select

from . import signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Optional


class Wake:
    """Turns signals into flags and ends waits. A process has one; `listen` installs its signal handlers.

    All handlers are Python functions, even those that do nothing: exec resets such signals to the system's defaults
    for the trial's command, whereas it would keep "ignore".
    """

    def __init__(self) -> None:
        self.terminations = 0  # how many SIGTERM or SIGINT (Ctrl-C) have come
        self._reader, self.writer = os.pipe()
        for end in (self._reader, self.writer):
            os.set_blocking(end, False)

    def listen(self) -> None:
        signals.set_wakeup_fd(self.writer, warn_on_full_buffer=False)
        signals.signal(signals.SIGTERM, self._end)
        signals.signal(signals.SIGINT, self._end)
        for number in (signals.SIGCHLD, signals.SIGHUP, signals.SIGUSR1, signals.SIGUSR2):
            signals.signal(number, self.nothing)
        signals.pthread_sigmask(signals.SIG_SETMASK, ())

    def poke(self) -> None:
        """End the current wait, or else the next one. May be called in any thread."""
        try:
            os.write(self.writer, b"\0")
        except BlockingIOError:  # the pipe is full, so the wait ends anyway
            return

    def wait(self, timeout_s: float, *more: int) -> bool:
        """Wait for a signal, a poke, the time, or until one of the files `more` is readable (then True)."""
        ready, _, _ = select.select([self._reader, *more], [], [], max(0.0, timeout_s))
        if self._reader in ready:
            os.read(self._reader, 4096)
        return any(file in ready for file in more)

    def _end(self, number: int, frame: Optional[FrameType]) -> None:
        self.terminations += 1

    def nothing(self, number: int, frame: Optional[FrameType]) -> None:
        """A signal handler for signals that only have to end a wait."""
