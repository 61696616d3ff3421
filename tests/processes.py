"""Processes of this machine. One may end at any moment while it is looked at."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from nnilite._keeper import process


def read(pid: int, name: str) -> bytes:
    """Return what `/proc` says of a process; nothing if it has ended or belongs to another user."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def with_variable(variable: str) -> list[int]:
    """Return the processes that were started with a variable, given as `NAME=VALUE`."""
    return [pid for pid, environment in process.environments() if variable.encode() in environment]


def send_signal(pid: int | None, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process that must be known: to 0, `os.kill` would send it to the group of the tests."""
    assert pid
    os.kill(pid, number)
