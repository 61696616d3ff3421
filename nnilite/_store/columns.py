"""Derives the columns of the database from the records: name, declaration, check and conversion of each.

The fields of a record are the columns of its table; `RecordTable` has what their type hints do not say. So a new field
needs its line in the record, and a step in `database_schema.MIGRATIONS` that adds its column to existing databases.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, get_args, get_origin

from nnilite._store import stored_values as checks
from nnilite._store.stored_values import Check, read_stored_value
from nnilite.records import COUNT, RUN_MAX, Attempt, Exited, Trial, TrialState, storable
from nnilite.records.shapes import TIME, Form, to_json

Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class StoredAs:
    """How values of one type are kept. Without `write` or `read` the column has the value itself."""

    sql: str
    types: tuple[type, ...]
    check: Check
    write: Convert | None = None
    read: Convert | None = None

    @property
    def is_optional(self) -> bool:
        return type(None) in self.types


class RecordTable:
    """The table of a record, whose columns follow from the record's fields.

    `first` names the columns of the first version of the table, `added` those of later versions until now: their order
    may not change. Other fields follow. `special`: fields that are kept or checked in another way than others of their
    type. `beside`: further columns that are not fields, or that replace one.
    """

    def __init__(
        self,
        name: str,
        record: type,
        *,
        first: Sequence[str],
        added: Sequence[str],
        special: Mapping[str, StoredAs],
        beside: Mapping[str, StoredAs],
    ) -> None:
        hints = typing.get_type_hints(record, include_extras=True)
        own = [one for one in dataclasses.fields(record) if one.name not in beside]
        kept = {one.name: special.get(one.name) or _choose_stored_as(hints[one.name], _is_required(one)) for one in own}
        known = {**kept, **beside}
        order = dict.fromkeys((*first, *added, *kept))
        self.name = name
        self.columns = {one: known[one] for one in order}
        self.fields = tuple(kept)
        self._first = first
        self._defaults = {one.name: _find_default(one) for one in own}
        self._types = tuple(one.types for one in kept.values())
        self._reads = tuple((place, one.read) for place, one in enumerate(kept.values()) if one.read is not None)
        self._writes = tuple((place, one.write) for place, one in enumerate(kept.values()) if one.write is not None)
        self._get = attrgetter(*kept)

    def declaration(self, name: str) -> str:
        """Return what `CREATE TABLE` and `ADD COLUMN` have for a column: rows from before it get the default."""
        kind = self.columns[name]
        if kind.is_optional:
            return f"{name} {kind.sql}"
        if name in self._first:
            return f"{name} {kind.sql} NOT NULL"
        default = self._defaults[name]
        word = default if kind.write is None else kind.write(default)
        return f"{name} {kind.sql} NOT NULL DEFAULT " + (f"'{word}'" if isinstance(word, str) else f"{word}")

    @property
    def checks(self) -> dict[str, Check]:
        return {name: kind.check for name, kind in self.columns.items()}

    def selected(self, alias: str = "") -> str:
        """Return the columns for a query whose rows `values` reads."""
        return ", ".join(f"{alias}{name}" for name in self.fields)

    def values(self, row: Sequence[Any]) -> list[Any]:
        """Return the values of the fields, in their order. Raises: ValueError."""
        check_types(row, self._types)
        found = list(row)
        for place, read in self._reads:
            found[place] = read(found[place])
        return found

    def row(self, record: Any) -> list[Any]:
        """Return what the columns of the fields have for a record."""
        found = list(self._get(record))
        for place, write in self._writes:
            found[place] = write(found[place])
        return found


def check_types(row: Sequence[Any], kinds: tuple[tuple[type, ...], ...]) -> None:
    """Check the types of a row. Raises: ValueError."""
    misfit = _find_misfit(tuple(map(type, row)), kinds)
    if misfit is not None:
        raise ValueError(f"a row has {row[misfit]!r:.50} where that cannot be")


@lru_cache(maxsize=1000)  # thousands of rows have the same few combinations of types
def _find_misfit(types: tuple[type, ...], kinds: tuple[tuple[type, ...], ...]) -> int | None:
    """Return the first column with a value of a wrong type."""
    pairs = zip(types, kinds, strict=True)
    return next((column for column, (one, kind) in enumerate(pairs) if not issubclass(one, kind)), None)


# ---------------------------------------------------------------- how each type is kept

_VALUE = StoredAs("TEXT", (str,), checks.text, json.dumps, read_stored_value)
_KINDS = {
    str: StoredAs("TEXT", (str,), checks.text, storable),
    int: StoredAs("INTEGER", (int,), checks.is_any_whole),
    float: StoredAs("REAL", (int, float), checks.amount),
    Mapping: StoredAs("TEXT", (str,), checks.is_json_object, lambda value: json.dumps(dict(value)), json.loads),
    Exited: StoredAs("TEXT", (str,), checks.end, lambda end: json.dumps(to_json(end)), checks.read_stored_end),
}
_BY_FORM = {
    COUNT: StoredAs("INTEGER", (int,), checks.whole),
    TIME: StoredAs("REAL", (int, float), checks.time),
}


def _choose_stored_as(hint: Any, required: bool) -> StoredAs:
    """Return how values of a type hint are kept. Raises: TypeError for one that has no place in a column."""
    marks: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *rest = get_args(hint)
        marks = tuple(rest)
    if hint is Any:
        return _VALUE if required else optional(_VALUE)
    is_optional = get_origin(hint) in (typing.Union, types.UnionType)
    if is_optional:
        (hint,) = [one for one in get_args(hint) if one is not type(None)]
    form = next((mark for mark in marks if isinstance(mark, Form)), None)
    kind = _BY_FORM.get(form) if form is not None else None
    kind = kind or (enum(hint) if isinstance(hint, type) and issubclass(hint, Enum) else None)
    kind = kind or _KINDS.get(get_origin(hint) or hint)
    if kind is None:
        raise TypeError(f"{hint!r} has no place in a column")
    return optional(kind) if is_optional else kind


def enum(words: type[Enum]) -> StoredAs:
    """Store a member of an enum by its value."""
    return StoredAs("TEXT", (str,), checks.one_of(*(one.value for one in words)), lambda one: one.value, words)


def optional(kind: StoredAs) -> StoredAs:
    """Store the same, or NULL for None."""
    write, read = (None if convert is None else _convert_unless_none(convert) for convert in (kind.write, kind.read))
    return StoredAs(kind.sql, (*kind.types, type(None)), checks.nullable(kind.check), write, read)


def _convert_unless_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _find_default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


# ---------------------------------------------------------------- the tables

_MAYBE_STATE = StoredAs(
    "TEXT",
    (str,),
    checks.one_of("", *(state.value for state in TrialState)),
    lambda state: state.value if state else "",
    lambda word: TrialState(word) if word else None,
)
# A text that no worker has written, so that it is kept as it is.
_WORD = StoredAs("TEXT", (str,), checks.text)
_NUMBER = StoredAs("INTEGER", (int,), checks.whole)

TRIALS = RecordTable(
    "trials",
    Trial,
    first=(
        *("sequence", "id", "parameter_id", "parameters", "source", "state", "reason", "attempt", "created"),
        *("started", "ended", "value", "score", "revision"),
    ),
    added=("service", "cost", "attributes", "violates"),
    special={
        "id": replace(_WORD, check=checks.trial_id),
        "source": replace(_WORD, check=checks.one_of("algorithm", "customized")),
        "service": _WORD,
    },
    beside={
        "score": optional(replace(_KINDS[float], check=checks.number)),
        "revision": _NUMBER,
    },
)
ATTEMPTS = RecordTable(
    "attempts",
    Attempt,
    first=(
        *("trial", "number", "service", "handle", "state", "started", "ended", "exit_code", "message", "host", "url"),
        "cancel",
    ),
    added=("reported_end", "cost", "run"),
    special={
        "cancel": _MAYBE_STATE,
        "service": _WORD,
        "run": replace(_WORD, check=checks.is_at_most(RUN_MAX)),
    },
    # The number of its trial instead of the trial's id.
    beside={"trial": _NUMBER},
)
