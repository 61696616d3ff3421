"""The state of one check of a config: the places of fields, and all faults so far."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnilite.config._source import ConfigSource
from nnilite.errors import ConfigError, Place, SpaceError
from nnilite.space.space_checks import dotted

Where = tuple[str | int, ...]
"""Keys and list positions from the top of the config."""

INVALID: Any = object()
"""Stands for a value about which a fault was reported."""


class ConfigErrors(ConfigError):
    """Several faults of one config: `errors` has each; `message` and `place` are those of the first."""

    def __init__(self, errors: list[ConfigError]) -> None:
        super().__init__(errors[0].message, errors[0].place)
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


@dataclass
class ConfigReading:
    """The state that all parts of one check share. `base` is the folder of relative paths."""

    source: ConfigSource
    base: Path
    errors: list[ConfigError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    misspelt: bool = False  # whether an unknown or repeated field was among the faults
    secrets: set[str] = field(default_factory=set)  # texts that must never be shown
    paths: bool = True  # whether files and folders must exist
    resolve: bool = True  # whether ${env:NAME} is replaced in secrets
    shortcuts: Mapping[str, Any] = field(default_factory=dict)  # top-level fields that services adopt

    def finish(self) -> None:
        """End the reading. Raises: ConfigError (SpaceError for a fault in the search space) if there were faults."""
        errors = list({str(error): error for error in self.errors}.values())
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ConfigErrors(sorted(errors, key=_line))


@dataclass(frozen=True)
class At:
    """A place in the config during its check."""

    reading: ConfigReading
    path: Where = ()

    def below(self, *keys: str | int) -> At:
        """Return a place below this one."""
        return At(self.reading, (*self.path, *keys))

    def fault(self, message: str, misspelt: bool = False) -> Any:
        """Note a fault here. Return INVALID, to be used as the value."""
        source = self.reading.source
        self.reading.errors.append(ConfigError(source.spell(message), source.place(self.path)))
        self.reading.misspelt |= misspelt
        return INVALID

    def note_space_fault(self, message: str, source: ConfigSource | None = None) -> None:
        """Note a fault of the search space, which may have a file of its own."""
        place = (source or self.reading.source).place(self.path)
        self.reading.errors.append(SpaceError(message, place))

    def note_error(self, error: ConfigError) -> Any:
        """Note an error of a plugin's own rules. Its field, if it names one, is relative to this place."""
        source = self.reading.source
        place = source.place(self.path)
        if error.place.field:
            path = (*self.path, *_split(error.place.field))
            # The section may have the field from the top level of an older file: errors name that place.
            own = path if path in source.origins or path[-1:] not in source.origins else path[-1:]
            place = source.place(own)
            if not source.has_section_of(own):
                place = place._replace(field=dotted(source.older_place(path)))
        self.reading.errors.append(type(error)(source.spell(error.message), place) if _simple(error) else error)
        return INVALID


def _split(field: str) -> Where:
    """Return the parts of `machineList[0].host`: names, and places in lists."""
    return tuple(int(part[1:-1]) if part[0] == "[" else part for part in re.findall(r"\[\d+\]|[^.\[\]]+", field))


def _line(error: ConfigError) -> tuple[bool, int]:
    """Return the sort key that puts faults of this file in the order of its lines, and others last."""
    return error.place.line is None, error.place.line or 0


def _simple(error: ConfigError) -> bool:
    return type(error) in (ConfigError, SpaceError)


__all__ = ["INVALID", "At", "ConfigErrors", "ConfigReading", "Place", "Where"]
