"""The fields of an ExperimentConfig, as a file or a mapping gives them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nnilite.config import _v1, _v1_tables
from nnilite.config._config_reading import At, ConfigReading
from nnilite.config._field_rules import complete
from nnilite.config._record import record_of
from nnilite.config._services import shortcuts
from nnilite.config._source import ConfigSource
from nnilite.errors import ConfigError, Place
from nnilite.units.path_rules import expand_home

MARK = "defaults"
"""A field only of kept configs (see `_stored`), which people may copy. It says nothing of the experiment."""


_CONFIGS = {".yaml", ".yml", ".json"}
_NO_CONFIGS = {
    ".toml": "is TOML; write the config as YAML or JSON",
    ".py": "is a program; write a config as YAML, with the program in it: trialCommand: python3 PROGRAM",
    ".ipynb": "is a notebook; write a config as YAML, with a program in it: trialCommand: python3 PROGRAM",
}


class ExplicitFields(NamedTuple):
    """The fields that are set, by their names in the file, and where they come from."""

    values: Mapping[str, Any]
    source: ConfigSource
    base: Path  # relative paths are relative to it
    warnings: tuple[str, ...]


def read_file(path: str | Path, kind: type) -> ExplicitFields:
    """Read a file with the fields of a config class. Raises: ConfigError."""
    from nnilite.config.text import read_yaml

    file = expand_home(path)
    if file.suffix.lower() in _NO_CONFIGS:
        raise ConfigError(_NO_CONFIGS[file.suffix.lower()], Place(str(file)))
    if near := _find_near(file):
        raise ConfigError(f"cannot be read: there is no such file; did you mean {near}?", Place(str(file)))
    data, source = read_yaml(file)
    return read_mapping(data, source, file.absolute().parent, kind)


def _find_near(file: Path) -> str:
    """Return the file next to a missing one that has nearly its name, "" if there is none, or the file is there."""
    try:
        if file.exists():
            return ""
        names = [one.name for one in file.parent.iterdir() if one.suffix.lower() in _CONFIGS]
    except OSError:
        return ""
    import difflib

    near = difflib.get_close_matches(file.name, names, 1)
    return str(file.with_name(near[0])) if near else ""


def read_mapping(data: Any, source: ConfigSource, base: Path, kind: type) -> ExplicitFields:
    """Return the fields in `data`, which may be in NNI's older format. Raises: ConfigError."""
    if not isinstance(data, Mapping):
        raise ConfigError("is not a mapping of fields such as `trialCommand: python3 trial.py`", Place(source.file))
    data = {name: value for name, value in data.items() if name != MARK}
    warnings: tuple[str, ...] = ()
    if _v1.recognised(data):
        converted = _v1.convert(data, source, [entry.key for entry in record_of(kind).entries])
        data, warnings = converted.config, tuple(converted.warnings)
        unset = _v1_tables.list_older_places(data.get("trainingService"))
        source = ConfigSource(source.file, source.root, converted.origins, _v1_tables.list_older_names(), unset)
    _check_names(kind, data, source, base)
    return ExplicitFields(data, source, base, warnings)


def _check_names(kind: type, data: Mapping[str, Any], source: ConfigSource, base: Path) -> None:
    """Report unknown fields together with all other faults. Without unknown fields, `checked` reports the faults."""
    reading = ConfigReading(source, base, shortcuts={}, resolve=False)
    record = record_of(kind)
    known = {entry.key: value for key, value in data.items() if (entry := record.entry(str(key)))}
    reading.shortcuts = shortcuts(known)
    at = At(reading)
    values = record.read_fields(data, at)
    if reading.misspelt:
        complete(values, at)
        reading.finish()
