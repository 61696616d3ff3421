"""Where pods reach the manager."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit, urlunsplit

from nnilite.errors import ConfigError, Place, ServiceError

_TRY_S = 5.0


def pods_address(url: str, given: str | None, server: str) -> str:
    """The manager's URL for pods. Raises: ConfigError where they could not reach it.

    >>> pods_address("http://127.0.0.1:8080", "10.0.0.5", "https://10.0.0.1:6443")
    'http://10.0.0.5:8080'
    """
    parts = urlsplit(url)
    host = given or (_own_address(server) if _is_loopback(parts.hostname or "") else None)
    if host is None:
        return url
    name = f"[{host}]" if ":" in host else host
    netloc = name if parts.port is None else f"{name}:{parts.port}"
    return urlunsplit((parts.scheme, netloc, parts.path, "", ""))


def check_listening(url: str) -> None:
    """Whether the manager listens where pods will look for it. Raises: ConfigError."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=_TRY_S):
            return
    except OSError as error:
        raise ConfigError(
            f"pods would look for the manager at {parts.hostname}:{parts.port}, and it does not listen there: start it "
            "with --host 0.0.0.0, set nniManagerIp to an address that pods reach, or set callback: log",
            Place(field="nniManagerIp"),
        ) from error


def _own_address(server: str) -> str:
    """The address of this machine on the way to the API server: pods are mostly on the same side of it."""
    parts = urlsplit(server)
    try:
        family, _, _, _, place = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ServiceError(f"this machine has no way to the API server {server}: {error}") from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
