"""The form in which an experiment keeps its checked config: every field, including those with default values.

So an experiment continues as it began when a later version has other defaults. Where a default was a mistake, the
experiment gets the new one. A mark in the file distinguishes the old default from the same value that a user has set.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnilite._experiments.documents import read_document
from nnilite.config._explicit_fields import MARK
from nnilite.config._load import from_dict
from nnilite.errors import ConfigError, DamagedFile

if TYPE_CHECKING:
    from nnilite.config._experiment_config import CheckedConfig, ExperimentConfig
    from nnilite.records import Json

_FILE = "config.json"
_CURE = "restore it from a copy, or from the file that the experiment was created from"
_DEFAULTS = 2  # the number of these defaults; files without a mark have the first ones
_NICENESS = 10  # the first default for local trials, which starved while other programs ran


def stored(config: CheckedConfig) -> dict[str, Json]:
    """Return what is to be kept of a config, passwords included."""
    return {**config.json(secrets=True), MARK: _DEFAULTS}


def from_stored(fields: Mapping[str, Json], base: Path) -> ExperimentConfig:
    """Make a config, not checked yet, from what was kept. Raises: ConfigError."""
    given = dict(fields)
    if MARK not in given and "trainingService" in given:
        given["trainingService"] = _add_new_defaults(given["trainingService"])
    return from_dict(given, base)


def load_stored(directory: Path, *, paths: bool = True) -> CheckedConfig:
    """Load the experiment's own copy of its config. `paths`: its folders must still exist.

    Raises: ConfigError, DamagedFile, UnreadableFile.
    """
    try:
        return read_stored(directory).checked(paths=paths)
    except ConfigError as error:
        place = error.place._replace(file=error.place.file or str(directory / _FILE))
        raise ConfigError(error.message, place) from error
    except RecursionError:
        raise DamagedFile(directory / _FILE, "it is nested too deep", _CURE) from None


def read_stored(directory: Path) -> ExperimentConfig:
    """Read the experiment's own copy of its config, not checked yet, so that a program can change it.

    Raises: ConfigError, DamagedFile, UnreadableFile.
    """
    try:
        return from_stored(read_document(directory / _FILE, _CURE).fields, directory)
    except FileNotFoundError:
        raise DamagedFile(directory / _FILE, "it is gone", _CURE) from None


def _add_new_defaults(services: Any) -> Any:
    if isinstance(services, list):
        return [_add_new_defaults(one) for one in services]
    if isinstance(services, dict) and services.get("platform") == "local" and services.get("niceness") == _NICENESS:
        return {name: value for name, value in services.items() if name != "niceness"}
    return services
