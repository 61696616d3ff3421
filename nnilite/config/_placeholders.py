"""Finds values that were copied from an example and not filled in: `${your_token}`, `<tag>`, `{server}`, `x.x.x.x`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nnilite.records import Json

_PLACEHOLDER = re.compile(r"\$\{(?!env:)[^{}]*\}|\{[^{}]*\}|<[^<>]+>|x+(\.x+){3}", re.IGNORECASE)
_OF_TRIALS = ("command", "environmentvariables")
"""Fields that contain words like this are read on the worker, where a variable may stand in braces."""


def find_placeholders(value: Json, place: str) -> list[str]:
    """Return a sentence for each text at `place` or below that is nothing but a placeholder."""
    if isinstance(value, Mapping):
        below = {f"{place}.{name}": part for name, part in value.items() if not _is_of_trials(name)}
        return [hint for where, part in below.items() for hint in find_placeholders(part, where)]
    if isinstance(value, (list, tuple)):
        return [hint for k, part in enumerate(value) for hint in find_placeholders(part, f"{place}[{k}]")]
    if isinstance(value, str) and _PLACEHOLDER.fullmatch(value):
        return [f"{place} is {value!r}, which looks like a placeholder: write your own value"]
    return []


def _is_of_trials(name: str) -> bool:
    return any(word in name.lower() for word in _OF_TRIALS)
