"""Connections that end when the time of a try is over, whatever the other end sends.

A time limit of a socket is one for each wait. A platform, or a proxy before it, that sends a byte now and then would
hold the thread of a try, and its connection, for as long as it likes.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

_here = threading.local()  # `tried`: the try that this thread makes


class Try:
    """One try of a call. `end` may be called in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_over = False
        self._link: socket.socket | None = None

    @contextlib.contextmanager
    def in_this_thread(self) -> Iterator[None]:
        """Make the connections that this thread uses meanwhile those of the try."""
        _here.tried = self
        try:
            yield
        finally:
            _here.tried = None
            with self._lock:
                self._link = None  # another try may use it from now on

    def use(self, link: socket.socket) -> None:
        with self._lock:
            self._link = link
            if self._is_over:
                _shut(link)

    def end(self) -> None:
        """End the connection, which raises an error in the thread that waits for it."""
        with self._lock:
            self._is_over = True
            if self._link is not None:
                _shut(self._link)


def make_abortable(manager: PoolManager) -> None:
    """Make the connections of a pool manager, from now on, such that a `Try` can end them."""
    if manager.pool_classes_by_scheme == PoolManager(0).pool_classes_by_scheme:  # pools for SOCKS are different
        manager.pool_classes_by_scheme = _POOLS


class AbortableAdapter(HTTPAdapter):
    """Makes connections that a `Try` can end."""

    def init_poolmanager(self, *words: Any, **more: Any) -> None:
        super().init_poolmanager(*words, **more)
        make_abortable(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **more: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **more)
        make_abortable(manager)
        return manager


class _Abortable(HTTPConnection):
    _twin: socket.socket | None = None  # a second descriptor of the socket: TLS replaces the first one

    def _new_conn(self) -> socket.socket:
        link = super()._new_conn()
        self._twin = link.dup()
        self._note_use()
        return link

    def request(self, *words: Any, **more: Any) -> None:
        self._note_use()
        super().request(*words, **more)

    def close(self) -> None:
        super().close()
        if self._twin is not None:
            self._twin.close()
            self._twin = None

    def _note_use(self) -> None:
        tried = getattr(_here, "tried", None)
        if tried is not None and self._twin is not None:
            tried.use(self._twin)


class _AbortableTls(_Abortable, HTTPSConnection):
    pass


class _AbortablePool(HTTPConnectionPool):
    ConnectionCls = _Abortable


class _AbortableTlsPool(HTTPSConnectionPool):
    ConnectionCls = _AbortableTls


_POOLS = {"http": _AbortablePool, "https": _AbortableTlsPool}


def _shut(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
