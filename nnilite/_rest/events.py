"""Reads the body of a keeper's callback."""

from __future__ import annotations

from nnilite._rest import wire
from nnilite._rest.refusal import HttpRefusal
from nnilite.errors import ConfigError, Place
from nnilite.records import Json, KeeperEvent
from nnilite.services.keeper_events import MOST_VALUES, count_containers, count_values, read_batch

EVENTS_MAX = 10_000
_CURE = "send less at a time"


def parse_batch(body: bytes) -> list[KeeperEvent]:
    """Return the events of a request's body. Raises: ConfigError with event and field, HttpRefusal (too many).

    Example: `parse_batch(b'{"events": []}')` is `[]`, a heartbeat.
    """
    return parse_events(parse_body(body))


def parse_body(body: bytes) -> Json:
    """Parse what a keeper sends, which may be a hostile trial with its token. Raises: ConfigError, HttpRefusal."""
    if count_values(body) > MOST_VALUES:
        raise HttpRefusal(413, f"a batch has at most {MOST_VALUES} values; {_CURE}")
    return wire.loads(body)


def parse_events(batch: Json) -> list[KeeperEvent]:
    """Return the events of a body that has been parsed. Raises: ConfigError, HttpRefusal."""
    events = batch.get("events") if isinstance(batch, dict) else None
    if not isinstance(events, list):
        raise ConfigError('the body must be {"events": [...]}', Place(field="events"))
    if len(events) > EVENTS_MAX:
        raise HttpRefusal(413, f"a batch has at most {EVENTS_MAX} events; {_CURE}")
    # Values of metrics are JSON texts, whose own values are not counted with those of the body.
    texts = [str(event.get("value")) for event in events if isinstance(event, dict) and "value" in event]
    if len(texts) > 1 and sum(map(count_containers, texts)) > MOST_VALUES:
        raise HttpRefusal(413, f"the metrics of a batch have at most {MOST_VALUES} lists and objects; {_CURE}")
    return read_batch(events)
