"""Connect the tunnel to the manager, for the requests of one caller.

The manager checks the sender of a request by its head alone. So it gets the head with `Expect: 100-continue`, and the
body is fetched from the caller only after the manager has accepted the head:

    tunnel    POST /api/v1/callback/JOB ... Expect: 100-continue
    manager   100 Continue                   the caller has proven itself; anything else is the answer
    tunnel    the body, piece by piece
    manager   200 ...
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from nnilite_remote._tunnel_request import TunnelRequest

PIECE_BYTES = 1 << 15
PROOF_HEADER = "x-nnilite-proof"  # by which a keeper knows that an answer is the manager's

_CONTINUE = 100
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})[ \r]")
_MAX_HEAD_BYTES = 1 << 16


class ManagerAway(Exception):
    """The manager does not answer, or what answers at its address is not the manager."""


class ManagerReply(NamedTuple):
    """The head of an answer of the manager. `length`: that of its body."""

    status: int
    headers: dict[str, str]
    length: int

    @property
    def is_last(self) -> bool:
        """Whether the manager closes the connection after it."""
        return self.headers.get("connection", "").lower() == "close"

    @property
    def wants_body(self) -> bool:
        """Whether the manager has accepted the head, and waits for the body."""
        return self.status == _CONTINUE


class TunnelUpstream:
    """Keeps its connection for the next request. `manager` returns the manager's present address."""

    def __init__(self, manager: Callable[[], str]) -> None:
        self._manager = manager
        self._address = ""
        self._kept: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: TunnelRequest) -> ManagerReply:
        """Send a request without its body. Returns the answer, or that the manager waits for the body.

        A kept connection may have been closed by the manager meanwhile; then it is tried again on a new one.
        Raises: ManagerAway.
        """
        kept = self._kept is not None and self._address == self._manager()
        try:
            return await self._exchange_heads(request)
        except ManagerAway:
            self.close()
            if not kept:
                raise
        return await self._exchange_heads(request)

    async def _exchange_heads(self, request: TunnelRequest) -> ManagerReply:
        try:
            _, writer = await self._connect()
            writer.write(self._head(request))
            await writer.drain()
        except (OSError, ValueError) as error:
            raise ManagerAway(repr(error)) from error
        return await self.reply()

    def _head(self, request: TunnelRequest) -> bytes:
        url = urlsplit(self._address)
        headers = {"Host": url.netloc.rpartition("@")[2], **request.headers}
        if request.method == "POST":
            headers |= {"Content-Length": str(request.length), "Expect": "100-continue"}
        lines = [f"{request.method} {url.path.rstrip('/')}{request.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = self._manager()
        if self._kept is None or address != self._address:
            self.close()
            self._address = address
            url = urlsplit(address)
            trust = None
            if url.scheme == "https":  # our own process, by loopback: its certificate names another address
                trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
            port = url.port or (443 if trust else 80)
            self._kept = await asyncio.open_connection(url.hostname, port, ssl=trust, limit=_MAX_HEAD_BYTES)
        return self._kept

    async def send(self, piece: bytes) -> None:
        """Send a piece of the body. Raises: ManagerAway."""
        try:
            _, writer = await self._connect()
            writer.write(piece)
            await writer.drain()
        except OSError as error:
            raise ManagerAway(repr(error)) from error

    async def reply(self) -> ManagerReply:
        """Return the next head that the manager sends. Raises: ManagerAway."""
        reader, _ = await self._connect()
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            return _parse_reply(head)
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise ManagerAway(repr(error)) from error

    async def body(self, reply: ManagerReply) -> AsyncIterator[bytes]:
        """Yield the pieces of an answer's body. Raises: ManagerAway if it breaks off."""
        reader, _ = await self._connect()
        left = reply.length
        while left:
            try:
                piece = await reader.read(min(left, PIECE_BYTES))
            except OSError as error:
                raise ManagerAway(repr(error)) from error
            if not piece:
                raise ManagerAway("it broke off")
            left -= len(piece)
            yield piece
        if reply.is_last:
            self.close()

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._kept is not None:
            with contextlib.suppress(OSError):
                self._kept[1].close()
            self._kept = None


def _parse_reply(head: bytes) -> ManagerReply:
    """Parse the head of an answer. Raises: ValueError."""
    first, _, rest = head.partition(b"\r\n")
    found = _STATUS.match(first + b"\r")
    if found is None:
        raise ValueError(f"this is not an answer: {first[:80]!r}")
    lines = [line.partition(":") for line in rest.decode("latin-1").split("\r\n") if line]
    headers = {name.strip().lower(): value.strip() for name, _, value in lines}
    status = int(found.group(1))
    length = headers.get("content-length", "0" if status < 200 else "")
    if not re.fullmatch(r"[0-9]{1,15}", length):
        raise ValueError(f"its answer {status} has no length")
    return ManagerReply(status, headers, int(length))
