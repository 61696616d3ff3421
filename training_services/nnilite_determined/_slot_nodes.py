"""Distributed trials on Determined: slots that do not fit on one machine are a container on each, which is a node."""

from __future__ import annotations

from nnilite.errors import ConfigError, Place
from nnilite.service import Job, ServiceContext
from nnilite.services.node_places import nodes_of_job, on_its_nodes
from nnilite.services.section_fields import GPU_OPTION, nodes_of
from nnilite_determined._config import DeterminedConfig
from nnilite_determined._start import FIRST_NODE, NODE


def check_nodes(config: DeterminedConfig, context: ServiceContext, gpus: int | None) -> None:
    """Check that Determined can give a trial its nodes. Raises: ConfigError."""
    per_node = gpus if config.slots is None else config.slots
    if nodes_of(context) > 1 and not per_node:
        why = (
            "cannot be more than 1 without slots, which Determined uses to spread a trial over machines; set "
            f"{GPU_OPTION} to the number of slots of a machine"
        )
        raise ConfigError(why, Place(field="distributed.nodes"))


def place_nodes(job: Job) -> Job:
    """Return the job with what its keepers need to know to find their places among the nodes."""
    return on_its_nodes(job, NODE, [FIRST_NODE]) if nodes_of_job(job).most > 1 else job
