"""The client of the keeper's fork server: one child process that starts all keepers of the service.

Keepers are in sessions of their own and keep running when the server, or this process, ends. The server reports each
keeper's start and end on its standard output; the ends of an earlier server's keepers are not reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import resource
import secrets
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnilite.errors import ConfigError, ServiceError
from nnilite.foreign_files import open_log
from nnilite.services.preloading import PRELOAD_S, make_refusal
from nnilite.services.worker_side import is_stopped

log = logging.getLogger(__name__)

_START_S = 30.0
_SOON_S = 3.0  # after which a server that has not answered is looked at
_END_S = 5.0
_ANSWER_S = 2.0
_MOST_LINE_BYTES = 1 << 20  # a preloader says up to 64 kB, which may be six times as long as JSON


@dataclass(frozen=True)
class _ServerReports:
    """What a server that runs has reported."""

    server: str  # its name
    at_work: set[str]  # jobs whose keepers' ends it will tell


class ForkServerClient:
    """The fork server's client, which starts the server when it is first needed, and again when it has died."""

    def __init__(self, keeper: Path, log_file: Path, heard: Callable[[str, bool], None]) -> None:
        self._keeper = keeper
        self._log_file = log_file
        self.name = ""  # unique name of the running or the last server
        # Called with the job whose keeper has ended and whether the manager has everything of it; with "" when nobody
        # will tell of that any more.
        self._heard = heard
        self._process: asyncio.subprocess.Process | None = None
        self._listener: asyncio.Task[None] | None = None
        self._starting, self._writing = asyncio.Lock(), asyncio.Lock()
        self._waiting: dict[str, asyncio.Future[tuple[int, str]]] = {}  # by job
        self._jobs: dict[str, str] = {}  # by specification
        self._server_reports: _ServerReports | None = None  # of the server that runs
        self._asked: dict[str, asyncio.Future[bool]] = {}  # jobs whose keepers are to be told to end
        self._preload: dict[str, Any] | None = None
        self._preloaded: asyncio.Future[int] | None = None  # the bytes of memory that the preloader has

    @property
    def pid(self) -> int | None:
        """The server's process id; None if it does not run."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> None:
        """Start the server unless it runs. Raises: ServiceError."""
        async with self._starting:
            await self._start()

    async def _start(self) -> None:
        if self.pid is not None and self._listener is not None and not self._listener.done():
            return
        await self.close()
        try:
            self._process, reader, writer = await _start_process(self._keeper, self._log_file)
        except OSError as error:
            raise ServiceError(f"no keeper can be started: {error}{_find_cure(error)}") from error
        self.name = secrets.token_hex(8)
        self._server_reports = _ServerReports(self.name, set())
        self._listener = asyncio.create_task(self._listen(reader, writer), name="fork server")
        if self._preload is not None:
            try:
                await self._write({"preload": self._preload})
            except OSError as error:
                raise ServiceError(f"the fork server has ended: {error}") from error

    async def preload(self, order: dict[str, Any]) -> int:
        """Start the server with modules that are imported once for all trials. Return how many bytes these take.

        A further fork server does the same, without being asked. Raises: ConfigError if they cannot be, ServiceError.
        """
        self._preload = order
        answer = self._preloaded = asyncio.get_running_loop().create_future()
        try:
            await self.start()
            return await asyncio.wait_for(answer, PRELOAD_S)
        except asyncio.TimeoutError:
            raise make_refusal(f"is not imported within {PRELOAD_S:g} s; take out what takes so long") from None
        finally:
            self._preloaded = None

    async def run(self, job: str, spec: Path) -> tuple[int, str]:
        """Start a keeper for the specification of this job; return its process id and start.

        Raises: ConfigError if no keeper accepts this specification, ServiceError.
        """
        await self.start()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[int, str]] = loop.create_future()
        self._waiting[job] = answer
        self._jobs[str(spec)] = job
        timers = [
            loop.call_later(_SOON_S, self._refuse_if_stopped, answer),
            loop.call_later(_START_S, _refuse, answer, f"no keeper was started within {_START_S:g} s"),
        ]
        try:
            await self._write({"spec": str(spec), "again": True})
            return await answer
        except OSError as error:
            raise ServiceError(f"the fork server has ended: {error}") from error
        finally:
            for timer in timers:
                timer.cancel()
            self._waiting.pop(job, None)
            self._jobs.pop(str(spec), None)

    def _refuse_if_stopped(self, answer: asyncio.Future[tuple[int, str]]) -> None:
        pid = self.pid
        if pid is not None and is_stopped(pid):
            _refuse(answer, f"the fork server is stopped (SIGSTOP), and starts no keeper; `kill -CONT {pid}` helps")

    def runs(self, job: str) -> bool:
        """Return whether the server has reported a keeper at work for the job."""
        reports = self._server_reports
        return reports is not None and job in reports.at_work

    def knows(self, job: str, server: object) -> bool | None:
        """Return whether a keeper that the server of this name has started is at work for the job.

        None if that server does not run, so that nothing is known. Threads may ask.
        """
        reports = self._server_reports  # read once: the server may end, or another one start, meanwhile
        return None if reports is None or reports.server != server else job in reports.at_work

    async def end(self, job: str, *, kill: bool = False) -> bool:
        """Send SIGTERM, or SIGKILL, to the job's keeper. Return False if the server has none at work, or does not run.

        Only the server can do that safely, as the keeper may get another job at this moment.
        """
        if not self.runs(job) or self.pid is None:
            return False
        answer = self._asked.get(job)
        if answer is None or kill:
            answer = answer or asyncio.get_running_loop().create_future()
            self._asked[job] = answer
            try:
                await asyncio.wait_for(self._write({"end": job, "kill": kill}), _ANSWER_S)
            except (OSError, ServiceError, asyncio.TimeoutError):
                self._resolve(job, False)
        try:
            return await asyncio.wait_for(asyncio.shield(answer), _ANSWER_S)
        except asyncio.TimeoutError:
            # The server is stopped. It has the order, and starts no job until it continues; but nothing is killed yet.
            return not kill

    def _resolve(self, job: str, is_known: bool) -> None:
        answer = self._asked.pop(job, None)
        if answer is not None and not answer.done():
            answer.set_result(is_known)

    async def _write(self, order: dict[str, Any]) -> None:
        if self._process is None or self._process.stdin is None:
            raise ServiceError("the fork server is not running")
        stream = self._process.stdin
        async with self._writing:
            stream.write(json.dumps(order).encode() + b"\n")
            await stream.drain()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read the server's messages until it ends."""
        with contextlib.closing(writer):
            try:
                while line := await reader.readline():
                    self._read_event(line)
            except (OSError, ValueError) as error:  # the next call starts another one
                log.warning("the fork server's messages cannot be read any more: %s", error)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ServiceError(f"the fork server has ended: see {self._log_file}"))
        if self._preloaded is not None and not self._preloaded.done():
            self._preloaded.set_exception(ServiceError(f"the fork server has ended: see {self._log_file}"))
        self._server_reports = None
        for job in list(self._asked):
            self._resolve(job, False)
        self._heard("", False)

    def _read_event(self, line: bytes) -> None:
        try:
            self._handle_event(json.loads(line))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            log.warning("the fork server reported %r: %s", line[:200], error)

    def _handle_event(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind in ("preloaded", "not preloaded"):
            self._note_preload(event)
            return
        if kind == "ended":
            if self._server_reports is not None:
                self._server_reports.at_work.discard(event["job"])
            self._heard(str(event["job"]), event.get("delivered") is True)
            return
        if kind == "told":
            self._resolve(event["job"], event["found"] is True)
            return
        if kind == "started" and self._server_reports is not None:
            self._server_reports.at_work.add(event["job"])
        job = event["job"] if kind == "started" else self._jobs.get(event["spec"] or "", "")
        answer = self._waiting.get(job)
        if answer is None or answer.done():
            log.warning("the fork server sent an unexpected message: %s", event)
        elif kind == "started":
            answer.set_result((event["pid"], event["start"]))
        else:
            refusal = ConfigError if event.get("lasting") is True else ServiceError
            answer.set_exception(refusal(f"the keeper was not started: {event['message']}"))

    def _note_preload(self, event: dict[str, Any]) -> None:
        answer = self._preloaded
        waits = answer is not None and not answer.done()
        if event["event"] == "preloaded":
            log.info("the preloader is ready, and has %.0f MB of memory", event["memory"] / 1e6)
            if answer is not None and waits:
                answer.set_result(int(event["memory"]))
        elif answer is not None and waits:
            answer.set_exception(make_refusal(event["message"]))
        else:
            log.warning("trials start without preloaded modules from now on: %s", event["message"])

    async def close(self) -> None:
        """End the server; its keepers continue."""
        process, listener = self._process, self._listener
        self._process = self._listener = None
        self._server_reports = None
        for job in list(self._asked):
            self._resolve(job, False)
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _END_S)
        except asyncio.TimeoutError:
            process.kill()
            await process.wait()
        if listener is not None:
            listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listener


def _find_cure(error: OSError) -> str:
    if error.errno == errno.EAGAIN:
        return "; raise the limit of processes (`ulimit -u`), then stop and resume the experiment"
    if error.errno != errno.EMFILE:
        return ""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return f"; the manager may open {most} files: raise that limit (`ulimit -n`), then stop and resume the experiment"


async def _start_process(
    keeper: Path, log_file: Path
) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader, asyncio.StreamWriter]:
    """Start the server, and connect its standard output. Raises: OSError."""
    # The event loop reads a socket in one round, and a subprocess pipe in two.
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours, limit=_MOST_LINE_BYTES)
        command = [sys.executable, "-I", "-S", str(keeper), "serve"]
        try:
            with os.fdopen(open_log(log_file), "ab") as errors:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=theirs.fileno(),
                    stderr=errors,
                    start_new_session=True,
                )
        except BaseException:
            writer.close()
            raise
    return process, reader, writer


def _refuse(answer: asyncio.Future[tuple[int, str]], reason: str) -> None:
    if not answer.done():
        answer.set_exception(ServiceError(reason))
