"""`nnictl config convert --from nni`: a file in NNI's older format as one in the present format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nnilite.config import _v1
from nnilite.config._fields import normalize_name
from nnilite.config._record import record_of
from nnilite.config._source import ConfigSource
from nnilite.conversion import Conversion
from nnilite.errors import ConfigError, Place
from nnilite.space.space_checks import dotted


def convert(document: Mapping[str, Any]) -> Conversion:
    """Convert a file. What has another name now, and what was left out, is in the comments. Raises: ConfigError."""
    from nnilite.config._experiment_config import ExperimentConfig

    if not _v1.recognised(document):
        raise ConfigError("is in the present format already: it has no trainingServicePlatform", Place())
    kind: type = ExperimentConfig
    converted = _v1.convert(document, ConfigSource(), [entry.key for entry in record_of(kind).entries])
    return Conversion(converted.config, comments=(*_renamed(converted), *converted.warnings))


def _renamed(converted: _v1.Converted) -> Iterator[str]:
    for new, old in converted.origins.items():
        if (
            normalize_name(dotted(new)) != normalize_name(dotted(old))
            and len(new) > 0
            and old != ("trainingServicePlatform",)
        ):
            yield f"{dotted(new)} was {dotted(old)}"
