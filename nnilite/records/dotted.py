"""Names with dots for the parts of nested objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each part that is not an object, with its dotted name, which begins with `prefix`.

    A value that is not an object itself has the name `prefix`, or "value".

    >>> dict(flatten({"lr": 0.1, "layer": {"_name": "conv", "size": 3}}))
    {'lr': 0.1, 'layer._name': 'conv', 'layer.size': 3}
    """
    if not isinstance(value, Mapping):
        yield prefix or "value", value
        return
    for name, part in value.items():
        yield from flatten(part, f"{prefix}.{name}" if prefix else str(name))
