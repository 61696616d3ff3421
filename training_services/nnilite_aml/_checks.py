"""Check before anything starts: the workspace, the compute target and the environment."""

from __future__ import annotations

import hashlib
import logging

from nnilite.errors import ConfigError, Place
from nnilite.platform_http import Missing, Problem, as_config_error
from nnilite.services.section_fields import GPU_PLACE
from nnilite_aml._config import AmlConfig
from nnilite_aml._workspace import AmlTarget, AmlWorkspace

log = logging.getLogger(__name__)

_STOPPED = ("stopped", "stopping", "deallocated", "deallocating")
# Azure's words for the part of a path that it does not know.
_UNKNOWN_PARTS = {
    "SubscriptionNotFound": "subscriptionId",
    "InvalidSubscriptionId": "subscriptionId",
    "subscription": "subscriptionId",
    "ResourceGroupNotFound": "resourceGroup",
    "resource group": "resourceGroup",
}


async def check_workspace(workspace: AmlWorkspace, config: AmlConfig) -> None:
    """Check that the login is accepted and the workspace exists. Raises: ConfigError, Problem."""
    try:
        with as_config_error("clientSecret" if config.client_secret is not None else ""):
            try:
                await workspace.location()
            except Missing as error:
                raise _unknown(error, config) from error
    except Problem as error:
        if error.status == 400 and "subscription" in error.reply.lower():
            raise _unknown(error, config) from error
        raise


def _unknown(error: Problem, config: AmlConfig) -> ConfigError:
    message = error.reply
    part = next((name for words, name in _UNKNOWN_PARTS.items() if words.lower() in message.lower()), "workspaceName")
    if "under resource group" in message.lower():  # Azure's wording for a missing workspace
        part = "workspaceName"
    given = {
        "subscriptionId": config.subscription_id,
        "resourceGroup": config.resource_group,
        "workspaceName": config.workspace_name,
    }
    return ConfigError(f"Azure has no {part} {given[part]!r} for this login: {message}", Place(field=part))


async def check_target(workspace: AmlWorkspace, config: AmlConfig, gpus: int, nodes_place: Place) -> None:
    """Check that trials with this many GPUs could ever run on the compute target. Raises: ConfigError, Problem.

    `nodes_place`: where the number of nodes is set.
    """
    size = config.instance_type or ""
    if not config.serverless:
        target = await _find_target(workspace, config)
        refuse_target(target, config)
        _check_nodes(target, config, nodes_place)
        size = target.size
    if gpus and size:
        await _check_gpus(workspace, size, gpus)


async def _check_gpus(workspace: AmlWorkspace, size: str, gpus: int) -> None:
    """Check the GPUs of a node. Raises: ConfigError, Problem."""
    try:
        has = (await workspace.list_gpus_by_size()).get(size.lower())
    except Problem as error:
        if error.status != 403:
            raise
        # A user of the workspace may not be allowed to look beyond it.
        log.info("could not check whether nodes of %s have %d GPUs: %s", size, gpus, error)
        return
    if has is not None and has < gpus:
        raise ConfigError(
            f"is {gpus}, but a node of {size} has {has or 'none'}: choose a larger VM size",
            GPU_PLACE,
        )


async def _find_target(workspace: AmlWorkspace, config: AmlConfig) -> AmlTarget:
    """Find the compute target. Raises: ConfigError, Problem."""
    place = Place(field="computeTarget")
    try:
        return await workspace.target(config.compute_target)
    except Missing as error:
        raise ConfigError(
            f"the workspace {config.workspace_name} has no compute target {config.compute_target!r}; remove the field "
            "for serverless compute",
            place,
        ) from error


def refuse_target(target: AmlTarget, config: AmlConfig) -> None:
    """Refuse a compute target on which no trial could ever run. Raises: ConfigError."""
    place = Place(field="computeTarget")
    if target.state.lower() in _STOPPED:
        raise ConfigError(f"{target.name} is {target.state.lower()}: start it in Azure's studio", place)
    if target.error:
        raise ConfigError(f"{target.name} has failed on Azure: {target.error}", place)
    if config.low_priority and target.kind == "amlcompute" and not target.low_priority:
        raise ConfigError(
            f"is a setting of the cluster, and {target.name} has dedicated nodes: choose a low-priority cluster as "
            "computeTarget",
            Place(field="lowPriority"),
        )


def _check_nodes(target: AmlTarget, config: AmlConfig, place: Place) -> None:
    """Check that a compute target can have the nodes of one trial. Raises: ConfigError."""
    most = 1 if target.kind == "computeinstance" else target.most_nodes
    if most is not None and config.instance_count > most:
        raise ConfigError(f"a trial needs {config.instance_count} nodes, but {target.name} has {most} at most", place)


async def ensure_environment(workspace: AmlWorkspace, config: AmlConfig) -> str:
    """Return the id of the environment of all trials, which is made if it does not exist.

    Raises: ConfigError, Problem.
    """
    if config.environment is None:
        conda = config.read_conda_text()
        digest = hashlib.sha256(f"{config.docker_image}\n{conda}".encode()).hexdigest()[:16]
        return await workspace.register(f"nnilite-{digest}", config.docker_image, config.conda_file)
    given = config.environment.removeprefix("azureml:")
    if config.environment.startswith("azureml://"):
        return config.environment
    name, _, version = given.partition(":")
    try:
        return await workspace.environment(name, version)
    except Missing as error:
        raise ConfigError(
            f"the workspace {config.workspace_name} has no environment {name}:{version}",
            Place(field="environment"),
        ) from error
