"""Lets the main thread wait for signals, pokes of other threads, and time."""

from __future__ import annotations

import os
import select
import time

from . import signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import List, Optional


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

    def wait(self, timeout_s: float, *more: int) -> List[int]:
        """Wait for a signal, a poke, the time, or until some of the files `more` are readable. Return those."""
        files = select.poll()  # `select` knows none of the files from 1024 on
        for file in (self._reader, *more):
            files.register(file, select.POLLIN)
        ready = [file for file, _ in files.poll(max(0.0, timeout_s) * 1000)]
        if self._reader in ready:
            os.read(self._reader, 4096)
        return [file for file in ready if file != self._reader]

    def wait_awake(self, timeout_s: float) -> float:
        """Wait, and return the seconds that count: those in which this process was not stopped."""
        before = time.monotonic()
        self.wait(timeout_s)
        return min(time.monotonic() - before, timeout_s)

    def wait_for_termination(self, timeout_s: float) -> bool:
        """Wait for a SIGTERM or SIGINT, unless one has come already. Return whether one has come."""
        deadline = time.monotonic() + timeout_s
        while not self.terminations and time.monotonic() < deadline:
            self.wait(deadline - time.monotonic())
        return bool(self.terminations)

    def _end(self, number: int, frame: Optional[FrameType]) -> None:
        self.terminations += 1

    def nothing(self, number: int, frame: Optional[FrameType]) -> None:
        """Handle signals that only have to end a wait."""
