"""The experiment's config: its fields and rules, loading, NNI's older format, the places of errors, JSON Schema.

A file (or Python) fills in an `ExperimentConfig`; `checked()` parses it into the `CheckedConfig` that the manager works
with, or raises a ConfigError that has every fault with file, line and field. The type hints of the dataclasses are the
only list of fields: reading, writing, JSON Schema and reference follow from them, for plugins' `Config` classes too.

    config = load("config.yaml").checked()
    for name, platform, section in config.services: ...

_experiment_config      every field of an experiment, with its type, default and description; the parsed config
_nested_configs         the configs inside it: algorithms, limits, trackers, webhooks
_fields                 the names of fields
_strict_attributes      the base of config classes
_field_objects          what a program gives for a field, as the object that it stands for
_former_fields          what became of fields of other formats
_section_synonyms       what people write in trainingService for what has another name or place
_python_hints           what to write for a name that a config in Python has not
_kinds                  what a field may hold, derived from its type hint
_record                 dataclasses as kinds, with a field of the YAML for each field of the class
_config_reading         the state of one check: the places of fields, and all faults so far
_field_rules            rules between fields, and values that follow from other fields
_command_hints          what in a trial command is hardly meant
_program_hints          programs of a trial command, and files for them, that are missing
_class_hints            what className is meant to be, where there is no such class
_placeholders           values that were copied from an example and not filled in
_environment_hints      variables in fields where they are not replaced
_known_points            constraints between parameters, and trials that run first
_ignored_options        which options were set and have no effect
_services               the sections of training services, read by the plugins' own classes
shared_storage_config   the section `sharedStorage`
_algorithm_check        tries out tuner and assessor, so that a wrong argument is found at its line
_load                   makes an ExperimentConfig from a file, a text or a mapping
_explicit_fields        the fields that a file or a mapping gives
_stored                 the form in which an experiment keeps its config
text                    reads the text of a file as YAML or JSON
_source                 the line of each field
_nni_form               the form in which NNI's programs expect a config
secrets                 hides secrets, even in a config whose shape is wrong
_v1                     from NNI's older format to today's
_v1_tables              which field became which
_v1_leftovers           what no table of that takes: fields in a wrong place, or misspelt
_nni_conversion         such a file, converted for people
_schema                 JSON Schema for editors, and the reference page
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnilite.config._config_reading import ConfigErrors
from nnilite.config._experiment_config import CheckedConfig, ExperimentConfig
from nnilite.config._ignored_options import BY_MANAGER, BY_WORKERS, OptionWithoutEffect
from nnilite.config._load import from_dict, load, parse
from nnilite.config._nested_configs import (
    AlgorithmConfig,
    CheckpointConfig,
    CodeLimits,
    DistributedConfig,
    ElasticNodes,
    TrackerConfig,
    WebhookConfig,
)
from nnilite.config._nni_form import nni_form
from nnilite.config._schema import json_schema, reference_markdown
from nnilite.config._services import Service, ServiceConfig, ServiceShare, TrialSettings
from nnilite.config._stored import from_stored, load_stored, read_stored, stored
from nnilite.config._strict_attributes import Fields
from nnilite.config.secrets import masked
from nnilite.config.shared_storage_config import SharedStorageConfig

if TYPE_CHECKING:
    from nnilite.config._experiment_config import CheckedStorage as CheckedStorage

__all__ = [
    "BY_MANAGER",
    "BY_WORKERS",
    "AlgorithmConfig",
    "CheckedConfig",
    "CheckpointConfig",
    "CodeLimits",
    "ConfigErrors",
    "DistributedConfig",
    "ElasticNodes",
    "ExperimentConfig",
    "Fields",
    "OptionWithoutEffect",
    "Service",
    "ServiceConfig",
    "ServiceShare",
    "SharedStorageConfig",
    "TrackerConfig",
    "TrialSettings",
    "WebhookConfig",
    "from_dict",
    "from_stored",
    "json_schema",
    "load",
    "load_stored",
    "masked",
    "nni_form",
    "parse",
    "read_stored",
    "reference_markdown",
    "stored",
]
