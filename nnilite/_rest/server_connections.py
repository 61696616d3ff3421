"""Limits the open connections, and closes some when there are too many.

A process has a limited number of file descriptors (RLIMIT_NOFILE), and the database, the trials and other files need
some of them; the rest is for connections. When they are used up, the server closes one of those that have not
proven who they are, or else the one that has waited longest between two requests. A keeper whose connection was closed
connects again. A request that has passed the checks is never cut short; if all connections have one, the server accepts
no others for a moment. Trials cannot bring that about: their requests have a part of the room, and each trial a part of
that, as a program with a trial's token may send requests that do not end.

A connection has proven who it is once a request of it has passed a check of a token or of its user. Until then it is
one of a few, whatever the limit of descriptors, and of what it sends little is read at a time: strangers take no more
memory than that. Those whose heads are valid have a share of their own: see `UnauthenticatedCallers`.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import resource
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPConnection, HTTPMessageDelegate, HTTPServerRequest
from tornado.ioloop import IOLoop

from nnilite._network.unauthenticated_callers import UnauthenticatedCallers
from nnilite._rest.refusal import HttpRefusal
from nnilite._rest.trial_connections import TrialConnections

if TYPE_CHECKING:
    from tornado.http1connection import HTTP1Connection, HTTP1ServerConnection
    from tornado.iostream import IOStream
    from tornado.web import Application

log = logging.getLogger(__name__)

RESERVE = 256
"""File descriptors that are not for connections; half of all if there are few."""

_CONNECTIONS_MAX = 8192  # the limit if the system sets none: each connection takes some kilobytes
UNPROVEN_MOST = 256
"""How many connections may be open that have not proven who they are, besides half as many with a valid head."""

_UNPROVEN_READ_BYTES = 4096  # a head is rarely larger; what is read beyond it lies in memory meanwhile
_READ_BYTES = 65536  # tornado's default
_LEAST = 16  # connections accepted whatever else the process has open
_PAUSE_S = 0.1
_TELL_EVERY_S = 60.0


def room(limit: int) -> int:
    """Return how many of a process's file descriptors connections may take; `limit`: RLIMIT_NOFILE.

    >>> room(1024), room(128)
    (768, 64)
    """
    if limit == resource.RLIM_INFINITY:
        return _CONNECTIONS_MAX
    return min(max(limit - RESERVE, limit // 2), _CONNECTIONS_MAX)


class ServerConnections:
    """The open connections of one server by what they wait for. `most`: how many there may be."""

    most = _CONNECTIONS_MAX

    def __init__(self) -> None:
        self._unproven: UnauthenticatedCallers[IOStream] = UnauthenticatedCallers(
            UNPROVEN_MOST
        )  # and that are not being checked
        self._idle: dict[IOStream, None] = {}  # those between two requests, the one that has waited longest first
        self._busy: set[IOStream] = set()  # those with a request that has passed the checks
        self._checked: set[IOStream] = set()  # those without a proof whose request is being checked
        self._trials = TrialConnections()  # connections of trials, among the idle and busy ones

    def __len__(self) -> int:
        return len(self._unproven) + len(self._checked) + len(self._idle) + len(self._busy)

    @property
    def is_crowded(self) -> bool:
        """Whether a connection without a proof has to be closed for the next one."""
        return self._unproven.is_full

    @property
    def checked(self) -> int:
        """How many connections are being checked."""
        return len(self._checked)

    def opened(self, stream: IOStream) -> None:
        self._unproven.add(stream)

    @contextmanager
    def checking(self, stream: IOStream | None) -> Iterator[None]:
        """Leave a connection open while its request is checked, which takes a short time for any caller."""
        if stream is None or stream not in self._unproven:
            yield
            return
        self._unproven.remove(stream)
        self._checked.add(stream)
        put_back: Callable[[IOStream], IOStream | None] = self._unproven.add
        try:
            yield
            put_back = self._unproven.note_valid_head
        finally:
            if stream in self._checked:  # it is still open
                self._checked.discard(stream)
                left = put_back(stream)
                if left is not None:
                    left.close()

    def admit(self, stream: IOStream | None, job: str) -> None:
        """Find a place for a trial's request, if need be that of an idle connection. Raises: HttpRefusal."""
        for among in self._trials.find_full(stream, job, self.most):
            oldest = next((one for one in self._idle if one in among and one is not stream), None)
            if oldest is None:
                raise HttpRefusal(503, "trials have too many requests under way; send this one again in a moment")
            self.closed(oldest)
            oldest.close()

    def busy(self, stream: IOStream | None, job: str = "") -> None:
        """Note that a request has passed the checks, so that its connection is not closed for others.

        `job`: whose token it has, if it is a trial's.
        """
        if stream is not None and (stream in self._unproven or stream in self._idle):
            job = self._trials.find_job(stream) or job
            self.closed(stream)
            self._busy.add(stream)
            if job:
                self._trials.add(stream, job)
            stream.read_chunk_size = _READ_BYTES

    def answered(self, stream: IOStream) -> None:
        """Note that a connection may send a further request, if it has proven who it is."""
        if stream in self._busy:
            self._busy.discard(stream)
            self._idle[stream] = None

    def is_proven(self, stream: IOStream) -> bool:
        """Return whether a request of this connection has passed a check."""
        return stream in self._idle or stream in self._busy

    def closed(self, stream: IOStream) -> None:
        self._unproven.remove(stream)
        self._checked.discard(stream)
        self._idle.pop(stream, None)
        self._busy.discard(stream)
        self._trials.remove(stream)

    def close_one(self) -> bool:
        """Close a connection without a proof, or else the one idle longest. Return False if none may be closed."""
        stream = self._unproven.remove_one() or next(iter(self._idle), None)
        if stream is None:
            return False
        self.closed(stream)
        stream.close()
        return True


class RestServer(HTTPServer):
    """A listening server that keeps within its file descriptors; `port` is the one it got."""

    port: int

    def initialize(  # type: ignore[override]
        self, application: Application, connections: ServerConnections, idle_timeout_s: float, **options: Any
    ) -> None:
        """Set up the server. `idle_timeout_s`: how long a connection may wait between two requests."""
        super().initialize(application, **options)
        self._open = connections
        self._most = connections.most = room(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._further_requests = copy.copy(self.conn_params)
        self._further_requests.header_timeout = idle_timeout_s
        self._spared = 0  # how many connections were closed for others since the last message about it
        self._logged_s = -_TELL_EVERY_S

    # ------------------------------------------------------------ what tornado calls

    def add_sockets(self, sockets: Iterable[socket.socket]) -> None:
        for one in sockets:
            self._sockets[one.fileno()] = one
            self._handlers[one.fileno()] = _Accepting(one, self._accept).stop

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        stream.read_chunk_size = _UNPROVEN_READ_BYTES
        self._open.opened(stream)
        super().handle_stream(stream, address)

    def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        """Note that a connection waits for its first request, or for a further one."""
        stream = cast("HTTP1ServerConnection", server_conn).stream
        self._open.answered(stream)
        if self._open.is_proven(stream):
            cast("HTTP1Connection", request_conn).params = self._further_requests
        return super().start_request(server_conn, request_conn)

    def on_close(self, server_conn: object) -> None:
        """Note the end of a connection. This is also called for live streams, which have a limit of their own."""
        self._open.closed(cast("HTTP1ServerConnection", server_conn).stream)
        super().on_close(server_conn)

    def refuse_connections(self) -> None:
        """Answer no new connection, and keep the port until `stop`.

        Programs that still believe this server to be alive send it the user's token: until then, no other program may
        get the port.
        """
        for number, one in self._sockets.items():
            self._handlers[number]()
            self._handlers[number] = _Accepting(one, _close_next).stop

    async def end(self) -> None:
        """Stop listening, and close all connections.

        Requests that are still being answered lose their connection. Otherwise the end of the event loop would cancel
        them, and answer that the server has failed.
        """
        self.stop()
        for connection in list(self._connections):
            connection.stream.close()
        await asyncio.sleep(0)  # those who wait for a request learn that there is none

    # ------------------------------------------------------------ accepting

    def _accept(self, listening: socket.socket) -> bool:
        """Accept a waiting connection. Return False if there should be a pause.

        It accepts one at a time, so that requests of those accepted before are read in between.
        """
        try:
            if not self._make_room(listening):
                return False
            connection, address = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):  # the connection has gone already
            return True
        except OSError as error:  # for example too many open files, as other parts of the process have opened them
            self._spared += sum(self._open.close_one() for _ in range(1 + len(self._open) // 10))
            self._log_seldom(f"a connection cannot be accepted ({error.strerror or error})")
            return False
        try:
            self._handle_connection(connection, address)
        except OSError:  # an error of TLS: the connection has gone already
            connection.close()
        return True

    def _make_room(self, listening: socket.socket) -> bool:
        """Close connections until one more may be accepted. Return False if it has to wait. Raises: OSError."""
        if self._open.checked >= UNPROVEN_MOST:
            return False
        while full := self._full(listening):
            closed = self._open.close_one()
            self._spared += closed
            self._log_seldom(full)
            if not closed:
                return False
        return True

    def _full(self, listening: socket.socket) -> str:
        """Return why no further connection may be accepted; "" if one may. Raises: OSError."""
        count = len(self._open)
        if count >= self._most or (count >= _LEAST and _find_next_descriptor(listening) >= self._most):
            return (
                f"all of the {self._most} file descriptors that may be used for connections are in use; "
                f"if that many are expected, raise the limit of open files (ulimit -n)"
            )
        if self._open.is_crowded:
            return f"more than {UNPROVEN_MOST} connections were open that have not proven who they are"
        return ""

    def _log_seldom(self, what: str) -> None:
        """Log a message, once a minute at most: a client that uses up all connections must not fill the disk, too."""
        now = time.monotonic()
        if now - self._logged_s >= _TELL_EVERY_S:
            log.warning(
                "%d connections are open, and %d idle ones were closed for others: %s",
                *(len(self._open), self._spared, what),
            )
            self._logged_s, self._spared = now, 0


def _close_next(listening: socket.socket) -> bool:
    """Close a waiting connection. Return False if there should be a pause."""
    try:
        connection, _ = listening.accept()
    except (BlockingIOError, ConnectionAbortedError):
        return True
    except OSError:  # too many open files, for example
        return False
    connection.close()
    return True


class _Accepting:
    """Watches one listening socket, with pauses."""

    def __init__(self, listening: socket.socket, accept: Callable[[socket.socket], bool]) -> None:
        self._loop = IOLoop.current()
        self._listening = listening
        self._accept = accept
        self._pause: object | None = None
        self._begin()

    def _begin(self) -> None:
        self._pause = None
        self._loop.add_handler(self._listening, self._ready, IOLoop.READ)

    def _ready(self, listening: socket.socket, events: int) -> None:
        if not self._accept(listening):
            self._loop.remove_handler(listening)
            self._pause = self._loop.call_later(_PAUSE_S, self._begin)

    def stop(self) -> None:
        if self._pause is None:
            self._loop.remove_handler(self._listening)
        else:
            self._loop.remove_timeout(self._pause)


def _find_next_descriptor(listening: socket.socket) -> int:
    """Return the number of the next file, the lowest free one: a high number means that few are free.

    Raises: OSError.
    """
    number = os.dup(listening.fileno())
    os.close(number)
    return number


def stream_of(request: HTTPServerRequest) -> IOStream | None:
    """Return the connection of a request; None once it has become a live stream."""
    stream: IOStream | None = getattr(request.connection, "stream", None)
    return stream


def hang_up(request: HTTPServerRequest) -> None:
    """Close the connection without a proper end of the answer, so that the reader notices that it is incomplete."""
    stream = stream_of(request)
    if stream is not None:
        stream.close()
