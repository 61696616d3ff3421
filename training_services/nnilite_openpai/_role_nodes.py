"""Distributed trials on OpenPAI: one task role, whose instances are the nodes."""

from __future__ import annotations

from dataclasses import replace

from nnilite.errors import ConfigError, Place
from nnilite.service import Job, ServiceContext
from nnilite.services.node_places import on_its_nodes
from nnilite.services.section_fields import nodes_of
from nnilite_openpai._config import OpenPaiConfig, PaiRoleConfig
from nnilite_openpai._convert import INDEX_VARIABLE
from nnilite_openpai._roles import ONLY_ROLE, reporting_role


def spread(config: OpenPaiConfig, context: ServiceContext) -> OpenPaiConfig:
    """Return the section with an instance for each node of a distributed trial. Raises: ConfigError."""
    if not context.defaults.get("distributed"):
        return config
    if config.template is not None:
        field = "openpaiConfig" if config.openpai_config is not None else "openpaiConfigFile"
        raise ConfigError("cannot be used with distributed; describe the nodes by taskRoles", Place(field=field))
    roles = config.task_roles or [PaiRoleConfig(name=ONLY_ROLE)]
    if len(roles) > 1:
        why = f"are {len(roles)}, and distributed needs one, whose instances are the nodes; remove the others"
        raise ConfigError(why, Place(field="taskRoles"))
    [role], nodes = roles, nodes_of(context)
    if role.instances not in (1, nodes):
        why = f"is {role.instances}, but distributed.nodes is {nodes}; remove it"
        raise ConfigError(why, Place(field="taskRoles[0].instances"))
    if role.completion is not None:
        raise ConfigError("is what distributed sets; remove it", Place(field="taskRoles[0].completion"))
    return replace(config, task_roles=[replace(role, instances=nodes)])


def place_nodes(job: Job, config: OpenPaiConfig) -> Job:
    """Return the job with what its keepers need to know to find their places among the nodes."""
    return on_its_nodes(job, INDEX_VARIABLE, [f"PAI_HOST_IP_{reporting_role(config)}_0"])
