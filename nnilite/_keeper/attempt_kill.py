"""Ends an attempt on this machine whose keeper does not do it: one that was stopped, or hangs with its disk.

The trial's processes are found by their environment, and by the record of the start; its folder need not be readable.
"""

from __future__ import annotations

import os
import time

from . import process, signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Mapping, Optional, Sequence

_TURN_S = 0.02
# Within this time the kernel has removed what was killed, unless its disk hangs.
_KILLED_WITHIN_S = 3.0

PATIENCE_S = 3.0
"""How long after the grace a keeper that does its work may take to end its trial."""
USUAL_GRACE_S = 30.0
"""The grace of a trial whose specification cannot be read now."""


def running_groups(job: str, directory: str, started: Optional[Mapping[str, Any]]) -> List[int]:
    """Return the process groups of a trial that run here. `started` is the record of its start, if that is known."""
    groups = process.find_groups(job, directory)
    if started is not None and process.is_running(started) and started["pid"] != os.getpgrp():
        groups.append(started["pid"])
    return sorted(set(groups))


def is_stopped(pid: int) -> bool:
    """Return whether a process was stopped (SIGSTOP), so that it obeys no signal but SIGKILL."""
    return process.stat_of(pid)[:1] in (["T"], ["t"])


def describe_stop(pid: Optional[int]) -> str:
    """Return that a process was stopped (SIGSTOP), with a cure; "" if it was not."""
    if pid is None or not is_stopped(pid):
        return ""
    return "process %d is stopped; `kill -CONT %d` lets it continue" % (pid, pid)


def kill_groups(
    job: str, directory: str, started: Optional[Mapping[str, Any]], keepers: Sequence[int] = ()
) -> List[int]:
    """Kill the keepers, and then the trial. Return the groups that still run after 3 seconds."""
    for pid in keepers:
        _kill(pid)
    deadline = time.monotonic() + _KILLED_WITHIN_S
    while True:
        groups = running_groups(job, directory, started)
        for group in groups:
            process.signal_group(group, signals.SIGKILL)
        if not groups or time.monotonic() > deadline:
            return groups
        time.sleep(_TURN_S)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signals.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
