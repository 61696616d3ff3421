"""Where a function is to run: what `on=` accepts, as a config."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from nnilite._plugins import lookup
from nnilite.config import ExperimentConfig, ServiceConfig
from nnilite.errors import ConfigError, Conflict

RunsOn: TypeAlias = str | Path | ExperimentConfig | ServiceConfig
"""A config file, a config, the name of a platform, an address such as `ssh://user@host`, or a service's section."""

INLINE = "inline"
_SUFFIXES = (".yaml", ".yml", ".json")


def config_on(on: RunsOn) -> ExperimentConfig:
    """Return a config of its own for what `on` describes. Raises: ConfigError, Conflict."""
    if isinstance(on, ExperimentConfig):
        return copy.copy(on)
    if isinstance(on, ServiceConfig):
        config = ExperimentConfig()
        config.training_service = on
        return config
    text = str(on)
    if isinstance(on, Path) or text.lower().endswith(_SUFFIXES):
        return ExperimentConfig.load(on)
    if "://" in text:
        config = ExperimentConfig()
        try:
            section = dict(lookup.address(urlsplit(text).scheme)(text))
        except ValueError as error:
            raise Conflict(f"on={text!r} is not an address: {error}") from error
        config.training_service = ServiceConfig(str(section.pop("platform")), **section)
        return config
    try:
        return ExperimentConfig(text)
    except ConfigError as error:
        raise Conflict(
            f"on={text!r}: {error} Give the name of a platform, a config file (*.yaml), an address (ssh://user@host), "
            f"a config, or {INLINE!r}."
        ) from error
