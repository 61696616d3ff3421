"""How much of a ResourceQuota objects use: numbers of objects, and what pods request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from platforms.kube.client import JOBS, PODS, Key

_UNITS = {"m": Decimal("0.001"), "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_COUNTS = {"pods": PODS, "count/pods": PODS, "count/jobs.batch": JOBS}
_ENDED = ("Succeeded", "Failed")


def used(hard: Mapping[str, str], have: Mapping[Key, Sequence[Any]]) -> dict[str, str]:
    """For each limited resource what these objects use of it.

    >>> used({"count/jobs.batch": "2"}, {JOBS: [{}]})
    {'count/jobs.batch': '1'}
    """
    return {
        name: str(sum(amount(name, key, content) for key, found in have.items() for content in found)) for name in hard
    }


def amount(name: str, key: Key, content: Any) -> Decimal | int:
    """What one object uses of a resource."""
    if name in _COUNTS:
        ended = name == "pods" and (content.get("status") or {}).get("phase") in _ENDED
        return int(key == _COUNTS[name] and not ended)
    if key != PODS or (content.get("status") or {}).get("phase") in _ENDED:
        return 0
    part, _, resource = name.partition(".") if name.startswith(("requests.", "limits.")) else ("requests", "", name)
    containers = content["spec"]["containers"]
    return sum(quantity(((c.get("resources") or {}).get(part) or {}).get(resource, 0)) for c in containers)


def quantity(text: Any) -> Decimal:
    """A number as Kubernetes spells it.

    >>> quantity("500m"), quantity("2Gi")
    (Decimal('0.500'), Decimal('2147483648'))
    """
    text = str(text)
    unit = next((unit for unit in sorted(_UNITS, key=len, reverse=True) if text.endswith(unit)), "")
    return Decimal(text.removesuffix(unit)) * _UNITS.get(unit, 1)
