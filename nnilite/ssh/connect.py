"""Connects: TCP, the machine's key, the sign-in; hop by hop. It blocks: for a thread.

A cut link sends no message, so this detects it: TCP gives up when what was sent stays unanswered (`TCP_USER_TIMEOUT`),
and the SSH layer sends something every few seconds.
"""

from __future__ import annotations

import base64
import logging
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import paramiko
from paramiko.ssh_exception import (
    AuthenticationException,
    BadAuthenticationType,
    ChannelException,
    PasswordRequiredException,
    SSHException,
)

from nnilite.ssh.bounded_transport import BoundedTransport
from nnilite.ssh.errors import MachineError, RunsWindows, get_error_text
from nnilite.ssh.known_hosts import HostKey, HostKeyPolicy, KnownHosts
from nnilite.ssh.route import Hop

log = logging.getLogger(__name__)

CONNECT_S = 15.0
UNANSWERED_S = 20.0  # TCP closes a connection that has been silent for this time
KEEPALIVE_S = 5


class Connection:
    """A chain of SSH connections, each through the one before it. `transport` is that to the machine."""

    def __init__(self, transports: Sequence[paramiko.Transport]) -> None:
        self._transports = tuple(transports)

    @property
    def transport(self) -> paramiko.Transport:
        return self._transports[-1]

    def close(self) -> None:
        """Close all hops, beginning at the far end; does not wait."""
        for transport in reversed(self._transports):
            transport.close()


def connect(hops: Sequence[Hop], policy: HostKeyPolicy) -> Connection:
    """Connect to the last hop through the others. Raises: MachineError."""
    done: list[paramiko.Transport] = []
    try:
        for hop in hops:
            sock = _open_through(done[-1], hop) if done else _dial(hop)
            done.append(_negotiate(sock, hop, KnownHosts(hop.known_hosts, policy)))
            _sign_in(done[-1], hop)
    except MachineError as error:
        Connection(done).close()
        if len(hops) > 1:
            raise MachineError(f"{hop}, {_describe_place_of(hop, hops)}: {error}", error.lasting) from error
        raise
    return Connection(done)


def _describe_place_of(hop: Hop, hops: Sequence[Hop]) -> str:
    return f"on the way to {hops[-1].address}" if hop is not hops[-1] else f"behind {hops[-2].address}"


def _dial(hop: Hop) -> socket.socket:
    try:
        sock = socket.create_connection((hop.address, hop.port), CONNECT_S)
    except TimeoutError:
        raise MachineError(f"does not answer at {hop.address} port {hop.port}") from None
    except OSError as error:
        raise MachineError(f"cannot be reached at {hop.address} port {hop.port}: {error.strerror or error}") from error
    except UnicodeError as error:  # a part of it is empty, or has more than 63 characters
        raise MachineError(
            f"cannot be reached: {hop.address!r} is not a valid name or address", lasting=True
        ) from error
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNANSWERED_S * 1000))
    return sock


def _open_through(transport: paramiko.Transport, hop: Hop) -> Any:
    try:
        return transport.open_channel("direct-tcpip", (hop.address, hop.port), ("127.0.0.1", 0), timeout=CONNECT_S)
    except (SSHException, OSError, EOFError) as error:
        text = error.text if isinstance(error, ChannelException) else error
        raise MachineError(f"cannot be reached at {hop.address} port {hop.port} from there: {text}") from error


def _negotiate(sock: Any, hop: Hop, known: KnownHosts) -> paramiko.Transport:
    transport = BoundedTransport(sock)
    transport.daemon = True
    transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = CONNECT_S
    _prefer(transport, known.kinds(hop.known_as))
    try:
        transport.start_client(timeout=CONNECT_S)
        key = transport.get_remote_server_key()
    except (SSHException, OSError, EOFError) as error:
        transport.close()
        raise MachineError(f"does not answer with SSH: {get_error_text(error)}") from error
    try:
        known.check(hop.known_as, HostKey(key.get_name(), key.asbytes()))
        if "windows" in transport.remote_version.lower():
            raise RunsWindows
    except MachineError:
        transport.close()
        raise
    transport.set_keepalive(KEEPALIVE_S)
    return transport


def _prefer(transport: paramiko.Transport, kinds: Sequence[str]) -> None:
    """Ask for a key of a kind that we can compare."""
    options = transport.get_security_options()
    wanted = [algorithm for kind in kinds for algorithm in _list_algorithms(kind)]
    known = [algorithm for algorithm in options.key_types if algorithm in wanted]
    if known:
        options.key_types = tuple(known + [other for other in options.key_types if other not in known])


def _list_algorithms(kind: str) -> tuple[str, ...]:
    return ("rsa-sha2-512", "rsa-sha2-256", "ssh-rsa") if kind == "ssh-rsa" else (kind,)


# ---------------------------------------------------------------- the sign-in


def _sign_in(transport: paramiko.Transport, hop: Hop) -> None:
    """Sign in. Raises: MachineError that says what was tried."""
    tried: list[str] = []
    try:
        if hop.password is not None:
            _sign_in_by_password(transport, hop, tried)
        else:
            _sign_in_by_keys(transport, hop, tried)
    except (SSHException, OSError, EOFError) as error:
        if not isinstance(error, AuthenticationException):
            raise MachineError(f"broke off as {hop.user} signed in: {get_error_text(error)}") from error
        tried.append(str(error))
    finally:
        if not transport.is_authenticated():
            transport.close()
    if not transport.is_authenticated():
        what = "; ".join(dict.fromkeys(tried)) or "there is no key to try: set sshKeyFile or password, or use ssh-agent"
        raise MachineError(f"does not let {hop.user} in: {what}", lasting=True)


def _sign_in_by_password(transport: paramiko.Transport, hop: Hop, tried: list[str]) -> None:
    password = hop.password or ""
    try:
        transport.auth_password(hop.user, password, fallback=False)
    except BadAuthenticationType as error:
        if "keyboard-interactive" not in error.allowed_types:
            tried.append(f"it does not accept passwords, only {', '.join(error.allowed_types)}: set sshKeyFile")
            return
        _answer_questions(transport, hop, password, tried)
    except AuthenticationException:
        tried.append("the password is wrong")


def _answer_questions(transport: paramiko.Transport, hop: Hop, password: str, tried: list[str]) -> None:
    try:
        transport.auth_interactive(hop.user, lambda title, text, fields: [password for _ in fields])
    except AuthenticationException:
        tried.append("the password is wrong, or the machine takes keys only: check password, or set sshKeyFile")


def _sign_in_by_keys(transport: paramiko.Transport, hop: Hop, tried: list[str]) -> None:
    agent = _ask_agent() if hop.use_agent else None
    try:
        _try_keys(transport, hop, agent, tried)
    finally:
        if agent is not None:
            agent.close()


def _try_keys(transport: paramiko.Transport, hop: Hop, agent: paramiko.Agent | None, tried: list[str]) -> None:
    for name, key in _keys(hop, agent, tried):
        try:
            transport.auth_publickey(hop.user, key)
        except BadAuthenticationType as error:
            tried.append(f"it does not accept keys, only {', '.join(error.allowed_types)}")
            return
        except AuthenticationException:
            tried.append(f"{name} is refused")
        if transport.is_authenticated():
            return


def _keys(hop: Hop, agent: paramiko.Agent | None, tried: list[str]) -> Iterator[tuple[str, paramiko.PKey]]:
    """Yield ssh-agent's keys first, since they need no passphrase; then the files."""
    offered: set[bytes] = set()
    wanted = {data for data in (_read_public_half(path) for path in hop.key_files) if data}
    for key in agent.get_keys() if agent is not None else ():
        if not hop.only_these_keys or key.asbytes() in wanted:
            offered.add(key.asbytes())
            yield f"ssh-agent's {key.get_name()} key", key
    for path in hop.key_files:
        if _read_public_half(path) in offered:
            continue
        try:
            yield f"the key {path}", _load(path, hop.passphrase)
        except PasswordRequiredException:
            tried.append(f"the key {path} needs a passphrase: set sshPassphrase, or use ssh-agent")
        except (SSHException, OSError, ValueError) as error:
            wrong = hop.passphrase is not None and not isinstance(error, OSError)
            tried.append(f"the key {path} cannot be read" + (": is the passphrase right?" if wrong else f": {error}"))


def _load(path: Path, passphrase: str | None) -> paramiko.PKey:
    """Load a key. Raises: SSHException, PasswordRequiredException, OSError, ValueError."""
    for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey):
        try:
            return kind.from_private_key_file(str(path), passphrase)
        except PasswordRequiredException:
            raise
        except (SSHException, ValueError):  # another key type, or a wrong passphrase
            continue
    return paramiko.RSAKey.from_private_key_file(str(path), passphrase)


def _ask_agent() -> paramiko.Agent | None:
    try:
        return paramiko.Agent()
    except (SSHException, OSError) as error:
        log.info("cannot query ssh-agent: %s", error)
        return None


def _read_public_half(path: Path) -> bytes | None:
    """Return the public key that lies next to a private one."""
    try:
        return base64.b64decode(path.with_name(path.name + ".pub").read_text("ascii").split()[1], validate=True)
    except (OSError, ValueError, IndexError):
        return None
