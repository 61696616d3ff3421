"""Read the log of one job, line by line: the events of its keeper, and what the trial has printed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnilite.services.job_log import JobLog
from nnilite_determined._api import DeterminedApi


class DeterminedLog(JobLog):
    """The log of the only task of an experiment. Determined gives the lines from a time on."""

    def __init__(self, api: DeterminedApi, number: int) -> None:
        super().__init__()
        self._api = api
        self._number = number
        self._last = ""  # the time of the last line that was read
        self._same: set[str] = set()  # the lines of that time: Determined may give them again
        self.task = ""
        """The task, once it is known."""

    def rewind(self) -> None:
        super().rewind()
        self._last, self._same = "", set()

    async def locate(self) -> str:
        """Find the task, which exists when the job has first been given slots. Raises: Problem."""
        self.task = self.task or await self._api.task(self._number)
        return self.task

    async def read_on(self) -> None:
        if not await self.locate():
            return
        entries = await self._api.logs(self.task, {"timestampAfter": self._last} if self._last else {})
        fresh = [entry for entry in entries if str(entry.get("id")) not in self._same]
        for entry in fresh:
            stamp = str(entry.get("timestamp") or "")
            if stamp > self._last:
                self._last, self._same = stamp, set()
            self._same.add(str(entry.get("id")))
        self.add_lines(map(_line, fresh))


def _line(entry: Mapping[str, Any]) -> bytes:
    """Return a line as the program printed it, where Determined reports that; else with Determined's own prefix."""
    return str(entry.get("log") or entry.get("message") or "").rstrip("\n").encode("utf-8", "replace")
