"""The recap: lines of a log in which a keeper repeats what it has reported through that log.

Platforms lose parts of logs: they rotate and cut them, and a reader may come late. A keeper that can only print does
not hear of that. So it repeats its start and its reports before the end of the trial, and now and then before:

    NNILITE_EVENT {"type": "recap", "data": BASE64}      a list of events in JSON, compressed

Each line has its own events, so that a line that is lost takes no other with it. The reader drops by their numbers
those that it has. Of more reports than fit, the last ones are repeated. What the trial has printed is not.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Deque, Dict, List, Mapping, Tuple

TYPE = "recap"
EVERY_BYTES = 4_000_000
"""A recap follows after this much of the log: kubelets rotate one after 10 MB."""
MOST_BYTES = 250_000
"""About what a recap may take in the log. DLTS gives the last MB of one."""

_LINE_EVENTS_BYTES = 24_000  # JSON that takes under 16 kB of a line: container logs are cut there
KEPT_BYTES = 3_000_000
"""The JSON that is kept in memory: a recap of more would be too large, even with one value each."""


class Recap:
    """Remembers events as far as a recap has room for them. One that is longer than a line is left out."""

    def __init__(self) -> None:
        self._start = ""
        self._reports: Deque[str] = deque()
        self._bytes = 0

    def record(self, kind: str, event: str) -> None:
        """Remember a start or a report, in JSON."""
        if kind == "started":
            self._start = event
        elif len(event) < _LINE_EVENTS_BYTES:
            self._reports.append(event)
            self._bytes += len(event)
            while self._bytes > KEPT_BYTES:
                self._bytes -= len(self._reports.popleft())

    def events(self) -> List[Dict[str, Any]]:
        """Return the lines of a recap as events, the last reports last; [] if there is nothing to repeat."""
        groups: Deque[str] = deque()
        group: List[str] = []
        room, size = MOST_BYTES, 0
        for event in reversed(self._reports):
            if size + len(event) > _LINE_EVENTS_BYTES:
                groups.appendleft(_pack(group))
                room -= len(groups[0])
                group, size = [], 0
                if room <= 0:
                    break
            group.append(event)
            size += len(event) + 1
        if self._start:
            group.append(self._start)
        if group:
            groups.appendleft(_pack(group))
        return [{"type": TYPE, "data": data} for data in groups]


def _pack(events: List[str]) -> str:
    """Return events, the last one first, as the data of a line."""
    text = "[" + ",".join(reversed(events)) + "]"
    return base64.b64encode(zlib.compress(text.encode("ascii"), 9)).decode("ascii")


def unpack(line: Mapping[str, Any], room: int) -> Tuple[List[Any], int]:
    """Return the events of a line, as they were printed at first, and the bytes of their JSON: `room` at most.

    Raises: ValueError if no keeper has written it, or there is no room.
    """
    try:
        decoder = zlib.decompressobj()
        # zlib has no limit of 0.
        limit = max(1, min(room, 2 * _LINE_EVENTS_BYTES))
        text = decoder.decompress(base64.b64decode(line["data"], validate=True), limit)
        found = json.loads(text.decode("ascii")) if decoder.eof else None
    except (KeyError, TypeError, zlib.error) as error:
        raise ValueError("not a recap: {!r}".format(error)) from None
    if not isinstance(found, list):
        raise ValueError("not a recap: it lacks a whole list")
    return found, len(text)
