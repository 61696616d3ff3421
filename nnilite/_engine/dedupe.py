"""Numbered events of keepers: new ones pass, known ones are dropped, gaps are noticed.

The numbers follow from the trial's files (`nnilite.records`): a report's place in the spool, an output chunk's offset.
A cursor names the events of an attempt that have been taken so far, and their run: the numbers of another run of the
same attempt mean other values. `fresh` never changes a cursor; the gate replaces it by the new one once the new events
are committed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from nnilite.records import Attributed, Exited, KeeperEvent, Output, Reported, Started

_KEPT = 10_000
_ROLES_BYTES = 4_000_000  # the records of some thousand ranks
JobKey = tuple[str, int]
"""Trial id and number of the attempt."""


@dataclass(frozen=True)
class MetricCursor:
    """What has been taken of one attempt."""

    metrics: int = 0
    started: bool = False
    exited: bool = False
    output: Mapping[str, int] = field(default_factory=dict)  # bytes per stream
    run: str = ""  # the run whose events these were; "" if none has named one

    def is_superseded_by(self, events: Sequence[KeeperEvent]) -> bool:
        """Return whether these events are of another run, which has begun after this one could not.

        A service that did not answer may be asked twice to start the attempt, and only the second keeper could begin.
        All that was taken of the first one is then its end. Output does not count: on the manager's own machine the
        second run may have written it to the same folder already.
        """
        could_not_begin = self.exited and not (self.started or self.metrics)
        return could_not_begin and any(isinstance(event, Started) and event.run != self.run for event in events)


@dataclass(frozen=True)
class OutputLimits:
    """How much output a trial may send: its worker is foreign, and must not fill the disk of the manager."""

    most_bytes: int | None = None  # for stdout, stderr and each rank; None: no limit
    ranks: int = 0  # processes of a distributed trial; 0 for others

    def allows(self, stream: str) -> bool:
        """Return whether trials have this stream at all."""
        if stream == "roles":
            return self.ranks > 0
        rank = stream.removeprefix("rank-")
        return stream in ("stdout", "stderr") or (rank.isdecimal() and int(rank) < self.ranks)

    def end_of(self, stream: str) -> int | None:
        """Return where a stream ends, in bytes; None if it has no limit."""
        return _ROLES_BYTES if stream == "roles" else self.most_bytes


_NO_LIMITS = OutputLimits()


@dataclass
class NewEvents:
    """The new events and the new output of a batch."""

    cursor: MetricCursor  # to be used once the batch is committed
    events: list[KeeperEvent] = field(default_factory=list)
    output: list[Output] = field(default_factory=list)
    # Names the events before these that never arrived, where gaps are accepted.
    missing: str = ""


class GapFound(Exception):
    """The batch begins after what was taken: something is missing before it."""

    def __init__(self) -> None:
        super().__init__("something is missing before them")


class Fenced(Exception):
    """A newer attempt or another run of this one has taken its place, or this attempt was never submitted."""


def fresh(
    cursor: MetricCursor, events: Sequence[KeeperEvent], over_gaps: bool = False, limits: OutputLimits = _NO_LIMITS
) -> NewEvents:
    """Return the new events and the new output.

    `over_gaps`: missing events will never come, so the ones after a gap are taken, and `missing` names the gap.
    `limits`: what lies beyond the end of a stream counts as taken, and is left out. Streams that the trial does not
    have are ignored.

    The first run that names itself owns the attempt. Raises: Fenced if all events that name a run belong to another
    one. A log may hold events of both, and then those of the other run are left out. GapFound at a gap, without
    `over_gaps`.
    """
    news = NewEvents(replace(cursor, run=cursor.run or next((event.run for event in events if event.run), "")))
    own = news.cursor.run
    if own and any(event.run not in ("", own) for event in events):
        if not any(event.run == own for event in events):
            raise Fenced
        events = [event for event in events if event.run in ("", own)]
    for event in events:
        if isinstance(event, Output):
            if limits.allows(event.stream):
                _add_output(news, event, over_gaps, limits.end_of(event.stream))
        elif isinstance(event, Reported | Attributed):
            _add_report(news, event, over_gaps)
        elif isinstance(event, Started) and not news.cursor.started:
            news.cursor = replace(news.cursor, started=True)
            news.events.append(event)
        elif isinstance(event, Exited) and not news.cursor.exited:
            _add_missing(news, event.metrics or 0)
            news.cursor = replace(news.cursor, exited=True)
            news.events.append(event)
    return news


def _add_report(news: NewEvents, event: Reported | Attributed, over_gaps: bool) -> None:
    expected = news.cursor.metrics
    if event.index < expected:
        return
    if event.index > expected:
        if not over_gaps:
            raise GapFound
        _add_missing(news, event.index)
    news.cursor = replace(news.cursor, metrics=event.index + 1)
    news.events.append(event)


def _add_missing(news: NewEvents, end: int) -> None:
    """Name the metrics before this one that did not arrive, if there are any."""
    first, last = news.cursor.metrics, end - 1
    if first <= last:
        which = f"metric {last}" if last == first else f"metrics {first} to {last}"
        news.missing = "; ".join(filter(None, [news.missing, f"{which} did not arrive"]))


def _add_output(news: NewEvents, event: Output, over_gaps: bool, most: int | None) -> None:
    known = news.cursor.output.get(event.stream, 0)
    end = event.offset + len(event.data)
    if event.offset > known and not over_gaps:
        raise GapFound
    if end <= known:
        return
    news.cursor = replace(news.cursor, output={**news.cursor.output, event.stream: end})
    start, end = max(known, event.offset), end if most is None else min(end, most)
    if start < end:
        news.output.append(Output(event.stream, start, event.data[start - event.offset : end - event.offset]))


class MetricCursors:
    """The cursors of recently used attempts. The least recently used ones are dropped, since the store has them."""

    def __init__(self) -> None:
        self._known: OrderedDict[JobKey, MetricCursor] = OrderedDict()

    def get(self, key: JobKey) -> MetricCursor | None:
        cursor = self._known.get(key)
        if cursor is not None:
            self._known.move_to_end(key)
        return cursor

    def put(self, key: JobKey, cursor: MetricCursor) -> None:
        self._known[key] = cursor
        self._known.move_to_end(key)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
