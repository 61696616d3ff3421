"""The log of one job, read window by window: the events of its keeper, and the trial's output between them.

DLC gives a pod's log by time, so many lines at once, and does not say which ones it leaves out of more. So a window
that comes back full is halved until it does not, and what windows have in common is left out by `_windows`. All times
are DLC's own: the clock of this machine may be another.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence

from nnilite.platform_http import Missing
from nnilite.records import Exited, KeeperEvent, Output
from nnilite.services.keeper_folder import MARK, read_log
from nnilite_dlc._api import MOST_LINES, DlcApi, DlcJob, DlcPod, LogWindow
from nnilite_dlc._windows import fresh

_KEPT_BYTES = 16_000_000
_LATE_S = 60.0
"""Lines may come so much later than their times say."""
_LONG_LINES = 500
"""A window with so many lines is not asked for again from its beginning."""
_SHORTEST_S = 1.0
_WINDOWS_AT_ONCE = 30
_NUMBER = re.compile(r"(\d+)\D*$")
_FIRST_ROLES = ("master", "chief")


class DlcLog:
    """What is known of a job's log. `follow` brings it up to date."""

    def __init__(self, api: DlcApi) -> None:
        self._api = api
        self._job = ""
        self._pod: DlcPod | None = None
        self._begin: float | None = None  # of the next window; None: the start of the pod
        self._known: Sequence[str] = ()  # the lines that are known since then
        self._fresh: list[KeeperEvent] = []
        self._reading = asyncio.Lock()
        self.read = float("-inf")
        """When, on the monotonic clock, it was read for the last time."""
        self.output = bytearray()
        """What the trial has printed, as far as it is kept."""
        self.exited: Exited | None = None

    def locate(self, job: DlcJob) -> None:
        """Learn which pod's log it is: that of the pod which reports."""
        if self._pod is None:
            self._job, self._pod = job.id, reporting_pod(job.pods)

    @property
    def located(self) -> bool:
        """Whether the pod that reports is known."""
        return self._pod is not None

    def rewind(self) -> None:
        """Read all of it again next time: lines that came late may be missing."""
        self._begin, self._known, self.exited = None, (), None
        self._fresh.clear()
        self.output.clear()

    async def follow(self) -> None:
        """Read on to its end. Raises: Problem."""
        async with self._reading:
            self.read = time.monotonic()
            if self._pod is None:
                return
            end: float | None = None
            for _ in range(_WINDOWS_AT_ONCE):
                try:
                    window = await self._api.log(self._job, self._pod, self._begin, end)
                except Missing:  # the pod has not printed anything yet
                    return
                first = self._first(window)
                until = window.time if end is None else end
                if len(window.lines) >= MOST_LINES and until - first > _SHORTEST_S:
                    # In whole seconds, as DLC writes times; what is at a border is in both windows.
                    end = float(int(first + max(_SHORTEST_S, (until - first) / 2)))
                    continue
                self._take(window)
                if end is None:
                    self._advance(float(int(until - _LATE_S)), len(window.lines) >= _LONG_LINES)
                    return
                self._advance(end, True)
                end = None

    def _first(self, window: LogWindow) -> float:
        """When a window begins."""
        if self._begin is not None:
            return self._begin
        started = self._pod.started if self._pod is not None else None
        return float(int(started)) if started is not None else window.time - 7 * 86400

    def _advance(self, begin: float, wanted: bool) -> None:
        """Let the next window begin later, and at least a bit later where there was progress."""
        if wanted and (self._begin is None or begin > self._begin):
            self._begin = begin

    def events(self, with_output: bool) -> Sequence[KeeperEvent]:
        """What is new since the last time; the end comes last. `with_output`: what the trial has printed, too."""
        found, self._fresh = self._fresh, []
        return [event for event in found if with_output or not isinstance(event, Output)]

    def _take(self, window: LogWindow) -> None:
        lines, self._known = fresh(self._known, window.lines), window.lines
        printed = "".join(f"{line}\n" for line in lines if MARK not in line).encode("utf-8", "replace")
        printed = printed[: _KEPT_BYTES - len(self.output)]
        if printed:
            self._fresh.append(Output("stdout", len(self.output), printed))
            self.output += printed
        for event in read_log("\n".join(line for line in lines if MARK in line)):
            if isinstance(event, Exited):
                self.exited = event
            self._fresh.append(event)


def reporting_pod(pods: Sequence[DlcPod]) -> DlcPod | None:
    """The pod of number 0: the master, if there is one, else the first worker."""

    def order(pod: DlcPod) -> tuple[bool, int, str]:
        number = _NUMBER.search(pod.id)
        first = pod.role.lower() in _FIRST_ROLES or "-master-" in pod.id
        return not first, int(number[1]) if number else 0, pod.id

    return min(pods, key=order, default=None)
