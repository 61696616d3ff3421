"""Begins a program of nnilite, and ends it before Python takes all modules apart.

That is a fifth of the processor time of a manager which does little else, and a tenth of a short `nnictl`. Threads are
joined, functions that wait for the exit are called, and output is written as at any other end.
"""

from __future__ import annotations

import atexit
import os
import sys

from nnilite._cpython import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_begun: list[bool] = []
_UNWRITTEN = 120
"""Python's own exit code where output could not be written at the end."""


def is_program() -> bool:
    """Return whether this process runs a program of nnilite, and not a user's own that calls it."""
    return bool(_begun)


def run_program(program: Callable[[], int]) -> None:
    """Run a program, and end the process with the exit code that it returns, or raises; 1 for another exception."""
    status = 1
    _begun.append(True)

    def end() -> None:
        os._exit(_write_out(status))

    atexit.register(end)  # handlers registered first are called last
    # A program that ignores this signal passes that on, and the system would then not report how commands end.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # A program that blocks signals, to wait for them, passes its mask on; SIGTERM would then have no effect here.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        status = program()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise
    sys.exit(status)


def _write_out(status: int) -> int:
    """Write what is left in the standard streams. Return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            status = status or _UNWRITTEN
    return status
