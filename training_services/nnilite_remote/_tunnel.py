"""The gate of the reverse tunnel: it lets only requests of keepers through.

Every user who is logged in to the worker can reach the tunnel's end there, and to the manager all its requests come
from this program, which needs no sign-in. So nothing passes through directly: each request is read and checked, and a
new one goes to the manager if it is a request that keepers make.

A caller has proven itself once the manager has accepted the head of a request with a proof. Until then only few
callers may be connected, and one is closed for the next (see `UnauthenticatedCallers`); each has little time, and no
more than a head is read from it.
No caller has a thread: one event loop in one thread serves all callers of a machine. The thread belongs to that machine
because sending on its connection may block.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import threading
from collections.abc import Callable
from typing import Any

from paramiko.ssh_exception import SSHException

from nnilite.services.callback_address import SparseLog, UnauthenticatedCallers
from nnilite.services.task_ends import end_tasks
from nnilite_remote._tunnel_request import MAX_HEAD_BYTES, TunnelRefused, TunnelRequest, parse_head
from nnilite_remote._tunnel_upstream import PIECE_BYTES, PROOF_HEADER, ManagerAway, ManagerReply, TunnelUpstream

log = logging.getLogger(__name__)

WINDOW_BYTES = 1 << 16
"""How much a connection in the tunnel may send before any of it is read: a head, and the beginning of a body."""

_UNPROVEN_MOST = 64  # callers without a proof, at a time
_PROVEN_MOST = 1000
_JOB_MOST = 4  # connections of one job: its keeper has one, and may have lost others without a word
_PROOF_S = 60.0  # from a connection to its proof; a keeper may connect before it has anything to tell
_IDLE_S = 60.0  # between two requests
_BODY_S = 60.0  # for a whole body, as the manager has it
_MANAGER_S = 60.0
_WINDOW_LOOK_S = 0.05

_Gone = (OSError, EOFError, SSHException)  # errors of a channel whose other end or connection is gone


class _TunnelCaller:
    """One connection from the worker. All methods are for the gate's loop."""

    def __init__(self, channel: Any) -> None:
        self.job: str | None = None  # whose keeper it has proven to be
        self.task: asyncio.Task[None] | None = None
        self._channel = channel
        self._pending = b""
        self._loop = asyncio.get_running_loop()
        self.until_s = self._loop.time() + _PROOF_S  # by when it must have proven itself
        self._news = asyncio.Event()
        channel.settimeout(0.0)
        channel.in_buffer.set_event(self)

    # What paramiko calls, in its own thread

    def set(self) -> None:
        """Note that data has come, or that no more will."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._news.set)

    def clear(self) -> None:
        """Do nothing: `receive` finds out by itself that no data is left."""

    # Reading and writing

    async def head(self) -> bytes | None:
        """Return the next request's head without its empty last line; None at the end. Raises: TunnelRefused."""
        while (end := self._pending.find(b"\r\n\r\n")) < 0:
            if len(self._pending) >= MAX_HEAD_BYTES:
                raise TunnelRefused(431)
            piece = await self.receive(MAX_HEAD_BYTES - len(self._pending))
            if not piece:
                return None
            self._pending += piece
        head, self._pending = self._pending[:end], self._pending[end + 4 :]
        return head

    async def read_body_piece(self, most: int) -> bytes:
        """Return the next piece of a body. Raises: EOFError if it ends early."""
        piece, self._pending = self._pending[:most], self._pending[most:]
        piece = piece or await self.receive(most)
        if not piece:
            raise EOFError("the body broke off")
        return piece

    async def receive(self, most: int) -> bytes:
        """Return the next bytes; none at the end."""
        while True:
            self._news.clear()
            try:
                return bytes(self._channel.recv(most))
            except TimeoutError:
                await self._news.wait()

    async def send(self, data: bytes) -> None:
        """Send all of it. Raises: EOFError, OSError, SSHException."""
        while data:
            try:
                sent = self._channel.send(data)
            except TimeoutError:  # the other end accepts nothing now, and paramiko does not notify when it does
                await asyncio.sleep(_WINDOW_LOOK_S)
                continue
            if not sent:
                raise EOFError("the connection is closed")
            data = data[sent:]

    def close(self) -> None:
        self._channel.in_buffer.set_event(threading.Event())  # in a cycle, what was read would outlive the connection
        _close(self._channel)


class TunnelGate:
    """Serves the connections of one machine's tunnel. `manager` returns the manager's present address."""

    def __init__(self, machine: str, manager: Callable[[], str]) -> None:
        self._machine = machine
        self._manager = manager
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        # Those that have come and are not yet in `_unproven`: paramiko's thread may be faster than the gate's.
        self._arriving = threading.BoundedSemaphore(_UNPROVEN_MOST)
        self._unproven: UnauthenticatedCallers[_TunnelCaller] = UnauthenticatedCallers(_UNPROVEN_MOST)
        self._proven: dict[_TunnelCaller, None] = {}
        self._refusals = SparseLog()

    def admit(self, channel: Any) -> None:
        """Serve a connection, which is a paramiko Channel, until it ends. Returns at once; for any thread."""
        with self._lock:
            if not self._closed:
                # Also those that are too many are closed there: closing may wait for what paramiko's own thread does.
                take = self._begin if self._arriving.acquire(blocking=False) else _close
                self._get_running_loop().call_soon_threadsafe(take, channel)
                return
        _close(channel)

    def close(self) -> None:
        """Close all connections, and take no others. Returns at once."""
        with self._lock:
            self._closed = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)

    def _get_running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._run, args=(self._loop,), name="tunnel", daemon=True).start()
        return self._loop

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
            loop.run_until_complete(_end_tasks())
        finally:
            loop.close()

    # ------------------------------------------------------------ who is there

    def _begin(self, channel: Any) -> None:
        self._arriving.release()
        if self._unproven.is_full:
            self._close(self._unproven.remove_one())
            self._note("too many connections have not proven who they are; some are closed for others")
        caller = _TunnelCaller(channel)
        self._unproven.add(caller)
        caller.task = asyncio.get_running_loop().create_task(self._serve(caller))
        # A task that is cancelled before its first step runs none of its code, and a channel that nobody closes is
        # closed by the garbage collector: perhaps in paramiko's own thread while it sends, which then waits for itself.
        caller.task.add_done_callback(lambda _: self._end(caller))

    def _prove(self, caller: _TunnelCaller, job: str) -> None:
        """Note whose keeper a caller is. A job's oldest connections are closed for a further one."""
        if caller.job == job:
            return
        self._unproven.remove(caller)
        caller.job = None
        of_job = [each for each in self._proven if each.job == job]
        if len(of_job) >= _JOB_MOST:
            self._close(of_job[0])
        elif len(self._proven) >= _PROVEN_MOST:
            self._close(next(iter(self._proven)))
        caller.job = job
        self._proven[caller] = None

    def _close(self, caller: _TunnelCaller | None) -> None:
        if caller is None:
            return
        self._forget(caller)
        if caller.task is not None:
            caller.task.cancel()

    def _end(self, caller: _TunnelCaller) -> None:
        self._forget(caller)
        caller.close()

    def _forget(self, caller: _TunnelCaller) -> None:
        self._unproven.remove(caller)
        self._proven.pop(caller, None)

    def _note(self, what: str) -> None:
        more = self._refusals.more(self._machine, what)
        if more is not None:
            log.warning("at the end of the tunnel on %s, %s%s", self._machine, what, more)

    # ------------------------------------------------------------ one caller

    async def _serve(self, caller: _TunnelCaller) -> None:
        upstream = TunnelUpstream(self._manager)
        try:
            while await self._turn(caller, upstream):
                continue
        except (*_Gone, ManagerAway, asyncio.TimeoutError) as error:
            log.debug("a connection in the tunnel ends: %r", error)
        finally:
            upstream.close()

    async def _turn(self, caller: _TunnelCaller, upstream: TunnelUpstream) -> bool:
        """Serve one request; return False at the end."""
        limit_s = _IDLE_S if caller.job is not None else caller.until_s - asyncio.get_running_loop().time()
        try:
            head = await asyncio.wait_for(caller.head(), limit_s)
            if head is None:
                return False
            request = parse_head(head)
        except TunnelRefused as refused:
            self._note("refused a request that keepers never make")
            await _send(caller, _head(refused.status, 0, "close"))
            return False
        if caller in self._unproven:
            self._close(self._unproven.note_valid_head(caller))
        try:
            reply = await asyncio.wait_for(upstream.ask(request), _MANAGER_S)
            unread = bool(request.length) and not reply.wants_body
            if reply.wants_body:
                self._prove(caller, request.job)
                reply = await self._pass_body_on(request, caller, upstream)
        except (ManagerAway, asyncio.TimeoutError) as error:
            log.debug("the manager does not answer: %r", error)
            # Where a part of the body is unread, nothing but the end of the connection tells what it belongs to.
            await _send(caller, _head(503, 0, "close" if request.length else "keep-alive"))
            return not request.length
        if reply.status == 401:
            self._note("refused a request without the proof of a trial")
        elif request.proves and request.job and reply.status < 400:
            self._prove(caller, request.job)
        goes_on = reply.status != 401 and not unread
        await self._pass_answer_on(reply, caller, upstream, "keep-alive" if goes_on else "close")
        return goes_on

    @staticmethod
    async def _pass_body_on(request: TunnelRequest, caller: _TunnelCaller, upstream: TunnelUpstream) -> ManagerReply:
        """Pass a body on to the manager, each piece as soon as it accepts one; return the manager's answer."""
        end_s, left = asyncio.get_running_loop().time() + _BODY_S, request.length
        while left:
            piece = await asyncio.wait_for(
                caller.read_body_piece(min(left, PIECE_BYTES)), end_s - asyncio.get_running_loop().time()
            )
            left -= len(piece)
            await asyncio.wait_for(upstream.send(piece), _MANAGER_S)
        return await asyncio.wait_for(upstream.reply(), _MANAGER_S)

    @staticmethod
    async def _pass_answer_on(
        reply: ManagerReply, caller: _TunnelCaller, upstream: TunnelUpstream, connection: str
    ) -> None:
        """Pass the manager's answer on to the caller."""
        await _send(caller, _head(reply.status, reply.length, connection, reply.headers.get(PROOF_HEADER)))
        async for piece in upstream.body(reply):
            await _send(caller, piece)
        if connection == "close":
            upstream.close()


def _close(channel: Any) -> None:
    with contextlib.suppress(*_Gone):  # closing says so to the other end, which may be gone
        channel.close()


async def _end_tasks() -> None:
    await end_tasks(task for task in asyncio.all_tasks() if task is not asyncio.current_task())


async def _send(caller: _TunnelCaller, data: bytes) -> None:
    """Send a piece, for which the other end has a limited time."""
    await asyncio.wait_for(caller.send(data), _IDLE_S)


def _head(status: int, length: int, connection: str, proof: str | None = None) -> bytes:
    word = http.client.responses.get(status, "")
    proven = f"X-Nnilite-Proof: {proof}\r\n" if proof else ""
    return (
        f"HTTP/1.1 {status} {word}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\nConnection: {connection}\r\n{proven}\r\n"
    ).encode("ascii")
