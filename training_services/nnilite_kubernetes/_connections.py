"""The open connections of urllib3 pool managers, which another thread can close.

A reader that waits for the head of an answer has no response object yet that could be closed, and a kubelet may send no
head until the container prints something.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any
from weakref import WeakSet

from urllib3 import PoolManager


class ApiConnections:
    """Notes the sockets of the managers that it is given."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._broken = False

    def count(self, manager: PoolManager) -> None:
        """Note the connections of the pools that this manager makes from now on."""
        pools = manager.pool_classes_by_scheme
        manager.pool_classes_by_scheme = {scheme: self._noting(pool) for scheme, pool in pools.items()}

    def break_off(self) -> None:
        """Close all connections: every caller that waits for an answer gets an error, now and later."""
        with self._lock:
            self._broken = True
            for each in self._sockets:
                break_socket(each)

    def _noting(self, pool: Any) -> Any:
        """Return the same kind of pool, whose connections are noted."""

        def connect(connection: Any) -> None:
            pool.ConnectionCls.connect(connection)
            self._note(connection.sock)

        kind = type(pool.ConnectionCls.__name__, (pool.ConnectionCls,), {"connect": connect})
        return type(pool.__name__, (pool,), {"ConnectionCls": kind})

    def _note(self, sock: Any) -> None:
        """Note a socket. TLS within the TLS of a proxy is not a socket; only its time limit ends it."""
        if not isinstance(sock, socket.socket):
            return
        with self._lock:
            self._sockets.add(sock)
            if self._broken:
                break_socket(sock)


def break_socket(sock: socket.socket) -> None:
    """Shut a connection down, also one with TLS: who waits for it gets an error."""
    with contextlib.suppress(OSError):  # it is closed already
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # SSLSocket's own takes TLS away from under the reader
