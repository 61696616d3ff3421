"""Check before anything starts that this is OpenPAI, and that a trial can run there at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nnilite.errors import ConfigError, Place
from nnilite.platform_http import Missing, as_config_error
from nnilite.records import Json
from nnilite_openpai._api import Pai
from nnilite_openpai._config import OpenPaiConfig
from nnilite_openpai._roles import PaiRole

_UNITS = {"gpu": "GPUs", "cpu": "CPU cores", "memory": "MB of memory"}
_RESOURCES = {"gpu": "gpu", "cpu": "cpu", "memory": "memoryMB"}


async def check_platform(pai: Pai, config: OpenPaiConfig) -> None:
    """Check that a host is OpenPAI 1.0 or later, and not on YARN. Raises: ConfigError."""
    try:
        with as_config_error("host"):
            info = await pai.info()
    except Missing as error:
        raise ConfigError(f"there is no OpenPAI at {config.host}: {error}", Place(field="host")) from error
    if info.get("launcherType") == "yarn":
        raise ConfigError(
            f"the OpenPAI at {config.host} ({info.get('version')}) runs on YARN, as NNI's paiYarn did; only OpenPAI "
            "1.0 and later, on Kubernetes, is supported",
            Place(field="host"),
        )


async def check_resources(pai: Pai, config: OpenPaiConfig, roles: Sequence[PaiRole]) -> None:
    """Check that the virtual cluster and the storage exist and are large enough. Raises: ConfigError, Problem."""
    name = virtual_cluster(config)
    clusters = await pai.list_virtual_clusters()
    if name not in clusters:
        known = ", ".join(sorted(clusters)) or "none"
        raise ConfigError(
            f"{config.username} cannot use a virtual cluster {name!r}; choose one of: {known}",
            Place(field="virtualCluster"),
        )
    found = clusters[name]
    check_size(name, found if isinstance(found, Mapping) else {}, roles)
    wanted = config.storage_config_name
    if wanted is not None:
        storages = await pai.storages()
        if wanted not in storages:
            raise ConfigError(
                f"{config.username} cannot use a storage {wanted!r}; choose one of: {', '.join(storages) or 'none'}",
                Place(field="storageConfigName"),
            )


def virtual_cluster(config: OpenPaiConfig) -> str:
    """Return the virtual cluster of the trials."""
    defaults = (config.template or {}).get("defaults")
    given = defaults.get("virtualCluster") if isinstance(defaults, Mapping) else None
    return config.virtual_cluster or str(given or "default")


def check_size(name: str, cluster: Mapping[str, Any], roles: Sequence[PaiRole]) -> None:
    """Check that a virtual cluster can ever hold all tasks of a trial. Raises: ConfigError."""
    totals: Mapping[str, Json] = cluster.get("resourcesTotal") or {}
    for resource, unit in _UNITS.items():
        there = totals.get(resource)
        wanted = sum(role.total(_RESOURCES[resource]) for role in roles)
        if isinstance(there, (int, float)) and wanted > there:
            raise ConfigError(
                f"a trial needs {wanted} {unit}, and the virtual cluster {name} has {there:g} in all, so no trial "
                "could ever start",
                Place(field="virtualCluster"),
            )
