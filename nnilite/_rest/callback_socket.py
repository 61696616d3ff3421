"""The callback for keepers on this machine: a Unix socket, as `nnilite._keeper.local_link` describes it.

Its folder and the socket itself are for this user alone. Each request still has the token of its job: a program that
can open the socket is usually a trial, and a trial may send anything.

A request is one line, which begins with the job and its token. Of a longer line no more than this begin is read before
the token has been checked. Connections that have not proven any job are few, and the oldest is closed for the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import re
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

from nnilite._answers.backend import Callbacks
from nnilite._keeper.local_link import SUFFIX, call_with_short_name
from nnilite._logging.sparse_log import SparseLog
from nnilite._rest.body_budget import BodyBudget, BodyReservation
from nnilite._rest.events import parse_body, parse_events
from nnilite._rest.handler import JOB_NAME
from nnilite._rest.refusal import HttpRefusal, body_of, status_of
from nnilite._rest.route_definition import BODY_MAX
from nnilite._rest.server_connections import room
from nnilite.errors import NniliteError
from nnilite.records import Json, strict_json
from nnilite.records.shapes import to_json

log = logging.getLogger(__name__)

UNPROVEN_MOST = 128
"""How many connections may be open that have not proven any job."""

_BACKLOG = 1024  # as many keepers may call at once after a resume
_HEAD_BYTES = 4096  # how much of a line may be read before its token has been checked
_READ_BYTES = 65536
_PROOF_S = 60.0  # a connection must have proven itself by then
_LINE_S = 60.0  # for a whole line, and for taking an answer
_PAUSE_S = 0.1
_HEAD = re.compile(rb'\s*\{\s*"job"\s*:\s*"([A-Za-z0-9._-]{1,200})"\s*,\s*"token"\s*:\s*"([ !#-[\]-~]{1,200})"\s*,')


class _SocketCaller:
    """One connection. What it has sent is read only as far as it is wanted."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self.pending = b""  # what was read beyond the last line

    async def read(self, most: int) -> bytes:
        """Return the next bytes; nothing at the end. Raises: OSError."""
        return await self._loop.sock_recv(self.connection, most)

    async def send(self, data: bytes) -> None:
        """Send data. Raises: OSError, also if it is not taken in time."""
        with self.limit(_LINE_S):
            await self._loop.sock_sendall(self.connection, data)

    @contextlib.contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """End the connection if the block is too slow. `asyncio.wait_for` would cost more, and reports are many."""
        timer = self._loop.call_later(seconds, self.hang_up)
        try:
            yield
        finally:
            timer.cancel()

    def hang_up(self) -> None:
        """End the connection, and what waits for it."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class CallbackSocket:
    """Listens next to the file with the manager's address, if this system and its disk support that.

    Without it, keepers use the REST callback.
    """

    def __init__(self, address_file: Path, callbacks: Callbacks) -> None:
        self._path = address_file.with_name(address_file.name + SUFFIX)
        self._callbacks = callbacks
        self._accepting: asyncio.Task[None] | None = None
        self._open: dict[_SocketCaller, None] = {}
        self._unproven: dict[_SocketCaller, None] = {}  # the oldest first
        self._most = room(resource.getrlimit(resource.RLIMIT_NOFILE)[0]) // 2
        self._room = BodyBudget()
        self._refusals = SparseLog()  # a trial may send the same wrong batch again and again

    async def listen(self) -> None:
        """Begin to serve. What an earlier manager has left there is removed."""
        listening = None
        try:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listening.setblocking(False)
            call_with_short_name(str(self._path), listening.bind)
            self._path.chmod(0o600)
            listening.listen(_BACKLOG)
        except OSError as error:
            log.info("trials on this machine report over HTTP, since there is no socket %s: %s", self._path, error)
            if listening is not None:
                listening.close()
            return
        self._accepting = asyncio.get_running_loop().create_task(self._accept(listening))

    def close(self) -> None:
        """Stop serving. What has not been answered counts as not taken."""
        if self._accepting is not None:
            self._accepting.cancel()
            self._accepting = None
            with contextlib.suppress(OSError):
                self._path.unlink()
        for caller in list(self._open):
            self._close(caller)

    # ------------------------------------------------------------ the callers

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listening)
                except OSError:  # too many open files, for example
                    await asyncio.sleep(_PAUSE_S)
                    continue
                self._begin(connection)
                await asyncio.sleep(0)  # what those accepted before have sent is read in between

    def _begin(self, connection: socket.socket) -> None:
        if len(self._unproven) >= UNPROVEN_MOST or len(self._open) >= self._most:
            if not self._unproven:  # others need file descriptors, too; this keeper goes to the REST callback
                connection.close()
                return
            self._close(next(iter(self._unproven)))
        caller = _SocketCaller(connection)
        self._open[caller] = self._unproven[caller] = None
        caller.task = asyncio.get_running_loop().create_task(self._serve(caller))

    def _close(self, caller: _SocketCaller) -> None:
        self._forget(caller)
        if caller.task is not None:
            caller.task.cancel()

    def _forget(self, caller: _SocketCaller) -> None:
        self._open.pop(caller, None)
        self._unproven.pop(caller, None)

    # ------------------------------------------------------------ one caller

    async def _serve(self, caller: _SocketCaller) -> None:
        try:
            with caller.limit(_PROOF_S):
                while caller in self._unproven and await self._turn(caller, _HEAD_BYTES):
                    continue
            while caller in self._open and caller not in self._unproven and await self._turn(caller, _READ_BYTES):
                continue
        except OSError as error:
            log.debug("a keeper on this machine: %s", error)
        finally:
            self._forget(caller)
            caller.connection.close()

    async def _turn(self, caller: _SocketCaller, most: int) -> bool:
        """Serve one request and its answer. Return False at the end."""
        with self._room.hold() as hold:
            try:
                line = await self._line(caller, most, hold)
            except HttpRefusal as refusal:  # the rest of the line stays unread, so the connection ends
                await caller.send(_spelt(refusal.status, body_of(refusal, refusal.status)))
                return False
            if line is None:
                return False
            status, answer = await self._answer(caller, line, hold)
        await caller.send(_spelt(status, answer))
        return True

    async def _line(self, caller: _SocketCaller, most: int, hold: BodyReservation) -> bytes | None:
        """Return the next line; None at the end. Raises: HttpRefusal, OSError."""
        data, caller.pending = caller.pending, b""
        while (end := data.find(b"\n")) < 0:
            if len(data) >= _HEAD_BYTES:
                return await self._read_long_line(caller, data, hold)
            piece = await caller.read(most)
            if not piece:
                return None
            data += piece
        caller.pending = data[end + 1 :]
        return data[:end]

    async def _read_long_line(self, caller: _SocketCaller, begin: bytes, hold: BodyReservation) -> bytes | None:
        """Read the rest of a line whose begin proves the job. Raises: HttpRefusal, OSError."""
        match = _HEAD.match(begin)
        if match is None:
            raise HttpRefusal(401, "a long report must begin with the job and its token")
        job = match[1].decode("ascii")
        self._check_token(job, match[2].decode("ascii"))
        self._unproven.pop(caller, None)
        hold.add(job, len(begin))
        line = bytearray(begin)
        with caller.limit(_LINE_S):
            while (end := line.find(b"\n", -_READ_BYTES)) < 0:
                piece = await caller.read(_READ_BYTES)
                if not piece:
                    return None
                hold.add(job, len(piece))
                line += piece
                if len(line) > BODY_MAX:
                    raise HttpRefusal(413, f"the report is larger than {BODY_MAX} bytes; send less at a time")
        caller.pending = bytes(line[end + 1 :])
        del line[end:]
        return bytes(line)

    async def _answer(self, caller: _SocketCaller, line: bytes, hold: BodyReservation) -> tuple[int, dict[str, Json]]:
        """Return the status and the body of the answer to one request."""
        job = ""
        try:
            request = parse_body(line)
            job = self._prove_job(request)
            self._unproven.pop(caller, None)
            if not hold.size:
                hold.add(job, len(line))
            answer = to_json(await self._callbacks.events(job, parse_events(request)))
        except NniliteError as error:
            status = status_of(error)
            if job and (more := self._refusals.more(job, str(status))) is not None:
                log.info("%d for a report of %s: %s%s", status, job, error, more)
            return status, body_of(error, status)
        except Exception as error:
            if (more := self._refusals.more(job, repr(type(error)))) is not None:
                log.exception("a report of %s could not be accepted%s", job or "a keeper", more)
            return 500, body_of(None, 500)
        return 200, answer

    def _prove_job(self, request: Json) -> str:
        """Return the job that the request proves to be from. Raises: HttpRefusal."""
        job, token = (request.get("job"), request.get("token")) if isinstance(request, dict) else (None, None)
        if not isinstance(job, str) or not isinstance(token, str) or not JOB_NAME.fullmatch(job):
            raise HttpRefusal(401, "a report needs the job and its token")
        self._check_token(job, token)
        return job

    def _check_token(self, job: str, token: str) -> None:
        """Check the token of a job. Raises: HttpRefusal."""
        known = self._callbacks.callback_token(job)
        if not hmac.compare_digest(token.encode("utf-8", "replace"), known.encode("ascii")):
            raise HttpRefusal(401, "this is not the token of that job")


def _spelt(status: int, answer: dict[str, Json]) -> bytes:
    return strict_json.spell_json({"status": status, **answer}).encode("ascii") + b"\n"
