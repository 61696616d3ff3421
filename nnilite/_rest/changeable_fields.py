"""What can be changed in a running experiment: for each field its name in the config, its schema, and its check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nnilite._rest import wire
from nnilite._rest.route_definition import Schema
from nnilite.errors import ConfigError, Place
from nnilite.records import PRIORITY_MAX, Json
from nnilite.units import MAX_CONCURRENCY, parse_duration_s

_COUNT_MAX = 10**9
_RESULT_MAX = 1e300
_TEXT_MAX = 40


def _count(value: Json, most: int = _COUNT_MAX) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(f"must be a whole number from 1 to {most}")
    return value


def _check_priority(value: Json) -> int:
    if type(value) is not int or abs(value) > PRIORITY_MAX:
        raise ValueError(
            f"must be a whole number from {-PRIORITY_MAX} to {PRIORITY_MAX}, or null for that of the config"
        )
    return value


def _duration(value: Json) -> int:
    if isinstance(value, str) and len(value) > _TEXT_MAX:
        raise ValueError('must be a number of seconds, a text such as "2h", or null for no limit')
    return parse_duration_s(value) if isinstance(value, str) else _count(value)


def _money(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _COUNT_MAX:
        raise ValueError("must be a number from 0, or null for no limit")
    return value


def _result(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_RESULT_MAX <= value <= _RESULT_MAX:
        raise ValueError("must be a number, or null for no limit")
    return float(value)


def _read_object(value: Json) -> Mapping[str, Json]:
    if not isinstance(value, dict):
        raise ValueError("must be an object")
    return value


@dataclass(frozen=True)
class Changeable:
    """One field. `read` gives the value for the manager, or raises ValueError with what it must be."""

    name: str  # field name in ExperimentLimits
    schema: Schema
    read: Callable[[Json], Any]
    may_be_null: bool = True


_COUNT: Schema = {"type": ["integer", "null"], "minimum": 1, "maximum": _COUNT_MAX}
_SPAN = r"^(0\.0*[1-9][0-9]{0,3}|[1-9][0-9]{0,6}(\.[0-9]{1,3})?) ?[dhms]$"
_DURATION: Schema = {"anyOf": [_COUNT, {"type": "string", "maxLength": _TEXT_MAX, "pattern": _SPAN}]}
_PRIORITY: Schema = {"type": ["integer", "null"], "minimum": -PRIORITY_MAX, "maximum": PRIORITY_MAX}

CHANGEABLE: Mapping[str, Changeable] = {
    "trialConcurrency": Changeable(
        "concurrency",
        {"type": "integer", "minimum": 1, "maximum": MAX_CONCURRENCY},
        lambda value: _count(value, MAX_CONCURRENCY),
        may_be_null=False,
    ),
    "maxTrialNumber": Changeable("max_trials", _COUNT, _count),
    "maxExperimentDuration": Changeable("max_duration_s", _DURATION, _duration),
    "maxTrialDuration": Changeable("max_trial_duration_s", _DURATION, _duration),
    "maxCost": Changeable("max_cost", {"type": ["number", "null"], "minimum": 0, "maximum": _COUNT_MAX}, _money),
    "stopAtValue": Changeable(
        "stop_at_value", {"type": ["number", "null"], "minimum": -_RESULT_MAX, "maximum": _RESULT_MAX}, _result
    ),
    "maxSlots": Changeable("max_slots", _COUNT, _count),
    "priority": Changeable("priority", _PRIORITY, _check_priority),
    "searchSpace": Changeable("search_space", {"type": "object"}, _read_object, may_be_null=False),
}

CHANGES: Schema = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": False,
    "properties": {wire_name: field.schema for wire_name, field in CHANGEABLE.items()},
}
"""The schema of a request that changes some of them."""


def read_changes(body: Json) -> dict[str, Json]:
    """Return the requested changes, by the fields of ExperimentLimits, and `search_space`. Raises: ConfigError."""
    given = wire.check_strict_object(body, list(CHANGEABLE))
    if not given:
        raise ConfigError(f"say what to change: {', '.join(CHANGEABLE)}")
    return {CHANGEABLE[wire_name].name: _read(wire_name, _whole(value)) for wire_name, value in given.items()}


def _read(wire_name: str, value: Json) -> Any:
    field = CHANGEABLE[wire_name]
    if value is None and field.may_be_null:
        return None
    try:
        return field.read(value)
    except ValueError as error:
        raise ConfigError(str(error), Place(field=wire_name)) from error


def _whole(value: Json) -> Json:
    """Return a number as an int if it is whole: in JSON, 2.0 is a whole number as well."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
