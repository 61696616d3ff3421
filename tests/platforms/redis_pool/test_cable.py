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
    yield
    ended.set()
    thread.join(60)


@pytest.mark.parametrize("cut", [False, True])
def test_it_leaves_no_connection_open_if_it_ends_while_others_connect(cut):
    with socket.create_server(("127.0.0.1", 0), backlog=500) as server:
        for _ in range(5):
            cable = Cable(server.getsockname()[1])
            if cut:
                cable.cut()
            with connecting(cable.port), connecting(cable.port):
                cable.close()
        del cable
    gc.collect()  # pytest fails the test by the warning of a connection that is not closed
