"""Finds the options of a checked config that have no effect, by what the services declare in `TrainingService.ignores`.

Only options that differ from their defaults are named.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nnilite._plugins import lookup
from nnilite.config._record import ConfigField, record_of
from nnilite.config._services import SHORTCUTS, Service
from nnilite.errors import NniliteError
from nnilite.records import Json

if TYPE_CHECKING:
    from nnilite.config._experiment_config import CheckedConfig
    from nnilite.config._nested_configs import AlgorithmConfig
    from nnilite.service import IgnoredOption

BY_WORKERS = (
    "trialCommand",
    "trialCodeDirectory",
    "codeLimits",
    "trialGpuNumber",
    "nniManagerIp",
    "callback",
    "sharedStorage",
    "checkpoint.keep",
    "checkpoint.maxSize",
    "gracePeriod",
    "retryOn",
    "maxOutputSize",
)
"""The options of an experiment whose effect depends on the training service, which may ignore them."""

BY_MANAGER = (
    "trainingService",
    "trialConcurrency",
    "experimentName",
    "experimentType",
    "searchSpaceFile",
    "searchSpace",
    "distributed",
    "maxExperimentDuration",
    "maxTrialNumber",
    "maxTrialDuration",
    "maxCost",
    "stopAtValue",
    "placement",
    "moveAfter",
    "useAnnotation",
    "debug",
    "logLevel",
    "experimentWorkingDirectory",
    "tunerGpuIndices",
    "tuner",
    "assessor",
    "advisor",
    "tunerTimeout",
    "maxTrialRetries",
    "retryFailed",
    "maxFailedTrials",
    "stopOnSameError",
    "workerSilence",
    "idleTimeout",
    "recordProvenance",
    "requireToken",
    "firstTrials",
    "constraints",
    "resultConstraints",
    "searchFrom",
    "trackers",
    "webhooks",
)
"""The options that the manager itself sees to, whatever the platform."""


_FOR_TUNERS = "it is for tuners of your own; for trials, write trialGpuNumber, and gpuIndices of the training service"


class OptionWithoutEffect(NamedTuple):
    """An option of a config that was set and has no effect."""

    option: str
    service: str  # the name of the service on which it has none, "" if it has none at all
    why: str

    @property
    def sentence(self) -> str:
        where = f" on {self.service}" if self.service else ""
        return f"{self.option} has no effect{where}: {self.why}"


def find_options_without_effect(config: CheckedConfig) -> list[OptionWithoutEffect]:
    """Return what was set in a checked config and has no effect, each option once for each service."""
    found = [*_find_manager_options(config)]
    shown = config.json()
    for service in config.services:
        cls = lookup.training_service_class(service.platform)
        settings = {**shown, **config.settings(service.name).json()}
        for one in getattr(cls, "ignores", ()):
            if _is_set(one.option, service, config) and _holds(one, service, settings):
                found.append(OptionWithoutEffect(one.option, service.name, one.why))
    # Several cases of one option may hold at the same time.
    return list(dict.fromkeys(found))


def _holds(one: IgnoredOption, service: Service, settings: Mapping[str, Json]) -> bool:
    """Return whether this is such a case. That is unknown where a file that the section names is gone."""
    try:
        return one.holds(service.config, settings)
    except NniliteError:
        return False


def _is_set(option: str, service: Service, config: CheckedConfig) -> bool:
    """Return whether an option of a service's section, or else of the experiment, differs from its default."""
    first, *rest = option.split(".")
    own = _entry(service.config, first)
    shared = SHORTCUTS.entry(first)
    if own is not None:
        return _differs(getattr(service.config, own.name), own.default, rest)
    if shared is not None:
        value = getattr(config.settings(service.name), shared.name)
        # A code directory that the config does not name is the folder of the config.
        return _differs(value, config._base.absolute() if isinstance(value, Path) else None, rest)
    top = _entry(config, first)
    return top is not None and _differs(getattr(config, top.name), top.default, rest)


def _differs(value: Any, default: Any, path: Sequence[str]) -> bool:
    """Return whether a value, or its part at a path, differs from its default. Of a list, one element is enough."""
    if value is None:
        return False
    if path and isinstance(value, (list, tuple)):
        return any(_differs(item, None, path) for item in value)
    if not path or not dataclasses.is_dataclass(value):
        return bool(value != default)
    entry = _entry(value, path[0])
    return entry is not None and _differs(getattr(value, entry.name), entry.default, path[1:])


def _entry(value: object, key: str) -> ConfigField | None:
    """Return the field of an object of a config class; None if it has none of this name."""
    cls: type = type(value)
    return record_of(cls).entry(key)


def _find_manager_options(config: CheckedConfig) -> Iterator[OptionWithoutEffect]:
    """Yield what the manager itself ignores, whatever the platforms."""
    of_a_service = any(section._settings.debug for section in _read_sections(config))
    if config.debug and config.log_level != "debug" and not of_a_service:
        yield OptionWithoutEffect("debug", "", f"logLevel counts, and is {config.log_level}")
    if config.tuner_gpu_indices and not any(_is_own(*one) for one in _list_algorithms(config)):
        yield OptionWithoutEffect("tunerGpuIndices", "", _FOR_TUNERS)
    if len(config.services) == 1:
        alone = "there is one training service; name several in trainingService"
        for option, value in (("placement", config.placement != "weighted"), ("moveAfter", config.move_after)):
            if value:
                yield OptionWithoutEffect(option, "", alone)
    for section, service in zip(_read_sections(config), config.services, strict=True):
        yield from _find_section_options(config, section, service)


def _list_algorithms(config: CheckedConfig) -> Iterator[tuple[str, AlgorithmConfig]]:
    groups = {lookup.TUNERS: config.tuner, lookup.ASSESSORS: config.assessor}
    yield from ((group, one) for group, one in groups.items() if one is not None)


def _is_own(group: str, algorithm: AlgorithmConfig) -> bool:
    return algorithm.name is None or lookup.is_own(group, algorithm.name)


def _read_sections(config: CheckedConfig) -> Sequence[Any]:
    given: Any = config.training_service
    return given if isinstance(given, list) else [given]


def _find_section_options(config: CheckedConfig, section: Any, service: Service) -> Iterator[OptionWithoutEffect]:
    if section._settings.debug:
        yield OptionWithoutEffect("debug", service.name, "set it, or logLevel, at the top level")
    weighted = len(config.services) > 1 and config.placement == "weighted"
    own = _entry(service.config, "weight")
    if config.share(service.name).weight is not None and own is None and not weighted:
        yield OptionWithoutEffect("weight", service.name, "it counts with several services and `placement: weighted`")
