"""What kubelets send bit by bit: the log of a container that runs, and commands in containers over a WebSocket."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import select
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import IO, Any
from urllib.request import Request, urlopen

from nnilite.testing.listener import Handler
from waiting import pause

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_PROTOCOL = "v4.channel.k8s.io"
_TEXT_END, _BINARY, _CLOSE = 0x80, 0x2, 0x8
_TURN_S = 0.02
_LIMIT_S = 60.0


def send_pieces(handler: Handler, pieces: Iterator[bytes]) -> None:
    """An answer of unknown length."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/plain")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for piece in filter(None, pieces):
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        handler.wfile.flush()
    handler.wfile.write(b"0\r\n\r\n")


def followed(lines: list[tuple[str, bytes]], over: Callable[[], bool], sent: int) -> Iterator[tuple[str, bytes]]:
    """The lines of a log as they come, without so many that were sent, until `over`."""
    while True:
        last = over()
        news = lines[sent:]
        yield from news
        sent += len(news)
        if last:
            return
        pause(_TURN_S, "the next look at the log")


def passed_on(url: str, trust: ssl.SSLContext) -> Iterator[bytes]:
    """What another server sends."""
    with urlopen(Request(url), timeout=60, context=trust) as answer:
        while piece := answer.read1(65536):
            yield piece


def relay(handler: Handler, host: str, path: str, trust: ssl.SSLContext) -> None:
    """Hand a request for a WebSocket to another server, and everything that follows both ways."""
    name, _, port = host.partition(":")
    plain = socket.create_connection((name, int(port)), timeout=_LIMIT_S)
    with trust.wrap_socket(plain, server_hostname=name) as connection:
        here, there = _TwoWay(handler.connection), _TwoWay(connection)
        kept = "".join(f"{key}: {value}\r\n" for key, value in handler.headers.items() if key != "Authorization")
        there.write(f"GET {path} HTTP/1.1\r\n{kept}\r\n".encode())
        back = threading.Thread(target=_copy, args=(there, here), daemon=True)
        back.start()
        _copy(here, there)
        back.join(5)
    handler.close_connection = True


class _TwoWay(io.RawIOBase):
    """A connection from which one thread reads while another writes: with TLS, two calls at a time break it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            with self._lock:
                self._connection.settimeout(0)
                try:
                    return self._connection.recv_into(buffer)
                except (ssl.SSLWantReadError, BlockingIOError):
                    pass
                finally:
                    self._connection.settimeout(_LIMIT_S)
            if not select.select([self._connection], [], [], _LIMIT_S)[0]:
                raise TimeoutError("nothing came")

    def write(self, data: Any) -> int:
        with self._lock:
            self._connection.sendall(data)
        return len(data)

    def end(self) -> None:
        """Both threads find the connection at its end; what was written still arrives."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._connection, socket.SHUT_RDWR)


def _copy(source: _TwoWay, sink: _TwoWay) -> None:
    try:
        while data := source.read(65536):
            sink.write(data)
    except OSError:
        pass
    finally:  # neither side waits for what the other will not send any more
        source.end()
        sink.end()


def serve_exec(handler: Handler, start: Callable[[], subprocess.Popen[bytes]]) -> None:
    """Run a command with its standard streams in the channels of a WebSocket, as kubelets do."""
    accept = base64.b64encode(hashlib.sha1(handler.headers["Sec-WebSocket-Key"].encode() + _MAGIC).digest()).decode()
    handler.send_response(101)
    names = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": accept}
    for name, value in {**names, "Sec-WebSocket-Protocol": _PROTOCOL}.items():
        handler.send_header(name, value)
    handler.end_headers()
    process, connection = start(), _TwoWay(handler.connection)
    assert process.stdin is not None
    ended = threading.Thread(target=_tell, args=(connection, process), daemon=True)
    ended.start()
    try:
        for channel, data in _read_messages(io.BufferedReader(connection)):
            if channel == 0:
                process.stdin.write(data)
                process.stdin.flush()
    except OSError:
        pass
    finally:
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.kill()
        ended.join(5)
        handler.close_connection = True


def _tell(connection: _TwoWay, process: subprocess.Popen[bytes]) -> None:
    streams = [(1, process.stdout), (2, process.stderr)]
    copiers = [threading.Thread(target=_forward, args=(connection, n, stream), daemon=True) for n, stream in streams]
    for copier in copiers:
        copier.start()
    code = process.wait()
    for copier in copiers:
        copier.join(5)
    status: dict[str, Any] = {"status": "Success"}
    if code:
        status = {"status": "Failure", "message": f"command terminated with exit code {code}"}
    _send(connection, _BINARY, b"\x03" + json.dumps(status).encode())
    _send(connection, _CLOSE, struct.pack(">H", 1000))


def _forward(connection: _TwoWay, channel: int, stream: IO[bytes] | None) -> None:
    assert stream is not None
    with stream:
        while data := stream.read1(65536):  # type: ignore[attr-defined]
            _send(connection, _BINARY, bytes([channel]) + data)


def _send(connection: _TwoWay, kind: int, data: bytes) -> None:
    size = len(data)
    head = (
        struct.pack(">BB", _TEXT_END | kind, size) if size < 126 else struct.pack(">BBH", _TEXT_END | kind, 126, size)
    )
    try:
        connection.write((head if size < 65536 else struct.pack(">BBQ", _TEXT_END | kind, 127, size)) + data)
    except (OSError, ValueError):
        return


def _read_messages(source: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Channel and data of each message of a client."""
    while len(head := source.read(2)) == 2:
        kind, size = head[0] & 0x0F, head[1] & 0x7F
        if size >= 126:
            size = struct.unpack(">H" if size == 126 else ">Q", source.read(2 if size == 126 else 8))[0]
        mask, data = source.read(4), source.read(size)
        if kind == _CLOSE:
            return
        whole = int.from_bytes(data, "big") ^ int.from_bytes((mask * (size // 4 + 1))[:size], "big")
        plain = whole.to_bytes(size, "big")
        if kind == _BINARY and plain:
            yield plain[0], plain[1:]
