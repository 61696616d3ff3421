"""Programs that tests start again and again are forked from a process that has imported what they need.

What a new process takes from its surroundings is the same: environment, folder, umask and standard streams. It leads a
session of its own.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

_AT_STARTS = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC_")
_END_S = 60.0


class ForkedProgram:
    """What tests use of a `Popen`, for a process that is not a child of this one."""

    def __init__(self, status: BufferedReader) -> None:
        self.pid = int(status.readline())
        self._status = status
        self._code: int | None = None

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a forked program", timeout or 0.0)
            self._code = int(self._status.readline())
            self._status.close()
        return self._code

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ProgramTemplate:
    """The process from which a program is forked. It is started for the first of them."""

    def __init__(self, template: Path, *words: str) -> None:
        """`words`: what the command line of the process, and of those that are forked from it, ends with."""
        self._command = [sys.executable, str(template)]
        self._last_words = words
        self._environment = _read_at_start(os.environ)
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def serves(self, environment: Mapping[str, str]) -> bool:
        """Return whether Python would begin with this environment as the template has begun."""
        return _read_at_start(environment) == self._environment

    def fork(
        self, files: Sequence[int], *words: str, environment: Mapping[str, str], folder: str | Path
    ) -> ForkedProgram:
        """Fork the program with these files and words; see `forking_template.Begin`."""
        with self._lock:
            channel = self._channel or self._start()
        sys.audit("os.fork")  # as a start of this test, for `process_starts`
        status, tell = os.pipe()
        surroundings = {"environment": dict(environment), "folder": str(folder), "umask": _umask()}
        try:
            socket.send_fds(channel, [json.dumps({**surroundings, "words": words}).encode()], [*files, tell])
        finally:
            os.close(tell)
        return ForkedProgram(os.fdopen(status, "rb"))

    def end(self) -> None:
        if self._channel is not None and self._process is not None:
            self._channel.close()
            self._process.wait(_END_S)

    def _start(self) -> socket.socket:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [*self._command, str(theirs.fileno()), *self._last_words]
        nothing: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        with theirs:
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True, **nothing)
        return self._channel


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_AT_STARTS)}


def _umask() -> int:
    """Return it. There is no way to read it without a change."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
