"""A port that is forwarded to a server, as `ssh -L` does it, and what is sent through it."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from nnilite.testing.ports import free_port

_PIECE_BYTES = 65536
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class ForwardedPort:
    """Forwards connections until it is closed, and keeps what came by each."""

    def __init__(self, target: int, port: int) -> None:
        self._target = target
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._sent: list[bytearray] = []
        self._listening = socket.create_server(("127.0.0.1", port))
        self.port = port
        self._run(self._accept)

    def _run(self, work: object, *words: object) -> None:
        thread = threading.Thread(target=work, args=words, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._target))
            self._open += [near, far]
            self._sent.append(bytearray())
            self._run(self._carry, near, far, self._sent[-1])
            self._run(self._carry, far, near, bytearray())

    @staticmethod
    def _carry(source: socket.socket, sink: socket.socket, kept: bytearray) -> None:
        with suppress(OSError):  # one of the ends is gone
            while piece := source.recv(_PIECE_BYTES):
                sink.sendall(piece)
                kept += piece  # what was not passed on at the end is no request that the manager knows
        for one in (source, sink):
            _hang_up(one)

    def requests(self) -> list[bytes]:
        """The requests that came, each as it was sent."""
        return [request for sent in self._sent for request in _requests(bytes(sent))]

    def close(self) -> None:
        """End as `ssh` does that is killed."""
        _hang_up(self._listening)
        self._listening.close()
        for one in self._open:
            _hang_up(one)
        for thread in self._threads:
            thread.join(20)
        for one in self._open:
            one.close()


def _hang_up(one: socket.socket) -> None:
    with suppress(OSError):  # it has ended
        one.shutdown(socket.SHUT_RDWR)


def _requests(sent: bytes) -> Iterator[bytes]:
    while b"\r\n\r\n" in sent:
        head = sent.index(b"\r\n\r\n") + 4
        length = _LENGTH.search(sent, 0, head)
        end = head + (int(length[1]) if length else 0)
        yield sent[:end]
        if b"upgrade: websocket" in sent[:head].lower():
            return
        sent = sent[end:]


@contextmanager
def forwarded(target: int, port: int = 0) -> Iterator[ForwardedPort]:
    """Forward a port of 127.0.0.1 to another one; by default a port that no other test gets after the end of this."""
    found = ForwardedPort(target, port or free_port())
    try:
        yield found
    finally:
        found.close()


def status_of_raw(port: int, request: bytes) -> int:
    """The status of the answer to a request that is sent as it is."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as link:
        link.sendall(request)
        with link.makefile("rb") as answer:
            return int(answer.readline().split()[1])
