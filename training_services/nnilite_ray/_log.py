"""The log of one job: the events of its keeper, and the trial's output between them.

Ray gives a log only as a whole. What was read is left out the next time, and a long log is read less often.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from nnilite.records import Exited, KeeperEvent, Output
from nnilite.services.keeper_folder import MARK, read_log
from nnilite_ray._start import BEGIN

_ENTRYPOINT = "Running entrypoint for job "
_OURS = (MARK, BEGIN)
_BYTES_PER_S = 500_000  # so much of a running job's log is read on the average, at most


class RayLog:
    """`take` gives only what is new since the last time."""

    def __init__(self) -> None:
        self.exited: Exited | None = None
        """The last word of the keeper, if it is there."""
        self.started: float | None = None
        """When the job began, in seconds since the epoch."""
        self.next_reading = float("-inf")
        """Before this time of the monotonic clock, the log of a running job is not read again."""
        self._read = 0  # characters, all of whole lines
        self._offset = 0
        self._begun = False  # Ray's own lines have ended

    def take(self, content: str, with_output: bool, pause_s: float) -> Sequence[KeeperEvent]:
        """New events; `with_output`: what the trial has printed as events, too."""
        self.next_reading = time.monotonic() + max(pause_s, len(content) / _BYTES_PER_S)
        if len(content) < self._read:  # a log that was begun anew
            self._read, self._offset, self._begun = 0, 0, False
        whole = content.rfind("\n") + 1
        lines = content[self._read : whole].split("\n")[:-1] if whole > self._read else []
        self._read = max(self._read, whole)
        events: list[KeeperEvent] = list(read_log("\n".join(line for line in lines if line.startswith(MARK))))
        self.exited = next((event for event in events if isinstance(event, Exited)), self.exited)
        self.started = self.started or _time(lines)
        text = "".join(line + "\n" for line in self._printed(lines)).encode("utf-8", "replace")
        if text and with_output:
            events.insert(0, Output("stdout", self._offset, text))
        self._offset += len(text)
        return events

    def _printed(self, lines: Sequence[str]) -> list[str]:
        """What is neither the keeper's nor Ray's."""
        found = []
        for line in lines:
            if self._begun and not line.startswith(_OURS):
                found.append(line)
            self._begun = self._begun or line.startswith(_ENTRYPOINT)
        return found


def _time(lines: Sequence[str]) -> float | None:
    """The first word of the program that runs on the node."""
    for line in lines:
        if re.fullmatch(BEGIN + r"\d{1,11}\.\d{3}", line):
            return float(line[len(BEGIN) :])
    return None
