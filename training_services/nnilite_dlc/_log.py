"""The log of one job, read window by window: the events of its keeper, and the trial's output between them.

DLC gives a pod's log by time, a limited number of lines at once, and does not say which lines it leaves out. So a
window that comes back full is halved until it does not, and `_windows` removes what windows have in common. All times
are DLC's own, since the clock of this machine may differ.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from nnilite.platform_http import Missing
from nnilite.services.job_log import JobLog
from nnilite_dlc._api import MOST_LINES, DlcApi, DlcJob, DlcPod, LogWindow
from nnilite_dlc._windows import fresh

_LATE_S = 60.0
"""How much later than their times lines may arrive."""
_LONG_LINES = 500
"""A window with this many lines is not read again from its beginning."""
_SHORTEST_S = 1.0
_WINDOWS_AT_ONCE = 30
_NUMBER = re.compile(r"(\d+)\D*$")
_FIRST_ROLES = ("master", "chief")


class DlcLog(JobLog):
    """The log of the pod that reports."""

    def __init__(self, api: DlcApi, job: str) -> None:
        super().__init__()
        self._api = api
        self._job = job
        self._pod: DlcPod | None = None
        self._begin: float | None = None  # begin of the next window; None: the start of the pod
        self._known: Sequence[str] = ()  # the lines that are known since then

    def locate(self, job: DlcJob) -> None:
        """Find the log of the pod that reports."""
        if self._pod is None:
            self._pod = find_reporting_pod(job.pods)

    @property
    def located(self) -> bool:
        """Return whether the pod that reports is known."""
        return self._pod is not None

    def rewind(self) -> None:
        super().rewind()
        self._begin, self._known = None, ()

    async def read_on(self) -> None:
        if self._pod is None:
            self.locate(await self._api.job(self._job))
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
                # Times are whole seconds, as DLC writes them; a line at a border is in both windows.
                end = float(int(first + max(_SHORTEST_S, (until - first) / 2)))
                continue
            self._add_window(window)
            if end is None:
                self._advance(float(int(until - _LATE_S)), len(window.lines) >= _LONG_LINES)
                return
            self._advance(end, True)
            end = None

    def _first(self, window: LogWindow) -> float:
        """Return when a window begins."""
        if self._begin is not None:
            return self._begin
        started = self._pod.started if self._pod is not None else None
        return float(int(started)) if started is not None else window.time - 7 * 86400

    def _advance(self, begin: float, wanted: bool) -> None:
        """Let the next window begin later, and at least a bit later where there was progress."""
        if wanted and (self._begin is None or begin > self._begin):
            self._begin = begin

    def _add_window(self, window: LogWindow) -> None:
        lines, self._known = fresh(self._known, window.lines), window.lines
        self.add_lines(line.encode("utf-8", "replace") for line in lines)


def find_reporting_pod(pods: Sequence[DlcPod]) -> DlcPod | None:
    """Return the pod of number 0: the master, if there is one, else the first worker."""

    def order(pod: DlcPod) -> tuple[bool, int, str]:
        number = _NUMBER.search(pod.id)
        first = pod.role.lower() in _FIRST_ROLES or "-master-" in pod.id
        return not first, int(number[1]) if number else 0, pod.id

    return min(pods, key=order, default=None)
