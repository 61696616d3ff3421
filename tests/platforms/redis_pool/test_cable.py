"""The cable of these tests itself."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
from collections.abc import Iterator

import pytest

from platforms.redis_pool.cable import Cable


@contextlib.contextmanager
def hanging_up() -> Iterator[int]:
    """A server that ends each connection at once: one that has no room for more would hold up the end of a cable."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(60)


@contextlib.contextmanager
def connecting(port: int) -> Iterator[None]:
    """Connect all the time, as workers do whose server is gone; at least once before the block begins."""
    begun, ended = threading.Event(), threading.Event()

    def connect() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10) as link:
                link.sendall(b"x")
            begun.set()

    thread = threading.Thread(target=connect)
    thread.start()
    assert begun.wait(60)
    try:
        yield
    finally:
        ended.set()
        thread.join(60)


@pytest.mark.parametrize("cut", [False, True])
def test_it_leaves_no_connection_open_if_it_ends_while_others_connect(cut):
    with hanging_up() as port:
        for _ in range(3):
            cable = Cable(port)
            if cut:
                cable.cut()
            with connecting(cable.port), connecting(cable.port):
                cable.close()
        del cable
    gc.collect()  # pytest fails the test by the warning of a connection that is not closed
