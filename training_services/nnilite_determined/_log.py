"""Read the log of one job: its keeper's events, and how its command ended."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nnilite.records import KeeperEvent, Output
from nnilite.services.keeper_folder import MARK, read_log
from nnilite_determined._api import DeterminedApi
from nnilite_determined._start import END


class DeterminedLog:
    """`read` gives only what is new since the last `read`. All methods raise Problem."""

    def __init__(self, api: DeterminedApi, task: str) -> None:
        self._api = api
        self._task = task
        self._last = ""  # the time of the last line known
        self._same: set[str] = set()  # the lines of that time: Determined may give them again
        self._offsets = {"stdout": 0, "stderr": 0}

    async def read(self, with_output: bool = False) -> Sequence[KeeperEvent]:
        """Return new events; `with_output`: also the trial's output between them, as events of output."""
        entries = await self._api.logs(self._task, {"timestampAfter": self._last} if self._last else {})
        fresh = [entry for entry in entries if str(entry.get("id")) not in self._same]
        for entry in fresh:
            stamp = str(entry.get("timestamp") or "")
            if stamp > self._last:
                self._last, self._same = stamp, set()
            self._same.add(str(entry.get("id")))
        events: list[KeeperEvent] = self._output(fresh) if with_output else []
        return [*events, *read_log("\n".join(map(_text, fresh)))]

    def _output(self, entries: Sequence[Mapping[str, Any]]) -> list[KeeperEvent]:
        found: list[KeeperEvent] = []
        for stream in self._offsets:
            lines = [_text(entry) for entry in entries if str(entry.get("stdtype") or "stdout") == stream]
            text = "".join(f"{line}\n" for line in lines if not line.startswith((MARK, END)))
            if text:
                data = text.encode()
                found.append(Output(stream, self._offsets[stream], data))
                self._offsets[stream] += len(data)
        return found

    async def end(self) -> Mapping[str, Any] | None:
        """Return the report of the program in the container on the end; None if it has reported nothing."""
        found: Mapping[str, Any] | None = None
        for entry in await self._api.logs(self._task, {"searchText": END.strip()}):
            _, mark, text = _text(entry).partition(END)
            if not mark:
                continue
            try:
                said = json.loads(text)
            except (ValueError, RecursionError):
                continue
            # A run that Determined restarted, and that ended at once, says nothing of the one before.
            if isinstance(said, dict) and (found is None or not said.get("again")):
                found = said
        return found


def _text(entry: Mapping[str, Any]) -> str:
    """Return a line as the program printed it, where Determined reports that; else with Determined's own prefix."""
    return str(entry.get("log") or entry.get("message") or "").rstrip("\n")
