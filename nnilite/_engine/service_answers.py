"""Checks what a training service answers, like anything from outside."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, get_args, get_type_hints

from nnilite._engine.guarded_calls import PluginFault
from nnilite.records import EXIT_CODE_MAX, HOST_MAX, MESSAGE_MAX, TIME_MAX, Attributed, KeeperEvent, Reported
from nnilite.records.record_types import INTEGER_MAX
from nnilite.service import Handle, JobState, JobStatus
from nnilite.services.keeper_events import check_value

_URL_MAX = 4096
_IMAGE_MAX = 1000


def storable_status(status: JobStatus) -> JobStatus:
    """Return a status with what the database can keep; anything else is left out.

    Services read codes, times and texts in files and messages to which trials write.
    """
    kept = {
        "reason": _text(status.reason, MESSAGE_MAX),
        "host": _text(status.host, HOST_MAX),
        "url": _text(status.url, _URL_MAX),
        "image": _text(status.image, _IMAGE_MAX),
        "exit_code": _number(status.exit_code, -EXIT_CODE_MAX, EXIT_CODE_MAX, int),
        "started": _number(status.started, 0, TIME_MAX),
        "ended": _number(status.ended, 0, TIME_MAX),
    }
    return replace(status, **kept) if any(getattr(status, name) is not kept[name] for name in kept) else status


def _text(value: object, most: int) -> str:
    if not isinstance(value, str):
        return ""
    return value if len(value) <= most else value[:most]


def _number(value: object, least: float, most: float, kind: Any = (int, float)) -> Any:
    """Return a number between two limits, or None; of NaN no comparison is true."""
    fits = isinstance(value, kind) and not isinstance(value, bool) and least <= value <= most
    return value if fits else None


def check_handle(service: str, answer: object) -> Handle:
    """Return the handle of a submitted job. Raises: PluginFault if it is not a JSON object."""
    handle, problem = check_value(dict(answer) if isinstance(answer, Mapping) else None)
    if isinstance(handle, dict):
        return handle
    reason = f": {problem}" if problem else ""
    raise PluginFault(f"{service} returned {answer!r:.200} instead of a handle, which is a JSON object{reason}")


def check_statuses(service: str, answer: object, expected: int) -> list[JobStatus]:
    """Return the storable statuses in an answer. Raises: PluginFault if it is not one for each of `expected` jobs."""
    if not isinstance(answer, (list, tuple)) or len(answer) != expected:
        raise PluginFault(f"{service} did not return a list of {expected} statuses when polled")
    for status in answer:
        if not (isinstance(status, JobStatus) and isinstance(status.state, JobState)):
            raise PluginFault(f"{service} returned {status!r:.200} instead of a JobStatus")
        if status.cost is not None and not (isinstance(status.cost, (int, float)) and 0 <= status.cost < math.inf):
            raise PluginFault(f"{service} returned {status.cost!r:.60} instead of a cost")
    return [storable_status(status) for status in answer]


def explain_odd_event(event: KeeperEvent) -> str:
    """Return which field of an event has a value that neither the rules nor the database can take; "" if none has."""
    cls: type = type(event)
    is_report = cls in (Reported, Attributed)
    for (name, value), kinds in zip(vars(event).items(), _list_kinds(cls), strict=True):
        if is_report and name == "value":
            problem = "" if isinstance(value, float | None) else check_value(value)[1]
            if problem:
                return f"value: {problem}"
        # NaN fails every comparison.
        elif not isinstance(value, kinds) or (isinstance(value, int | float) and not abs(value) <= INTEGER_MAX):
            return f"{name} cannot be {value!r:.60}"
    return ""


@cache
def _list_kinds(event: type) -> tuple[tuple[type, ...], ...]:
    """Return the types that each field of an event may have."""
    hints = get_type_hints(event)
    types = (get_args(hint) if type(None) in get_args(hint) else (hint,) for hint in hints.values())
    return tuple((int, float) if float in kinds else kinds for kinds in types)
