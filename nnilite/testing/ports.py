"""Ports for servers that tests start."""

from __future__ import annotations

import collections
import os
import secrets
import socket
import threading
from collections.abc import Collection

# Below are those of the workers of Ray in the tests. Above are those of the first nodes of distributed trials, and then
# those that a system gives to a program that asks for any port.
_FIRST, _LAST = 12_000, 20_000
_BLOCK = 100
_HOST = "127.0.0.1"


def free_ports(number: int) -> list[int]:
    """Return unused ports of loopback, for servers that set SO_REUSEADDR, as nearly all do.

    No other process on this machine gets one of them here as long as this process lives: neither while its server is
    being started, nor while it is down for a moment in the middle of a test. On Linux, no connection of any program has
    one as its near end, either. Ports come again only after all others of the process. Raises: OSError if there are too
    few.
    """
    found: list[int] = []
    for _ in range(number):
        found.append(_leases.take_next(found))
    return found


def free_port() -> int:
    """Return a free port."""
    return free_ports(1)[0]


class PortLeases:
    """The ports of this process, in blocks. A block belongs to the process that has bound its first port.

    The system ends a lease with its process, however that ends.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget the leases, which are those of the parent in a process that was just forked."""
        self._ports: collections.deque[int] = collections.deque()  # the next one first
        self._kept: set[int] = set()
        self._lock = threading.Lock()

    def take_next(self, taken: Collection[int]) -> int:
        """Return the next port that is neither taken nor in use. Raises: OSError if there is none."""
        with self._lock:
            while True:
                for _ in range(len(self._ports)):
                    self._ports.rotate(-1)
                    if self._ports[-1] not in taken and self._keep(self._ports[-1]):
                        return self._ports[-1]
                self._ports.extendleft(reversed(_lease_block()))

    def _keep(self, port: int) -> bool:
        """Return whether a port is unused, and keep it so until its server is started."""
        bound = _bind(port, shared=True)
        if bound is None:
            return False
        if port in self._kept:
            bound.close()
        else:
            # Linux gives no connection a bound port as its near end. In some containers any other port may be one.
            bound.detach()
            self._kept.add(port)
        return True


def _lease_block() -> range:
    """Return the ports of a block without an owner. Raises: OSError if there is none."""
    blocks = range(_FIRST, _LAST, _BLOCK)
    begin = secrets.randbelow(len(blocks))  # programs of a test run that has just ended may still look for their server
    for first in (*blocks[begin:], *blocks[:begin]):
        if (lease := _bind(first)) is not None:
            lease.detach()  # stays open until this process ends
            return range(first + 1, first + _BLOCK)
    raise OSError(f"all ports from {_FIRST} to {_LAST} are in use")


def _bind(port: int, shared: bool = False) -> socket.socket | None:
    """Return a socket that is bound to a port of loopback; None if the port is in use.

    `shared`: a server that sets SO_REUSEADDR, too, may listen at the port.
    """
    bound = socket.socket()
    try:
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((_HOST, port))
    except OSError:
        bound.close()
        return None
    return bound


_leases = PortLeases()
os.register_at_fork(after_in_child=_leases.forget)
