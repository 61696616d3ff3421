"""Reads the answers of a manager, each within a limit of time and size, whatever the other end sends.

A time limit of a socket is one for each wait. What answers a byte now and then would hold its caller for as long as it
likes: the one thread in which the hub asks all managers, for example.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from typing import Any

PIECE_BYTES = 1 << 20
"""How much of a file or an answer is asked for, handed on or kept in memory at once."""

ANSWER_BYTES = 512 << 20
"""More than any answer has. A larger one is not read into memory."""

SLOWEST = 10_000.0
"""How many bytes a second an answer needs, once its time is over, to be waited for further."""


_STOPPED_S = 1.0
"""How long after a limit a process that was not stopped meanwhile has noticed it."""


class TimeLimit:
    """The moment until which an answer is waited for."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._until = 0.0
        self.begin()

    def begin(self) -> None:
        self._until = time.monotonic() + self._patience_s

    def is_over(self) -> bool:
        """Return whether no time is left."""
        return time.monotonic() >= self._until

    def extend(self, received: int) -> None:
        """Wait longer, since `received` bytes have arrived."""
        self._until = min(self._until + received / SLOWEST, time.monotonic() + self._patience_s)

    def find_left_s(self) -> float:
        """Return the seconds that are left. Raises: TimeoutError if there are none."""
        left_s = self._until - time.monotonic()
        if left_s < -_STOPPED_S:  # no wait is longer than what was left: this process was stopped, as by Ctrl-Z
            self.begin()
            left_s = self._patience_s
        if left_s <= 0:
            raise TimeoutError
        return left_s


def limit_answers(connection: HTTPConnection, limit: TimeLimit) -> None:
    """Have a connection wait for its answers, from now on, until this limit."""

    class Timely(HTTPResponse):
        def __init__(self, link: socket.socket, *words: Any, **more: Any) -> None:
            super().__init__(link, *words, **more)
            self.fp.close()
            self.fp = io.BufferedReader(_LimitedReader(link, limit))

    connection.response_class = Timely


class _LimitedReader(io.RawIOBase):
    def __init__(self, link: socket.socket, limit: TimeLimit) -> None:
        self._link = link
        self._limit = limit
        # It keeps the socket open when the connection is closed before the whole answer is read.
        self._file = link.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._link.settimeout(self._limit.find_left_s())
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


def read_pieces(response: HTTPResponse) -> Iterator[bytes]:
    """Yield an answer as it comes. Raises: IncompleteRead if it is cut short, OSError."""
    while piece := response.read1(PIECE_BYTES):
        yield piece
    if response.length:
        raise IncompleteRead(b"", response.length)
    response.read()  # some Pythons need it to take the answer for read


def read_whole(response: HTTPResponse, limit: TimeLimit) -> bytes:
    """Return an answer. Raises: IncompleteRead if it is cut short, OSError if it is too slow or too long."""
    whole = bytearray()
    for piece in read_pieces(response):
        whole += piece
        if len(whole) > ANSWER_BYTES:
            raise OSError(f"its answer has more than {ANSWER_BYTES >> 20} MB")
        limit.extend(len(piece))
    return bytes(whole)
