"""Makes an ExperimentConfig from a file or a mapping."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnilite.config._experiment_config import ExperimentConfig
from nnilite.config._explicit_fields import read_mapping
from nnilite.config._source import ConfigSource


def load(path: str | Path) -> ExperimentConfig:
    """Read an experiment's YAML or JSON file; one in NNI's older format is converted (see `config.warnings`).

    Paths in it are relative to its folder. The rest is checked by `checked()`.
    Raises: ConfigError if the file cannot be read or has fields that do not exist.
    """
    return ExperimentConfig.load(path)


def parse(text: str, base_dir: str | Path, name: str | None = None) -> ExperimentConfig:
    """Read the text of an experiment's YAML or JSON file, as `load` does.

    Paths in it are relative to `base_dir`; `name` is the file's name in errors. Raises: ConfigError.
    """
    from nnilite.config.text import parse_yaml

    data, source = parse_yaml(text, name)
    return _make(data, source, base_dir)


def from_dict(data: Mapping[str, Any], base_dir: str | Path = ".") -> ExperimentConfig:
    """Make an ExperimentConfig from a mapping. Raises: ConfigError."""
    return _make(data, ConfigSource(), base_dir)


def _make(data: Any, source: ConfigSource, base_dir: str | Path) -> ExperimentConfig:
    config = ExperimentConfig()
    config._take(read_mapping(data, source, Path(base_dir).absolute(), ExperimentConfig))
    return config


__all__ = ["from_dict", "load", "parse"]
