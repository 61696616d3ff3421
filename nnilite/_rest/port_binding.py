"""Binds the server's port, or says clearly why it cannot.

Tornado's own `bind_sockets` leaves sockets open if one of several addresses fails, so it is not used.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from nnilite.errors import ConfigError, Conflict, NniliteError

_TRIES = 5
BACKLOG = 1024  # a thousand keepers may call at once after a resume


def bind(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """Return listening sockets on one port for all addresses of some hosts. "" means this machine, port 0 a free one.

    Raises: Conflict if the port is taken, ConfigError if the address or port is impossible.
    """
    if not 0 <= port <= 65535:
        raise ConfigError(f"{port} is not a port: ports go from 0 to 65535")
    for _ in range(_TRIES - 1 if port == 0 else 0):
        with suppress(Conflict):  # the free port of the first address was taken at another one
            return _bound(hosts, port)
    return _bound(hosts, port)


def _bound(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """Try once. Raises: Conflict, ConfigError."""
    host, sockets = hosts[0], list[socket.socket]()
    try:
        for family, address in _addresses(hosts):
            found = sockets[0].getsockname()[1] if sockets else port
            sockets += _listening(family, (address[0], found, *address[2:]))
    except OSError as error:
        for one in sockets:
            one.close()
        raise _find_reason(error, host, port) from error
    if not sockets:
        raise ConfigError(f"'{host}' has no address to listen on")
    return sockets


def _addresses(hosts: Iterable[str]) -> list[tuple[socket.AddressFamily, tuple[Any, ...]]]:
    """Return the addresses of some hosts, IPv4 first, which is the family to keep if only one works."""
    found = [
        item
        for host in hosts
        for item in socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    ]
    return sorted({(item[0], item[4]) for item in found}, key=lambda item: (item[0] != socket.AF_INET, item[1]))


def _listening(family: socket.AddressFamily, address: tuple[Any, ...]) -> list[socket.socket]:
    """Return one listening socket; none if the machine has no IPv6 although its host names say so (in containers)."""
    try:
        one = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        if error.errno == errno.EAFNOSUPPORT and family == socket.AF_INET6:
            return []
        raise
    try:
        if os.name == "posix":
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.setblocking(False)
        one.bind(address)
        one.listen(BACKLOG)
    except OSError as error:
        one.close()
        if error.errno == errno.EADDRNOTAVAIL and address[0] in ("::1", "::"):
            return []
        raise
    return [one]


def _find_reason(error: OSError, host: str, port: int) -> NniliteError:
    where = f"port {port} of {host or 'this machine'}"
    if isinstance(error, socket.gaierror):
        return ConfigError(f"'{host}' is not an address of this machine: {error.strerror}")
    if error.errno == errno.EADDRINUSE:
        return Conflict(
            f"{where} is taken by another program; choose another with --port, or --port 0 for any free one"
        )
    if error.errno == errno.EACCES:
        return ConfigError(f"{where} needs the rights of an administrator; choose one above 1023")
    if error.errno == errno.EADDRNOTAVAIL:
        return ConfigError(f"{host} is not an address of this machine")
    return ConfigError(f"cannot listen on {where}: {error.strerror}")
