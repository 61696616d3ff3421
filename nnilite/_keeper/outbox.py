"""The undelivered events, and the batches for their delivery. Nothing here waits or touches a network.

All data is in the folder. In memory are only cursors, set from the manager's answers, and the reports of the current
batch. The start comes first, and the exit comes in the last batch, after all other events.
"""

from __future__ import annotations

import base64
import os
import time
from collections import deque
from functools import partial
from typing import Any, Callable, Deque, Dict, List, Mapping, NamedTuple, Optional, TypeVar

from .folder import Folder
from .output import OutputFile
from .spool import ATTRIBUTE, Report, SpoolReader

UNCONFIRMED_S = 600.0
"""For this time a checkpoint waits until the manager has confirmed the reports before it."""

LEAST_UNCONFIRMED_S = 10.0
"""And after that time; also at the end of the trial, whose machine may be switched off soon."""

_MAX_EVENTS = 5_000
_MAX_BYTES = 4_000_000  # a high estimate of a batch's JSON; a body may have 8 MB
_OUTPUT_PIECE_BYTES = 256 * 1024
_MESSAGE_CHARS = 4000
_CAUSES = ("canceled", "interrupted", "duration", "orphaned", "fenced", "machine")
_PATIENCE_S = 120.0  # for this time, unreadable files of an ended trial are tried again

T = TypeVar("T")


class ManagerAnswer(NamedTuple):
    """The manager's answer. Cursors that it did not have are None."""

    status: int
    cancel: bool = False
    metrics: Optional[int] = None
    output: Optional[Dict[str, int]] = None
    reason: str = ""


class Batch(NamedTuple):
    """The events of one request, and the cursors after them."""

    events: List[Dict[str, Any]]
    started: bool
    exited: bool
    more: bool  # whether more events are waiting
    drained: bool  # whether it has all reports that were written when it was made
    metrics: int  # the cursor once all of it is taken
    output: Dict[str, int]


class Outbox:
    """The undelivered part of one attempt."""

    def __init__(self, folder: Folder, outputs: Dict[str, OutputFile], run: str = "") -> None:
        """Make an outbox. `run`: the identity of the run whose events these are; it goes with each of them."""
        self.run = run
        self.started: Optional[Dict[str, Any]] = None
        self.exited: Optional[Dict[str, Any]] = None
        self.closed = False  # the trial has ended, and the files will not change any more
        self.last_files: Dict[str, OutputFile] = {}  # further streams, which are sent once it is closed
        self.metrics = 0
        self.output = dict.fromkeys(outputs, 0)
        self.reader = SpoolReader(folder.metrics)
        self._files = outputs
        self._pending: Deque[Report] = deque()
        self._max_events = _MAX_EVENTS
        self._max_bytes = _MAX_BYTES
        self._drained = False
        self._complete = False
        self._trouble: Dict[str, float] = {}  # since when each file cannot be read
        self._left_out: Dict[str, str] = {}  # by file that is given up, the reason

    @property
    def complete(self) -> bool:
        """Whether the manager has everything."""
        return self._complete

    @property
    def whole(self) -> bool:
        """Whether the manager has everything, and that is all there was: no line or file could not be read."""
        return self._complete and not self._left_out and not self.reader.unreadable

    def batch(self) -> Batch:
        """Return the next events. A batch without events is a heartbeat.

        Raises: OSError if the trial's files cannot be read now. An unreadable file must not count as empty: the end of
        the trial would be sent before the rest of its reports.
        """
        closed = self.closed
        if closed and self.last_files:
            self._files, self.last_files = {**self._files, **self.last_files}, {}
            self.output = {**dict.fromkeys(self._files, 0), **self.output}
        events = [self.started] if self.started else []
        reports = self._reports(closed)
        events += [_report_event(report) for report in reports]
        drained = self._drained and len(reports) == len(self._pending)
        more = not drained
        output, taken = dict(self.output), 0
        for stream, file in self._files.items():
            if taken > _MAX_BYTES // 2:  # with many ranks
                more = True
                break
            piece = self._retry(stream, b"", partial(self._piece, stream, file, closed))
            if piece:
                events.append(_output(stream, output[stream], piece))
                output[stream] += len(piece)
                taken += len(piece)
                more = more or len(piece) >= self._piece_bytes
        last = closed and not more
        metrics = reports[-1].number + 1 if reports else self.metrics
        if last and self.exited is not None:
            message = (self.exited["message"] + self._unreadable()).strip()
            events.append(dict(self.exited, message=message, metrics=metrics))
        if self.run:
            events = [dict(event, run=self.run) for event in events]
        return Batch(events, self.started is not None, last, more, drained, metrics, output)

    def accept(self, batch: Batch, answer: ManagerAnswer) -> bool:
        """Note that the manager has committed the batch.

        Return False if its cursors show that it has not taken all of it.
        """
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
        """Continue from these cursors, which go back if the manager has less than expected."""
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
        """Make smaller batches from now on. Return False if a batch has only one event already."""
        if self._max_events <= 1:
            return False
        self._max_events = max(1, min(self._max_events, len(self._pending) or 1) // 2)
        return True

    def _retry(self, what: str, nothing: T, read: Callable[[], T]) -> T:
        """Return the result of a read; nothing if the trial has ended and reads fail for long. Raises: OSError."""
        try:
            found = read()
        except OSError as error:
            since = self._trouble.setdefault(what, time.monotonic())
            if not self.closed or time.monotonic() - since < _PATIENCE_S:
                raise
            self._left_out[what] = str(error.strerror or error)
            return nothing
        self._trouble.pop(what, None)
        self._left_out.pop(what, None)
        return found

    def _unreadable(self) -> str:
        """Return a sentence on abandoned files and on unreadable lines of the spool; "" if there are none."""
        given_up = "".join("\nits {} cannot be read: {}".format(*item) for item in sorted(self._left_out.items()))
        remark = self.reader.remark()
        return given_up + ("\n" + remark if remark else "")

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
            none: List[Report] = []
            reports = self._retry("metrics", none, partial(self._read, closed))
            self._drained = not reports
            if self._drained:
                return
            self._pending.extend(report for report in reports if report.number >= self.metrics)
            if sum(map(_size, self._pending)) > _MAX_BYTES:
                return

    def _read(self, closed: bool) -> List[Report]:
        return self.reader.read(self._max_events - len(self._pending), _MAX_BYTES, final=closed)

    @property
    def _piece_bytes(self) -> int:
        return _OUTPUT_PIECE_BYTES if self._max_events == _MAX_EVENTS else _OUTPUT_PIECE_BYTES // 16

    def _piece(self, stream: str, file: OutputFile, closed: bool) -> bytes:
        limit = self._piece_bytes
        if not closed:
            limit = min(limit, file.stable - self.output[stream])
        return file.read(self.output[stream], limit) if limit > 0 else b""


def _size(report: Report) -> int:
    """Return an upper bound of the bytes of a report's event.

    A quote takes two bytes, other characters up to twelve.
    """
    return 160 + 12 * len(report.name) + len(report.value) * (2 if report.value.isascii() else 12)


def _report_event(report: Report) -> Dict[str, Any]:
    if report.kind == ATTRIBUTE:
        return {
            "type": "attribute",
            "index": report.number,
            "name": report.name,
            "value": report.value,
            "time": report.time,
        }
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


def start_event(known: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the event of the start that this record of the folder is about."""
    # A pod's host name is its own, but people look for its node.
    host = str(os.environ.get("NNILITE_HOST") or known.get("host") or os.uname().nodename)[:255]
    pid = known.get("pid")
    return {"type": "started", "time": _time(known), "host": host, "pid": pid if isinstance(pid, int) else 0}


def exit_event(known: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the event of the end that this record of the folder is about."""
    code = known.get("code")
    return {
        "type": "exit",
        "time": _time(known),
        "code": code if isinstance(code, int) else None,
        "message": str(known.get("message") or "")[:_MESSAGE_CHARS],
        "cause": known.get("cause") if known.get("cause") in _CAUSES else "",
    }


def _time(known: Mapping[str, Any]) -> float:
    """Return the time in a record. The trial may have written nonsense to that file; then return the current time."""
    value = known.get("time")
    return value if isinstance(value, (int, float)) and 0 <= value < 1e11 else time.time()
