"""Ports for servers that tests start."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import socket

# Below are those that Ray gives to its workers, above those that a system gives to a program that asks for any port.
_FIRST, _LAST = 20_000, 32_000
_SHARES = 8
_SIZE = (_LAST - _FIRST) // _SHARES


def free_ports(number: int) -> list[int]:
    """Return unused ports of loopback.

    No other test gets one by chance while its server is still being started, or is down for a moment in the middle of a
    test: each process of a parallel test run has a share of its own, and takes one port after the other. Raises:
    OSError if there are too few.
    """
    with contextlib.ExitStack() as held:
        return [_hold(held) for _ in range(number)]


def free_port() -> int:
    """Return one such port."""
    return free_ports(1)[0]


def _repeat_ports(share: int) -> itertools.cycle[int]:
    """Return all ports of a share, again and again, from anywhere: other test runs may be at work on this machine."""
    first, begin = _FIRST + share % _SHARES * _SIZE, secrets.randbelow(_SIZE)
    return itertools.cycle(first + (begin + place) % _SIZE for place in range(_SIZE))


_PORTS = _repeat_ports(int("0" + os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")))


def _hold(held: contextlib.ExitStack) -> int:
    """Bind one until the stack ends."""
    for port in itertools.islice(_PORTS, _SIZE):
        probe = held.enter_context(socket.socket())
        with contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no port from {_FIRST} to {_LAST} is free")
