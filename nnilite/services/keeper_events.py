"""Checks events of keepers: JSON comes in, records or one clear sentence go out. Nothing in the JSON is trusted.

Events come by the callback, from an attempt's folder or from a platform's log. In each case they come from a machine
that runs a user's code, so this module checks them all: each field has its type and its bounds, and values that the
store, the tuner or other JSON parsers could not handle are refused here.

A bad value of one metric must not hold up the metrics after it: it becomes null, and the event says why
(`Reported.refused`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nnilite.errors import ConfigError, Place
from nnilite.records import EVENT_TYPES, Attributed, Json, KeeperEvent, Output, Reported, Started, Used, storable
from nnilite.records.shapes import Mismatch, read_fields

__all__ = ["check_value", "deeper", "parse_event", "read_batch", "read_value"]

MAX_DEPTH = 100  # a recursion over a deeper value could overflow the stack
MAX_DIGITS = 300  # a longer integer may be too large for a float
MOST_VALUES = 200_000
"""The values in one text of a keeper: several times what 10,000 events have.

The parser lets nothing else run: these take it 60 ms, 8 MB of `[]` a second.
"""
_FEW_VALUES = 10_000


def read_batch(events: Sequence[Json]) -> list[KeeperEvent]:
    """Return the events of one callback, in order. Raises: ConfigError that names the event and the field.

    The order is checked, too: reports count up by one, pieces of output do not overlap, and a trial starts once, ends
    once, reports nothing after its end, and what it uses is reported once at most.
    """
    order = _Order()
    found: list[KeeperEvent] = []
    for number, event in enumerate(events):
        try:
            one = _parsed(event)
            order.check(one)
        except Mismatch as error:
            field = f"events[{number}].{error.field}" if error.field else f"events[{number}]"
            raise ConfigError(error.problem, Place(field=field)) from None
        found.append(one)
    return found


def parse_event(event: Json) -> KeeperEvent:
    """Return one event as a keeper writes it. Raises: ConfigError that names the field."""
    try:
        return _parsed(event)
    except Mismatch as error:
        raise ConfigError(error.problem, Place(field=error.field or None)) from None


def _parsed(event: Json) -> KeeperEvent:
    if type(event) is not dict:
        raise Mismatch("", "must be an object")
    kind = event.get("type")
    cls = EVENT_TYPES.get(kind) if type(kind) is str else None
    if cls is None:
        raise Mismatch("type", f"must be {', '.join([*EVENT_TYPES][:-1])} or {[*EVENT_TYPES][-1]}")
    fields = read_fields(cls, event)
    if cls in (Reported, Attributed):
        fields["value"], fields["refused"] = read_value(fields["value"])
    return cls(**fields)


class _Order:
    """Checks the order of a batch by what has come so far."""

    def __init__(self) -> None:
        self._next_index: int | None = None
        self._ends: dict[str, int] = {}
        self._started = False
        self._exited = False
        self._used = False

    def check(self, event: KeeperEvent) -> None:
        if isinstance(event, Reported | Attributed):
            self._report(event)
        elif isinstance(event, Output):
            self._output(event)
        elif isinstance(event, Started):
            if self._started or self._exited or self._next_index is not None:
                raise Mismatch("type", "is a start, but not the first event of its trial")
            self._started = True
        elif isinstance(event, Used):
            if self._exited or self._used:
                raise Mismatch("type", "is a second report of what the trial uses, or one after its exit")
            self._used = True
        elif self._exited:
            raise Mismatch("type", "is a second exit")
        else:
            self._exited = True

    def _report(self, event: Reported | Attributed) -> None:
        if self._exited:
            raise Mismatch("type", "is a report after the exit")
        if event.index != self._next_index and self._next_index is not None:
            raise Mismatch("index", f"must be {self._next_index}: reports are sent in order")
        self._next_index = event.index + 1

    def _output(self, event: Output) -> None:
        end = self._ends.get(event.stream, 0)
        if event.offset < end:
            raise Mismatch("offset", f"must be at least {end}: output is sent in order")
        self._ends[event.stream] = event.offset + len(event.data)


# ---------------------------------------------------------------- values


class _TooLong(ValueError):
    pass


def _int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise _TooLong(f"it contains a whole number of more than {MAX_DIGITS} digits")
    return int(digits)


_LENIENT = json.JSONDecoder(parse_int=_int)


def read_value(text: str) -> tuple[Json, str]:
    """Return the value of a metric's JSON text, which may have NaN and Infinity; or None, and why it is refused."""
    if count_containers(text) > MOST_VALUES:
        return None, f"it has more than {MOST_VALUES} lists and objects"
    try:
        if not text.isascii():
            text = storable(text)
        value = _LENIENT.decode(text)
        if "\\ud" in text or "\\uD" in text:
            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except json.JSONDecodeError as error:
        return None, f"it is not JSON: {error}"
    except _TooLong as error:
        return None, str(error)
    except RecursionError:
        return None, f"it is nested more than {MAX_DEPTH} deep"
    if text.count("[") + text.count("{") > MAX_DEPTH and deeper(value, MAX_DEPTH):
        return None, f"it is nested more than {MAX_DEPTH} deep"
    return value, ""


def check_value(value: Any) -> tuple[Json, str]:
    """Return the same for a value that is already parsed."""
    try:
        return read_value(json.dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        return None, f"it is not JSON: {error}"


def count_values(text: bytes) -> int:
    """Return how many values a JSON text may have at most, its keys aside, without parsing it."""
    most = _count_separators(text)
    if most > _FEW_VALUES:  # separators within strings do not count; to leave them out takes longer
        most = _count_separators(b"".join(text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]))
    return most


def count_containers(text: str) -> int:
    """Return how many lists and objects a JSON text has, without parsing it; of a few, perhaps more than it has.

    They take the parser ten times as long as numbers.
    """
    found = text.count("[") + text.count("{")
    if found > MOST_VALUES:
        bare = "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2])
        found = bare.count("[") + bare.count("{")
    return found


def _count_separators(text: bytes) -> int:
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")


def deeper(value: Json, depth: int) -> bool:
    """Return whether a value is nested more than `depth` deep."""
    level = [value]
    for _ in range(depth + 1):
        level = [item for box in level if isinstance(box, dict | list) for item in _read_items(box)]
        if not level:
            return False
    return True


def _read_items(box: dict[str, Json] | list[Json]) -> list[Json]:
    return list(box.values()) if isinstance(box, dict) else box
