"""How much processor time and memory a trial's processes use. Only Linux reports it.

meter = TrialMeter(child.pid, start, spec.env, began)
meter.read()        {"type": "use", "processors": 1.02, "memory": 310000000, "gpus": [0]}; None: not now, or not known

The meter examines the command's process and its descendants, and no other programs. What it sees is sent along with a
request that is made anyway, so that nothing wakes up for it.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from .process import stat_of

EVERY_S = 10.0
_COST_PART = 1000.0  # looking takes at most a thousandth of a processor, however many processes a trial has


class TrialMeter:
    """Measures the process with this id and start (see `process.identity`), and its descendants.

    `began` is when it was started, by `clock`; `env` has the variables that name its GPUs.
    """

    def __init__(
        self,
        pid: int,
        start: str,
        env: Mapping[str, Any],
        began: float,
        proc: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pid = pid
        self._start = start
        self._gpus = _gpus(env)
        self._proc = proc
        self._clock = clock
        self._looked = self._due = began
        self._before_s = 0.0  # processor time until the last look

    def read(self) -> Optional[Dict[str, Any]]:
        """Return the event for the manager, at most once in ten seconds; None before that, or without data.

        `processors` is the mean since the last look or the start, `memory` the resident bytes of all together.
        """
        now = self._clock()
        if now < self._due or now <= self._looked:
            return None
        began = time.thread_time()
        found = self._look()
        self._due = now + max(EVERY_S, _COST_PART * (time.thread_time() - began))
        if found is None:
            return None
        busy_s, memory = found
        # It may shrink where a process does not wait for its children: their time is lost with them.
        processors = max(0.0, busy_s - self._before_s) / (now - self._looked)
        self._looked, self._before_s = now, busy_s
        return {"type": "use", "processors": round(processors, 3), "memory": memory, "gpus": self._gpus}

    def _look(self) -> "Optional[tuple[float, int]]":
        """Return processor seconds and resident bytes now; None where they are not known."""
        if not self._tells_of_us() or not self._start:
            return None
        stats = self._tree()
        # The process may have ended by now, and its id may be another one's.
        if not stats or stats[0][19] != self._start:
            return None
        try:
            # user and system time of each, and of those children that have ended and were waited for
            ticks = sum(int(field) for stat in stats for field in stat[11:15])
            pages = sum(int(stat[21]) for stat in stats)
            return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE")
        except (ValueError, IndexError):
            return None

    def _tells_of_us(self) -> bool:
        """Return whether the ids there are those that this process knows.

        A /proc of another PID namespace has others.
        """
        try:
            return os.readlink(self._proc + "/self") == str(os.getpid())
        except OSError:
            return False

    def _tree(self) -> List[List[str]]:
        """Return the fields of the process and of its descendants; [] if it has ended."""
        first = stat_of(self._pid, self._proc)
        if len(first) < 22:
            return []
        children = self._list_children
        if not os.path.exists("{0}/{1}/task/{1}/children".format(self._proc, self._pid)):
            children = self._list_by_parent().get  # type: ignore[assignment]
        found, waiting = [first], list(children(self._pid) or ())
        known = {self._pid}
        while waiting:
            pid = waiting.pop()
            stat = stat_of(pid, self._proc)
            if pid not in known and len(stat) >= 22:
                known.add(pid)
                found.append(stat)
                waiting.extend(children(pid) or ())
        return found

    def _list_children(self, pid: int) -> List[int]:
        """Return the children of all threads of a process, as the system lists them.

        No other processes need to be examined.
        """
        folder = "{}/{}/task".format(self._proc, pid)
        children: List[int] = []
        try:
            for thread in os.listdir(folder):
                with open("{}/{}/children".format(folder, thread), encoding="ascii") as file:
                    children += map(int, file.read().split())
        except (OSError, ValueError):  # it has just ended
            return children
        return children

    def _list_by_parent(self) -> Dict[int, List[int]]:
        """Return all processes by their parents, for a system without those lists."""
        found: Dict[int, List[int]] = {}
        for name in os.listdir(self._proc):
            stat = stat_of(int(name), self._proc) if name.isdigit() else []
            if len(stat) > 1:
                found.setdefault(int(stat[1]), []).append(int(name))
        return found


def _gpus(env: Mapping[str, Any]) -> List[int]:
    """Return the GPUs that the trial has got, where its variables number them as the host does."""
    if env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return []
    words = str(env.get("CUDA_VISIBLE_DEVICES") or "").split(",")
    return [int(word) for word in words if word.isdigit()]
