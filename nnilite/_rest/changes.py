"""What can be changed in a running experiment: for each field its name in the config, its schema, and its check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nnilite._rest import wire
from nnilite._rest.route import Schema
from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite.units import MAX_CONCURRENCY

_COUNT_MAX = 10**9
_TEXT_MAX = 40
_DURATION_WORDS = 'a number of seconds, a text such as "2h", or null for no limit'


def _is_count(value: Json, most: int = _COUNT_MAX) -> bool:
    return type(value) is int and 1 <= value <= most


def _is_duration(value: Json) -> bool:
    return _is_count(value) or (isinstance(value, str) and 0 < len(value) <= _TEXT_MAX)


@dataclass(frozen=True)
class Changeable:
    """One field."""

    name: str  # as the config has it in Python
    schema: Schema
    fits: Callable[[Json], bool]
    wanted: str  # in words


_COUNT: Schema = {"type": ["integer", "null"], "minimum": 1, "maximum": _COUNT_MAX}
_DURATION: Schema = {"anyOf": [_COUNT, {"type": "string", "minLength": 1, "maxLength": _TEXT_MAX}]}

CHANGEABLE: Mapping[str, Changeable] = {
    "trialConcurrency": Changeable(
        "trial_concurrency",
        {"type": "integer", "minimum": 1, "maximum": MAX_CONCURRENCY},
        lambda value: _is_count(value, MAX_CONCURRENCY),
        f"a whole number from 1 to {MAX_CONCURRENCY}",
    ),
    "maxTrialNumber": Changeable(
        "max_trial_number",
        _COUNT,
        lambda value: value is None or _is_count(value),
        "a whole number from 1, or null for no limit",
    ),
    **{
        wire_name: Changeable(name, _DURATION, lambda value: value is None or _is_duration(value), _DURATION_WORDS)
        for wire_name, name in (
            ("maxExperimentDuration", "max_experiment_duration"),
            ("maxTrialDuration", "max_trial_duration"),
        )
    },
    "maxCost": Changeable(
        "max_cost",
        {"type": ["number", "null"], "minimum": 0, "maximum": _COUNT_MAX},
        lambda value: value is None or (type(value) in (int, float) and 0 <= value <= _COUNT_MAX),
        "a number from 0, or null for no limit",
    ),
    "searchSpace": Changeable("search_space", {"type": "object"}, lambda value: isinstance(value, dict), "an object"),
}

CHANGES: Schema = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": False,
    "properties": {wire_name: field.schema for wire_name, field in CHANGEABLE.items()},
}
"""The schema of a request that changes some of them."""


def read_changes(body: Json) -> dict[str, Json]:
    """The requested changes, by the names of the config's fields. Raises: ConfigError."""
    given = wire.strict_object(body, list(CHANGEABLE))
    if not given:
        raise ConfigError(f"say what to change: {', '.join(CHANGEABLE)}")
    changes = {}
    for wire_name, value in given.items():
        field = CHANGEABLE[wire_name]
        changes[field.name] = _whole(value)
        if not field.fits(changes[field.name]):
            raise ConfigError(f"must be {field.wanted}", Place(field=wire_name))
    return changes


def _whole(value: Json) -> Json:
    """A number as an int if it is whole: in JSON, 2.0 is a whole number as well."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
