"""The form in which an experiment keeps its checked config: every field, including those that nobody has set.

So an experiment goes on as it began when a later version has other defaults. Where a default was a mistake, the
experiment gets the new one. Only a mark in the file tells the old default from the same value that a user has set.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnilite.config._filling import MARK
from nnilite.config._load import from_dict

if TYPE_CHECKING:
    from nnilite.config._experiment_config import ExperimentConfig
    from nnilite.records import Json

_DEFAULTS = 2  # the number of these defaults; files without a mark have the first ones
_NICENESS = 10  # the first default for local trials, which starved beside other programs


def stored(config: ExperimentConfig) -> dict[str, Json]:
    """Return what is to be kept of a config, passwords included."""
    return {**config.json(secrets=True), MARK: _DEFAULTS}


def from_stored(fields: Mapping[str, Json], base: Path) -> ExperimentConfig:
    """Make a config, not checked yet, from what was kept. Raises: ConfigError."""
    given = dict(fields)
    if MARK not in given and "trainingService" in given:
        given["trainingService"] = _with_new_defaults(given["trainingService"])
    return from_dict(given, base)


def _with_new_defaults(services: Any) -> Any:
    if isinstance(services, list):
        return [_with_new_defaults(one) for one in services]
    if isinstance(services, dict) and services.get("platform") == "local" and services.get("niceness") == _NICENESS:
        return {name: value for name, value in services.items() if name != "niceness"}
    return services
