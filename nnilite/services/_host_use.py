"""How much of this machine is in use. Python 3.8 and the standard library alone; only Linux reports it.

meter = HostMeter()
meter.read()        {"cpuPercent": 12.5, "memoryUsed": 3100000000, "memoryTotal": 8000000000}
"""

from __future__ import annotations

import threading
import time
from typing import Callable, Dict, Optional, Tuple

__all__ = ["HostMeter"]

EVERY_S = 10.0


class HostMeter:
    """Looks at most once in ten seconds, for some tenths of a millisecond. May be used by several threads.

    `cpuPercent` is the part of all processors that was busy between the last two looks, so it is missing at first.
    Where the machine does not report it, `read` gives nothing.
    """

    def __init__(self, proc: str = "/proc", clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._clock = clock
        self._lock = threading.Lock()
        self._looked = clock()
        self._ticks = self._read_ticks()
        self._last = self._read_memory()

    def read(self) -> Dict[str, float]:
        """Return what was seen at the last look: bytes of memory, and percent of the processors."""
        with self._lock:
            if self._clock() - self._looked >= EVERY_S:
                self._look()
            return dict(self._last)

    def _look(self) -> None:
        self._looked = self._clock()
        before, self._ticks = self._ticks, self._read_ticks()
        self._last = self._read_memory()
        if before is not None and self._ticks is not None and self._ticks[1] > before[1]:
            share = (self._ticks[0] - before[0]) / (self._ticks[1] - before[1])
            self._last["cpuPercent"] = round(100 * min(max(share, 0.0), 1.0), 1)

    def _read_ticks(self) -> Optional[Tuple[int, int]]:
        """Return busy and all ticks of all processors since the start of the machine."""
        try:
            with open(self._proc + "/stat", encoding="ascii") as file:
                # user nice system idle iowait irq softirq steal; guests are in user and nice already
                ticks = [int(word) for word in file.readline().split()[1:9]]
            return sum(ticks) - ticks[3] - ticks[4], sum(ticks)
        except (OSError, ValueError, IndexError):
            return None

    def _read_memory(self) -> Dict[str, float]:
        try:
            with open(self._proc + "/meminfo", encoding="ascii") as file:
                found = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in file)}
            total, available = found["MemTotal"], found["MemAvailable"]
        except (OSError, ValueError, IndexError, KeyError):
            return {}
        return {"memoryUsed": total - available, "memoryTotal": total}
