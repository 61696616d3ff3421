"""Dataclasses as kinds: from the fields of a `Config` to its part of the YAML. Any plugin's dataclass will do.

docs/explanation/architecture.md says why no library does this.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from nnilite.config._config_reading import INVALID, At
from nnilite.config._fields import as_mapping, guess_meant, normalize_name
from nnilite.config._former_fields import answer
from nnilite.config._kinds import (
    INTEGER,
    NUMBER,
    TEXT,
    TRUTH,
    AbsolutePath,
    AnyJson,
    DictOf,
    FieldKind,
    ListOf,
    OneOf,
    Quantity,
    Union,
    count_faults,
)
from nnilite.config.secrets import masked
from nnilite.errors import ConfigError, PluginError
from nnilite.records import Json
from nnilite.records.shapes import camel
from nnilite.units import Unit
from nnilite.units.path_rules import PathRule

_MISSING = dataclasses.MISSING
_SIMPLE: dict[Any, FieldKind] = {int: INTEGER, float: NUMBER, str: TEXT, bool: TRUTH, Any: AnyJson(), object: AnyJson()}
_OF_ANCHORS = "; write its anchor (&name) where the value is used first, and *name in the other places"
_LISTS = (list, tuple, collections.abc.Sequence)
_DICTS = (dict, collections.abc.Mapping)


@dataclass(frozen=True)
class ConfigField:
    """One field of a record."""

    name: str  # the field's name in Python
    key: str  # the field's name in YAML
    kind: FieldKind
    required: bool
    make_default: Callable[[], Any]
    description: str

    @property
    def default(self) -> Any:
        """The default, computed each time as it may depend on the environment.

        None if the field is required or has none.
        """
        return self.make_default()


class Record(FieldKind):
    """A dataclass. The case and underscores of keys do not matter; null means not set."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.words = "object"
        self._entries: tuple[ConfigField, ...] | None = None
        self._by_name: dict[str, ConfigField] = {}

    @property
    def entries(self) -> tuple[ConfigField, ...]:
        """The fields, in order. They are looked up at first use, as a dataclass may contain itself."""
        if self._entries is None:
            hints = typing.get_type_hints(self.cls, include_extras=True)
            # Fields that a class computes itself cannot be set.
            fields = [field for field in dataclasses.fields(self.cls) if field.init]
            entries = tuple(_entry(field, hints[field.name]) for field in fields)
            for entry in entries:
                self._by_name.setdefault(normalize_name(entry.name), entry)
            self._entries = entries
        return self._entries

    def matches(self, raw: Any) -> bool:
        return isinstance(raw, (Mapping, self.cls))

    def read(self, raw: Any, at: At) -> Any:
        values = self.read_fields(raw, at)
        if values is INVALID or any(value is INVALID for value in values.values()):
            return INVALID
        try:
            # A plugin's `__post_init__` checks rules between fields. A ConfigError of it names the field that is wrong.
            return self.cls(**values)
        except ConfigError as error:
            return at.note_error(error)
        except ValueError as error:
            return at.fault(str(error))

    def read_fields(self, raw: Any, at: At) -> Any:
        """Return all fields that are set, some perhaps INVALID.

        Fields that are not set and have a default are left out.
        """
        raw = as_mapping(raw)
        if not isinstance(raw, Mapping):
            shown = masked(raw, at.path)
            likely = self.guess_meant(shown, at)
            cure = f"; did you mean {likely}?" if likely else ""
            return at.fault(f"must be a mapping with {self._describe_outline()}, not {shown!r}{cure}")
        values: dict[str, Any] = {}
        unindented = {} if at.path else self._find_unindented(raw)
        for key, section in unindented.items():
            at.below(key).fault(f"is a field of {section}, which is empty; indent it below that", misspelt=True)
        own = {key: value for key, value in raw.items() if key not in unindented}
        misspelt = [key for key, value in own.items() if not self._read_one(key, value, values, at)]
        meant = {guess_meant(str(key), [entry.key for entry in self.entries]) for key in misspelt}
        meant |= set(unindented.values())
        for entry in self.entries:
            if not entry.required or entry.name in values:
                continue
            if entry.key in meant:
                values[entry.name] = INVALID  # its misspelt key has been noted
            else:
                what = f" ({entry.description})" if entry.description else ""
                if at.reading.source.is_given((*at.path, entry.key)):
                    values[entry.name] = at.below(entry.key).fault(f"is empty{what}")
                else:
                    values[entry.name] = at.fault(f"{entry.key} is not set{what}")
        return values

    def _find_unindented(self, raw: Mapping[Any, Any]) -> dict[str, str]:
        """Return the fields of a section that follow it with the same indentation, so that it is empty."""
        found, section = {}, None
        for key, value in raw.items():
            entry = self.entry(key) if isinstance(key, str) else None
            if entry is not None:
                section = entry if value is None else None
            elif section is not None and isinstance(key, str) and section.kind.has_field(key, raw):
                found[key] = section.key
        return found

    def _read_one(self, key: Any, value: Any, values: dict[str, Any], at: At) -> bool:
        """Read one field. Return False if there is no such field."""
        entry = self.entry(key) if isinstance(key, str) else None
        if entry is None:
            known = [entry.key for entry in self.entries]
            is_shared = at.reading.source.is_repeated((*at.path, str(key)))
            advice = _OF_ANCHORS if is_shared else answer(at.path, str(key), known, value)
            at.below(str(key)).fault(f"there is no such field{advice}", misspelt=True)
        elif entry.name in values:
            at.below(key).fault(f"{entry.key} is given twice, in two spellings", misspelt=True)
        elif value is not None:
            values[entry.name] = entry.kind.read(value, at.below(entry.key))
        return entry is not None

    def has_field(self, key: str, around: Mapping[Any, Any]) -> bool:
        return self.entry(key) is not None

    def entry(self, key: str) -> ConfigField | None:
        """Return the field with this key; None if there is none."""
        return self._by_name.get(normalize_name(key)) if self.entries else None

    def _describe_outline(self) -> str:
        return ", ".join(entry.key for entry in self.entries[:4]) + (", ..." if len(self.entries) > 4 else "")

    def guess_meant(self, raw: Any, at: At) -> str:
        """Return a mapping with a plain value as its first field, such as a tuner's name; "" if it cannot be that."""
        first = next(iter(self.entries), None)
        if first is None or not isinstance(raw, (str, int)) or not first.kind.matches(raw):
            return ""
        is_secret = isinstance(first.kind, Quantity) and first.kind.unit.secret
        fits = first.kind is TEXT or (not is_secret and not count_faults(first.kind, raw, at.below(first.key)))
        return f"{{{first.key}: {raw}}}" if fits else ""

    def write(self, value: Any, secrets: bool) -> Json:
        pairs = ((entry, getattr(value, entry.name)) for entry in self.entries)
        return {entry.key: entry.kind.write(item, secrets) for entry, item in pairs if item is not None}

    def json_schema(self) -> dict[str, Any]:
        return self.schema_of(self.entries)

    def schema_of(self, entries: tuple[ConfigField, ...]) -> dict[str, Any]:
        """Return the JSON Schema of an object with some of the fields."""
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {entry.key: describe_property(entry) for entry in entries},
            "additionalProperties": False,
        }
        required = [entry.key for entry in entries if entry.required]
        return {**schema, "required": required} if required else schema


def describe_property(entry: ConfigField) -> dict[str, Any]:
    """Return the JSON Schema of one field, with its description and default.

    Null is the same as leaving it out.
    """
    schema = entry.kind.json_schema()
    if not entry.required and schema:
        schema = {"anyOf": [*schema["anyOf"], {"type": "null"}]} if set(schema) == {"anyOf"} else schema
        schema = {"enum": [*schema["enum"], None]} if set(schema) == {"enum"} else schema
        schema = {**schema, "type": [schema["type"], "null"]} if isinstance(schema.get("type"), str) else schema
    if entry.description:
        schema["description"] = entry.description
    # An empty default says no more than that the field may be left out.
    if entry.default not in (None, [], {}, ()):
        schema["default"] = entry.kind.write(entry.default, secrets=False)
    return schema


def _entry(field: dataclasses.Field[Any], hint: Any) -> ConfigField:
    required = field.default is _MISSING and field.default_factory is _MISSING
    value = None if field.default is _MISSING else field.default
    make_default = (lambda: value) if field.default_factory is _MISSING else field.default_factory
    described = [item for item in get_args(hint)[1:] if isinstance(item, str)] if _annotated(hint) else []
    return ConfigField(field.name, camel(field.name), find_kind(hint), required, make_default, " ".join(described))


def _annotated(hint: Any) -> bool:
    return get_origin(hint) is Annotated


@cache
def record_of(cls: type) -> Record:
    """Return the kind of a dataclass."""
    return Record(cls)


def find_kind(hint: Any) -> FieldKind:
    """Return the kind of a type hint. Raises: PluginError for a type that YAML cannot hold."""
    if _annotated(hint):
        return _find_kind_of_annotated(hint)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is typing.Union or origin is types.UnionType:
        kinds = [find_kind(argument) for argument in arguments if argument is not type(None)]
        return kinds[0] if len(kinds) == 1 else Union(kinds)
    if origin is Literal:
        return OneOf({value: value for value in arguments})
    if (origin or hint) in _LISTS:
        make = tuple if (origin or hint) is tuple else list
        return ListOf(find_kind(arguments[0]) if arguments else AnyJson(), make)
    if (origin or hint) in _DICTS:
        return DictOf(find_kind(arguments[1])) if arguments else AnyJson()
    return _find_kind_of_class(hint)


def _find_kind_of_annotated(hint: Any) -> FieldKind:
    base, *marks = get_args(hint)
    for mark in marks:
        if isinstance(mark, FieldKind):
            return mark
        if isinstance(mark, Unit):
            return Quantity(mark)
        if isinstance(mark, PathRule):
            return AbsolutePath(mark)
    return find_kind(base)


def _find_kind_of_class(hint: Any) -> FieldKind:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return OneOf({member.value: member for member in hint})
    if isinstance(hint, type) and issubclass(hint, Path):
        return AbsolutePath(PathRule.ANY)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return record_of(hint)
    raise PluginError(f"a Config field of type {hint!r} cannot be read from YAML")
