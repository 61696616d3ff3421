"""Check against Determined whether a trial could ever run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nnilite.errors import ConfigError, Place
from nnilite.platform_http import as_config_error
from nnilite.records import Json
from nnilite_determined._api import DeterminedApi
from nnilite_determined._config import DeterminedConfig


async def check_trials(
    api: DeterminedApi, config: DeterminedConfig, wanted: int | None, body: Mapping[str, Json]
) -> None:
    """Check the places of trials, `wanted` slots each, and have Determined check a request.

    Raises: ConfigError, Problem.
    """
    check_pool(await api.list_resource_pools(), config.resource_pool, wanted)
    if config.workspace and not await api.workspaces(config.workspace):
        raise ConfigError(
            f"Determined has no workspace {config.workspace!r}, or {config.username} may not see it",
            Place(field="workspace"),
        )
    with as_config_error("project" if config.project else "master"):
        await api.submit({**body, "validateOnly": True, "activate": False})


def check_pool(pools: Sequence[Mapping[str, Any]], name: str | None, wanted: int | None) -> None:
    """Check that a pool exists and could ever have this many slots. Raises: ConfigError."""
    names = [str(pool.get("name")) for pool in pools]
    if name and name not in names:
        raise ConfigError(
            f"Determined has no resource pool {name!r}; choose one of: {', '.join(names) or 'none'}",
            Place(field="resourcePool"),
        )
    pool = next((one for one in pools if one.get("name") == name or (not name and one.get("defaultComputePool"))), None)
    if pool is None or not wanted:
        return
    most = max(
        int(pool.get("slotsAvailable") or 0), int(pool.get("maxAgents") or 0) * int(pool.get("slotsPerAgent") or 0)
    )
    if wanted > most:
        raise ConfigError(
            f"a trial asks for {wanted} slots, but the resource pool {pool.get('name')} has {most}",
            Place(field="slots"),
        )
