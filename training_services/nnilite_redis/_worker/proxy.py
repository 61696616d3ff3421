"""Serve keepers on this machine in place of the manager: requests go to it as messages, and so do its answers.

All users of this machine can reach the port. So a request is judged by its head: its body is read only if the head
proves that the keeper of a job here sent it. Connections without a proof are few, and one of them makes room.

While Redis or the manager is unavailable the answer is 503, and the keeper tries again: its events stay in the trial's
folder until the manager has acknowledged them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler, stream_request_body

from nnilite.errors import NniliteError
from nnilite.services.callback_address import UnauthenticatedCallers, proves
from nnilite_redis._mailbox import PoolMessage
from nnilite_redis._relay import ANSWER_HEADERS, MAX_BODY_BYTES, REQUEST_HEADERS, is_of_keeper

if TYPE_CHECKING:
    from tornado.http1connection import HTTP1ServerConnection

log = logging.getLogger(__name__)

Pass = Callable[[str, PoolMessage], Awaitable[PoolMessage | None]]
"""Hands the request of a job's keeper to its manager; None if there is no such job here."""

_UNPROVEN_MOST = 64
_HEAD_BYTES = 8192
_UNPROVEN_READ_BYTES = 4096
_READ_BYTES = 65536
_IDLE_S = 60.0
_BODY_S = 60.0


class Proxy:
    """A port of this machine's loopback. `token_of` returns the token of a job here; "" if there is no such job."""

    def __init__(self, hand_on: Pass, token_of: Callable[[str], str]) -> None:
        unproven = _NewConnections()
        about = {"hand_on": hand_on, "token_of": token_of, "unproven": unproven}
        rules = [(r"/api/v1/callback/([A-Za-z0-9._-]+)(?:/proof)?", _ProxyHandler, about)]
        self._server = _ProxyServer(
            Application(rules, log_function=_quiet),
            unproven=unproven,
            max_header_size=_HEAD_BYTES,
            max_body_size=MAX_BODY_BYTES,
            idle_connection_timeout=_IDLE_S,
            body_timeout=_BODY_S,
        )
        self.url = ""

    def start(self) -> None:
        """Listen. Raises: OSError."""
        sockets = bind_sockets(0, "127.0.0.1")
        self._server.add_sockets(sockets)
        self.url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        self._server.stop()
        await asyncio.wait_for(self._server.close_all_connections(), 5)


class _NewConnections:
    """The connections that have not proven yet who sent them."""

    def __init__(self) -> None:
        self._streams: UnauthenticatedCallers[IOStream] = UnauthenticatedCallers(_UNPROVEN_MOST)

    def add(self, stream: IOStream) -> None:
        if self._streams.is_full:
            _close(self._streams.remove_one())
        stream.read_chunk_size = _UNPROVEN_READ_BYTES
        self._streams.add(stream)

    def note_valid_head(self, stream: IOStream) -> None:
        """Note that a valid head has come."""
        if stream in self._streams:
            _close(self._streams.note_valid_head(stream))

    def remove(self, stream: IOStream) -> None:
        stream.read_chunk_size = _READ_BYTES
        self._streams.remove(stream)


def _close(stream: IOStream | None) -> None:
    if stream is not None:
        stream.close()


class _ProxyServer(HTTPServer):
    def initialize(  # type: ignore[override]
        self, application: Application, unproven: _NewConnections, **options: Any
    ) -> None:
        super().initialize(application, **options)
        self._unproven = unproven

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        self._unproven.add(stream)
        super().handle_stream(stream, address)

    def on_close(self, server_conn: object) -> None:
        self._unproven.remove(cast("HTTP1ServerConnection", server_conn).stream)
        super().on_close(server_conn)


@stream_request_body
class _ProxyHandler(RequestHandler):
    def initialize(self, hand_on: Pass, token_of: Callable[[str], str], unproven: _NewConnections) -> None:
        self._hand_on = hand_on
        self._token_of = token_of
        self._unproven = unproven
        self._body = bytearray()

    def prepare(self) -> None:
        """Judge the head. A refused sender is answered at once, and the connection ends with an unread body."""
        method, path = str(self.request.method), str(self.request.uri)
        if not is_of_keeper(method, path):
            self._answer(PoolMessage({"status": 403}))
            return
        token = self._token_of(self.path_args[0])
        if not token:
            self._answer(PoolMessage({"status": 404}))
        elif method == "POST" and not proves(self.request.headers.get("Authorization", ""), token, method, path):
            self._answer(PoolMessage({"status": 401}))
        else:
            stream = getattr(self.request.connection, "stream", None)
            if stream is not None:
                (self._unproven.remove if method == "POST" else self._unproven.note_valid_head)(stream)

    def data_received(self, chunk: bytes) -> None:
        if self.request.method == "POST":  # no other method has a body
            self._body += chunk

    async def get(self, job: str) -> None:
        await self._carry(job)

    async def post(self, job: str) -> None:
        await self._carry(job)

    async def _carry(self, job: str) -> None:
        method, path = str(self.request.method), str(self.request.uri)
        headers = {name: self.request.headers[name] for name in REQUEST_HEADERS if name in self.request.headers}
        message = PoolMessage({"do": "http", "method": method, "path": path, "headers": headers}, bytes(self._body))
        try:
            answer = await self._hand_on(job, message)
        except NniliteError as error:
            log.debug("a request of %s waits: %s", job, error)
            answer = PoolMessage({"status": 503})
        self._answer(answer or PoolMessage({"status": 404}))

    def _answer(self, message: PoolMessage) -> None:
        status, headers = message.head.get("status"), message.head.get("headers")
        known = isinstance(status, int) and 200 <= status < 600
        self.set_status(status if known and isinstance(status, int) else 503)
        for name in ANSWER_HEADERS:
            value = headers.get(name) if isinstance(headers, dict) else None
            if isinstance(value, str) and value.isprintable():
                self.set_header(name, value)
        self.finish(message.data)


def _quiet(handler: Any) -> None:
    """Log nothing; requests are not worth a line each."""
