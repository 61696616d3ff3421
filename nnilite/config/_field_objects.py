"""What a program gives for a field of the experiment's config, as the object that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnilite.config._fields import did_you_mean, normalize_name
from nnilite.config._nested_configs import AlgorithmConfig, CheckpointConfig, CodeLimits, DistributedConfig
from nnilite.config._record import Record, record_of
from nnilite.config._services import make_service_object
from nnilite.records.shapes import camel

_OBJECTS = {
    "tuner": AlgorithmConfig,
    "assessor": AlgorithmConfig,
    "advisor": AlgorithmConfig,
    "checkpoint": CheckpointConfig,
    "code_limits": CodeLimits,
    "distributed": DistributedConfig,
}


def replace_name(key: str, value: Any) -> Any:
    """Return the mapping that a name stands for in a call, such as `tuner="TPE"` or `training_service="local"`."""
    name = normalize_name(key)
    field = "platform" if name == "trainingservice" else "name" if name in ("tuner", "assessor", "advisor") else None
    return {field: value} if field and isinstance(value, str) else value


def read_object(name: str, value: Any) -> Any:
    """Return the object that a mapping describes. `checked` reports what is wrong with other values."""
    if name == "training_service":
        several = isinstance(value, (list, tuple))
        return [make_service_object(item) for item in value] if several else make_service_object(value)
    cls = _OBJECTS.get(name)
    if cls is None or not isinstance(value, Mapping):
        return value
    record = record_of(cls)
    made = cls()
    for key, item in value.items():
        entry = record.entry(str(key))
        if entry is None:
            raise AttributeError(f"{camel(name)} has no field {key!r}{did_you_mean(str(key), _keys(record))}")
        if item is not None:
            setattr(made, entry.name, item)
    return made


def _keys(record: Record) -> list[str]:
    return [entry.key for entry in record.entries]
