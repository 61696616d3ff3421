"""An HTTP server in a thread of this process, which can go away as servers do that are killed."""

from __future__ import annotations

import contextlib
import errno
import math
import selectors
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from nnilite.testing.ports import free_port


class Listener:
    """Serves requests with `handler`, whose `owner` is the one given here, on the same port at each start."""

    def __init__(self, handler: type[Handler], owner: Any, host: str = "127.0.0.1") -> None:
        self.host = host
        self.tls: ssl.SSLContext | None = None
        self._handler = type(handler.__name__, (handler,), {"owner": owner})
        self._server: _HttpServer | None = None
        self._port = 0

    @property
    def port(self) -> int:
        """The one of the last start."""
        return self._port

    @property
    def url(self) -> str:
        """Where clients on this machine find it."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self._port}"

    @property
    def listens(self) -> bool:
        """Whether it has been started and not stopped."""
        return self._server is not None

    def start(self, port: int | None = None) -> None:
        """Listen, on the same port as before if there was one, or on this one; 0 is any that is free."""
        wanted = self._port if port is None else port
        self._server = self._bind_again(wanted) if wanted else self._bind_any()
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="listener", daemon=True).start()

    def _bind(self, port: int) -> _HttpServer:
        return _HttpServer((self.host, port), self._handler)

    def _bind_again(self, port: int, limit_s: float = 10.0) -> _HttpServer:
        # A process that another thread is starting at the moment holds the stopped server's socket until its exec.
        deadline = time.monotonic() + limit_s
        while True:
            try:
                return self._bind(port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def _bind_any(self, attempts: int = 20) -> _HttpServer:
        # Where a system hands out these ports to connections too, one can be taken between the look and the start.
        for _ in range(attempts):
            with contextlib.suppress(OSError):
                return self._bind(free_port())
        return self._bind(free_port())

    def stop(self) -> None:
        """Stop listening and break all connections."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            server.break_connections()

    def break_connections(self) -> None:
        """Break all connections, so that clients have to reconnect."""
        if self._server is not None:
            self._server.break_connections()


class Handler(BaseHTTPRequestHandler):
    """What handlers of requests share."""

    protocol_version = "HTTP/1.1"
    timeout = 300
    # Head and body are sent separately, and Nagle's algorithm would delay each answer by 40 ms.
    disable_nagle_algorithm = True
    owner: Any

    def body(self) -> bytes:
        """Return what came with the request.

        Raises: ConnectionError if its client was killed in the middle of it.
        """
        length = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(length)
        if len(data) < length:
            raise ConnectionResetError("the client is gone in the middle of a request")
        return data

    def authorization(self) -> str:
        """Return the header with which the client proves its identity."""
        return self.headers.get("Authorization") or ""

    def token(self) -> str:
        """Return the same, where it is a token as such."""
        return self.authorization().removeprefix("Bearer ")

    def send(self, status: int, kind: str, data: bytes, **headers: str) -> None:
        """Send a whole answer; `headers` have `_` for `-`."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


class PromptServer(ThreadingHTTPServer):
    """Ends as soon as `shutdown` is called, and sleeps until a connection comes.

    Python's own server looks many times a second whether it has to end: each look takes the processor from those who
    work, and each end waits for the next look.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: Callable[..., BaseHTTPRequestHandler]) -> None:
        self._end, self._end_heard = socket.socketpair()
        self._has_ended = threading.Event()
        super().__init__(address, handler)  # which closes all where the port is taken

    def serve_forever(self, poll_interval: float = math.inf) -> None:
        """Serve until `shutdown`. There is nothing to poll."""
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self, selectors.EVENT_READ)
                selector.register(self._end_heard, selectors.EVENT_READ)
                while all(key.fileobj is self for key, _ in selector.select()):
                    self._handle_request_noblock()  # type: ignore[attr-defined]
        finally:
            self._has_ended.set()

    def shutdown(self) -> None:
        """End `serve_forever`, in another thread, and wait for that."""
        self._end.sendall(b"end")
        self._has_ended.wait()

    def server_close(self) -> None:
        """Close the sockets."""
        super().server_close()
        self._end.close()
        self._end_heard.close()


class _HttpServer(PromptServer):
    def __init__(self, address: tuple[str, int], handler: type[Handler]) -> None:
        super().__init__(address, handler)
        self._connections: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a connection that breaks, unlike a mistake of a handler."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def break_connections(self) -> None:
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
