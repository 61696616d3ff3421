"""Numbered events of keepers in: what is new goes on, what is known is dropped, a gap is named.

The numbers follow from the trial's files (`nnilite.records`): a metric's place in the spool, an output chunk's offset.
Pure: the cursors say what has been taken so far, per attempt.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from nnilite.records import Exited, KeeperEvent, Output, Reported, Started

_KEPT = 10_000
JobKey = tuple[str, int]
"""Trial id and number of the attempt."""


@dataclass
class Cursor:
    """What has been taken of one attempt."""

    metrics: int = 0
    started: bool = False
    exited: bool = False
    output: dict[str, int] = field(default_factory=dict)  # bytes per stream


class OutOfStep(Exception):
    """The batch begins after what was taken: something is missing before it."""

    def __init__(self) -> None:
        super().__init__("something is missing before them")


class Superseded(Exception):
    """A newer attempt has taken the place of this one, or it was never submitted."""


def fresh(cursor: Cursor, events: Iterable[KeeperEvent]) -> tuple[list[KeeperEvent], list[Output]]:
    """The new events and the new output; moves the cursor. Raises: OutOfStep; then the cursor stays."""
    ahead = replace(cursor, output=dict(cursor.output))
    news: list[KeeperEvent] = []
    chunks: list[Output] = []
    for event in events:
        if isinstance(event, Output):
            chunks += _fresh_output(ahead, event)
        elif _is_fresh(ahead, event):
            news.append(event)
    cursor.metrics, cursor.started, cursor.exited, cursor.output = (
        ahead.metrics,
        ahead.started,
        ahead.exited,
        ahead.output,
    )
    return news, chunks


def _is_fresh(ahead: Cursor, event: Reported | Started | Exited) -> bool:
    if isinstance(event, Reported):
        if event.index > ahead.metrics:
            raise OutOfStep
        new = event.index == ahead.metrics
        ahead.metrics += new
        return new
    word = "started" if isinstance(event, Started) else "exited"
    new = not getattr(ahead, word)
    setattr(ahead, word, True)
    return new


def _fresh_output(ahead: Cursor, event: Output) -> list[Output]:
    known = ahead.output.get(event.stream, 0)
    end = event.offset + len(event.data)
    if event.offset > known:
        raise OutOfStep
    if end <= known:
        return []
    ahead.output[event.stream] = end
    return [Output(event.stream, known, event.data[known - event.offset :])]


class Cursors:
    """The cursors of the attempts in use; the least recently used ones are forgotten (the store has them)."""

    def __init__(self) -> None:
        self._known: OrderedDict[JobKey, Cursor] = OrderedDict()

    def get(self, key: JobKey) -> Cursor | None:
        cursor = self._known.get(key)
        if cursor is not None:
            self._known.move_to_end(key)
        return cursor

    def add(self, key: JobKey, cursor: Cursor) -> None:
        """Keep a cursor read from the store, unless there is one already."""
        self._known.setdefault(key, cursor)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
