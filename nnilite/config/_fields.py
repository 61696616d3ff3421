"""Names of fields, and what is near to a misspelt one."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from nnilite.records.shapes import camel


def normalize_name(name: str) -> str:
    """Return the form in which all spellings of a name are equal: without underscores, in lower case."""
    return name.replace("_", "").lower()


_OLDER = {
    "trial": "trialCommand",
    "command": "trialCommand",
    "codedir": "trialCodeDirectory",
    "gpunum": "trialGpuNumber",
    "searchspacepath": "searchSpaceFile",
    "logdir": "experimentWorkingDirectory",
    "builtintunername": "name",
    "builtinassessorname": "name",
    "builtinadvisorname": "name",
    "ip": "host",
    "username": "user",
    "passwd": "password",
}
"""Names of NNI's older format that do not resemble today's, or resemble a wrong one."""


def guess_meant(given: str, known: Iterable[str]) -> str | None:
    """Return the known name that is nearest to a misspelt one; None if none is near."""
    by_plain = {normalize_name(name): name for name in known}
    older = by_plain.get(normalize_name(_OLDER.get(normalize_name(given), "")))
    if older:
        return older
    close = difflib.get_close_matches(normalize_name(given), by_plain, n=1)
    return by_plain[close[0]] if close else None


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return the end of a sentence on an unknown name: the nearest known one, or all of them."""
    names = list(known)
    meant = guess_meant(given, names)
    if meant:
        return f"; did you mean {meant}?"
    return f"; the fields here are {', '.join(dict.fromkeys(names))}" if names else ""


def as_mapping(value: Any) -> Any:
    """Return the mapping that the YAML would have for a config object; other values are returned unchanged."""
    if hasattr(value, "as_mapping"):
        return value.as_mapping()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((camel(field.name), getattr(value, field.name)) for field in dataclasses.fields(value))
        return {name: item for name, item in pairs if item is not None}
    return value


def find(mapping: Mapping[Any, Any], name: str) -> Any:
    """Return the value of a field, whatever the spelling of its key; None if it is missing."""
    for key, value in mapping.items():
        if isinstance(key, str) and normalize_name(key) == normalize_name(name):
            return value
    return None
