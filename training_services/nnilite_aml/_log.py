"""The log of one job, read piece by piece: the events of its keeper, and the trial's output between them.

Azure writes what the first process prints to a blob, and a run's details have a URL for it. Only what is new is read.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence

from nnilite.platform_http import AccessRefused, Missing
from nnilite.records import Exited, KeeperEvent, Output
from nnilite.services.keeper_folder import MARK, read_log
from nnilite_aml._workspace import AmlWorkspace, RunFacts

# As Azure's own library chooses the log that it shows: that of the first process, where there are several.
_FIRST = re.compile(r"user_logs/std_log\D*0*\.txt")
_PARAMETER_SERVER = "_ps"
_MARK = MARK.encode()
_KEPT_BYTES = 16_000_000
_URL_LASTS_S = 600.0


class AmlLog:
    """What is known of a job's log. `follow` brings it up to date."""

    def __init__(self, workspace: AmlWorkspace, name: str) -> None:
        self._workspace = workspace
        self._name = name
        self._url = ""
        self._url_since = float("-inf")
        self._offset = 0
        self._unread = b""  # the last line, which has no end yet
        self._fresh: list[KeeperEvent] = []
        self._reading = asyncio.Lock()
        self.read = float("-inf")
        """When, on the monotonic clock, it was read for the last time."""
        self.output = bytearray()
        """What the trial has printed, as far as it is kept."""
        self.exited: Exited | None = None

    def locate(self, facts: RunFacts) -> None:
        """Learn where the log is."""
        self._url, self._url_since = _first_log(facts.logs), time.monotonic()

    def rewind(self) -> None:
        """Read all of it again next time."""
        self._offset, self._unread, self.exited = 0, b"", None
        self._fresh.clear()
        self.output.clear()

    async def follow(self) -> None:
        """Read on to its end. Raises: Problem."""
        async with self._reading:
            self.read = time.monotonic()
            if not self._url or time.monotonic() - self._url_since > _URL_LASTS_S:
                self.locate(await self._workspace.facts(self._name))
            while self._url:
                try:
                    piece = await self._workspace.read(self._url, self._offset)
                except Missing:  # nothing is there yet, or nothing new
                    return
                except AccessRefused:
                    self._url = ""  # the URL has expired; the next time there is another
                    raise
                if not piece:
                    return
                self._offset += len(piece)
                self._take(piece)

    def events(self, with_output: bool) -> Sequence[KeeperEvent]:
        """What is new since the last time; the end comes last. `with_output`: what the trial has printed, too."""
        found, self._fresh = self._fresh, []
        return [event for event in found if with_output or not isinstance(event, Output)]

    def _take(self, piece: bytes) -> None:
        *lines, self._unread = (self._unread + piece).split(b"\n")
        printed = b"".join(line + b"\n" for line in lines if _MARK not in line)[: _KEPT_BYTES - len(self.output)]
        if printed:
            self._fresh.append(Output("stdout", len(self.output), printed))
            self.output += printed
        for event in read_log(b"\n".join(line for line in lines if _MARK in line)):
            if isinstance(event, Exited):
                self.exited = event
            self._fresh.append(event)


def _first_log(logs: Mapping[str, str]) -> str:
    names = sorted(name for name in logs if _FIRST.fullmatch(name) and _PARAMETER_SERVER not in name)
    return logs[names[0]] if names else ""
