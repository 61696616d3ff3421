"""One row of the table of routes: address, handler, and the inputs and answers of each method.

The server's address pattern, the check of the query and the OpenAPI document all follow from the same row, so they
cannot contradict each other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tornado.web import RequestHandler

from nnilite._rest import wire
from nnilite._rest.auth import Access
from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite.records.shapes import camel

Schema = Mapping[str, Json]

BODY_MAX = 8 * 1024 * 1024  # bytes
SERVER_BODY_MAX = 32 * 1024 * 1024  # bytes; no route accepts more


@dataclass(frozen=True)
class Param:
    """A path or query parameter. `name` is snake_case here and camelCase on the wire, unless `spelling` differs."""

    name: str
    schema: Schema
    text: str
    spelling: str = ""
    required: bool = False  # for a query; parameters of a path are always required

    @property
    def wire_name(self) -> str:
        return self.spelling or camel(self.name)

    @property
    def default(self) -> Json:
        return self.schema.get("default", [] if self.schema["type"] == "array" else None)

    def read(self, given: Sequence[str]) -> Json:
        """Return the value of a query parameter that the query has once or more. Raises: ConfigError."""
        if self.schema["type"] == "array":
            return [self._read_one(text, self.schema["items"]) for text in given]
        if len(given) > 1:
            raise self._wrong("may be given only once")
        return self._read_one(given[0], self.schema)

    def _read_one(self, text: str, schema: Schema) -> Json:
        if schema["type"] == "integer":
            return self._read_integer(text, schema)
        if schema["type"] == "boolean":
            if text not in ("true", "false"):
                raise self._wrong("must be true or false")
            return text == "true"
        return self._read_string(text, schema)

    def _read_integer(self, text: str, schema: Schema) -> int:
        low, high = schema["minimum"], schema["maximum"]
        if re.fullmatch(r"-?[0-9]{1,18}", text) and low <= int(text) <= high:
            return int(text)
        raise self._wrong(f"must be a whole number from {low} to {high}")

    def _read_string(self, text: str, schema: Schema) -> str:
        if "enum" in schema and text not in schema["enum"]:
            raise self._wrong(f"must be one of {', '.join(schema['enum'])}")
        # Only with `fullmatch` does `$` mean the end, as in a schema: otherwise a last line feed may follow.
        if "pattern" in schema and not re.fullmatch(schema["pattern"], text):
            raise self._wrong(f"must match {schema['pattern']}")
        return text

    def _wrong(self, message: str) -> ConfigError:
        return ConfigError(message, Place(field=self.wire_name))


@dataclass(frozen=True)
class Response:
    """A successful answer. Without a schema it has no body. `also`: a further media type, for answers as text."""

    text: str
    schema: Schema | None = None
    media: str = "application/json"
    status: int = 200
    also: str = ""


@dataclass(frozen=True)
class Operation:
    """One method of a route. `refusals`: its own error statuses, besides those of all methods."""

    text: str
    answer: Response
    query: Sequence[Param] = ()
    body: Schema | None = None
    refusals: Sequence[int] = ()
    writes: bool = False  # whether it is refused if the experiment is only viewed


@dataclass(frozen=True)
class Route:
    """An address below /api/v1, such as `/trials/{id}`, with the parameters of its path."""

    path: str
    handler: type[RequestHandler]
    operations: Mapping[str, Operation]  # by upper-case method
    params: Sequence[Param] = ()
    access: Access = Access.MANAGER
    body_max: int = BODY_MAX

    @property
    def pattern(self) -> str:
        """The address as a regular expression with one named group per parameter."""
        pattern = re.escape(self.path).replace(r"\{", "{").replace(r"\}", "}")
        for param in self.params:
            pattern = pattern.replace(f"{{{param.name}}}", f"(?P<{param.name}>{_shape(param.schema)})")
        return pattern


def _shape(schema: Schema) -> str:
    if "enum" in schema:
        return "|".join(schema["enum"])
    return str(schema.get("pattern", "[^/]+")).removeprefix("^").removesuffix("$")


def read_query(params: Sequence[Param], given: Mapping[str, Sequence[bytes]]) -> dict[str, Json]:
    """Return the query as values by snake_case name, with defaults. Raises: ConfigError."""
    known = {param.wire_name: param for param in params}
    for name in given:
        if name not in known:
            raise ConfigError(_unknown(name, known), Place(field=wire.clean(name)))
    for param in params:
        if param.required and param.wire_name not in given:
            raise ConfigError(f"is needed: {param.text}", Place(field=param.wire_name))
    values = {param.name: param.default for param in params}
    for name, texts in given.items():
        param = known[name]
        values[param.name] = param.read([_text(name, text) for text in texts])
    return values


def _unknown(name: str, known: Mapping[str, Param]) -> str:
    listing = f"known are {', '.join(known)}" if known else "this address accepts none"
    return f"unknown query parameter '{wire.clean(name)}'; {listing}"


def _text(name: str, text: bytes) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError("is not UTF-8", Place(field=name)) from None
