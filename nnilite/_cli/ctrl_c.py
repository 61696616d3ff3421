"""Makes one sentence and exit code 130 of Ctrl-C, whenever it comes.

`nnictl` imports this module first, so it imports next to nothing itself: the import of `signal` takes milliseconds, in
which Ctrl-C would cause a traceback. `_cpython` has the part of it that is built into the interpreter.
"""

from __future__ import annotations

import os
import sys

from nnilite._cpython import signal

INTERRUPTED = 130
TERMINATED = 143


class ImmediateExit:
    """Lets Ctrl-C end the process at once, during a time in which nothing has to be undone.

    An exception in the middle of imports would be lost or shown as a traceback.
    """

    def __enter__(self) -> None:
        self._process = os.getpid()
        self._handles = signal.getsignal(signal.SIGINT) is signal.default_int_handler and _handle(self._quit)

    def __exit__(self, *_: object) -> None:
        if self._handles:
            _handle(signal.default_int_handler)

    def _quit(self, number: int, frame: object) -> None:
        if os.getpid() == self._process:  # a process that was forked meanwhile gets the same Ctrl-C
            os.write(2, b"Interrupted; nothing was started.\n")
        os._exit(INTERRUPTED)


class TermAsCtrlC:
    """Takes SIGTERM for Ctrl-C.

    A container gets it at its end. Its process 1 ignores it without a handler, and all others are killed with that one.
    """

    came = False

    def __enter__(self) -> TermAsCtrlC:
        is_default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        self._handles = is_default and _handle(self._interrupt, signal.SIGTERM)
        return self

    def __exit__(self, *_: object) -> None:
        if self._handles:
            _handle(signal.SIG_DFL, signal.SIGTERM)

    def _interrupt(self, number: int, frame: object) -> None:
        self.came = True
        raise KeyboardInterrupt


def ignore() -> None:
    """Ignore Ctrl-C from now on, when only the interpreter has to end."""
    _handle(signal.SIG_IGN)


def tell(sentence: str) -> int:
    """Print what the interruption has led to. Return the exit code."""
    print(sentence, file=sys.stderr, flush=True)
    return INTERRUPTED


def end_by_term() -> int:
    """End by SIGTERM, as service managers expect it. To process 1, which outlives it, return the same as a code."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGTERM)
    return TERMINATED


def _handle(handler: object, number: int = signal.SIGINT) -> bool:
    """Set the handler. Return False in all threads but the main thread, the only one that gets a KeyboardInterrupt."""
    try:
        signal.signal(number, handler)  # type: ignore[arg-type]
    except ValueError:
        return False
    return True
