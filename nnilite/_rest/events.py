"""Reads a keeper's batch of events, trusting nothing in it. Pure: bytes in, records or one clear ConfigError out.

A batch comes from a worker that runs a user's code, so every field is checked, and so are the order and the bounds
that the store and the engine rely on: metrics of one batch count up by one, pieces of output do not overlap, a trial
starts once, ends once, and reports nothing after its end.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

from nnilite._rest import wire
from nnilite._rest.refusal import Refusal
from nnilite.errors import ConfigError, Place
from nnilite.records import Exited, Json, KeeperEvent, MetricKind, Output, Reported, Started

EVENTS_MAX = 10_000
INTEGER_MAX = 2**53 - 1  # exact in JSON everywhere, and far below what SQLite can hold
TIME_MAX = 1e11  # the year 5138: a larger one is in milliseconds
EXIT_CODE_MAX = 2**32
HOST_MAX = 255
MESSAGE_MAX = 64 * 1024

Fields = dict[str, Json]


class _Wrong(Exception):
    """Field, and what is wrong with it."""


def parse_batch(body: bytes) -> list[KeeperEvent]:
    """The events of a request's body. Raises: ConfigError that names the event and the field, Refusal (too many).

    Example: `parse_batch(b'{"events": []}')` is `[]`, a heartbeat.
    """
    batch = wire.loads(body)
    events = batch.get("events") if isinstance(batch, dict) else None
    if not isinstance(events, list):
        raise ConfigError('the body must be {"events": [...]}', Place(field="events"))
    if len(events) > EVENTS_MAX:
        raise Refusal(413, f"a batch has at most {EVENTS_MAX} events; send less at a time")
    reader = _Reader()
    return [_read(reader, number, event) for number, event in enumerate(events)]


def _read(reader: _Reader, number: int, event: Json) -> KeeperEvent:
    try:
        return reader.read(event)
    except _Wrong as error:
        name, problem = error.args
        field = f"events[{number}].{name}" if name else f"events[{number}]"
        raise ConfigError(f"{field} {problem}", Place(field=field)) from None


class _Reader:
    """Reads the events of one batch in order, remembering what the next ones must follow."""

    def __init__(self) -> None:
        self._next_index: int | None = None
        self._ends: dict[str, int] = {}
        self._started = False
        self._exited = False
        self._kinds: dict[str, Callable[[Fields], KeeperEvent]] = {
            "metric": self._metric,
            "output": self._output,
            "started": self._start,
            "exit": self._exit,
        }

    def read(self, event: Json) -> KeeperEvent:
        if type(event) is not dict:
            raise _Wrong("", "must be an object")
        kind = event.get("type")
        read = self._kinds.get(kind) if type(kind) is str else None
        if read is None:
            raise _Wrong("type", "must be started, metric, output or exit")
        return read(event)

    def _metric(self, event: Fields) -> Reported:
        index = _integer(event, "index")
        if self._exited:
            raise _Wrong("type", "is a metric after the exit")
        if index != self._next_index and self._next_index is not None:
            raise _Wrong("index", f"must be {self._next_index}: metrics are sent in order")
        self._next_index = index + 1
        kind = event.get("kind")
        known = _METRIC_KINDS.get(kind) if type(kind) is str else None
        if known is None:
            raise _Wrong("kind", "must be PERIODICAL or FINAL")
        return Reported(index, known, _integer(event, "sequence"), _value(event), _time(event))

    def _output(self, event: Fields) -> Output:
        stream = event.get("stream")
        if stream not in ("stdout", "stderr"):
            raise _Wrong("stream", "must be stdout or stderr")
        offset = _integer(event, "offset")
        if offset < self._ends.get(stream, 0):
            raise _Wrong("offset", f"must be at least {self._ends[stream]}: output is sent in order")
        data = _bytes(event)
        self._ends[stream] = offset + len(data)
        return Output(stream, offset, data)

    def _start(self, event: Fields) -> Started:
        if self._started or self._exited or self._next_index is not None:
            raise _Wrong("type", "is a start that is not the first of its trial's events")
        self._started = True
        return Started(_time(event), _text(event, "host", HOST_MAX), _integer(event, "pid"))

    def _exit(self, event: Fields) -> Exited:
        if self._exited:
            raise _Wrong("type", "is a second exit")
        self._exited = True
        code = event.get("code")
        if code is not None and (type(code) is not int or abs(code) > EXIT_CODE_MAX):
            raise _Wrong("code", "must be an exit code, a negative signal number, or null")
        return Exited(_time(event), code, _text(event, "message", MESSAGE_MAX))


_METRIC_KINDS = {kind.value: kind for kind in MetricKind}


def _integer(event: Fields, name: str) -> int:
    value = event.get(name)
    if type(value) is not int or not 0 <= value <= INTEGER_MAX:
        raise _Wrong(name, f"must be a whole number from 0 to {INTEGER_MAX}")
    return value


def _time(event: Fields) -> float:
    value = event.get("time")
    if (type(value) is float or type(value) is int) and 0 <= value <= TIME_MAX:  # NaN is not, either
        return float(value)
    raise _Wrong("time", "must be a time in seconds since the epoch")


def _text(event: Fields, name: str, limit: int) -> str:
    """A text that any store can keep: a lone surrogate cannot be encoded, and NUL ends strings in C."""
    value = event.get(name, "")
    if type(value) is not str or len(value) > limit:
        raise _Wrong(name, f"must be a string of at most {limit} characters")
    return value.encode("utf-8", "replace").decode("utf-8").replace("\0", "")


def _value(event: Fields) -> Json:
    text = event.get("value")
    if type(text) is not str:
        raise _Wrong("value", "must be a string with the JSON text of the metric")
    try:
        return wire.loads_metric(text)
    except ConfigError as error:
        raise _Wrong("value", f"is refused: {error.message}") from None


def _bytes(event: Fields) -> bytes:
    data = event.get("data")
    if type(data) is not str:
        raise _Wrong("data", "must be a string in base64")
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        raise _Wrong("data", "is not base64") from None
