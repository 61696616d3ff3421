"""The experiment's config: fields and rules, loading, NNI's older files, the places of errors, JSON Schema.

A file (or Python) fills in an `ExperimentConfig`; `checked()` gives the copy that the manager works with, or a
ConfigError that has every fault with file, line and field. The type hints of the dataclasses are the only list of
fields: reading, writing, JSON Schema and reference all follow from them, for plugins' `Config` classes too.

    config = load("config.yaml").checked()
    for name, platform, section in config.services: ...
"""

from __future__ import annotations

from nnilite.config._experiment import (
    AlgorithmConfig,
    CheckpointConfig,
    CodeLimits,
    ExperimentConfig,
    SharedStorageConfig,
)
from nnilite.config._load import from_dict, load
from nnilite.config._reading import ConfigErrors
from nnilite.config._schema import json_schema, reference_markdown
from nnilite.config._services import Service, ServiceConfig, TrialSettings

__all__ = [
    "AlgorithmConfig",
    "CheckpointConfig",
    "CodeLimits",
    "ConfigErrors",
    "ExperimentConfig",
    "Service",
    "ServiceConfig",
    "SharedStorageConfig",
    "TrialSettings",
    "from_dict",
    "json_schema",
    "load",
    "reference_markdown",
]
