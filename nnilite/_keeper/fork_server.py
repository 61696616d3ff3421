"""Forks a keeper for each job, which saves starting Python and importing.

Each line is one JSON object. On standard input:   {"spec": "/path/spec.json"}
On standard output, `job` as in the spec:    {"event": "started", "job": ..., "pid": ..., "start": ...}
                                             {"event": "ended", "job": ..., "pid": ..., "status": exit code}
                                             {"event": "refused", "spec": ..., "message": ...}

`pid` and `start` are those of the keeper (`start` as in `.nni/started`, to detect a reused pid); a negative status is
a signal. The server ends when its standard input is closed. Keepers have sessions of their own and go on.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from typing import Any, Dict, NoReturn, Optional

from . import process
from .attempt_run import run
from .spec import Spec, SpecError, load
from .wake import Wake

_MAX_LINE_BYTES = 1_000_000
_READ_BYTES = 65536
_WAIT_S = 60.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_CRASHED = 70


def serve() -> int:
    """Serve until standard input is closed."""
    import base64  # noqa: F401 - imported once here instead of in each keeper
    import encodings.ascii
    import encodings.idna  # noqa: F401 - for host names; with it come tables of a megabyte
    import hashlib  # noqa: F401
    import hmac  # noqa: F401
    import http.client  # noqa: F401
    import subprocess  # noqa: F401
    import tarfile  # noqa: F401

    from . import courier, link, outbox, sdk_folder, use, working_copy  # noqa: F401

    server = _ForkServer()
    signal.signal(signal.SIGCHLD, server.wake.nothing)
    signal.set_wakeup_fd(server.wake.writer, warn_on_full_buffer=False)
    process.boot_id()  # keepers need not read it again
    gc.collect()
    gc.freeze()
    while server.turn():
        continue
    return 0


class _ForkServer:
    def __init__(self) -> None:
        self.wake = Wake()
        self._jobs: Dict[int, str] = {}
        self._line = b""

    def turn(self) -> bool:
        """Wait for something and handle it; False at the end of the input."""
        readable = self.wake.wait(_WAIT_S, 0)
        self._reap()
        if not readable:
            return True
        data = os.read(0, _READ_BYTES)
        *lines, self._line = (self._line + data).split(b"\n")
        if len(self._line) > _MAX_LINE_BYTES:
            self._refuse(None, "a line of input is too long")
            self._line = b""
        for line in lines:
            if line.strip():
                self._take(line)
        return bool(data)

    def _take(self, line: bytes) -> None:
        path: Any = None
        try:
            order = json.loads(line.decode("utf-8"))
            path = order.get("spec") if isinstance(order, dict) else None
            if not isinstance(path, str) or path == "-":
                raise SpecError('the input is not of the form {"spec": "/path/spec.json"}')
            spec = load(path)
            if spec.report != "rest":
                raise SpecError("a forked keeper has no standard output of its own to report to")
        except (ValueError, RecursionError) as error:
            self._refuse(path, str(error))
            return
        self._fork(spec, path)

    def _fork(self, spec: Spec, path: str) -> None:
        # Until the keeper has its own handlers, a signal for it must wait.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            pid = os.fork()
        except OSError as error:
            self._refuse(path, "no keeper can be forked: {}".format(error.strerror))
            pid = -1
        if pid == 0:
            _be_keeper(spec)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        if pid > 0:
            self._jobs[pid] = spec.job
            self._say({"event": "started", "job": spec.job, "pid": pid, "start": process.started_at(pid)})

    def _reap(self) -> None:
        while self._jobs:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            self._say({"event": "ended", "job": self._jobs.pop(pid, ""), "pid": pid, "status": code})

    def _refuse(self, path: Optional[str], message: str) -> None:
        self._say({"event": "refused", "spec": path, "message": message})

    def _say(self, event: Dict[str, Any]) -> None:
        try:
            sys.stdout.write(json.dumps(event) + "\n")
            sys.stdout.flush()
        except OSError:  # the reader has gone; the end of the input will follow
            return


def _be_keeper(spec: Spec) -> NoReturn:
    """Run a keeper in the forked process until its end."""
    code = _CRASHED
    try:
        os.setsid()
        _leave_streams(os.path.join(spec.directory, ".nni"))
        wake = Wake()
        wake.listen()
        code = run(spec, wake)
    finally:
        if sys.exc_info()[0] is not None:
            sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        _leave_no_empty_log(os.path.join(spec.directory, ".nni", "keeper.log"))
        os._exit(code)


def _leave_no_empty_log(path: str) -> None:
    """Remove the log if nothing was written to it, so that a trial leaves a file less behind."""
    try:
        if os.stat(path).st_size == 0:
            os.unlink(path)
    except OSError:  # it is not there, or cannot be looked at: then it stays as it is
        return


def _leave_streams(inner: str) -> None:
    """Close the server's pipes in this process, so that their other end notices the end of the server itself."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    try:
        os.makedirs(inner, mode=0o700, exist_ok=True)
        log = os.open(os.path.join(inner, "keeper.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:  # `run` reports it to the manager
        log = null
    os.dup2(log, 2)
    for file in {null, log} - {0, 1, 2}:
        os.close(file)
