"""What the manager does not have yet, and the batches that take it there. Nothing here waits or touches a network.

The facts are in the folder; in memory are only cursors, set from the manager's answers, and the reports of the
batch under way. The start comes first, the exit in the batch that leaves nothing else behind.
"""

from __future__ import annotations

import base64
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional

from .folder import Folder
from .output import OutputFile
from .spool import Report, SpoolReader

_MAX_EVENTS = 5_000
_MAX_BYTES = 4_000_000  # of the events in JSON, guessed high; a body has at most 8 MB
_OUTPUT_PIECE_BYTES = 256 * 1024


class Answer(NamedTuple):
    """The manager's word. The cursors are None where it did not tell."""

    status: int
    cancel: bool = False
    metrics: Optional[int] = None
    output: Optional[Dict[str, int]] = None
    reason: str = ""
    field: str = ""  # of the request, which it refuses


class Batch(NamedTuple):
    """Events of one request, and what they cover."""

    events: List[Dict[str, Any]]
    started: bool
    exited: bool
    more: bool  # there is more than went into it
    metrics: int  # the cursor if all is taken
    output: Dict[str, int]


class Outbox:
    """The undelivered part of one attempt."""

    def __init__(self, folder: Folder, outputs: Dict[str, OutputFile]) -> None:
        self.started: Optional[Dict[str, Any]] = None
        self.exited: Optional[Dict[str, Any]] = None
        self.closed = False  # the trial has ended: the files will not change any more
        self.metrics = 0
        self.output = dict.fromkeys(outputs, 0)
        self.reader = SpoolReader(folder.metrics)
        self._files = outputs
        self._pending: Deque[Report] = deque()
        self._max_events = _MAX_EVENTS
        self._max_bytes = _MAX_BYTES
        self._drained = False
        self._complete = False

    @property
    def complete(self) -> bool:
        """Whether the manager has everything."""
        return self._complete

    def batch(self) -> Batch:
        """The next events; none is right too, as a heartbeat."""
        closed = self.closed
        events = [self.started] if self.started else []
        reports = self._reports(closed)
        events += [_metric(report) for report in reports]
        more = not self._drained or len(reports) < len(self._pending)
        output = dict(self.output)
        for stream, file in self._files.items():
            piece = self._piece(stream, file, closed)
            if piece:
                events.append(_output(stream, output[stream], piece))
                output[stream] += len(piece)
                more = more or len(piece) >= self._piece_bytes
        last = closed and not more
        if last and self.exited is not None:
            events.append(dict(self.exited, message=(self.exited["message"] + self._unreadable()).strip()))
        metrics = reports[-1].number + 1 if reports else self.metrics
        return Batch(events, self.started is not None, last, more, metrics, output)

    def accept(self, batch: Batch, answer: Answer) -> bool:
        """The manager has committed the batch. False if its cursors say that not all of it was taken."""
        if batch.started:
            self.started = None
        self._max_events = _MAX_EVENTS
        self.seek(
            batch.metrics if answer.metrics is None else answer.metrics,
            batch.output if answer.output is None else answer.output,
        )
        arrived = self.metrics >= batch.metrics and all(
            self.output[stream] >= end for stream, end in batch.output.items()
        )
        if batch.exited and arrived:
            self._complete = True
        return arrived

    def seek(self, metrics: int, output: Optional[Dict[str, int]] = None) -> None:
        """Go on from these cursors; also back, if the manager has less than was thought."""
        while self._pending and self._pending[0].number < metrics:
            self._pending.popleft()
        first = self._pending[0].number if self._pending else self.reader.count
        if metrics < first:
            self._pending.clear()
            self.reader.restart()
        self.metrics = metrics
        for stream in self.output:
            if output is not None and stream in output:
                self.output[stream] = output[stream]

    def shrink(self) -> bool:
        """Send less at once from now on; False if a batch has no more than one event already."""
        if self._max_events <= 1:
            return False
        self._max_events = max(1, min(self._max_events, len(self._pending) or 1) // 2)
        return True

    def give_up(self, number: int) -> str:
        """Put null in place of a report that the manager will never take; return what it was."""
        for place, report in enumerate(self._pending):
            if report.number == number:
                self._pending[place] = report._replace(value="null")
                return report.value
        return ""

    def _unreadable(self) -> str:
        """A word on lines that were meant as reports, perhaps."""
        if not self.reader.unreadable:
            return ""
        return (
            "\n{} of the reported lines cannot be read, the first is {!r}; "
            'right are: intermediate 0.5, final 0.93, final {{"default": 0.93}}'
        ).format(self.reader.unreadable, self.reader.example)

    def _reports(self, closed: bool) -> List[Report]:
        self._fill(closed)
        chosen: List[Report] = []
        size = 0
        for report in self._pending:
            size += _size(report)
            if len(chosen) >= self._max_events or (chosen and size > self._max_bytes):
                break
            chosen.append(report)
        return chosen

    def _fill(self, closed: bool) -> None:
        self._drained = False
        while len(self._pending) < self._max_events:
            reports = self.reader.read(self._max_events - len(self._pending), _MAX_BYTES, final=closed)
            self._drained = not reports
            if self._drained:
                return
            self._pending.extend(report for report in reports if report.number >= self.metrics)
            if sum(map(_size, self._pending)) > _MAX_BYTES:
                return

    @property
    def _piece_bytes(self) -> int:
        return _OUTPUT_PIECE_BYTES if self._max_events == _MAX_EVENTS else _OUTPUT_PIECE_BYTES // 16

    def _piece(self, stream: str, file: OutputFile, closed: bool) -> bytes:
        limit = self._piece_bytes
        if not closed:
            limit = min(limit, file.stable - self.output[stream])
        return file.read(self.output[stream], limit) if limit > 0 else b""


def _size(report: Report) -> int:
    """No less than what its event takes: quotes become two bytes, other characters up to twelve."""
    return 120 + len(report.value) * (2 if report.value.isascii() else 12)


def _metric(report: Report) -> Dict[str, Any]:
    return {
        "type": "metric",
        "index": report.number,
        "kind": report.kind,
        "sequence": report.sequence,
        "value": report.value,
        "time": report.time,
    }


def _output(stream: str, offset: int, data: bytes) -> Dict[str, Any]:
    return {
        "type": "output",
        "stream": stream,
        "offset": offset,
        "data": base64.b64encode(data).decode("ascii"),
    }
