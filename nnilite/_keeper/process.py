"""Recognizes a trial's process, and ends its process group, which has the pid of its first process.

A pid may be used again by another process. Together with the start time of the process and the boot of the machine it
is unique.
"""

from __future__ import annotations

import os
import sys
import time

from . import plain_file, signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple


_MAX_STAT_BYTES = 65536
# Where `stat_of` has the size of a process's memory, the end of its code, and between what its environment lies.
_VIRTUAL_SIZE, _CODE_END, _ENV_START, _ENV_END = 20, 24, 47, 48
# During execve a process has no environment; on a loaded machine this lasts some milliseconds.
_EXEC_S, _EXEC_LOOK_S = 1.0, 0.002


def identity(pid: int) -> Dict[str, Any]:
    """Return the identity of a process as JSON, which no other process will ever have."""
    return {"pid": pid, "start": started_at(pid), "boot": boot_id(), "host": os.uname().nodename}


def is_running(known: Mapping[str, Any]) -> bool:
    """Return whether the process with this identity runs on this machine. A zombie does not run."""
    pid, start = known.get("pid"), known.get("start")
    if not isinstance(pid, int) or pid <= 1 or not start:
        return False
    here = known.get("host") == os.uname().nodename and known.get("boot") == boot_id()
    return here and started_at(pid) == start


def started_at(pid: int) -> str:
    """Return when the process started, in the system's own unit; "" if it is not running."""
    if os.path.exists("/proc/self/stat"):
        fields = stat_of(pid)
        return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""
    if sys.platform != "darwin":
        return ""
    import subprocess

    found = subprocess.run(
        ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)], stdout=subprocess.PIPE, check=False, timeout=10
    )
    state, _, when = found.stdout.decode("ascii", "replace").strip().partition(" ")
    return "" if state.startswith("Z") else when.strip()


def stat_of(pid: int, proc: str = "/proc") -> List[str]:
    """Return the fields of /proc/PID/stat from the third (the state) on.

    The second, a name, may have any characters.
    """
    try:
        found = plain_file.read("{}/{}/stat".format(proc, pid), _MAX_STAT_BYTES)
        return found.rpartition(b")")[2].decode("ascii", "replace").split()
    except OSError:
        return []


_boot: List[str] = []  # the id that `boot_id` has read, which stays the same for the life of a process


def boot_id() -> str:
    """Return the id of this boot of the machine; "" if the system has none."""
    if not _boot:
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                _boot.append(file.read().strip())
        except OSError:
            return ""
    return _boot[0]


def signal_group(group: int, number: int) -> bool:
    """Send a signal to every process of the group. Return False if there is none left."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # on macOS these are zombies; elsewhere the group has a process of another user
        return sys.platform != "darwin"
    return True


def is_group_alive(group: int) -> bool:
    """Return whether a process of the group runs. Zombies do not count; a container without an init keeps them."""
    if not signal_group(group, 0):
        return False
    if not os.path.exists("/proc/self/stat"):
        return True
    return any(_is_of_group(int(name), group) for name in os.listdir("/proc") if name.isdigit())


def _is_of_group(pid: int, group: int) -> bool:
    fields = stat_of(pid)
    return len(fields) > 2 and fields[2] == str(group) and fields[0] not in "ZX"


def end_group(group: int, grace_s: float) -> None:
    """Send SIGTERM to the group, and SIGKILL to what is left after the grace. Return when the group is gone."""
    deadline = time.monotonic() + grace_s
    signal_group(group, signals.SIGTERM)
    while is_group_alive(group):
        if time.monotonic() >= deadline:
            signal_group(group, signals.SIGKILL)
            _await_end(group, 5)
            return
        time.sleep(0.02)


def _await_end(group: int, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while is_group_alive(group) and time.monotonic() < deadline:
        time.sleep(0.01)


def find_groups(job: str, directory: str) -> List[int]:
    """Return the process groups of this attempt that run on this machine, found by their environment (Linux)."""
    groups = set()
    name_mark, place_mark = os.fsencode("NNILITE_JOB=" + job), os.fsencode("NNI_SYS_DIR=" + directory)
    for pid, found in environments():
        # Ranks have folders of their own in that of the attempt.
        if pid != os.getpid() and name_mark in found and any(entry.startswith(place_mark) for entry in found):
            fields = stat_of(pid)
            if len(fields) > 2 and fields[0] not in "ZX":
                groups.add(int(fields[2]))
    # Group 0 is one of another PID namespace; a signal to 0 would go to this process's own group.
    return sorted(groups - {0, os.getpgrp()})


def environments() -> "Iterator[Tuple[int, set[bytes]]]":
    """Yield each process of this machine, and the NAME=VALUE with which it was started: none if they cannot be read.

    A process in the middle of execve is looked at again, for a second in all; one that hangs there is left out (Linux).
    """
    names = os.listdir("/proc") if os.path.exists("/proc/self/stat") else []
    pids = [int(name) for name in names if name.isdigit()]
    deadline = time.monotonic() + _EXEC_S
    while pids:
        unknown = []
        for pid in pids:
            found = _environment(pid)
            if found is None:
                unknown.append(pid)
            else:
                yield pid, found
        pids = unknown if time.monotonic() < deadline else []
        if pids:
            time.sleep(_EXEC_LOOK_S)


def _environment(pid: int) -> "Optional[set[bytes]]":
    """Return the environment of a process; None while it is in the middle of execve."""
    try:
        with open("/proc/{}/environ".format(pid), "rb") as file:
            found = file.read()
    except OSError:
        return set()
    return None if not found and _may_get_environment(stat_of(pid)) else set(found.split(b"\0"))


def _may_get_environment(fields: List[str]) -> bool:
    """Return whether a process without an environment is in the middle of execve, or was there a moment ago."""
    if len(fields) <= _ENV_END or fields[_VIRTUAL_SIZE] == "0":  # it has ended, or is a thread of the kernel
        return False
    # Linux sets the place of the environment first, when it knows its start only, and that of the code last.
    return fields[_CODE_END] == "0" or fields[_ENV_END] != fields[_ENV_START]


def reap(command: int) -> Optional[int]:
    """Return the exit code of the command with this pid if it has ended, negative for a signal.

    This also reaps orphans, for which the keeper is responsible if it is the first process of a container.

    Raises: ChildProcessError if its end can never be seen, as it is not a child of this process or SIGCHLD is ignored.
    """
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return None
        if pid == command:
            return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
