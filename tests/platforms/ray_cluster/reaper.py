"""Kills every process that has a mark in its environment, once standard input ends: `python reaper.py NAME=VALUE`.

A process that is about to run another program (execve) has no environment for a moment, and under load for longer. It
may have the mark then: what Ray was starting when its cluster was stopped would stay. So it is looked at once more.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

_PAUSE_S = 0.05
_ROUNDS = 200
_CODE_END = 27
"""The field `endcode` of /proc/PID/stat, counted from 1: execve sets it last, after the environment."""


def look(mark: bytes, proc: Path) -> tuple[list[int], list[int]]:
    """Return the processes with this mark, and those of which one cannot know yet."""
    marked, unknown = [], []
    for about in proc.iterdir():
        if not about.name.isdigit() or int(about.name) == os.getpid():
            continue
        try:
            environment = read_environment(about)
        except OSError:
            # It has ended meanwhile, or belongs to another user.
            continue
        if environment is None:
            unknown.append(int(about.name))
        elif mark in environment.split(b"\0"):
            marked.append(int(about.name))
    return marked, unknown


def read_environment(about: Path) -> bytes | None:
    """Return the environment of a process by its folder in /proc; None while it is in the middle of execve.

    Raises: OSError if it has ended, is a thread of the kernel, or belongs to another user.
    """
    environment = (about / "environ").read_bytes()
    if environment:
        return environment
    (about / "exe").readlink()  # what has ended has none, nor has a thread of the kernel
    after_name = (about / "stat").read_text().rpartition(")")[2].split()
    if after_name[_CODE_END - 3] == "0":
        return None
    return (about / "environ").read_bytes()  # it has got one meanwhile, or was started without


def reap(mark: bytes, proc: Path = Path("/proc")) -> None:
    for _ in range(_ROUNDS):
        marked, unknown = look(mark, proc)
        for pid in marked:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                # It has ended by itself.
                pass
        if not marked and not unknown:
            return
        time.sleep(_PAUSE_S)  # noqa: TID251 - a program of its own, which has the standard library alone


if __name__ == "__main__":
    sys.stdin.read()
    reap(sys.argv[1].encode())
