"""Finds `${env:NAME}` in fields where it is not replaced."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nnilite.records import Json

_VARIABLE = re.compile(r"\$\{env:([^{}]*)\}")
_WHERE = "variables are replaced only in secrets and in addresses of webhooks"


def environment_hints(config: Mapping[str, Json]) -> list[str]:
    """Return a sentence for each text of a config in which `${env:NAME}` stays as it is. Secrets are hidden in it."""
    # A search space is data: what looks like a variable there may be meant.
    fields = {name: value for name, value in config.items() if name != "searchSpace"}
    return [_sentence(field, found) for field, text in _texts(fields, "") if (found := _VARIABLE.search(text))]


def _texts(value: Json, field: str) -> Iterator[tuple[str, str]]:
    """Yield all texts below a field, each with its own field."""
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _texts(item, f"{field}.{name}" if field else str(name))
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from _texts(item, f"{field}[{place}]")


def _sentence(field: str, match: re.Match[str]) -> str:
    is_command = field.rpartition(".")[2].lower().endswith("command")
    cure = f"write ${match[1]}, which the shell of the trial reads" if is_command else "write the value itself"
    return f"{field}: {match[0]} is kept as text, since {_WHERE}; {cure}"
