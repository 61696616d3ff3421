"""Ports for servers that tests start."""

from __future__ import annotations

import contextlib
import secrets
import socket

_FIRST, _LAST = 20_000, 32_000  # below lie those that Ray gives to its workers
_TRIES = 200


def free_ports(number: int) -> list[int]:
    """So many ports of loopback on which nobody listens.

    They are below those that a system gives to whoever asks for any port. So nobody gets one by chance while its server
    is still being started, or is down for a moment in the middle of a test. Raises: OSError if there are too few.
    """
    with contextlib.ExitStack() as held:
        return [_hold(held) for _ in range(number)]


def free_port() -> int:
    """One such port."""
    return free_ports(1)[0]


def _hold(held: contextlib.ExitStack) -> int:
    """Bind one until the stack ends. Not by `random`: test runs seed that, and all would try the same ports."""
    for _ in range(_TRIES):
        port = _FIRST + secrets.randbelow(_LAST - _FIRST)
        probe = held.enter_context(socket.socket())
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return port
    raise OSError(f"no port from {_FIRST} to {_LAST} is free")
