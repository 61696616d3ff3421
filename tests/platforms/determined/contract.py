"""Requests and answers, held against Determined's published REST interface (Swagger 2, which openapi-core cannot read).

jsonschema checks bodies against the definitions. A field that the interface does not know is a fault, too.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft7Validator

from platforms.determined.expconf import CONTRACT

_NUMBER = re.compile(r"-?[0-9]+")


@functools.cache
def document() -> dict[str, Any]:
    found = json.loads((CONTRACT / "determined-rest-v0.38.1.trimmed.swagger2.json").read_text())
    # "The JSON representation for Struct is JSON object", and for ListValue an array, say their descriptions; the
    # schemas show their insides.
    found["definitions"]["protobufStruct"] = {"type": "object", "additionalProperties": True}
    found["definitions"]["protobufListValue"] = {"type": "array"}
    return found


@functools.cache
def _operations() -> list[tuple[str, re.Pattern[str], Mapping[str, Any]]]:
    found = []
    for path, operations in document()["paths"].items():
        pattern = re.compile("".join(_piece(part) for part in re.split(r"({[^}]+})", path)))
        found += [(method.upper(), pattern, operation) for method, operation in operations.items()]
    # A path without parameters counts before one with them: /trials/metrics/... before /trials/{id}/...
    return sorted(found, key=lambda one: one[1].pattern.count("[^/]"))


def _piece(part: str) -> str:
    return r"([^/]+)" if part.startswith("{") else re.escape(part)


def operation(method: str, path: str) -> tuple[Mapping[str, Any], list[str]] | None:
    """The operation of a request, and the parameters in its path; None if there is no such path."""
    for known, pattern, found in _operations():
        match = pattern.fullmatch(path)
        if known == method and match:
            return found, list(match.groups())
    return None


def request_faults(found: Mapping[str, Any], query: Mapping[str, list[str]], body: Any) -> list[str]:
    parameters = {one["name"]: one for one in found.get("parameters") or []}
    faults = [f"unknown query parameter {name}" for name in query if parameters.get(name, {}).get("in") != "query"]
    for name, values in query.items():
        known = parameters.get(name) or {}
        faults += [f"{name}={value}" for value in values if not _is_a(known.get("items") or known, value)]
    wanted = parameters.get("body")
    if wanted is None:
        return faults + (["a body where none belongs"] if body not in (None, {}) else [])
    return faults + body_faults(wanted["schema"], body)


def _is_a(known: Mapping[str, Any], value: str) -> bool:
    if known.get("enum"):
        return value in known["enum"]
    if known.get("type") == "integer":
        return bool(_NUMBER.fullmatch(value))
    return known.get("type") != "boolean" or value in ("true", "false")


def answer_faults(found: Mapping[str, Any], body: Any) -> list[str]:
    return body_faults(found["responses"]["200"]["schema"], body)


def body_faults(schema: Mapping[str, Any], body: Any) -> list[str]:
    whole = {**schema, "definitions": document()["definitions"]}
    errors = [f"{list(error.absolute_path)}: {error.message}" for error in Draft7Validator(whole).iter_errors(body)]
    return errors + list(_unknown(schema, body))


def _unknown(schema: Mapping[str, Any], body: Any) -> Any:
    """Fields that the interface does not know, which the master refuses."""
    if "$ref" in schema:
        schema = document()["definitions"][schema["$ref"].rpartition("/")[2]]
    if isinstance(body, list):
        for item in body:
            yield from _unknown(schema.get("items") or {}, item)
    if isinstance(body, dict) and "properties" in schema:
        for name, value in body.items():
            if name not in schema["properties"]:
                yield f"unknown field {name}"
            else:
                yield from _unknown(schema["properties"][name], value)
