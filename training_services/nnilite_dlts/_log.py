"""The log of one job, read piece by piece: the events of its keeper, and the trial's output between them.

DLTS has three kinds of logs, and its answers differ accordingly. With Elasticsearch there are pages, each with the
cursor of the next; the last cursor is kept, and what comes later is asked for from there. With Azure's blobs each
answer is the end of the log, 1 MB at most, without a cursor; what is known of it is left out. Older clusters give the
whole log. Where no log is kept, there is none: then `callback: log` cannot work there.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnilite.records import Exited, KeeperEvent, Output
from nnilite.services.keeper_folder import MARK, read_log
from nnilite_dlts._api import DltsApi

_PAGES_AT_ONCE = 200
_OVERLAP_CHARS = 4096
_KEPT_BYTES = 16_000_000


class DltsLog:
    """What is known of a job's log. `fetch` brings it up to date."""

    def __init__(self, api: DltsApi, job_id: str) -> None:
        self._api = api
        self._job_id = job_id
        self._cursor: str | None = None
        self._text: dict[str, str] = {}  # by pods, as far as it may come again
        self._unread: dict[str, str] = {}  # the last line of each, which has no end yet
        self._events: list[KeeperEvent] = []
        self._printed = bytearray()
        self.exited: Exited | None = None

    async def fetch(self) -> None:
        """Read on. Raises: Problem."""
        for _ in range(_PAGES_AT_ONCE):
            pods, cursor = await self._api.log(self._job_id, self._cursor)
            paged = cursor is not None or self._cursor is not None
            for pod, text in pods.items():
                self._take(pod, text if paged else self._new(pod, text))
            if cursor is None or cursor == self._cursor:
                return
            self._cursor = cursor

    def _new(self, pod: str, text: str) -> str:
        """What an answer has beyond those before it. An old line that comes again later counts once."""
        known, self._text[pod] = self._text.get(pod, ""), text
        if text.startswith(known):
            return text[len(known) :]
        end = known[-_OVERLAP_CHARS:]
        place = text.rfind(end)
        return text[place + len(end) :] if place >= 0 else text

    def _take(self, pod: str, text: str) -> None:
        lines = (self._unread.get(pod, "") + text).split("\n")
        self._unread[pod] = lines.pop()
        printed = "".join(line + "\n" for line in lines if MARK not in line)
        if printed:
            self._print(printed.encode("utf-8", "replace"))
        for event in read_log("\n".join(line for line in lines if MARK in line)):
            if isinstance(event, Exited):
                self.exited = self.exited or event
            else:
                self._events.append(event)

    def _print(self, data: bytes) -> None:
        data = data[: max(0, _KEPT_BYTES - len(self._printed))]
        if data:
            self._events.append(Output("stdout", len(self._printed), data))
            self._printed += data

    def events(self, with_output: bool) -> Sequence[KeeperEvent]:
        """All events so far; the end comes last. `with_output`: what the trial has printed, too."""
        found = [event for event in self._events if with_output or not isinstance(event, Output)]
        return [*found, self.exited] if self.exited is not None else found

    def output(self, offset: int, limit: int) -> bytes:
        """What the trial has printed."""
        return bytes(self._printed[offset : offset + limit])
