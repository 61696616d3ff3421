"""One description per wire shape: a frozen dataclass says how it travels as JSON.

From its type hints follow JSON out (`to_json`), JSON in, checked strictly (`read_fields`), and the schema for the
OpenAPI document (`schema_of`). Names travel in camelCase. `Annotated` has what the hint alone does not say:

    reason: Annotated[str, "why it waits"] = ""              a description
    duration_s: Annotated[float, Key("duration")] = 0.0      another name on the wire
    handle: Annotated[Handle | None, HIDDEN] = None          is not sent
    index: Annotated[int, INDEX]                             a form of its own
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
from typing import Annotated, Any, get_args, get_origin

Json = Any
Schema = dict[str, Json]


class Mismatch(ValueError):
    """JSON that is not of a shape: `field` of it, "" for the whole, and what is wrong there."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}".strip())
        self.field = field
        self.problem = problem


@dataclass(frozen=True, eq=False)
class Form:
    """How a value travels. `write` and `read` are None where the JSON is the value itself.

    `read` raises ValueError with the rest of the sentence "FIELD must be ...".
    """

    schema: Mapping[str, Json]
    write: Callable[[Any], Json] | None = None
    read: Callable[[Json], Any] | None = None
    is_optional: bool = False


@dataclass(frozen=True)
class Key:
    """The name on the wire."""

    name: str


HIDDEN = object()
"""Marks a field that stays here."""


@dataclass(frozen=True)
class _Field:
    name: str
    key: str
    form: Form
    is_required: bool


# ---------------------------------------------------------------- forms


def integer(least: int, most: int | None = None) -> Form:
    """Return the form of a whole number within bounds, both included."""
    bounds = {"minimum": least, **({} if most is None else {"maximum": most})}
    sentence = f"must be a whole number from {least}" + ("" if most is None else f" to {most}")

    def read(value: Json) -> int:
        if type(value) is not int or value < least or (most is not None and value > most):
            raise ValueError(sentence)
        return value

    return Form({"type": "integer", **bounds}, read=read)


def _read_text(value: Json) -> str:
    if type(value) is not str:
        raise ValueError("must be text")
    return value


def text(most: int, clean: Callable[[str], str]) -> Form:
    """Return the form of a string of at most `most` characters; `clean` makes of it what is kept."""

    def read(value: Json) -> str:
        if type(value) is not str or len(value) > most:
            raise ValueError(f"must be a string of at most {most} characters")
        return clean(value)

    return Form({"type": "string", "maxLength": most}, read=read)


def seconds_since_epoch(most: float | None = None) -> Form:
    """Return the form of a point in time. A larger one than `most` is in milliseconds."""
    schema: Schema = {"type": "number", "description": "seconds since the epoch"}
    if most is not None:
        schema = {"type": "number", "minimum": 0, "maximum": most}

    def read(value: Json) -> float:
        # NaN is not at least 0, either
        if (type(value) is float or type(value) is int) and 0 <= value <= (most or value):
            return float(value)
        raise ValueError("must be a time in seconds since the epoch")

    return Form(schema, read=read)


def one_of_values(values: type[Enum] | tuple[str, ...]) -> Form:
    """Return the form of one of the values of an enum, or of some words."""
    known = {value: value for value in values} if isinstance(values, tuple) else {m.value: m for m in values}
    words = [word for word in known if word]
    sentence = f"must be {', '.join(words[:-1])} or {words[-1]}" + (", or empty" if "" in known else "")

    def read(value: Json) -> Any:
        if type(value) is not str or value not in known:
            raise ValueError(sentence)
        return known[value]

    write = None if isinstance(values, tuple) else (lambda member: member.value)
    return Form({"type": "string", "enum": list(known)}, write, read)


def _read_base64(value: Json) -> bytes:
    if type(value) is not str:
        raise ValueError("must be a string in base64")
    import base64

    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise ValueError("is not base64") from None


def _write_base64(data: bytes) -> str:
    import base64

    return base64.b64encode(data).decode("ascii")


BYTES = Form({"type": "string", "contentEncoding": "base64"}, _write_base64, _read_base64)
TEXT = Form({"type": "string"}, read=_read_text)
ANYTHING = Form({"description": "any JSON value, with NaN and infinities as strings"})
TIME = seconds_since_epoch()
_SIMPLE: dict[Any, Form] = {
    bool: Form({"type": "boolean"}),
    int: Form({"type": "integer"}),
    float: Form({"type": "number"}),
    str: Form({"type": "string"}),
    bytes: BYTES,
    Any: ANYTHING,
}


def _make_optional(form: Form) -> Form:
    write, read = form.write, form.read
    schema = dict(form.schema)
    if isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
    elif "$ref" in schema:
        schema = {"anyOf": [schema, {"type": "null"}]}
    return Form(
        schema,
        None if write is None else (lambda value: None if value is None else write(value)),
        None if read is None else (lambda value: None if value is None else read(value)),
        is_optional=True,
    )


def _array(form: Form) -> Form:
    write = form.write
    return Form(
        {"type": "array", "items": dict(form.schema)}, list if write is None else (lambda items: [*map(write, items)])
    )


def _mapping(key: Form, value: Form) -> Form:
    name, write = key.write or str, value.write or (lambda item: item)
    schema: Schema = {"type": "object"}
    if value is not ANYTHING:
        schema["additionalProperties"] = dict(value.schema)
    return Form(schema, lambda items: {name(key): write(item) for key, item in items.items()})


def form_of(hint: Any) -> Form:
    """Return the form of a type hint. Raises: TypeError for one that is not sent."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(arguments[0], arguments[1:])
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if origin in (typing.Union, types.UnionType):
        (inner,) = [argument for argument in arguments if argument is not type(None)]
        return _make_optional(form_of(inner))
    if origin in (list, tuple, collections.abc.Sequence):
        return _array(form_of(arguments[0]))
    if origin in (dict, collections.abc.Mapping):
        return _mapping(form_of(arguments[0]), form_of(arguments[1]))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return one_of_values(hint)
    if dataclasses.is_dataclass(hint):
        return Form({"$ref": f"#/components/schemas/{typing.cast(type, hint).__name__}"}, to_json)
    raise TypeError(f"{hint!r} does not travel as JSON")


def _annotated(hint: Any, marks: tuple[Any, ...]) -> Form:
    forms = [mark for mark in marks if isinstance(mark, Form)]
    described = [mark for mark in marks if isinstance(mark, str)]
    form = forms[0] if forms else form_of(hint)
    if forms and type(None) in get_args(hint) and not form.is_optional:
        form = _make_optional(form)
    return dataclasses.replace(form, schema={**form.schema, "description": described[0]}) if described else form


# ---------------------------------------------------------------- shapes


def camel(name: str) -> str:
    """Turn `max_trial_number` into `maxTrialNumber`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


@cache
def _fields(cls: type) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    found = []
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        if HIDDEN in marks:
            continue
        names = [mark.name for mark in marks if isinstance(mark, Key)]
        has_default = not (field.default is field.default_factory is dataclasses.MISSING)
        form = form_of(hint)
        found.append(_Field(field.name, (names or [camel(field.name)])[0], form, not (has_default or form.is_optional)))
    return tuple(found)


@cache
def _writers(cls: type) -> tuple[tuple[str, str, Callable[[Any], Json] | None], ...]:
    return tuple((field.key, field.name, field.form.write) for field in _fields(cls))


def to_json(record: Any) -> Schema:
    """Return the JSON object of a record."""
    cls: type = type(record)
    values = vars(record)
    return {key: values[name] if write is None else write(values[name]) for key, name, write in _writers(cls)}


def read_fields(cls: type, data: Mapping[str, Json]) -> dict[str, Any]:
    """Return the arguments that make a record of this JSON object; other keys are left out. Raises: Mismatch."""
    values: dict[str, Any] = {}
    for field in _fields(cls):
        if field.key not in data:
            if field.is_required:
                values[field.name] = _read(field, None)
            elif field.form.is_optional:
                values[field.name] = None
            continue
        values[field.name] = _read(field, data[field.key])
    return values


def _read(field: _Field, value: Json) -> Any:
    read = field.form.read
    if read is None:
        return value
    try:
        return read(value)
    except ValueError as error:
        raise Mismatch(field.key, str(error)) from None


def wire_names(cls: type) -> dict[str, str]:
    """Return the names on the wire of a record's fields, by those of the fields."""
    return {field.name: field.key for field in _fields(cls)}


def properties_of(cls: type) -> dict[str, Schema]:
    """Return the schemas of a record's fields, by their names on the wire."""
    return {field.key: dict(field.form.schema) for field in _fields(cls)}


def required_of(cls: type) -> list[str]:
    """Return the names that JSON that comes in must have."""
    return [field.key for field in _fields(cls) if field.is_required]


def schema_of(cls: type) -> Schema:
    """Return the JSON Schema of what `to_json` makes: every property is there."""
    properties = properties_of(cls)
    return {"type": "object", "properties": properties, "required": list(properties)}
