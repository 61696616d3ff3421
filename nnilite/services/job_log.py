"""The log of one job: the events of its keeper, and what the trial has printed between them.

A platform gives logs in its own way, so a service writes one method, which asks for what is new and feeds it in:

    class MyLog(JobLog):
        async def read_on(self) -> None:
            self.add_whole(await self._api.log(self._job))                # a platform that gives all of it each time

        async def read_on(self) -> None:
            while piece := await self._api.log(self._job, self.position):  # one that gives it from a position on
                self.add(piece)

`add_lines` accepts whole lines, where the platform separates them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from nnilite._loop_waits import in_thread
from nnilite.records import Exited, KeeperEvent, Output
from nnilite.services.keeper_folder import MARK, read_log

__all__ = ["JobLog"]

_MARK = MARK.encode()
_KEPT_BYTES = 16_000_000
_OVERLAP_BYTES = 4096
_LONGEST_LINE_BYTES = 4_000_000  # no event of a keeper is longer
_AT_ONCE_BYTES = 100_000  # so much is parsed without a thread of its own


class JobLog(ABC):
    """What is known of a job's log. `follow` brings it up to date."""

    lags: ClassVar[bool] = True
    """Whether lines may still come when the job has ended."""

    def __init__(self) -> None:
        self.last_read = float("-inf")
        """When, on the monotonic clock, it was read for the last time."""
        self.position = 0
        """How many bytes have been fed in by `add`."""
        self.output = bytearray()
        """What the trial has printed, as far as it is kept."""
        self._exited: Exited | None = None
        self._unread: dict[str, bytes] = {}  # the last line of each part, which has no end yet
        self._whole: dict[str, tuple[int, bytes]] = {}  # how much of each part is known, and the end of that
        self._fresh: list[KeeperEvent] = []
        self._marked: list[bytes] = []  # lines of the keeper that are not parsed yet
        self._sharing = threading.Lock()  # guards both lists, which the parsing thread uses, too
        self._reading = asyncio.Lock()

    @property
    def exited(self) -> Exited | None:
        """The keeper's report of the end, once it was read."""
        self._parse()
        return self._exited

    @abstractmethod
    async def read_on(self) -> None:
        """Ask the platform for what is new, and feed it in. Raises: Problem."""

    def is_foreign(self, line: bytes) -> bool:
        """Return whether neither the keeper nor the trial has printed this line."""
        return False

    async def follow(self) -> None:
        """Read on to its end. Raises: Problem."""
        async with self._reading:
            self.last_read = time.monotonic()
            await self.read_on()
            # A trial that writes such lines itself, as fast as it can, would hold up the event loop for half a minute.
            if sum(map(len, self._marked)) > _AT_ONCE_BYTES:
                await in_thread(self._parse)

    def rewind(self) -> None:
        """Read the whole log again next time: lines that came late may be missing."""
        self.position, self._exited = 0, None
        self._unread.clear()
        self._marked.clear()
        self._whole.clear()
        self._fresh.clear()
        self.output.clear()

    def events(self, with_output: bool) -> Sequence[KeeperEvent]:
        """Return what is new since the last time, the end last. `with_output`: what the trial has printed, too."""
        self._parse()
        with self._sharing:
            found, self._fresh = self._fresh, []
        return [event for event in found if with_output or not isinstance(event, Output)]

    # ------------------------------------------------------------ feeding

    def add(self, piece: bytes, part: str = "") -> None:
        """Take the bytes that follow those before. A log may have several parts, such as pods.

        Of a line without an end only the beginning is kept.
        """
        self.position += len(piece)
        first, *more = (self._unread.get(part, b"") + piece).split(b"\n")
        *lines, rest = first[:_LONGEST_LINE_BYTES], *more
        self._unread[part] = rest[:_LONGEST_LINE_BYTES]
        self.add_lines(lines)

    def add_whole(self, text: bytes, part: str = "") -> None:
        """Take a whole log, or as much of its end as the platform keeps; known lines are left out."""
        length, end = self._whole.get(part, (0, b""))
        begin = length
        if text[max(0, length - len(end)) : length] != end:
            # It does not begin where it did. An old line that comes again later counts once.
            place = text.rfind(end)
            begin = place + len(end) if place >= 0 else 0
            if begin == 0:
                self._unread[part] = b""
        self._whole[part] = (len(text), text[-_OVERLAP_BYTES:])
        self.add(text[begin:], part)

    def add_lines(self, lines: Iterable[bytes]) -> None:
        """Take whole lines that follow those before, without their line ends."""
        printed: list[bytes] = []
        for line in lines:
            if _MARK in line:
                self._marked.append(line)
            elif not self.is_foreign(line):
                printed.append(line + b"\n")
        self._print(b"".join(printed))

    def _parse(self) -> None:
        """Parse the lines of the keeper."""
        with self._sharing:
            marked, self._marked = self._marked, []
        found = list(read_log(b"\n".join(marked))) if marked else []
        ends = [event for event in found if isinstance(event, Exited)]
        with self._sharing:
            self._fresh += found
            self._exited = ends[-1] if ends else self._exited

    def _print(self, data: bytes) -> None:
        data = data[: max(0, _KEPT_BYTES - len(self.output))]
        if data:
            self._fresh.append(Output("stdout", len(self.output), data))
            self.output += data
