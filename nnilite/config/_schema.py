"""JSON Schema for editors and Markdown for the reference, made from the same fields as the check."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from nnilite._plugins import lookup
from nnilite.config._experiment_config import ExperimentConfig
from nnilite.config._kinds import FieldKind, Quantity, Union
from nnilite.config._nested_configs import (
    AlgorithmConfig,
    CheckpointConfig,
    CodeLimits,
    DistributedConfig,
    ElasticNodes,
    TrackerConfig,
    WebhookConfig,
)
from nnilite.config._record import ConfigField, Record, record_of
from nnilite.config._services import SHARE, SHORTCUTS, find_service_record, platforms
from nnilite.config.shared_storage_config import SharedStorageConfig
from nnilite.errors import ConfigError
from nnilite.space import ParameterKind

_SPACE = {"$ref": "#/$defs/searchSpace"}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a config file, with the sections of the installed platforms."""
    schema = record_of(ExperimentConfig).json_schema()
    properties = schema["properties"]
    for word, group in (("tuner", lookup.TUNERS), ("assessor", lookup.ASSESSORS)):
        properties[word]["properties"]["name"]["examples"] = lookup.names(group)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nnilite experiment",
        **schema,
        "if": {"properties": {"tuner": {"required": ["className"]}}, "required": ["tuner"]},
        "else": {"properties": {"searchSpace": _SPACE}},  # a user's own tuner may accept anything
        "$defs": {
            "searchSpace": _describe_space(),
            "parameter": {"oneOf": [_parameter(kind) for kind in ParameterKind]},
        },
    }


def _describe_space() -> dict[str, Any]:
    return {"type": "object", "minProperties": 1, "additionalProperties": {"$ref": "#/$defs/parameter"}}


def _parameter(kind: ParameterKind) -> dict[str, Any]:
    return {
        "title": kind.value,
        "type": "object",
        "properties": {
            "_type": {"const": kind.value},
            "_value": _value(kind),
            "_unit": {"type": "string", "maxLength": 20},
            "_default": {},
            **({"_ordered": {"type": "boolean"}} if kind is ParameterKind.CHOICE else {}),
        },
        "required": ["_type", "_value"],
    }


def _value(kind: ParameterKind) -> dict[str, Any]:
    if kind is ParameterKind.CHOICE:
        name = {"type": "string", "minLength": 1}
        nested = {
            "type": "object",
            "properties": {"_name": name},
            "additionalProperties": {"$ref": "#/$defs/parameter"},
        }
        all_named = {"items": {"type": "object", "required": ["_name"]}}
        return {"type": "array", "minItems": 1, "uniqueItems": True, "if": all_named, "then": {"items": nested}}
    number = "integer" if kind.whole else "number"
    one: dict[str, Any] = {"type": number}
    positive = {"type": number, "exclusiveMinimum": 0}
    first = positive if kind.log and not kind.normal else one
    items = [first, positive if kind.normal else one, *([positive] if kind.quantised else [])]
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}


_PARTS = (
    ("tuner, assessor, advisor", AlgorithmConfig),
    ("checkpoint", CheckpointConfig),
    ("codeLimits", CodeLimits),
    ("distributed", DistributedConfig),
    ("distributed.nodes", ElasticNodes),
    ("sharedStorage", SharedStorageConfig),
    ("trackers", TrackerConfig),
    ("webhooks", WebhookConfig),
)


def reference_markdown() -> str:
    """Return all fields as Markdown tables, for the reference documentation."""
    parts = [_describe_section("The experiment", record_of(ExperimentConfig).entries)]
    parts += [_describe_section(title, record_of(cls).entries) for title, cls in _PARTS]
    parts.append(_describe_section("trainingService, on every platform", (*SHORTCUTS.entries, *SHARE.entries)))
    titles: dict[type, str] = {}
    for platform in platforms():
        parts += _describe_platform(platform, titles)
    return "\n\n".join(parts) + "\n"


def _describe_platform(platform: str, titles: dict[type, str]) -> Iterator[str]:
    """Yield the tables of one platform's section. `titles`: those of tables so far, by the classes of sections."""
    title = f"trainingService, platform `{platform}`"
    try:
        record = find_service_record(platform)
    except ConfigError as error:
        yield f"## {title}\n\n{error}"
        return
    yield from _describe_record(title, record, f"of platform `{platform}`", titles)


def _describe_record(title: str, record: Record, place: str, titles: dict[type, str]) -> Iterator[str]:
    """Yield the table of a section, and those of the objects in it. Fields that stand elsewhere are not repeated."""
    same = titles.setdefault(record.cls, title)
    if same != title:
        yield f"## {title}\n\nThe same fields as in [{same}](#{_anchor(same)})."
        return
    yield _describe_section(title, record.entries)
    for entry in record.entries:
        for inner in _find_records(entry.kind):
            yield from _describe_record(f"`{entry.key}` {place}", inner, f"in `{entry.key}` {place}", titles)


def _find_records(kind: FieldKind) -> Iterator[Record]:
    if isinstance(kind, Record):
        yield kind
    elif isinstance(kind, Union):
        for one in kind.kinds:
            yield from _find_records(one)
    elif hasattr(kind, "item"):
        yield from _find_records(kind.item)


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _describe_section(title: str, entries: tuple[ConfigField, ...]) -> str:
    rows = [
        f"| `{entry.key}` | {entry.kind.words} | {_default(entry)} | {entry.description.replace('|', '&#124;')} |"
        for entry in entries
    ]
    head = f"## {title}\n\n| field | type | default | meaning |\n| --- | --- | --- | --- |\n"
    return head + "\n".join(rows)


def _default(entry: ConfigField) -> str:
    if entry.required:
        return "**required**"
    if entry.default in (None, "", [], (), {}) or hasattr(entry.default, "__dataclass_fields__"):
        return ""
    value = entry.kind.write(entry.default, secrets=False)
    kinds = entry.kind.kinds if isinstance(entry.kind, Union) else [entry.kind]
    quantity = next((kind for kind in kinds if isinstance(kind, Quantity) and kind.matches(entry.default)), None)
    if quantity is not None:
        value = quantity.unit.spell(value)
    if isinstance(value, list):
        value = f"[{', '.join(map(str, value))}]"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
