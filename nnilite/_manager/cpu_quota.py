"""How many processors this process may use: fewer than the machine has, in a container or a job with a quota."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")


def count_processors(root: Path = _ROOT) -> int | None:
    """Return the number, rounded up; None if it is unknown. `root` is where /proc and /sys are."""
    try:
        allowed: int | None = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # macOS has no such call
        allowed = os.cpu_count()
    quotas = (math.ceil(quota) for quota in _quotas(root))
    return None if allowed is None else max(1, min((allowed, *quotas)))


def _quotas(root: Path) -> Iterator[float]:
    """Yield the limit of each control group that this process is in, in processors."""
    cgroups = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        kinds, _, place = rest.partition(":")
        inner = Path(place.lstrip("/"))
        # In a container the path may be that of the host; then the group is where the hierarchy begins.
        for group in (inner, *inner.parents):
            if not kinds:
                quota, _, period = _read(cgroups / group / "cpu.max").partition(" ")
                yield from _quotient(quota, period)
            elif "cpu" in kinds.split(","):
                folder = cgroups / "cpu" / group
                yield from _quotient(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _quotient(quota: str, period: str) -> Iterator[float]:
    """Yield the quotient of two numbers of the kernel; nothing where there is no limit: "max" or -1."""
    if quota.strip().isdecimal() and period.strip().isdecimal() and int(period):
        yield int(quota) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
