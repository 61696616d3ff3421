"""Managers that tests start themselves are forked from a process that has imported everything: `manager_template`.

That saves two thirds of the processor time of a start. What a new process takes from its surroundings is the same:
environment, folder, umask, session and standard streams. Managers that a program under test starts are begun as ever,
as are those of tests that change what Python itself reads at its start.
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
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

import pytest

from nnilite._running import manager_process
from nnilite._running.manager_process import ManagerProcess, stand_by

PROGRAM = Path(__file__).parents[1] / "manager_template.py"
FOLDERS = ("tests/e2e/", "tests/platforms/", "tests/services/")
"""Elsewhere the start itself may be what is tested."""

_AT_STARTS = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC_")
_END_S = 60.0


class ForkedManager:
    """What `ManagerProcess` uses of a `Popen`, for a process that is not a child of this one."""

    def __init__(self, stdin: IO[bytes], status: BufferedReader) -> None:
        self.stdin = stdin
        self.pid = int(status.readline())
        self._status = status
        self._code: int | None = None

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a forked manager", timeout or 0.0)
            self._code = int(self._status.readline())
            self._status.close()
        return self._code


class ManagerTemplate:
    """The process from which managers are forked. It is started for the first of them."""

    def __init__(self) -> None:
        self._environment = _read_at_start()
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def stand_by(self) -> ManagerProcess:
        """Do what `nnilite._running.manager_process.stand_by` does."""
        if _read_at_start() != self._environment:
            return stand_by()
        with self._lock:
            channel = self._channel or self._start()
        sys.audit("os.fork")  # as a start of this test, for `process_starts`
        early_words = os.fdopen(os.memfd_create("early words"), "w+b")
        (heard, told), (ready, low), (status, tell) = (os.pipe() for _ in range(3))
        request = {"environment": dict(os.environ), "folder": str(Path.cwd()), "umask": _umask()}
        try:
            socket.send_fds(channel, [json.dumps(request).encode()], [heard, early_words.fileno(), low, tell])
        finally:
            for one in (heard, low, tell):
                os.close(one)
        process: Any = ForkedManager(os.fdopen(told, "wb", buffering=0), os.fdopen(status, "rb"))
        return ManagerProcess(process, os.fdopen(ready, "rb", buffering=0), early_words)

    def end(self) -> None:
        if self._channel is not None and self._process is not None:
            self._channel.close()
            self._process.wait(_END_S)

    def _start(self) -> socket.socket:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The last word is what tells the process of a manager from others.
        command = [sys.executable, str(PROGRAM), str(theirs.fileno()), "nnilite._manager"]
        nothing: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        with theirs:
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True, **nothing)
        return self._channel


def _read_at_start() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_AT_STARTS)}


def _umask() -> int:
    """Return it. There is no way to read it without a change."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


@pytest.fixture(scope="session")
def manager_template() -> Iterator[ManagerTemplate]:
    template = ManagerTemplate()
    yield template
    template.end()


@pytest.fixture(autouse=True, scope="module")
def _ready_managers(request: pytest.FixtureRequest, manager_template: ManagerTemplate) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.node.nodeid.startswith(FOLDERS):
            for way in ("stand_by", "fork"):
                patch.setattr(manager_process, way, manager_template.stand_by)
        yield
