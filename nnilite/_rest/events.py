"""Reads the body of a keeper's callback."""

from __future__ import annotations

from nnilite._rest import wire
from nnilite._rest.refusal import HttpRefusal
from nnilite.errors import ConfigError, Place
from nnilite.keeper_events import read_batch
from nnilite.records import Json, KeeperEvent

EVENTS_MAX = 10_000


def parse_batch(body: bytes) -> list[KeeperEvent]:
    """The events of a request's body. Raises: ConfigError that names the event and the field, Refusal (too many).

    Example: `parse_batch(b'{"events": []}')` is `[]`, a heartbeat.
    """
    return events_of(wire.loads(body))


def events_of(batch: Json) -> list[KeeperEvent]:
    """The same for a body that has been parsed."""
    events = batch.get("events") if isinstance(batch, dict) else None
    if not isinstance(events, list):
        raise ConfigError('the body must be {"events": [...]}', Place(field="events"))
    if len(events) > EVENTS_MAX:
        raise HttpRefusal(413, f"a batch has at most {EVENTS_MAX} events; send less at a time")
    return read_batch(events)
