"""Processes of this machine, and files for their owner alone."""

from __future__ import annotations

import contextlib
import os


class WorkerRefusal(Exception):
    """A request that cannot be carried out; one sentence. `unsure`: an earlier one may have been."""

    def __init__(self, sentence: str, unsure: bool = False) -> None:
        super().__init__(sentence)
        self.unsure = unsure


class NotHere(WorkerRefusal):
    """What was asked for is not on this machine (any more)."""


def find_experiment(pid: int) -> str:
    """Return the experiment whose trial a process belongs to; "" if that is unknown."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            for item in file.read().split(b"\0"):
                if item.startswith(b"NNI_EXP_ID="):
                    return item.partition(b"=")[2].decode("utf-8", "replace")
    except OSError:
        return ""
    return ""


def send_signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def make_folder(path: str) -> None:
    """Make a folder for this user, and those above it, in which no other may write. Raises: OSError."""
    above = os.path.dirname(path)
    if above and not os.path.isdir(above):
        make_folder(above)
    os.makedirs(path, mode=0o700, exist_ok=True)
