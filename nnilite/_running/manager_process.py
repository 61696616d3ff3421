"""The process of a manager, from its start until it is ready or says why it cannot be.

The process imports what a manager needs while its starter writes the experiment's folder, and stands by until it
learns its task. If its starter ends before that, it ends, too, and nothing has begun.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from io import RawIOBase
from typing import IO, Any

from nnilite._side_processes.forked_process import ForkedProcess, can_fork
from nnilite._side_processes.quick_end import is_program
from nnilite.services.module_command import module_command

READY_TIMEOUT_S = 60.0
"""How long a manager may say nothing at its start."""

_END_TIMEOUT_S = 15.0
_KILLED_TIMEOUT_S = 5.0
_POLL_S = 0.02


class ManagerProcess:
    """A process that stands by to become a manager. Its context ends it, unless it was started.

    `ready`: the pipe on which it reports the progress of its start. The end of the pipe means that all of its processes
    are gone. `early_words`: the file of what it writes before it has its log.
    """

    def __init__(
        self, process: subprocess.Popen[bytes] | ForkedProcess, ready: RawIOBase, early_words: IO[bytes]
    ) -> None:
        self._process = process
        self._ready = ready
        self._early_words = early_words
        self._has_begun = False

    def __enter__(self) -> ManagerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._has_begun:
            self._process.kill()
            self.reap()
        self._ready.close()
        self._early_words.close()

    def begin(self, words: Sequence[str], *, detach: bool) -> None:
        """Let the process become the manager of this command line. Without `detach` it stops when this process ends."""
        self._has_begun = True
        assert self._process.stdin is not None
        # If it has ended, `answer` will report it.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(words).encode() + b"\n")
        if detach:
            self._process.stdin.close()

    def answer(self, packing: Callable[[int, int], None] | None = None) -> dict[str, str] | None:
        """Return its last message on its start; None if it says nothing for a minute.

        While it packs the code, it says so.
        """
        while select.select([self._ready], [], [], READY_TIMEOUT_S)[0]:
            line = self._ready.readline()
            if not line:
                code = self._process.wait()
                return {"error": f"the manager ended at its start with exit code {code}", "tail": "yes"}
            answer: dict[str, Any] = json.loads(line)
            if "packed" not in answer:
                return answer
            if packing is not None:
                packing(*answer["packed"])
        return None

    def is_ready(self) -> bool:
        """Return whether it has reported by now that it is ready."""
        while select.select([self._ready], [], [], 0)[0]:
            line = self._ready.readline()
            if not line or b'"ready"' in line:
                return bool(line)
        return False

    def end(self, is_alive: Callable[[], bool]) -> None:
        """End a manager that is not ready yet, and its children: in good order if possible, else at once.

        The started process may have ended already; the detached one is in its group. A manager that gets ready just now
        closes the pipe before it obeys: `is_alive` returns whether it still holds its lock.
        """
        self._end(is_alive)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILLED_TIMEOUT_S)

    def _end(self, is_alive: Callable[[], bool]) -> None:
        for number, patience_s in ((signal.SIGTERM, _END_TIMEOUT_S), (signal.SIGKILL, _KILLED_TIMEOUT_S)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            deadline = time.monotonic() + patience_s
            while select.select([self._ready], [], [], max(0.0, deadline - time.monotonic()))[0]:
                if self._ready.read(4096):
                    continue
                if not is_alive():
                    return
                if time.monotonic() > deadline:
                    break
                time.sleep(_POLL_S)

    def early_words(self) -> bytes:
        """Return what it has written before it had its log, such as why something cannot be imported."""
        self._early_words.seek(0)
        return self._early_words.read()

    def keep(self) -> None:
        """Keep the process, and the pipe whose closing would stop it, until it has ended."""
        threading.Thread(target=self.reap, daemon=True).start()

    def reap(self) -> None:
        """Wait for its end."""
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


def start_standby() -> ManagerProcess:
    """Start a process that can become a manager. Raises: OSError."""
    return _start_standby(_start)


def fork() -> ManagerProcess:
    """Do the same in a copy of this process, if that is possible: it has imported much of what a manager needs.

    Not where a script calls a command of `nnictl`: the manager would have its memory, modules and signal handlers.
    """
    return _start_standby(_fork if is_program() and can_fork() else _start)


def _start_standby(start: Callable[[int, int], subprocess.Popen[bytes] | ForkedProcess]) -> ManagerProcess:
    with contextlib.ExitStack() as if_it_fails:
        early_words = if_it_fails.enter_context(_scratch())
        ready_read, low = os.pipe()
        ready = if_it_fails.enter_context(os.fdopen(ready_read, "rb", buffering=0))
        # In a program without standard streams their numbers are free, and those of the new process would replace it.
        ready_write = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)
        os.close(low)
        try:
            process = start(ready_write, early_words.fileno())
        finally:
            os.close(ready_write)
        if_it_fails.pop_all()
    return ManagerProcess(process, ready, early_words)


def _start(ready: int, early_words: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        module_command("nnilite._manager", "--stand-by", str(ready)),
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=early_words,
        pass_fds=[ready],
        start_new_session=True,
    )


def _fork(ready: int, early_words: int) -> ForkedProcess:
    def program() -> int:
        from nnilite._manager.__main__ import begin

        return begin(["--stand-by", str(ready)])

    return ForkedProcess(program, stderr=early_words, kept=ready)


def _scratch() -> IO[bytes]:
    """Return a file without a name."""
    if hasattr(os, "memfd_create"):  # needs no module, and no folder that can be written
        return os.fdopen(os.memfd_create("nnilite"), "w+b")
    import tempfile

    return tempfile.TemporaryFile()
