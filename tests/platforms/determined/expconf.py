"""The schemas `expconf/v0` with the keywords that Determined adds to JSON Schema."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator, ValidationError, validators
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

CONTRACT = Path(__file__).parent / "contract"
EXPERIMENT = "http://determined.ai/schemas/expconf/v0/experiment.json"


@functools.cache
def schemas() -> dict[str, Any]:
    found = {}
    for path in (CONTRACT / "expconf-v0").glob("*.json"):
        schema = json.loads(path.read_text())
        schema.pop("$schema", None)  # with it, jsonschema would forget the keywords below in subschemas
        found[schema["$id"]] = schema
    return found


def complaints(config: Any, url: str = EXPERIMENT, complete: bool = False) -> list[str]:
    """What is wrong with a configuration. `complete`: also what is missing after the cluster's defaults."""
    registry = Registry().with_resources([(name, Resource(each, DRAFT7)) for name, each in schemas().items()])
    kind = _COMPLETE if complete else _SANE
    errors = kind(schemas()[url], registry=registry).iter_errors(config)
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]


def _fits(key: str, value: Any) -> bool:
    if key in ("always", "never"):
        return key == "always"
    name, _, argument = key.partition(":")
    if name == "not":
        return not _fits(argument, value)
    if name == "type":
        return isinstance(value, {"array": list, "object": dict}[argument])
    if not isinstance(value, dict):
        return False
    if name == "const":
        field, _, wanted = argument.partition("=")
        return value.get(field) == wanted
    return list(value) == [argument] if name == "singleproperty" else argument in value


def _union(validator: Any, union: Any, value: Any, schema: Any) -> Any:
    selected, fitting = None, 0
    for item in union["items"]:
        errors = list(validator.descend(value, {name: each for name, each in item.items() if name != "unionKey"}))
        fitting += not errors
        if errors and not selected and _fits(item["unionKey"], value):
            selected = errors
    if fitting > 1:
        yield ValidationError("fits several")
    elif not fitting and selected:
        yield from selected
    elif not fitting:
        yield ValidationError(union.get("defaultMessage", "fits none"))


def _checks(validator: Any, checks: Any, value: Any, schema: Any) -> Any:
    for message, check in checks.items():
        if list(validator.descend(value, check)):
            yield ValidationError(message)


def _optional_ref(validator: Any, ref: str, value: Any, schema: Any) -> Any:
    if value is not None:
        yield from validator.descend(value, {"$ref": ref})


def _disallow(validator: Any, names: Any, value: Any, schema: Any) -> Any:
    if isinstance(value, dict):
        yield from (ValidationError(names[name]) for name in value if name in names)


def _at(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _compare(validator: Any, rule: Any, value: Any, schema: Any) -> Any:
    a, b, kind = _at(value, rule["a"]), _at(value, rule["b"]), rule["type"]
    if a is None or b is None:
        return
    if kind == "a_is_subdir_of_b":
        inner, outer = os.path.normpath(a), os.path.normpath(b)
        bad = not inner.startswith(outer) if inner.startswith("/") else inner.startswith("..")
    else:
        bad = (kind == "a<b" and a >= b) or (kind == "a<=b" and a > b)
    if bad:
        relation = "a subdirectory of" if "subdir" in kind else "less than"
        yield ValidationError(f"{rule['a']} must be {relation} {rule['b']}")


def _eventually_required(validator: Any, names: Any, value: Any, schema: Any) -> Any:
    if isinstance(value, dict):
        yield from (ValidationError(f"{name} is a required property") for name in names if value.get(name) is None)


def _eventually(validator: Any, inner: Any, value: Any, schema: Any) -> Any:
    yield from validator.descend(value, inner)


_OWN = {
    "union": _union,
    "checks": _checks,
    "optionalRef": _optional_ref,
    "disallowProperties": _disallow,
    "compareProperties": _compare,
}
_SANE = validators.extend(Draft7Validator, _OWN)
_COMPLETE = validators.extend(
    Draft7Validator, {**_OWN, "eventuallyRequired": _eventually_required, "eventually": _eventually}
)
