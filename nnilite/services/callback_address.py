"""Where the machines of a platform reach the manager, for services whose trials run elsewhere.

    check_callback_address(context, config.nni_manager_ip, config.host)           # when a new experiment begins
    url = reachable_callback_address(context, config.nni_manager_ip, config.host)  # for a trial's specification

The address is the one that the user has given (`nniManagerIp`, in the service's section or at the top), or the
manager's own, or, where that is one of this machine's loopback, the address that this machine has on the way to the
platform: trials are mostly on the same side of it. Trials usually run in containers, so where the platform is on this
machine, too, loopback would be the container itself, and the address on the way to everywhere else is taken.
"""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from nnilite._keeper.local_link import SUFFIX, call_with_short_name
from nnilite._keeper.proof import proves
from nnilite._logging.sparse_log import SparseLog
from nnilite._network.host_names import is_loopback
from nnilite._network.unproven_callers import UnprovenCallers
from nnilite.errors import ConfigError, NoCapacity, Place, ServiceError
from nnilite.service import ServiceContext

__all__ = [
    "SparseLog",
    "UnprovenCallers",
    "callback_address",
    "callback_socket",
    "check_callback_address",
    "connect_to_socket",
    "given_callback_address",
    "given_callback_address_or_wait",
    "is_loopback",
    "proves",
    "reachable_callback_address",
    "with_host",
]

_TRY_S = 5.0
_ELSEWHERE = "192.0.2.1"  # in use by no machine: it is for documentation (RFC 5737)
_PORTS = {"http": 80, "https": 443}


def callback_socket(context: ServiceContext) -> Path:
    """Return the manager's Unix socket, which takes the same batches of events as its callback, one JSON line each.

    A service with a connection of its own to its trials' machines may hand the lines of keepers on to it; the manager
    checks their tokens. It does not exist where the system or the disk has no sockets.
    """
    return context.directory / ("callback" + SUFFIX)


def connect_to_socket(path: Path) -> socket.socket:
    """Return a connection to a Unix socket, however long its name, that does not block. Raises: OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Where too many wait already, that is an error: its server may be this event loop, which would wait for itself.
    connection.setblocking(False)
    try:
        call_with_short_name(str(path), connection.connect)
    except BaseException:
        connection.close()
        raise
    return connection


def callback_address(context: ServiceContext, given: str | None, platform: str) -> str:
    """Return the manager's URL as the platform's machines see it.

    `given` is the service's own nniManagerIp, `platform` the URL of the platform's interface. May wait for a name to be
    resolved: call it in a thread. Raises: ServiceError where this machine has no way to the platform.
    """
    url = context.callback_url()
    host = given or context.defaults.get("nniManagerIp")
    if host:
        return with_host(url, str(host))
    if not is_loopback(urlsplit(url).hostname or ""):
        return url
    return with_host(url, _own_address(platform))


def check_callback_address(context: ServiceContext, given: str | None, platform: str) -> None:
    """Check that the manager listens where trials will look for it, unless the user has given an address.

    A given address may be a proxy's or a tunnel's, which this machine may not be able to reach. Call it in a thread: it
    tries for up to 5 s. Raises: ConfigError, with the cure; ServiceError.
    """
    if (
        given
        or context.defaults.get("nniManagerIp")
        or not is_loopback(urlsplit(context.callback_url()).hostname or "")
    ):
        return
    parts = urlsplit(callback_address(context, given, platform))
    where = f"trials would connect to the manager at {parts.hostname}:{parts.port}"
    if is_loopback(parts.hostname or ""):
        what = f"{where}, which is their own container: set nniManagerIp"
    elif not _listens(parts.hostname or "", parts.port or _PORTS[parts.scheme]):
        what = (
            f"{where}, and it listens on this machine's loopback only: start it with --host 0.0.0.0, or set "
            "nniManagerIp"
        )
    else:
        return
    cure = f"{what} to an address that they reach, such as that of a proxy or a tunnel, or set callback: log"
    raise ConfigError(cure, Place(field="nniManagerIp"))


def reachable_callback_address(context: ServiceContext, given: str | None, platform: str) -> str:
    """Return the manager's URL as the platform's machines see it, if the manager listens there.

    Else a trial waits: a resumed experiment must not end, with trials that run, because its manager listens elsewhere
    now. Call it in a thread. Raises: NoCapacity, with the cure; ServiceError.
    """
    try:
        check_callback_address(context, given, platform)
    except ConfigError as error:
        raise NoCapacity(str(error)) from error
    return callback_address(context, given, platform)


def given_callback_address(context: ServiceContext, given: str | None, machines: str) -> str:
    """Return the manager's URL for machines that are far away, such as those of a cloud: it has to be given.

    The address of this machine on the way there is hardly ever one that leads back. `machines` are named in the
    message. Raises: ConfigError, with the cure.
    """
    url, host = context.callback_url(), given or context.defaults.get("nniManagerIp")
    if host:
        return with_host(url, str(host))
    parts = urlsplit(url)
    if not is_loopback(parts.hostname or ""):
        return url
    raise ConfigError(
        f"{machines} cannot reach this manager at {parts.netloc}: set `callback: log`, so that trials report "
        "through the logs of their jobs, or set nniManagerIp to an address that they can reach",
        Place(field="callback"),
    )


def given_callback_address_or_wait(context: ServiceContext, given: str | None, machines: str) -> str:
    """Return the same for a trial of an experiment that has begun: it waits where the address is missing.

    A resumed experiment must not end, with trials that run, because of it. Raises: NoCapacity, with the cure.
    """
    try:
        return given_callback_address(context, given, machines)
    except ConfigError as error:
        raise NoCapacity(str(error)) from error


def with_host(url: str, host: str, port: int | None = None) -> str:
    """Return a URL at another host, and at another port if one is given.

    >>> with_host("http://127.0.0.1:8080/x", "fe80::1", 40001)
    'http://[fe80::1]:40001/x'
    """
    parts = urlsplit(url)
    name = f"[{host}]" if ":" in host else host
    number = port or parts.port
    return urlunsplit((parts.scheme, f"{name}:{number}" if number else name, parts.path, "", ""))


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_TRY_S):
            return True
    except OSError:
        return False


def _own_address(platform: str) -> str:
    """Return the address of this machine on the way to the platform. Raises: ServiceError."""
    parts = urlsplit(platform)
    try:
        found = _address_towards(parts.hostname or "", parts.port or 443)
    except OSError as error:
        raise ServiceError(f"this machine has no way to {parts.hostname}: {error.strerror or error}") from error
    if not is_loopback(found):
        return found
    try:
        return _address_towards(_ELSEWHERE, 443)
    except OSError:  # a machine without any network
        return found


def _address_towards(host: str, port: int) -> str:
    """Return this machine's address on the way to a host; nothing is sent. Raises: OSError."""
    family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(place)
        return str(probe.getsockname()[0])
