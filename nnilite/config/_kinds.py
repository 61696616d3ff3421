"""The values that a field may hold, derived from its type hint.

A kind reads, writes and describes a value, and shows it to editors.

find_kind(hint) -> Kind         int, str, bool, float, Literal, Enum, list, dict, Optional, nested dataclasses,
                              the aliases of `nnilite.units`
kind.read(raw, at)            the value; or INVALID, after a fault was noted at `at`
kind.write(value, secrets)    JSON that reads back as the same value
kind.json_schema()            the schema for editors, from the same rules
"""

from __future__ import annotations

import os
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nnilite.config._config_reading import INVALID, At, ConfigReading
from nnilite.config._fields import did_you_mean, normalize_name
from nnilite.config.secrets import fault_of, masked, without_secrets
from nnilite.records import Json
from nnilite.units import HIDDEN, Unit, cure_for_number
from nnilite.units.path_rules import PathRule, refuse_unfilled


class FieldKind(ABC):
    """The rule of a field."""

    words: str  # its name in the reference

    @abstractmethod
    def read(self, raw: Any, at: At) -> Any:
        """Return the value that `raw` stands for."""

    def matches(self, raw: Any) -> bool:
        """Return whether `raw` looks like a value of this kind. A union uses this to choose between its members."""
        return True

    def has_field(self, key: str, around: Mapping[Any, Any]) -> bool:
        """Return whether a value has a field of this name; `around` are the fields that may be its other ones."""
        return False

    def guess_meant(self, raw: Any, at: At) -> str:
        """Return how to write a value of this kind that a simple one such as a name stands for; "" if unknown."""
        return ""

    def write(self, value: Any, secrets: bool) -> Json:
        """Return JSON that `read` understands."""
        return value

    @abstractmethod
    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the values that the YAML may have."""


class Leaf(FieldKind):
    """A single value. `parse` raises ValueError with a sentence."""

    def __init__(
        self, words: str, parse: Callable[[Any], Any], json_schema: Mapping[str, Any], types: tuple[type, ...]
    ) -> None:
        self.words = words
        self.parse = parse
        self.types = types
        self._json_schema = dict(json_schema)

    def matches(self, raw: Any) -> bool:
        # In Python, true and false are whole numbers, too.
        return isinstance(raw, self.types) and (bool in self.types or not isinstance(raw, bool))

    def read(self, raw: Any, at: At) -> Any:
        try:
            return self.parse(raw)
        except ValueError as error:
            return at.fault(fault_of(self.parse, raw, at.path, str(error)))

    def json_schema(self) -> dict[str, Any]:
        return dict(self._json_schema)


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        words = [str(one) for one in value]
        if any(" " in word.strip() for word in words):
            raise ValueError(f"must be one text, not a list; join commands by &&, as in {' && '.join(words)}")
        command = shlex.join(words)
        # Words with a dot, a slash or a dash look like a command; names of partitions, queues and users rarely do.
        cure = (
            command if re.search(r"[./-]", command) else f"{','.join(words)} for several names, {command} for a command"
        )
        raise ValueError(f"must be one text, not a list; write {cure}")
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {value!r}; put it in quotes")
    return value


def _float(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    try:
        return float(value if isinstance(value, str) else "no")  # YAML 1.1 reads 1e-3 as a text
    except ValueError:
        raise ValueError(f"must be a number, not {value!r}") from None


_TRUTHS = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"must be a whole number, not {value!r}{cure_for_number(value, whole=True)}")
    return value


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = _TRUTHS.get(value.strip().lower()) if isinstance(value, str) else None
    raise ValueError(f"must be true or false, not {value!r}" + (f"; write {word} without quotes" if word else ""))


INTEGER = Leaf("integer", _whole, {"type": "integer"}, (int,))
NUMBER = Leaf("number", _float, {"type": "number"}, (int, float))
TEXT = Leaf("string", _text, {"type": "string"}, (str,))
TRUTH = Leaf("boolean", _truth, {"type": "boolean"}, (bool,))


class Quantity(Leaf):
    """A value with a unit's rule."""

    def __init__(self, unit: Unit) -> None:
        super().__init__(unit.name, unit.parse, unit.json_schema, (int, float, str, list, tuple))
        self.unit = unit

    def read(self, raw: Any, at: At) -> Any:
        """Read a value; the message about a bad secret does not quote it."""
        if self.unit.secret and raw == HIDDEN:
            return at.fault("was hidden when this config was shown; write the secret itself, or ${env:NAME}")
        # `save` writes ${env:NAME} as it is, so that the secret stays out of the file.
        if self.unit.secret and not at.reading.resolve and isinstance(raw, str):
            return raw
        if not self.unit.secret:
            return super().read(raw, at)
        try:
            value = self.parse(raw)
        except ValueError as error:
            return at.fault(str(error))
        if value:
            # The logs hide these texts wherever they occur.
            at.reading.secrets.add(str(value))
        return value

    def write(self, value: Any, secrets: bool) -> Json:
        if self.unit.secret:
            return str(value) if secrets else HIDDEN
        return value


class AbsolutePath(FieldKind):
    """A path, made absolute."""

    def __init__(self, rule: PathRule) -> None:
        self.rule = rule
        self.words = {"file": "file", "key": "file", "directory": "folder", "path": "path"}[rule.value]

    def matches(self, raw: Any) -> bool:
        return isinstance(raw, (str, os.PathLike))

    def read(self, raw: Any, at: At) -> Any:
        try:
            # An experiment that is only viewed need not have its folders on this machine.
            return self._resolve(raw, at)
        except ValueError as error:
            return at.fault(fault_of(lambda shown: self._resolve(shown, at), raw, at.path, str(error)))

    def _resolve(self, raw: Any, at: At) -> Path:
        """Return the path that `raw` stands for. Raises: ValueError with a sentence."""
        if not at.reading.paths:
            return PathRule.ANY.resolve(raw, at.reading.base)
        refuse_unfilled(raw, at.reading.base)
        return self.rule.resolve(raw, at.reading.base)

    def write(self, value: Any, secrets: bool) -> Json:
        return str(value)

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1}


class OneOf(FieldKind):
    """One of some words (or an Enum's); case does not matter. `refused` answers words that others know."""

    def __init__(self, values: Mapping[Any, Any], refused: Mapping[str, str] = MappingProxyType({})) -> None:
        self.values = dict(values)  # from the word in the YAML to the value
        self._refused = refused
        self.words = " \\| ".join(f"`{value}`" for value in self.values)

    def matches(self, raw: Any) -> bool:
        return isinstance(raw, tuple(type(value) for value in (*self.values, *self.values.values())))

    def read(self, raw: Any, at: At) -> Any:
        # Programs give the member itself, files its word.
        if any(raw is value for value in self.values.values() if isinstance(value, Enum)):
            return raw
        for written, value in self.values.items():
            # In Python, 1 equals true, but they are different words in YAML.
            if type(written) is type(raw) and (written == raw or _fold(written) == _fold(raw)):
                return value
        if isinstance(raw, str) and normalize_name(raw) in self._refused:
            return at.fault(self._refused[normalize_name(raw)])
        names = [str(value) for value in self.values]
        raw = masked(raw, at.path)
        hint = did_you_mean(str(raw), names)
        if not hint.endswith("?"):
            hint = f"; it must be {' or '.join(names)}"
        return at.fault(f"{raw!r} is not a valid value{hint}")

    def write(self, value: Any, secrets: bool) -> Json:
        return value.value if isinstance(value, Enum) else value

    def json_schema(self) -> dict[str, Any]:
        return {"enum": list(self.values)}


def _fold(value: Any) -> Any:
    return normalize_name(value) if isinstance(value, str) else value


class AnyJson(FieldKind):
    """Any JSON, which is not changed."""

    words = "any JSON"

    def read(self, raw: Any, at: At) -> Any:
        try:
            return _as_json(raw)
        except ValueError as error:
            return at.fault(fault_of(_as_json, raw, at.path, str(error)))

    def write(self, value: Any, secrets: bool) -> Json:
        return value if secrets else without_secrets(value)

    def json_schema(self) -> dict[str, Any]:
        return {}


def _as_json(value: Any) -> Json:
    if isinstance(value, Mapping):
        return {_key(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    if isinstance(value, range):
        return list(value)
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    # Numbers and arrays of numpy, in a search space that a program makes.
    if callable(getattr(value, "tolist", None)):
        return _as_json(value.tolist())
    raise ValueError(f"{value!r} is not a JSON value")


def _key(key: Any) -> str:
    # YAML reads the keys 1, yes and 2026-01-31 as other types, which JSON does not have as keys.
    if isinstance(key, str):
        return key
    raise ValueError(f"the key {key!r} is not text; put it in quotes")


class ListOf(FieldKind):
    """A list of values of one kind."""

    def __init__(self, item: FieldKind, make: Callable[[list[Any]], Any] = list) -> None:
        self.item = item
        self.make = make
        self.words = f"list of {item.words}"

    def matches(self, raw: Any) -> bool:
        return isinstance(raw, (list, tuple))

    def read(self, raw: Any, at: At) -> Any:
        if not self.matches(raw):
            cure = "; begin it with a dash" if self.item.matches(raw) and isinstance(raw, Mapping) else ""
            if isinstance(raw, str) and raw.strip() and self.item.matches(raw) and masked(raw, at.path) == raw:
                cure = f"; write [{', '.join(part.strip() for part in raw.split(','))}]"
            elif isinstance(raw, (int, float)) and self.item.matches(raw):
                cure = f"; write [{raw}]"
            elif meant := self.item.guess_meant(masked(raw, at.path), at.below(0)):
                cure = f"; did you mean [{meant}]?"
            return at.fault(f"must be a list, not {masked(raw, at.path)!r}{cure}")
        values = [self.item.read(item, at.below(k)) for k, item in enumerate(raw)]
        return INVALID if any(value is INVALID for value in values) else self.make(values)

    def write(self, value: Any, secrets: bool) -> Json:
        return [self.item.write(item, secrets) for item in value]

    def json_schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.item.json_schema()}


class DictOf(FieldKind):
    """Values of one kind under names of the user's choice."""

    def __init__(self, item: FieldKind) -> None:
        self.item = item
        self.words = f"mapping of names to {item.words}"

    def matches(self, raw: Any) -> bool:
        return isinstance(raw, Mapping)

    def read(self, raw: Any, at: At) -> Any:
        if not self.matches(raw):
            return at.fault(f"must be a mapping, not {masked(raw, at.path)!r}")
        if not all(isinstance(key, str) for key in raw):
            return at.fault("has a key that is not text; put it in quotes")
        values = {key: self.item.read(item, at.below(key)) for key, item in raw.items()}
        return INVALID if any(value is INVALID for value in values.values()) else values

    def write(self, value: Any, secrets: bool) -> Json:
        written = {key: self.item.write(item, secrets) for key, item in value.items()}
        return written if secrets else without_secrets(written)

    def json_schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.item.json_schema()}


class Union(FieldKind):
    """One of several kinds: the first that fits and reads without a fault."""

    def __init__(self, kinds: list[FieldKind], words: str = "") -> None:
        self.kinds = kinds
        self.words = words or " or ".join(kind.words for kind in kinds)

    def matches(self, raw: Any) -> bool:
        return any(kind.matches(raw) for kind in self.kinds)

    def has_field(self, key: str, around: Mapping[Any, Any]) -> bool:
        return any(kind.has_field(key, around) for kind in self.kinds)

    def read(self, raw: Any, at: At) -> Any:
        fitting = [kind for kind in self.kinds if kind.matches(raw)]
        if not fitting:
            return at.fault(f"must be {self.words}, not {masked(raw, at.path)!r}")
        faults = [count_faults(kind, raw, at) for kind in fitting]
        # Of a word that is none of those allowed, the first kind would say that it is no number.
        if len(fitting) > 1 and all(faults) and isinstance(raw, str) and not cure_for_number(raw):
            return at.fault(f"must be {self.words.replace('`', '')}, not {masked(raw, at.path)!r}")
        return fitting[faults.index(min(faults))].read(raw, at)

    def write(self, value: Any, secrets: bool) -> Json:
        for kind in self.kinds:
            if kind.matches(value):
                return kind.write(value, secrets)
        return value

    def json_schema(self) -> dict[str, Any]:
        return {"anyOf": [kind.json_schema() for kind in self.kinds]}


def count_faults(kind: FieldKind, raw: Any, at: At) -> int:
    """Return how many faults a value has as one of a kind."""
    # The faults of kinds that are not chosen must not be reported, so they are noted elsewhere.
    trial = ConfigReading(at.reading.source, at.reading.base, shortcuts=at.reading.shortcuts)
    kind.read(raw, At(trial, at.path))
    return len(trial.errors)
