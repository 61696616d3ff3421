"""The log of a job's reporting task: the events of its keeper, and the trial's output between them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from nnilite.records import KeeperEvent, Output
from nnilite.services.keeper_folder import MARK, read_log
from nnilite_openpai._status import END_MARK

_EVENT = MARK.encode()


class TaskLog:
    """`events` gives only what is new since the last time. PAI gives a log as a whole, each time."""

    def __init__(self) -> None:
        self.fetched = float("-inf")
        """When, on the monotonic clock, the log was fetched for the last time."""
        self._read = 0
        self.output = b""
        """What the trial has printed, as far as it is known."""

    def take(self, content: bytes, with_output: bool) -> Sequence[KeeperEvent]:
        """New events; `with_output`: what the trial has printed as events, too."""
        self.fetched = time.monotonic()
        # Of a log that was cut or begun anew, all is read again: events have numbers.
        begin = self._read if len(content) >= self._read else 0
        whole = content.rfind(b"\n") + 1
        lines = content[begin:whole].split(b"\n")[:-1]
        self._read = max(begin, whole)
        events: list[KeeperEvent] = list(read_log(b"\n".join(line for line in lines if line.startswith(_EVENT))))
        text = b"".join(line + b"\n" for line in lines if line and not line.startswith((_EVENT, END_MARK)))
        if begin == 0:
            self.output = b""
        if text and with_output:
            events.insert(0, Output("stdout", len(self.output), text))
        self.output += text
        return events
