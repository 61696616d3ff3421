"""Checks whether a namespace can ever hold one trial: its pods against ResourceQuotas and LimitRanges. Pure.

Only what can never work is reported here. While a quota is used up, trials wait, and the API server says so. Quotas
with scopes are left to it, too: they may not apply to these pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from nnilite.errors import ConfigError
from nnilite.records import Json

_PARTS = ("requests", "limits")
_MUST_BE_GIVEN = ("cpu", "memory")  # where a quota limits these, each container has to say what it wants
_CURES = {"cpu": "cpuNumber", "memory": "memorySize"}


@dataclass(frozen=True)
class Demand:
    """What one trial asks for: the specs of its pods, each with how many there are, and how many objects of a kind."""

    pods: Sequence[tuple[Json, int]]
    objects: Mapping[str, int]  # by what a quota calls them: secrets, count/jobs.batch


def refusals(demand: Demand, quotas: Sequence[Json], ranges: Sequence[Json]) -> list[str]:
    """Return a sentence for each thing that can never work; [] if all can."""
    limits = [limit for entry in ranges for limit in entry["spec"].get("limits") or []]
    ours = [limit for limit in limits if limit.get("type") == "Container"]
    pods = [(_add_defaults(spec, ours), number) for spec, number in demand.pods]
    found = [sentence for spec, _ in pods for sentence in _find_beyond_ranges(spec, ours)]
    wanted = {**_sum_totals(pods), **{name: Decimal(number) for name, number in demand.objects.items()}}
    for quota in quotas:
        if not (quota["spec"].get("scopes") or quota["spec"].get("scopeSelector")):
            found += _find_beyond_quota(quota, pods, wanted)
    return list(dict.fromkeys(found))


def quantity(text: Any) -> Decimal:
    """Parse a number as Kubernetes spells it. Raises: ConfigError.

    >>> quantity("500m"), quantity("2Gi")
    (Decimal('0.500'), Decimal('2147483648'))
    """
    try:
        return Decimal(parse_quantity(text))
    except (ValueError, ArithmeticError, TypeError) as error:
        raise ConfigError(f"{text!r} is not a quantity such as 500m or 2Gi") from error


def _find_beyond_quota(quota: Json, pods: Sequence[tuple[Json, int]], wanted: Mapping[str, Decimal]) -> Iterator[str]:
    name = quota["metadata"]["name"]
    for key, most in (quota["spec"].get("hard") or {}).items():
        part, resource = _part(key)
        if resource in _MUST_BE_GIVEN and not all(_says(spec, part, resource) for spec, _ in pods):
            yield f"the ResourceQuota {name} requires of every container its {part}.{resource}: set {_CURES[resource]}"
        elif wanted.get(key, Decimal()) > quantity(most):
            yield f"one trial asks for {key} {_shown(wanted[key])}, and the ResourceQuota {name} allows {most} in all"


def _find_beyond_ranges(spec: Json, limits: Sequence[Json]) -> Iterator[str]:
    for container in _list_containers(spec):
        for limit in limits:
            for resource, most in (limit.get("max") or {}).items():
                asked = _amount(container, "limits", resource)
                if asked > quantity(most):
                    name = container["name"]
                    yield f"the container {name} asks for {resource} {_shown(asked)}; a LimitRange allows {most}"
            for resource, least in (limit.get("min") or {}).items():
                asked = _amount(container, "requests", resource)
                if 0 < asked < quantity(least):
                    name = container["name"]
                    yield f"the container {name} asks for {resource} {_shown(asked)}; a LimitRange requires {least}"


def _part(key: str) -> tuple[str, str]:
    """Return part and resource of a quota's key: `cpu` and `requests.cpu` are the same, `pods` is not for containers.

    >>> _part("limits.memory"), _part("cpu"), _part("requests.nvidia.com/gpu")
    (('limits', 'memory'), ('requests', 'cpu'), ('requests', 'nvidia.com/gpu'))
    """
    part, dot, resource = key.partition(".")
    return (part, resource) if dot and part in _PARTS else ("requests", key)


def _sum_totals(pods: Sequence[tuple[Json, int]]) -> dict[str, Decimal]:
    number = Decimal(sum(number for _, number in pods))
    found = {"pods": number, "count/pods": number}
    for spec, times in pods:
        for part in _PARTS:
            for resource in {name for container in _list_containers(spec) for name in _resources(container, part)}:
                amount = times * _sum_of_pod(spec, part, resource)
                for key in (f"{part}.{resource}", *((resource,) if part == "requests" else ())):
                    found[key] = found.get(key, Decimal()) + amount
    return found


def _sum_of_pod(spec: Json, part: str, resource: str) -> Decimal:
    """Sum up the demand of a pod. Containers run side by side; init containers run before them, one after the other."""
    together = sum((_amount(container, part, resource) for container in spec["containers"]), Decimal())
    return max([together, *(_amount(each, part, resource) for each in spec.get("initContainers") or [])])


def _list_containers(spec: Json) -> list[Json]:
    return [*spec["containers"], *(spec.get("initContainers") or [])]


def _resources(container: Json, part: str) -> Mapping[str, Json]:
    """Return the requests or the limits of a container; without requests, its limits count as requests."""
    given = container.get("resources") or {}
    if part == "requests":
        return {**(given.get("limits") or {}), **(given.get("requests") or {})}
    return given.get("limits") or {}


def _amount(container: Json, part: str, resource: str) -> Decimal:
    return quantity(_resources(container, part).get(resource, 0))


def _says(spec: Json, part: str, resource: str) -> bool:
    return all(resource in _resources(container, part) for container in _list_containers(spec))


def _add_defaults(spec: Json, limits: Sequence[Json]) -> Json:
    """Return a pod with the defaults of a LimitRange."""

    def completed(container: Json) -> Json:
        given = container.get("resources") or {}
        most, least = dict(given.get("limits") or {}), dict(given.get("requests") or {})
        for limit in limits:
            most = {**(limit.get("default") or {}), **most}
            least = {**(limit.get("defaultRequest") or {}), **(given.get("limits") or {}), **least}
        return {**container, "resources": {"limits": most, "requests": least}}

    both = {name: [completed(each) for each in spec.get(name) or []] for name in ("containers", "initContainers")}
    return {**spec, **both}


def _shown(amount: Decimal) -> str:
    """Return an amount with the unit that fits it.

    >>> _shown(Decimal("8.000")), _shown(Decimal(16 * 2**30))
    ('8', '16Gi')
    """
    for unit, size in (("Gi", 2**30), ("Mi", 2**20)):
        if amount and amount % size == 0:
            return f"{amount / size:f}{unit}"
    return f"{amount.normalize():f}"
