"""The files and lines of a keeper as events, for services that can read them themselves.

A service that shares a disk with the worker, or can fetch the attempt's folder, implements
`TrainingService.reports` by `read_events(directory)`; one that can only read the platform's log, by `read_log(text)`.
Both may be called again and again, also while the trial runs: events are numbered, and the manager drops what it has.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import math
from collections.abc import Callable, Iterator
from pathlib import Path

from nnilite._keeper.folder import Folder
from nnilite._keeper.link import MARK
from nnilite._keeper.spool import SpoolReader
from nnilite.records import Exited, Json, KeeperEvent, MetricKind, Output, Reported, Started

__all__ = ["MARK", "parse_event", "read_events", "read_log", "read_metrics"]

log = logging.getLogger(__name__)

_READ_REPORTS = 10_000
_READ_BYTES = 16_000_000


def read_events(directory: Path) -> list[KeeperEvent]:
    """What the files of an attempt tell: its start, its metrics, its end; [] if there is nothing yet.

    `directory` is the attempt's folder, `<experiment>/trials/<trial>/<attempt>`. Output is not among the events.

    >>> read_events(Path("trials/Xy12z/0"))  # doctest: +SKIP
    [Started(time=1.5, host='box', pid=12), Reported(index=0, kind=FINAL, ...), Exited(time=9.0, code=0)]
    """
    folder = Folder(str(directory))
    started, exited = folder.read("started"), folder.read("exit")  # the end first: nothing is reported after it
    events: list[KeeperEvent] = []
    if started is not None:
        events.append(Started(_number(started, "time"), str(started.get("host") or ""), int(_number(started, "pid"))))
    events.extend(read_metrics(directory, ended=exited is not None))
    if exited is not None:
        code = exited.get("code")
        events.append(
            Exited(
                _number(exited, "time"),
                code if isinstance(code, int) else None,
                str(exited.get("message") or ""),
            )
        )
    return events


def read_metrics(directory: Path, ended: bool = False) -> Iterator[Reported]:
    """The metrics of an attempt, in order. `ended`: also a last line without a line end."""
    reader = SpoolReader(Folder(str(directory)).metrics)
    while reports := reader.read(_READ_REPORTS, _READ_BYTES, final=ended):
        for report in reports:
            yield Reported(
                report.number, MetricKind(report.kind), report.sequence, json.loads(report.value), report.time
            )


def read_log(text: str | bytes) -> list[KeeperEvent]:
    """The events in the output of a keeper that reports to standard output. Lines that are cut are left out."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    events: list[KeeperEvent] = []
    for line in text.split("\n"):
        _, mark, data = line.partition(MARK)  # a platform may put the time in front of each line
        if not mark:
            continue
        try:
            events.append(parse_event(json.loads(data)))
        except ValueError as error:
            log.debug("not an event: %s: %.200s", error, line)
    return events


def parse_event(data: Json) -> KeeperEvent:
    """One event as the keeper sends it. Raises: ValueError that says what is wrong."""
    try:
        return _PARSERS[data["type"]](data)
    except (KeyError, TypeError, AttributeError, binascii.Error, OverflowError) as error:
        raise ValueError(f"not an event of a keeper: {type(error).__name__}: {error}") from error


def _started(data: Json) -> Started:
    return Started(_number(data, "time"), str(data.get("host") or ""), int(_number(data, "pid")))


def _metric(data: Json) -> Reported:
    return Reported(
        int(_number(data, "index")),
        MetricKind(data["kind"]),
        int(_number(data, "sequence")),
        json.loads(data["value"]),
        _number(data, "time"),
    )


def _output(data: Json) -> Output:
    return Output(str(data["stream"]), int(_number(data, "offset")), base64.b64decode(data["data"], validate=True))


def _exited(data: Json) -> Exited:
    code = data["code"]
    return Exited(_number(data, "time"), code if code is None else int(code), str(data.get("message") or ""))


def _number(data: Json, name: str) -> float:
    value = data.get(name) or 0
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is not a number")
    return value


_PARSERS: dict[str, Callable[[Json], KeeperEvent]] = {
    "started": _started,
    "metric": _metric,
    "output": _output,
    "exit": _exited,
}
