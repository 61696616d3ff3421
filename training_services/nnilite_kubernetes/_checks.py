"""Checks before anything starts: whether this account has all needed rights, and whether a trial fits at all."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite_kubernetes._api import LIMIT_RANGES, PODS, QUOTAS, SECRETS, ApiError, Cluster, Resource
from nnilite_kubernetes._kind import OperatorKind
from nnilite_kubernetes._quota import Demand, refusals

log = logging.getLogger(__name__)

_ASKED_AT_ONCE = 8  # some twenty questions, each a round trip to a server that may be far away

Right = tuple[Resource, str, str]
"""A resource, a verb and a part of the resource, or ""."""


def check_rights(cluster: Cluster, namespace: str, kind: OperatorKind, sends_code: bool) -> None:
    """Check the rights. `sends_code`: a pod puts the code on a volume. Raises: ConfigError with all missing ones."""

    def is_allowed(right: Right) -> bool:
        resource, verb, part = right
        return cluster.allowed(namespace, verb, resource, part)

    needed = list(rights(kind, sends_code))
    with ThreadPoolExecutor(_ASKED_AT_ONCE, "rights") as threads:
        answers = list(threads.map(is_allowed, needed))
    missing: dict[str, list[str]] = {}
    for (resource, verb, part), allowed in zip(needed, answers, strict=True):
        if not allowed:
            thing = f"{resource.plural}/{part}" if part else resource.plural
            missing.setdefault(f"{thing}.{resource.group}" if resource.group else thing, []).append(verb)
    if missing:
        wanted = "; ".join(f"{', '.join(verbs)} {thing}" for thing, verbs in missing.items())
        raise ConfigError(
            f"this account may not {wanted} in the namespace {namespace}; a Role and RoleBinding that allow it are "
            "needed",
            Place(field="namespace"),
        )


def rights(kind: OperatorKind, sends_code: bool) -> Iterator[Right]:
    """Return all permissions that are needed."""
    yield from ((kind.resource, verb, "") for verb in ("create", "get", "list", "watch", "patch", "delete"))
    for resource in (SECRETS, *kind.owned):
        yield from ((resource, verb, "") for verb in ("create", "get", "list", "patch", "delete"))
    yield from ((PODS, "list", ""), (PODS, "watch", ""), (PODS, "get", "log"))
    for resource, verb in kind.needs:
        yield resource, verb, ""
    if sends_code:
        yield from ((PODS, verb, "") for verb in ("create", "get", "delete"))
        yield from ((PODS, verb, "exec") for verb in ("create", "get"))  # newer servers ask for create, older for get


def check_quotas(cluster: Cluster, namespace: str, demand: Demand) -> None:
    """Check that a trial can start in this namespace at all. Raises: ConfigError."""
    quotas, ranges = (_read_items(cluster, namespace, resource) for resource in (QUOTAS, LIMIT_RANGES))
    found = refusals(demand, quotas, ranges)
    if found:
        raise ConfigError(f"no trial could start in the namespace {namespace}: {'; '.join(found)}")


def _read_items(cluster: Cluster, namespace: str, resource: Resource) -> list[Json]:
    try:
        return list(cluster.select(resource, namespace).get("items") or [])
    except ApiError as error:
        if error.passing:
            raise
        log.info("%s cannot be read, so nothing is compared with them: %s", resource.plural, error)
        return []
