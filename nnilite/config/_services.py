"""The sections of training services, read by the `Config` of any plugin.

Some top-level fields (`SHORTCUTS`) may also be in a section, and then count for that service alone. A plugin whose
`Config` has a field of the same name gets its value there; `trial_command: str = ""` in it means that its jobs can do
without a trial command.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from nnilite._plugins import lookup
from nnilite.config._config_reading import INVALID, At
from nnilite.config._fields import as_mapping, did_you_mean, find, normalize_name
from nnilite.config._former_fields import answer
from nnilite.config._kinds import FieldKind, ListOf
from nnilite.config._record import Record, describe_property, record_of
from nnilite.config.secrets import masked, masked_text
from nnilite.errors import ConfigError, Place, PluginError
from nnilite.records import Json
from nnilite.records.shapes import camel
from nnilite.units import HIDDEN, DirPath, NonNegativeInt, NonNegativeNumber, PositiveInt, PositiveNumber

_OVERRIDES = "as at the top level, for this service alone"


@dataclass(frozen=True)
class TrialOverrides:
    """The settings of trials that a service's section may have, too."""

    trial_command: Annotated[str | None, _OVERRIDES] = None
    trial_code_directory: Annotated[DirPath | None, _OVERRIDES] = None
    trial_gpu_number: Annotated[NonNegativeInt | None, _OVERRIDES] = None
    nni_manager_ip: Annotated[str | None, _OVERRIDES] = None
    debug: Annotated[bool | None, "accepted, as in NNI; has no effect here"] = None


@dataclass(frozen=True)
class ServiceShare:
    """A service's name, and its part in an experiment of several services."""

    name: Annotated[str | None, "its name in lists and charts; default: the platform"] = None
    max_trials: Annotated[PositiveInt | None, "how many trials it has at once; default: no limit"] = None
    weight: Annotated[PositiveNumber | None, "its part of the trials with `placement: weighted`; default: 1"] = None
    cost: Annotated[NonNegativeNumber | None, "price of a slot, the room for one trial, per hour"] = None

    def __post_init__(self) -> None:
        if self.name is not None and not _NAME.fullmatch(self.name):
            why = "use letters, digits, dots, dashes and underscores, 40 at most"
            raise ConfigError(f"{self.name!r} is not a valid name for a service: {why}", Place(field="name"))


SHORTCUTS = record_of(TrialOverrides)
OF_ONE_SERVICE = ("trial_gpu_number", "nni_manager_ip")
"""The settings of one service that are not those of another."""
SHARE = record_of(ServiceShare)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


class Service(NamedTuple):
    """One training service of a checked config."""

    name: str  # unique in the experiment: the platform's name, with a number from its second service on
    platform: str
    config: Any  # an instance of the plugin's Config


@dataclass(frozen=True)
class TrialSettings:
    """The settings of a service's trials, from its section or else from the top level."""

    trial_command: str
    trial_code_directory: Path
    trial_gpu_number: int | None = None
    nni_manager_ip: str | None = None
    debug: bool | None = None

    @property
    def gpus(self) -> int | None:
        """The GPUs of a trial; None leaves the GPU variables alone, 0 hides all GPUs."""
        return self.trial_gpu_number

    def json(self) -> dict[str, Json]:
        """Return what is set, under the names of the YAML."""
        written: dict[str, Json] = SHORTCUTS.write(self, secrets=True)
        return written


@dataclass(frozen=True)
class CheckedServices:
    """The training services of a checked config, with the settings and the share of each by its name."""

    services: Sequence[Service] = ()
    settings: Mapping[str, TrialSettings] = field(default_factory=dict)
    shares: Mapping[str, ServiceShare] = field(default_factory=dict)


class ServiceField:
    """The type of `ExperimentConfig.training_service`, which accepts one service, or a list of several.

    It gives what was assigned. Types say that this is one, as nearly everywhere; its fields are those of its platform.
    """

    def __get__(self, config: object, owner: type | None = None) -> ServiceConfig:
        raise NotImplementedError

    def __set__(self, config: object, value: ServiceConfig | Sequence[ServiceConfig] | None) -> None:
        raise NotImplementedError


class ServiceConfig:
    """A training service's section as people fill it in: its attributes are the fields of the plugin's Config.

        service = ServiceConfig("local", trial_gpu_number=1)
        service.use_active_gpu = True

    Raises: ConfigError for an unknown platform, AttributeError for an unknown field.
    """

    platform: str

    def __init__(self, platform: str, **fields: Any) -> None:
        find_service_record(platform)
        # Not by assignment, which takes all names but these for fields of the platform.
        self.__dict__.update(platform=platform, _values={}, _lists={}, _config=None, _settings=None, _share=None)
        for name, value in fields.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "platform" or name.startswith("_"):
            self.__dict__[name] = value
            return
        entries = (*find_service_record(self.platform).entries, *SHORTCUTS.entries, *SHARE.entries)
        found = [entry for entry in entries if normalize_name(entry.name) == normalize_name(name)]
        if not found:
            known = [entry.name for entry in entries]
            raise AttributeError(f"{self.platform} has no field {name!r}{did_you_mean(name, known)}")
        # A change invalidates what was checked before.
        self._values[found[0].name] = value
        self.__dict__["_config"] = None

    def __getattr__(self, name: str) -> Any:
        # `copy` and `pickle` ask for such names before `_values` exists, which would never end.
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._values:
            return self._values[name]
        entries = (*find_service_record(self.platform).entries, *SHORTCUTS.entries, *SHARE.entries)
        for entry in entries:
            if entry.name == name and isinstance(entry.kind, ListOf) and entry.default is None:
                # So that `machine_list.append(...)` works, as in NNI. What is still empty later is not set.
                return self._lists.setdefault(name, [])
            if entry.name == name:
                return entry.default
        known = [entry.name for entry in entries]
        raise AttributeError(f"{self.platform} has no field {name!r}{did_you_mean(name, known)}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ServiceConfig) and self.as_mapping() == other.as_mapping()

    # A section changes while people fill it in.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ServiceConfig({self.platform!r}, {', '.join(f'{name}=...' for name in self._values)})"

    def as_mapping(self) -> dict[str, Any]:
        """Return the section as a mapping, as in YAML."""
        values = {**{name: items for name, items in self._lists.items() if items}, **self._values}
        given = {camel(name): value for name, value in values.items() if value is not None}
        return {"platform": self.platform, **given}


def make_service_object(raw: Any) -> Any:
    """Return the ServiceConfig of a mapping. Other values are returned unchanged, for `checked` to report them."""
    platform = find(raw, "platform") if isinstance(raw, Mapping) else None
    try:
        section = ServiceConfig(platform) if isinstance(platform, str) else None
        if section is None or not all(isinstance(key, str) for key in raw):
            return raw
        for key, value in raw.items():
            if normalize_name(key) != "platform" and value is not None:
                setattr(section, key, value)
    except (ConfigError, AttributeError):
        return raw
    return section


def shortcuts(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the top level that services adopt, by their Python names."""
    return {entry.name: raw[entry.key] for entry in SHORTCUTS.entries if entry.key in raw}


def find_service_record(platform: str) -> Record:
    """Return the fields of a platform's Config. Raises: ConfigError if there is no such platform."""
    try:
        return record_of(lookup.training_service_class(platform).Config)
    except PluginError as error:
        raise ConfigError(str(error)) from error


def platforms() -> list[str]:
    """Return the names of the installed training services."""
    return lookup.names(lookup.SERVICES)


class ServiceKind(FieldKind):
    """A section, whose `platform` decides on the other fields."""

    words = "object with a platform"

    def matches(self, raw: Any) -> bool:
        return isinstance(raw, (Mapping, ServiceConfig, str))  # a text, too, so that its error says what is missing

    def has_field(self, key: str, around: Mapping[Any, Any]) -> bool:
        if normalize_name(key) == "platform":
            return True
        try:
            return find_service_record(str(masked(find(around, "platform")))).entry(key) is not None
        except ConfigError:
            return False

    def read(self, raw: Any, at: At) -> Any:
        raw = as_mapping(raw)
        if not isinstance(raw, Mapping):
            shown = masked(raw, at.path)
            hint = f"; did you mean {{platform: {shown}}}?" if isinstance(shown, str) else ""
            return at.fault(f"must be a mapping with platform and its fields, not {shown!r}{hint}")
        platform = find(raw, "platform")
        if not isinstance(platform, str):
            meant = next(
                (name for name in map(str, (raw.get("name"), *raw)) if _spell_platform(name) in platforms()), ""
            )
            cure = f"write platform: {meant}" if meant else f"installed are {', '.join(platforms()) or 'none'}"
            return at.fault(f"platform is not set; {cure}")
        try:
            record = find_service_record(masked_text(platform))
        except ConfigError as error:
            return at.below("platform").fault(error.message)
        own, settings, part = self._parts(raw, record)
        shared, share = SHORTCUTS.read(settings, at), SHARE.read(part, at)
        config = record.read(_completed(record, own, at), at)
        if INVALID in (config, shared, share):
            return INVALID
        return _make_checked_section(_spell_platform(platform), config, (shared, share), {**settings, **part})

    @staticmethod
    def _parts(raw: Mapping[Any, Any], record: Record) -> tuple[dict[Any, Any], dict[str, Any], dict[str, Any]]:
        """Split a section into the plugin's fields, and those of every service: of its trials, and of its share."""
        texts = {key: value for key, value in raw.items() if isinstance(key, str)}
        settings = {key: value for key, value in texts.items() if SHORTCUTS.entry(key)}
        share = {key: value for key, value in texts.items() if SHARE.entry(key)}
        # A plugin that has such a field itself gets its value, too.
        every = settings.keys() | share.keys()
        own = {
            key: value
            for key, value in raw.items()
            if not isinstance(key, str)
            or (normalize_name(key) != "platform" and (key not in every or record.entry(key)))
        }
        return own, settings, share

    def write(self, value: Any, secrets: bool) -> Json:
        record = find_service_record(value.platform)
        # Before the check, nothing says which of the values are secrets.
        if value._config is None:
            return value.as_mapping() if secrets else _hidden(record, value.as_mapping())
        given = {name: item for name, item in value._values.items() if not record.entry(name)}
        shared = {camel(name): str(item) if isinstance(item, Path) else item for name, item in given.items()}
        return {"platform": value.platform, **shared, **record.write(value._config, secrets)}

    def json_schema(self) -> dict[str, Any]:
        return {"anyOf": [describe_section(platform) for platform in platforms()]}


def _hidden(record: Record, mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section that is not checked yet, so that only its simple values can be shown."""
    simple = (bool, int, float)
    return {key: item if isinstance(item, simple) or key == "platform" else HIDDEN for key, item in mapping.items()}


def _completed(record: Record, own: dict[Any, Any], at: At) -> dict[Any, Any]:
    """Return the plugin's part, completed by the top level.

    Unknown keys are noted as faults and left out.
    """
    known = {key: value for key, value in own.items() if isinstance(key, str) and record.entry(key)}
    names = [entry.key for entry in (*record.entries, *SHORTCUTS.entries, *SHARE.entries)]
    for key in own:
        if key not in known:
            at.below(str(key)).fault(f"there is no such field{answer(at.path, str(key), names)}", misspelt=True)
    for name, value in at.reading.shortcuts.items():
        if record.entry(name) and find(known, name) is None:
            known[camel(name)] = value
            # A fault of such a value is at the top of the file, where it is written.
            source, top = at.reading.source, (camel(name),)
            source.origins = {(*at.path, *top): source.origins.get(top, top), **source.origins}
    return known


def _spell_platform(platform: str) -> str:
    # Files of NNI spell platforms in several ways; lists and messages have one.
    return next((name for name in platforms() if name.lower() == platform.lower()), platform)


def _make_checked_section(
    platform: str, config: Any, shared: tuple[TrialOverrides, ServiceShare], given: Mapping[str, Any]
) -> ServiceConfig:
    # The values have been checked: `__init__` would look the platform up and check the names again.
    section = ServiceConfig.__new__(ServiceConfig)
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config) if field.init}
    for key in given:
        for record, part in zip((SHORTCUTS, SHARE), shared, strict=True):
            entry = record.entry(key)
            if entry is not None and entry.name not in values:
                values[entry.name] = getattr(part, entry.name)
    section.__dict__.update(
        platform=platform, _values=values, _lists={}, _config=config, _settings=shared[0], _share=shared[1]
    )
    return section


def describe_section(platform: str) -> dict[str, Any]:
    """Return the JSON Schema of one platform's section.

    It allows anything if the platform's libraries are missing.
    """
    try:
        record = find_service_record(platform)
    except ConfigError:
        return {"type": "object", "properties": {"platform": {"const": platform}}, "required": ["platform"]}
    own = record.json_schema()
    shared = {entry.key: describe_property(entry) for entry in (*SHORTCUTS.entries, *SHARE.entries)}
    properties = {"platform": {"const": platform}, **shared, **own["properties"]}
    required = ["platform", *(key for key in own.get("required", []) if key not in shared)]
    return {**own, "title": platform, "properties": properties, "required": required}
