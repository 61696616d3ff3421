"""What comes back through the reverse tunnel: requests of keepers, and of nobody else.

The tunnel's end on a worker can be reached by everybody who is logged in there, and to the manager all that comes by
it comes from this very program, of which it asks no sign-in. So nothing is passed through: each request is read, looked
at, and put to the manager anew if it is one that keepers make.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

log = logging.getLogger(__name__)

_ALLOWED = re.compile(
    r"(POST /api/v1/callback/[A-Za-z0-9._%-]{1,300}"
    r"|GET /api/v1/callback/[A-Za-z0-9._%-]{1,300}/proof\?nonce=[0-9a-f]{32}"
    r"|GET /api/v1/code/[0-9a-f]{64}|GET /api/v1/keeper\.pyz) HTTP/1\.1"
)
_PROOF = "X-Nnilite-Proof"  # by which a keeper knows that an answer is the manager's
_HEADER = re.compile(r"([A-Za-z0-9-]{1,64}):[ \t]*([\x20-\x7e]*)")
_HANDED_ON = ("authorization", "content-type", "x-nnilite-job")
_MAX_LINE_BYTES = 8192
_MAX_HEADERS = 64
_MAX_BODY_BYTES = 16_000_000
_CHUNK_BYTES = 1 << 16
_IDLE_S = 60.0
_MANAGER_S = 60.0
_MOST_CALLERS = 1000


class TunnelRefused(Exception):
    """Not a request of a keeper. The status to answer it with."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class TunnelRequest(NamedTuple):
    """One request of a keeper, checked."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class TunnelGate:
    """Serves the connections of one tunnel, each in a thread. `manager` tells its present address."""

    def __init__(self, manager: Callable[[], str]) -> None:
        self._manager = manager
        self._callers = threading.BoundedSemaphore(_MOST_CALLERS)

    def admit(self, caller: Any) -> None:
        """Serve a connection (a paramiko Channel or a socket) until it ends. Returns at once."""
        if not self._callers.acquire(blocking=False):
            log.warning("there are too many connections in the tunnel")
            caller.close()
            return
        threading.Thread(target=self._serve, args=(caller,), name="tunnel", daemon=True).start()

    def _serve(self, caller: Any) -> None:
        upstream = _Upstream(self._manager)
        try:
            caller.settimeout(_IDLE_S)
            with caller.makefile("rb") as stream:
                while self._turn(stream, caller, upstream):
                    continue
        except (OSError, EOFError) as error:  # the worker or the link is gone, or it was idle for too long
            log.debug("a connection in the tunnel ends: %r", error)
        finally:
            upstream.close()
            self._callers.release()
            with contextlib.suppress(OSError, EOFError):  # closing says so to the other end, which may be gone
                caller.close()

    @staticmethod
    def _turn(stream: IO[bytes], caller: Any, upstream: _Upstream) -> bool:
        """One request and its answer; False at the end."""
        try:
            request = read_request(stream)
        except TunnelRefused as refused:
            log.warning("somebody on a worker asked the manager for what keepers do not ask for")
            caller.sendall(_head(refused.status, 0, "close"))
            return False
        if request is None:
            return False
        for part in upstream.answer(request):
            caller.sendall(part)
        return True


def read_request(stream: IO[bytes]) -> TunnelRequest | None:
    """The next request; None at the end. Raises: Refused, OSError."""
    first = stream.readline(_MAX_LINE_BYTES)
    if not first:
        return None
    line = first.decode("latin-1").rstrip("\r\n")
    if not _ALLOWED.fullmatch(line):
        raise TunnelRefused(403)
    method, path, _ = line.split(" ")
    headers = _read_headers(stream)
    if "transfer-encoding" in headers:
        raise TunnelRefused(400)
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > _MAX_BODY_BYTES:
        raise TunnelRefused(413)
    body = stream.read(int(length))
    if len(body) < int(length):
        return None
    kept = {name.title(): headers[name] for name in _HANDED_ON if name in headers}
    return TunnelRequest(method, path, kept, body)


def _read_headers(stream: IO[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(_MAX_HEADERS):
        line = stream.readline(_MAX_LINE_BYTES).decode("latin-1").rstrip("\r\n")
        if not line:
            return headers
        found = _HEADER.fullmatch(line)
        if not found or found.group(1).lower() in headers:
            raise TunnelRefused(400)
        headers[found.group(1).lower()] = found.group(2).strip()
    raise TunnelRefused(431)


class _Upstream:
    """A connection to the manager, kept for the next request."""

    def __init__(self, manager: Callable[[], str]) -> None:
        self._manager = manager
        self._address = ""
        self._connection: http.client.HTTPConnection | None = None

    def answer(self, request: TunnelRequest) -> Iterator[bytes]:
        """The parts of the manager's answer; a manager that is away gives 503, and the keeper tries again."""
        try:
            response = self._ask(request)
        except (OSError, http.client.HTTPException, ValueError) as error:
            log.debug("the manager does not answer: %r", error)
            self.close()
            yield _head(503, 0, "keep-alive")
            return
        yield from self._parts(response)

    def _ask(self, request: TunnelRequest) -> http.client.HTTPResponse:
        """With a second try, where a connection that was kept turns out to be closed."""
        kept = self._connection is not None and self._address == self._manager()
        try:
            return self._put(request)
        except (ConnectionError, http.client.BadStatusLine):
            self.close()
            if not kept:
                raise
        return self._put(request)

    def _put(self, request: TunnelRequest) -> http.client.HTTPResponse:
        connection = self._connect()
        prefix = urlsplit(self._address).path.rstrip("/")
        connection.request(request.method, prefix + request.path, request.body or None, request.headers)
        return connection.getresponse()

    def _connect(self) -> http.client.HTTPConnection:
        address = self._manager()
        if self._connection is None or address != self._address:
            self.close()
            self._address = address
            url = urlsplit(address)
            if url.scheme == "https":  # our own process, by loopback: its certificate names another address
                trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
                self._connection = http.client.HTTPSConnection(
                    url.hostname or "", url.port, timeout=_MANAGER_S, context=trust
                )
            else:
                self._connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=_MANAGER_S)
        return self._connection

    def _parts(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        if response.length is None:  # of unknown length: answers to keepers are short
            body = response.read()
            yield _head(response.status, len(body), "keep-alive", response.getheader(_PROOF)) + body
            return
        left = response.length
        yield _head(response.status, left, "keep-alive", response.getheader(_PROOF))
        while left:
            chunk = response.read(min(left, _CHUNK_BYTES))
            if not chunk:
                raise EOFError("the manager broke off")
            left -= len(chunk)
            yield chunk
        if response.will_close:
            self.close()

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
            self._connection = None


def _head(status: int, length: int, connection: str, proof: str | None = None) -> bytes:
    word = http.client.responses.get(status, "")
    proven = f"{_PROOF}: {proof}\r\n" if proof else ""
    return (
        f"HTTP/1.1 {status} {word}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\nConnection: {connection}\r\n{proven}\r\n"
    ).encode("ascii")
