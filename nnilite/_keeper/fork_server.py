"""Forks a keeper for each job, which saves starting Python and importing; or gives the job to one that is free.

Each line is one JSON object. On standard input:   {"spec": "/path/spec.json", "again": true}
                                                   {"end": job}, or {"end": job, "kill": true}
                                                 {"preload": {"modules": [...], "command": ..., "code": "/path"}}
On standard output, `job` as in the spec:    {"event": "started", "job": ..., "pid": ..., "start": ...}
                                             {"event": "ended", "job": ..., "pid": ..., "status": exit code,
                                                                "delivered": true}
                                             {"event": "refused", "spec": ..., "message": ..., "lasting": ...}
                                             {"event": "told", "job": ..., "found": true}
                                             {"event": "preloaded", "memory": bytes}
                                             {"event": "not preloaded", "message": ..., "missing": true}

`pid` and `start` are those of the keeper (`start` as in `.nni/started`, to detect a reused pid); a negative status is a
signal. With `delivered` the manager has acknowledged all events of the attempt, the end included; it is left out where
that is not known. The server ends when its standard input is closed. Keepers have sessions of their own and keep
running.

With `again` the keeper may run further jobs afterwards, one at a time: forking and ending a process takes longer than a
keeper's work for a short trial. It gets them over a socket, from this server alone, and leaves when the other end is
closed. So the process id of such a keeper does not show its current job: the lock of the attempt's folder does. And
only this server can send it a signal (`end`) that cannot hit the next job, since it gives none to a keeper to which it
has sent one. It is SIGTERM, or SIGKILL with `kill`.

With `preload` a preloader is started (see `preloader`), for trials with this command. "preloaded" is reported each
time that it is ready, "not preloaded" once, if all further trials are to start afresh; with `missing` if a module is
not installed.
"""

from __future__ import annotations

import gc
import io
import json
import os
import signal
import socket
import stat
import sys
import time
from typing import TYPE_CHECKING, Any, Dict, List, NoReturn, Optional

from . import command_start, plain_file, process
from .attempt_run import run_one_of_several
from .folder import Folder
from .niceness import raise_priority
from .spec import Spec, SpecError, load
from .wake import Wake

if TYPE_CHECKING:
    from .preloaded_start import PreloadedStarts
    from .preloader import Preloader

_MAX_LINE_BYTES = 1_000_000
_READ_BYTES = 65536
_MAX_PATH_BYTES = 65536
_WAIT_S = 60.0
_FREE_S = 5.0  # a keeper without a job leaves after this time
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PAUSE_S = 0.2
_CRASHED = 70
_MOST_LOG_BYTES = 1_000_000


def serve() -> int:
    """Serve until standard input is closed."""
    # What follows, and what `_load_for` has, is imported once here instead of in each keeper.
    import encodings.ascii  # noqa: F401
    import shutil  # noqa: F401
    import subprocess  # noqa: F401

    from . import link, link_choice, local_link, outbox, report_sender, resource_usage, sdk_folder, working_copy  # noqa: F401

    raise_priority()
    server = _ForkServer()
    signal.signal(signal.SIGCHLD, server.wake.nothing)
    signal.set_wakeup_fd(server.wake.writer, warn_on_full_buffer=False)
    process.boot_id()  # keepers need not read it again
    gc.collect()
    gc.freeze()
    while server.turn():
        continue
    return 0


def _limit_log() -> None:
    """Empty this server's own log if preloaded modules have printed so many lines that it is too large."""
    try:
        facts = os.fstat(2)
        if stat.S_ISREG(facts.st_mode) and facts.st_size > _MOST_LOG_BYTES:
            os.ftruncate(2, 0)
            line = "[nnilite: {} bytes of this log are left out: it was too large]\n"
            os.write(2, line.format(facts.st_size).encode("ascii"))
    except OSError:  # there is no such stream, or the disk is full
        return


class _Forked:
    """A keeper that was forked. One that may run further jobs has a link, a socket; others have none."""

    def __init__(self, pid: int, job: str, link: Optional[socket.socket]) -> None:
        self.pid = pid
        self.job = job  # "" while it is free
        self.link = link
        self.free_since = 0.0
        self.start = process.started_at(pid)

    def close(self) -> None:
        """Let the keeper exit at the end of its job."""
        if self.link is not None:
            self.link.close()
            self.link = None


class _ForkServer:
    def __init__(self) -> None:
        self.wake = Wake()
        self._forked: Dict[int, _Forked] = {}  # by process id
        self._links: Dict[int, _Forked] = {}  # by file descriptor
        self._free: List[_Forked] = []  # the last one has become free last
        self._line = b""
        self._preloader: Optional[Preloader] = None

    def turn(self) -> bool:
        """Wait for something and handle it. Return False at the end of the input."""
        preload_files = [] if self._preloader is None else self._preloader.files
        readable = self.wake.wait(_FREE_S if self._free else _WAIT_S, 0, *preload_files, *self._links)
        _limit_log()
        for file in readable:
            if file in self._links:
                self._hear(file)
        if self._preloader is not None and any(file in readable for file in preload_files):
            self._say_if(self._preloader.poll_event())
        self._reap()
        self._dismiss()
        if 0 not in readable:
            return True
        data = os.read(0, _READ_BYTES)
        *lines, self._line = (self._line + data).split(b"\n")
        if len(self._line) > _MAX_LINE_BYTES:
            self._refuse(None, "a line of input is too long")
            self._line = b""
        for line in lines:
            if line.strip():
                self._handle_line(line)
        return bool(data)

    def _handle_line(self, line: bytes) -> None:
        path: Any = None
        try:
            order = json.loads(line.decode("utf-8"))
            if isinstance(order, dict) and isinstance(order.get("end"), str):
                self._end(order["end"], signal.SIGKILL if order.get("kill") is True else signal.SIGTERM)
                return
            if isinstance(order, dict) and isinstance(order.get("preload"), dict):
                self._preload(order["preload"])
                return
            path = order.get("spec") if isinstance(order, dict) else None
            if not isinstance(path, str) or path == "-":
                raise SpecError('the input is not of the form {"spec": "/path/spec.json"}')
            spec = load(path)
            if spec.report != "rest":
                raise SpecError("a forked keeper has no standard output of its own to report to")
        except (ValueError, RecursionError) as error:
            # A file that cannot be read now may be read later; what its content asks for never comes true.
            self._refuse(path, str(error), isinstance(error, SpecError) and error.__cause__ is None)
            return
        if order.get("again") is not True:
            self._fork(spec, path, None)
        elif not self._give(spec, path):
            self._fork(spec, path, _pair())

    def _preload(self, order: Dict[str, Any]) -> None:
        """Start a preloader, for the keepers that are forked from now on."""
        from .preloader import NotPreloaded, Preloader  # only keepers of experiments that preload have it

        if self._preloader is not None:
            self._preloader.close()
        try:
            self._preloader = Preloader(order)
            self._preloader.start()
        except (NotPreloaded, KeyError, OSError) as error:
            self._preloader = None
            self._say({"event": "not preloaded", "message": str(error)})

    def _give(self, spec: Spec, path: str) -> bool:
        """Give the job to a free keeper. Return False if there is none."""
        while self._free:
            keeper = self._free.pop()
            try:
                if keeper.link is not None:
                    keeper.link.sendall(os.fsencode(path) + b"\n")
                    keeper.job = spec.job
                    self._say_started(keeper)
                    return True
            except OSError:  # it has died, which the next turn detects
                self._forget_link(keeper)
        return False

    def _fork(self, spec: Spec, path: str, link: "Optional[tuple[socket.socket, socket.socket]]") -> None:
        _load_for(spec)
        # Until the keeper has its own handlers, a signal for it must wait.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            pid = os.fork()
        except OSError as error:
            self._refuse(path, "no keeper can be forked: {}{}".format(error.strerror, command_start.find_cure(error)))
            pid = -1
        if pid == 0:
            for other in self._links.values():  # otherwise these would not see the end of this server
                other.close()
            if link is not None:
                link[0].close()
            if self._preloader is not None:
                self._preloader.leave()
            starts = None if self._preloader is None else self._preloader.starts
            _be_keeper(spec, None if link is None else link[1], starts)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        if link is not None:
            link[1].close()
        if pid > 0:
            keeper = self._forked[pid] = _Forked(pid, spec.job, None if link is None else link[0])
            if keeper.link is not None:
                self._links[keeper.link.fileno()] = keeper
            self._say_started(keeper)

    def _end(self, job: str, number: int) -> None:
        """Send a signal to the keeper of the job, which gets no further one."""
        keeper = next((one for one in self._forked.values() if one.job == job), None)
        if keeper is not None:
            self._forget_link(keeper)
            os.kill(keeper.pid, number)
        self._say({"event": "told", "job": job, "found": keeper is not None})

    def _hear(self, file: int) -> None:
        """Read that a keeper has finished its job, or has left."""
        keeper = self._links[file]
        try:
            data = keeper.link.recv(64) if keeper.link is not None else b""
        except OSError:
            data = b""
        if not data:
            self._forget_link(keeper)
            return
        job, keeper.job = keeper.job, ""
        keeper.free_since = time.monotonic()
        self._free.append(keeper)
        self._say_ended(keeper, job, *map(int, data.split()))

    def _dismiss(self) -> None:
        """Dismiss keepers that have been idle for a while."""
        while self._free and time.monotonic() - self._free[0].free_since > _FREE_S:
            self._forget_link(self._free[0])

    def _forget_link(self, keeper: _Forked) -> None:
        """Give the keeper no further job."""
        if keeper.link is not None:
            del self._links[keeper.link.fileno()]
        if keeper in self._free:
            self._free.remove(keeper)
        keeper.close()

    def _reap(self) -> None:
        while self._forked or self._preloader is not None:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            keeper = self._forked.pop(pid, None)
            if keeper is None:
                if self._preloader is not None:
                    self._say_if(self._preloader.note_end(pid))
                continue
            self._forget_link(keeper)
            if keeper.job:
                code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                self._say_ended(keeper, keeper.job, code, 0)

    def _say_started(self, keeper: _Forked) -> None:
        self._say({"event": "started", "job": keeper.job, "pid": keeper.pid, "start": keeper.start})

    def _say_ended(self, keeper: _Forked, job: str, status: int, delivered: int) -> None:
        delivery = {"delivered": True} if delivered else {}
        self._say({"event": "ended", "job": job, "pid": keeper.pid, "status": status, **delivery})

    def _refuse(self, path: Optional[str], message: str, lasting: bool = False) -> None:
        self._say({"event": "refused", "spec": path, "message": message, "lasting": lasting})

    def _say_if(self, event: Optional[Dict[str, Any]]) -> None:
        if event is not None:
            self._say(event)

    def _say(self, event: Dict[str, Any]) -> None:
        try:
            sys.stdout.write(json.dumps(event) + "\n")
            sys.stdout.flush()
        except OSError:  # the reader has gone; the end of the input will follow
            return


def _load_for(spec: Spec) -> None:
    """Import what the keeper of this specification will need to report over a network, if it does."""
    if spec.callback_file or not spec.callback:
        return
    import encodings.idna  # noqa: F401 - for host names; with it come tables of a megabyte
    import hashlib  # noqa: F401
    import hmac  # noqa: F401
    import http.client  # noqa: F401


def _pair() -> "Optional[tuple[socket.socket, socket.socket]]":
    """Return a link's two ends; None if no more files can be opened: then the keeper runs only one job."""
    try:
        return socket.socketpair()
    except OSError:
        return None


def _be_keeper(spec: Spec, link: Optional[socket.socket], preloaded: Optional[PreloadedStarts]) -> NoReturn:
    """Run a keeper in the forked process until its end."""
    code, server_log = _CRASHED, sys.stderr
    try:
        os.setsid()
        wake = _leave_server()
        wake.listen()
        while True:
            sys.stderr = _Log(Folder(spec.directory).log)
            code, delivered, can_go_on = run_one_of_several(spec, wake, preloaded)
            sys.stderr = server_log
            if link is None or not can_go_on or wake.terminations:
                break
            following = _await_next_job(link, wake, code, delivered)
            code = _CRASHED
            if following is None:
                break
            spec = following
    finally:
        if sys.exc_info()[0] is not None:
            sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(code)


def _await_next_job(link: socket.socket, wake: Wake, code: int, delivered: bool) -> Optional[Spec]:
    """Report the end of the last job, and wait for the next. None: this keeper is to leave, or the server has gone."""
    data = b""
    try:
        link.sendall(b"%d %d\n" % (code, delivered))
        while not data.endswith(b"\n"):
            if wake.wait(_WAIT_S, link.fileno()):
                piece = link.recv(_MAX_PATH_BYTES)
                if not piece:
                    return None
                data += piece
            elif wake.terminations:
                return None
        return load(os.fsdecode(data[:-1]))
    except OSError:  # the link has gone
        return None
    except SpecError as error:  # the job is no longer needed: it was taken away after the server had read it
        sys.stderr.write("{}\n".format(error))
        return None


class _Log(io.TextIOBase):
    """Writes this process's messages to the attempt's log, which is made with the first one: most have none."""

    def __init__(self, path: str) -> None:
        self._path = path

    def write(self, text: str) -> int:
        data = text.encode("utf-8", "replace")
        try:
            plain_file.write(self._path, data, flags=os.O_APPEND)
        except OSError:  # then it goes to the log of the server
            os.write(2, data)
        return len(text)


def _leave_server() -> Wake:
    """Return what this process waits by, with the server's pipes closed in it. Raises: OSError.

    For a while there may be no room for a further open file, in the limit of this user or in that of all.
    """
    until = time.monotonic() + _WAIT_S
    while True:
        try:
            _leave_streams()
            return Wake()
        except OSError:
            if time.monotonic() > until:
                raise
        time.sleep(_PAUSE_S)


def _leave_streams() -> None:
    """Close the server's pipes in this process, so that their other end notices the end of the server itself."""
    null = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(null, 0)
        os.dup2(null, 1)
    finally:
        if null > 1:
            os.close(null)
