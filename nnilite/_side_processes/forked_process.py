"""A process that is a copy of this one, and runs another program.

A new Python would import again what this one has imported already, and that is most of what a short program costs.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from nnilite._side_processes.quick_end import run_program

_POLL_S = 0.02
_THREADS = Path("/proc/self/task")
_OPEN_FILES = Path("/proc/self/fd")


def can_fork() -> bool:
    """Return whether a copy of this process would be whole: it would have none of the other threads."""
    return _THREADS.is_dir() and len(list(_THREADS.iterdir())) == 1


class ForkedProcess:
    """A copy of this process that runs `program`, in a session of its own. Use it like a `subprocess.Popen`.

    Of the open files of this process it has `kept` alone. It writes to `stderr`, and `stdin` is a pipe to it.
    """

    def __init__(self, program: Callable[[], int], *, stderr: int, kept: int) -> None:
        read, write = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # otherwise the copy would write it, too
        # What is there now stays. To look for garbage in it would take time, and make the copy's memory its own.
        gc.freeze()
        self.pid = os.fork()
        if not self.pid:
            run_in_copy(program, read, stderr, kept)
        os.close(read)
        self.stdin = os.fdopen(write, "wb", buffering=0)
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Return its exit code, or minus the signal that ended it. Raises: TimeoutExpired.

        It is 0 where other code of this program has waited for it, as with a `Popen`.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, 0 if until is None else os.WNOHANG)
            except ChildProcessError:  # another thread has waited for it, or the program for all that it has started
                self.returncode = 0 if self.returncode is None else self.returncode
                break
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
            elif until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            else:
                time.sleep(_POLL_S)
        return self.returncode

    def kill(self) -> None:
        """Kill the process, unless it was waited for."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # other code has waited for it
                os.kill(self.pid, signal.SIGKILL)


def run_in_copy(program: Callable[[], int], stdin: int, stderr: int, kept: int) -> NoReturn:
    """Run a program in a copy, and end it as Python ends: nothing returns to what the other process is at.

    Its session and its standard streams are its own; of other files it keeps the one with the number `kept`.
    """
    try:
        _leave(stdin, stderr, kept)
        run_program(program)
    except SystemExit:
        pass
    except BaseException:  # noqa: BLE001  what ends a Python at its top is written there
        sys.excepthook(*sys.exc_info())
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        os._exit(1)  # not reached once `run_program` has begun, whose own function ends the process


def _leave(stdin: int, stderr: int, kept: int) -> None:
    """Leave terminal, files and handlers to the other process."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_WRONLY)
    for file, stream in ((stdin, 0), (nothing, 1), (stderr, 2)):
        os.dup2(file, stream)
    for file in [int(path.name) for path in _OPEN_FILES.iterdir()]:
        if file > 2 and file != kept:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                os.close(file)
    sys.excepthook = sys.__excepthook__
    signal.signal(signal.SIGINT, signal.default_int_handler)
