"""Makes an ExperimentConfig from a file or a mapping."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnilite.config import _v1
from nnilite.config._config_reading import At, ConfigReading
from nnilite.config._experiment_config import ExperimentConfig
from nnilite.config._field_rules import complete
from nnilite.config._record import record_of
from nnilite.config._services import shortcuts
from nnilite.config._source import ConfigSource
from nnilite.errors import ConfigError, Place

MARK = "defaults"
"""A field only of kept configs (see `_stored`), which people may copy. It says nothing of the experiment."""


def load(path: str | Path) -> ExperimentConfig:
    """Read an experiment's YAML or JSON file; one in NNI's older format is converted (see `config.warnings`).

    Paths in it are relative to its folder. The rest is checked by `checked()`.
    Raises: ConfigError if the file cannot be read or has fields that do not exist.
    """
    from nnilite.config._text import read_yaml

    file = Path(path).expanduser()
    data, source = read_yaml(file)
    return _config(data, source, file.absolute().parent)


def parse(text: str, base_dir: str | Path, name: str | None = None) -> ExperimentConfig:
    """Read the text of an experiment's YAML or JSON file, as `load` does.

    Paths in it are relative to `base_dir`; `name` stands for the file in errors. Raises: ConfigError.
    """
    from nnilite.config._text import parse_yaml

    data, source = parse_yaml(text, name)
    return _config(data, source, Path(base_dir).absolute())


def from_dict(data: Mapping[str, Any], base_dir: str | Path = ".") -> ExperimentConfig:
    """Make an ExperimentConfig from a mapping. Raises: ConfigError."""
    return _config(data, ConfigSource(), Path(base_dir).absolute())


def _config(data: Any, source: ConfigSource, base: Path) -> ExperimentConfig:
    if not isinstance(data, Mapping):
        raise ConfigError("is not a mapping of fields such as `trialCommand: python3 trial.py`", Place(source.file))
    data = {name: value for name, value in data.items() if name != MARK}
    warnings: tuple[str, ...] = ()
    if _v1.recognised(data):
        converted = _v1.convert(data, source)
        data, warnings = converted.config, tuple(converted.warnings)
        source = ConfigSource(source.file, source.root, converted.origins)
    _check_names(data, source, base)
    config = ExperimentConfig()
    config._begin(source, base, warnings)
    for key, value in data.items():
        config._fill(key, value)
    return config


def _check_names(data: Mapping[str, Any], source: ConfigSource, base: Path) -> None:
    """Report unknown fields together with all other faults. Without unknown fields, `checked` reports the faults."""
    reading = ConfigReading(source, base, shortcuts={}, resolve=False)
    record = record_of(ExperimentConfig)
    known = {entry.key: value for key, value in data.items() if (entry := record.entry(str(key)))}
    reading.shortcuts = shortcuts(known)
    at = At(reading)
    values = record.read_fields(data, at)
    if reading.misspelt:
        complete(values, at)
        reading.finish()


__all__ = ["from_dict", "load", "parse"]
