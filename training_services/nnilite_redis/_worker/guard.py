"""Stop trials whose lease is over, and continue them when it is renewed: `python guard.py FOLDER`.

A worker that is silent for long enough loses its trials, which are then tried elsewhere, and no trial may run twice at
a time. So before that moment its trials are stopped (SIGSTOP), by this separate process, which does so whether the
worker was cut off, stopped or killed. If the worker comes back in time, the lease is renewed and they continue as
before; if not, it ends them. If the worker is dead when its trials count as lost, the guard ends them.

It needs the standard library only. Processes are known by their ids and start times, as the keeper has noted them.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

_TURN_S = 0.1
_known: dict[Path, tuple[int, str]] = {}
"""The processes of attempts that were seen to run. Their folders may hang later, and are not read again for this."""
_AWAY_S = 5.0  # how long a guard without a worker and without trials stays: the worker may just be starting


def now_s() -> float:
    """Return seconds that also count while the machine is suspended, the same for all its processes."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object; {} if there is none."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def is_locked(path: Path) -> bool:
    """Return whether a process holds this lock."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(lock)
    return False


def find_group(attempt: Path) -> int:
    """Return the process group of the trial's command, if it runs; else 0."""
    pid, start = _known.get(attempt) or _read_noted(attempt)
    if pid <= 1 or not start or _find_start_of(pid) != start:
        return 0
    _known[attempt] = (pid, start)
    return pid


def _read_noted(attempt: Path) -> tuple[int, str]:
    """Return what the keeper has noted of the trial's process."""
    started = read_json(attempt / ".nni" / "started")
    pid, start = started.get("pid"), started.get("start")
    return (pid, start) if isinstance(pid, int) and isinstance(start, str) else (0, "")


def _find_start_of(pid: int) -> str:
    """Return when a process started, as the keeper notes it; "" if it does not run."""
    if not Path("/proc/self/stat").exists():
        return _find_start_by_ps(pid)
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode("ascii", "replace").split()
    except OSError:
        return ""
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""


def _find_start_by_ps(pid: int) -> str:
    import subprocess

    asked = ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)]
    found = subprocess.run(asked, stdout=subprocess.PIPE, check=False, timeout=10)
    state, _, when = found.stdout.decode("ascii", "replace").strip().partition(" ")
    return "" if state.startswith("Z") else when.strip()


def signal_trial(attempt: Path, number: int) -> None:
    """Send a signal to all of a trial's process group, if it runs."""
    group = find_group(attempt)
    if group:
        try:
            os.killpg(group, number)
        except OSError:  # it has just ended
            return


class LeaseGuard:
    """Watches over the leases of one worker's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stopped: set[str] | None = None  # the attempts that were stopped; None: an earlier guard may have

    def turn(self) -> bool:
        """Check each lease once; return whether there is anything to watch."""
        leases = read_json(self._folder / "leases.json")
        before, self._stopped = self._stopped, set()
        alive = is_locked(self._folder / "lock")
        left = alive
        for place, lease in leases.items():
            if not find_group(Path(place)):
                continue
            left = True
            if now_s() < lease["until"]:
                if before is None or place in before:
                    signal_trial(Path(place), signal.SIGCONT)
                continue
            self._stopped.add(place)
            if before is None or place not in before:
                signal_trial(Path(place), signal.SIGSTOP)
            if not alive and now_s() > lease["end"]:
                # Without a worker nobody reports the end; the trial's events stay in its folder.
                signal_trial(Path(place), signal.SIGKILL)
        return left


def main(folder: Path) -> int:
    lock = os.open(folder / "guard.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    guard = LeaseGuard(folder)
    idle_since = now_s()
    while now_s() - idle_since < _AWAY_S:
        if guard.turn():
            idle_since = now_s()
        time.sleep(_TURN_S)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(main(Path(sys.argv[1])))
