"""Where the machines of a platform reach the manager, for services whose trials run elsewhere.

    address = CallbackAddress(context, config.nni_manager_ip, config.host)
    address.check()                 # when a new experiment begins
    url = address.find_or_wait()    # for a trial's specification

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
from nnilite._network.unauthenticated_callers import UnauthenticatedCallers
from nnilite.errors import ConfigError, NoCapacity, Place, ServiceError
from nnilite.service import ServiceContext

__all__ = [
    "CallbackAddress",
    "ExternalCallbackAddress",
    "SparseLog",
    "UnauthenticatedCallers",
    "callback_socket",
    "connect_to_socket",
    "is_loopback",
    "proves",
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


class CallbackAddress:
    """Where the trials of a service on this side of its platform reach the manager.

    `given` is the service's own nniManagerIp, `platform` the URL of the platform's interface. All methods may wait for
    the network: call them in a thread.
    """

    def __init__(self, context: ServiceContext, given: str | None, platform: str) -> None:
        self._context = context
        self._given = given or context.defaults.get("nniManagerIp")
        self._platform = platform

    def find(self) -> str:
        """Return the manager's URL as trials see it. Raises: ServiceError where there is no way to the platform."""
        return self._spell_given() or with_host(self._context.callback_url(), _own_address(self._platform))

    def check(self) -> None:
        """Check whether the trials of a new experiment can reach this manager, which listens by now, if they have to.

        A given address may be a proxy's or a tunnel's, which this machine may not be able to reach. It tries for up to
        5 s. Raises: ConfigError if they cannot, with the cure; ServiceError.
        """
        if self._context.reports_by_log or self._spell_given():
            return
        parts = urlsplit(self.find())
        where = f"trials would connect to the manager at {parts.hostname}:{parts.port}"
        if is_loopback(parts.hostname or ""):
            what = f"{where}, which is their own container; set nniManagerIp"
        elif not _listens(parts.hostname or "", parts.port or _PORTS[parts.scheme]):
            what = (
                f"{where}, and it listens on this machine's loopback only; start it with --host 0.0.0.0, or set "
                "nniManagerIp"
            )
        else:
            return
        cure = f"{what} to an address that they reach, such as that of a proxy or a tunnel, or set callback: log"
        raise ConfigError(cure, Place(field="nniManagerIp"))

    def find_or_wait(self) -> str:
        """Return the same for a trial of an experiment that has begun, if the manager can be reached there.

        Else the trial waits: a resumed experiment must not end, with trials that run, because its manager listens
        elsewhere now. Raises: NoCapacity, with the cure; ServiceError.
        """
        try:
            self.check()
            return self.find()
        except ConfigError as error:
            raise NoCapacity(str(error)) from error

    def _spell_given(self) -> str:
        """Return the manager's URL where the user has said it, by nniManagerIp or --host; "" if not."""
        url = self._context.callback_url()
        if self._given:
            return with_host(url, str(self._given))
        return "" if is_loopback(urlsplit(url).hostname or "") else url


class ExternalCallbackAddress(CallbackAddress):
    """The same for `machines` that are far away, such as "Azure's nodes": the user has to give the address.

    The address of this machine on the way there is hardly ever one that leads back.
    """

    def __init__(self, context: ServiceContext, given: str | None, machines: str) -> None:
        super().__init__(context, given, "")
        self._machines = machines

    def find(self) -> str:
        """Return the manager's URL as trials see it. Raises: ConfigError if it is not given, with the cure."""
        given = self._spell_given()
        if given:
            return given
        place = urlsplit(self._context.callback_url()).netloc
        raise ConfigError(
            f"{self._machines} cannot reach this manager at {place}; set `callback: log`, so that trials report "
            "through the logs of their jobs, or set nniManagerIp to an address that they can reach",
            Place(field="callback"),
        )

    def check(self) -> None:
        if not self._context.reports_by_log:
            self.find()


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
        address = _address_towards(parts.hostname or "", parts.port or 443)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ServiceError(f"this machine has no way to {parts.hostname}: {why}") from error
    if not is_loopback(address):
        return address
    try:
        return _address_towards(_ELSEWHERE, 443)
    except OSError:  # a machine without any network
        return address


def _address_towards(host: str, port: int) -> str:
    """Return this machine's address on the way to a host; nothing is sent. Raises: OSError."""
    family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(place)
        return str(probe.getsockname()[0])


GivenCallbackAddress = ExternalCallbackAddress
"""The old name, which goes with version 0.2."""
