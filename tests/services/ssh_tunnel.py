"""A tunnel without any host: paramiko's own server is the worker's sshd, whose channels come to a `TunnelGate`.

As a program (`python -m services.ssh_tunnel FILE MANAGER`) it is the manager's side alone, to have its memory measured:
it connects to the Unix socket FILE, serves the tunnel, and ends with its standard input.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paramiko

from nnilite.ssh.bounded_transport import BoundedTransport
from nnilite.testing.bench import LIMIT_S
from nnilite_remote._machine_session import open_tunnel
from nnilite_remote._tunnel import TunnelGate

KEY = paramiko.ECDSAKey.generate()


class Sshd(paramiko.ServerInterface):
    def check_auth_none(self, username: str) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def get_allowed_auths(self, username: str) -> str:
        return "none"

    def check_port_forward_request(self, address: str, port: int) -> int:
        return port or 2222


def worker(link: socket.socket) -> paramiko.Transport:
    """The worker's side. Its `tunnel_end` opens what a caller of the tunnel's end opens."""
    transport = paramiko.Transport(link)
    transport.daemon = True
    transport.add_server_key(KEY)
    transport.start_server(event=threading.Event(), server=Sshd())
    return transport


def tunnel_end(transport: paramiko.Transport) -> paramiko.Channel:
    channel = transport.open_forwarded_tcpip_channel(("127.0.0.1", 1), ("127.0.0.1", 2222))
    channel.settimeout(LIMIT_S)
    return channel


def serve(link: socket.socket, gate: TunnelGate) -> paramiko.Transport:
    """The manager's side."""
    transport = BoundedTransport(link)
    transport.daemon = True
    transport.start_client(timeout=LIMIT_S)
    transport.auth_none("me")
    open_tunnel(transport, [0], gate.admit)
    return transport


@contextmanager
def tunnel(gate: TunnelGate) -> Iterator[paramiko.Transport]:
    """Both sides in this process; the worker's."""
    here, there = socket.socketpair()
    far = worker(there)
    near = serve(here, gate)
    try:
        yield far
    finally:
        gate.close()
        near.close()
        far.close()


def main(place: str, manager: str) -> None:
    link = socket.socket(socket.AF_UNIX)
    link.connect(place)
    gate: Any = TunnelGate("box", lambda: manager)
    transport = serve(link, gate)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    gate.close()
    transport.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
