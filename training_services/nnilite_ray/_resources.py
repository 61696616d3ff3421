"""Explain why a job waits, from what it asks for and what the nodes have in use. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnilite.records import Json
from nnilite.units import format_size

_NAMES = {"entrypoint_num_cpus": "CPU", "entrypoint_num_gpus": "GPU", "entrypoint_memory": "memory"}
_LITTLE = 1e-6

Usage = Mapping[str, Mapping[str, Any]]
"""Each node's resources, as [used, total]."""


def named_resources(request: Mapping[str, Json]) -> dict[str, float]:
    """Return what a request asks for, by Ray's names of resources.

    >>> named_resources({"entrypoint_num_gpus": 2, "entrypoint_resources": {"fpga": 1}})
    {'GPU': 2.0, 'fpga': 1.0}
    """
    found = {resource: float(request[name]) for name, resource in _NAMES.items() if request.get(name)}
    return {**found, **{name: float(value) for name, value in (request.get("entrypoint_resources") or {}).items()}}


def waiting(asked: Mapping[str, float], usage: Usage, message: str) -> str:
    """Return why a job waits, in words. `message`: what Ray itself says of it."""
    if not asked or not usage:
        return message or "Ray has not started the job yet"
    short = [name for name, amount in asked.items() if _most(usage, name) < amount - _LITTLE]
    if short:
        lacking = " and ".join(
            f"{_amount(name, asked[name])} (the largest has {_format_most(usage, name)})" for name in short
        )
        return f"no node of the cluster has {lacking}; the job waits until one joins"
    if any(_has_room(asked, node) for node in usage.values()):
        return "Ray is preparing the job's runtime environment"
    amounts = " and ".join(_amount(name, amount) for name, amount in asked.items())
    uses = ", ".join(_describe_in_use(usage, name) for name in asked)
    return f"the job is waiting for {amounts} on one node: {uses}"


def waiting_for_nodes(number: int, bundle: Mapping[str, float], usage: Usage) -> str:
    """Return why a trial on several nodes waits: each of them needs what is in the bundle.

    >>> waiting_for_nodes(2, {"CPU": 4}, {"a": {"CPU": [1, 8]}, "b": {"CPU": [6, 8]}})
    'the trial is waiting for 2 nodes with 4 CPU each: 1 of 2 is free'
    """
    amounts = " and ".join(_amount(name, amount) for name, amount in bundle.items())
    wanted = f"the trial is waiting for {number} node{'s' if number > 1 else ''} with {amounts} each"
    able = [node for node in usage.values() if all(_total(node, name) >= bundle[name] - _LITTLE for name in bundle)]
    free = sum(_has_room(bundle, node) for node in able)
    if not usage:
        return wanted
    if len(able) < number:
        return f"{wanted}, and the cluster has {len(able)} of that size; it waits until others join"
    if free >= number:
        return "Ray is starting the trial on its nodes"
    return f"{wanted}: {free} of {len(able)} {'is' if free == 1 else 'are'} free"


def _has_room(asked: Mapping[str, float], node: Mapping[str, Any]) -> bool:
    return all(_total(node, name) - _used(node, name) >= amount - _LITTLE for name, amount in asked.items())


def _most(usage: Usage, name: str) -> float:
    return max((_total(node, name) for node in usage.values()), default=0.0)


def _format_most(usage: Usage, name: str) -> str:
    most = _most(usage, name)
    return format_size(most) if name == "memory" else f"{most:g}"


def _amount(name: str, amount: float) -> str:
    return f"{format_size(amount)} of memory" if name == "memory" else f"{amount:g} {name}"


def _describe_in_use(usage: Usage, name: str) -> str:
    used = sum(_used(node, name) for node in usage.values())
    total = sum(_total(node, name) for node in usage.values())
    if name == "memory":
        return f"{format_size(used)} of {format_size(total)} of memory are reserved"
    return f"{used:g} of {total:g} {name} are in use"


def _used(node: Mapping[str, Any], name: str) -> float:
    return _pair(node, name)[0]


def _total(node: Mapping[str, Any], name: str) -> float:
    return _pair(node, name)[1]


def _pair(node: Mapping[str, Any], name: str) -> tuple[float, float]:
    found = node.get(name, node.get(_spell_as_ray(name)))
    if isinstance(found, list) and len(found) == 2 and all(isinstance(one, (int, float)) for one in found):
        return float(found[0]), float(found[1])
    return 0.0, 0.0


def _spell_as_ray(name: str) -> str:
    """Spell a name as the dashboard does, which writes all keys in camel case, those of resources too."""
    first, *more = name.split("_")
    return first + "".join(part.title() for part in more)
