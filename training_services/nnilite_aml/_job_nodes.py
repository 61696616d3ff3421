"""Distributed trials on Azure: the instances of a job are the nodes, and each runs one keeper.

Azure starts the command once on each instance, since there is one process for each. By its PyTorch distribution that
process has the address of the first instance in MASTER_ADDR and its own number in RANK. Source: Azure's guide to
distributed GPU training (learn.microsoft.com/azure/machine-learning/how-to-train-distributed-gpu).
"""

from __future__ import annotations

from dataclasses import replace

from nnilite.errors import ConfigError, Place
from nnilite.service import Job, ServiceContext
from nnilite.services.node_places import on_its_nodes
from nnilite.services.section_fields import nodes_of
from nnilite_aml._config import AmlConfig, AmlDistribution
from nnilite_aml._start import RANK

_FIRST_VARIABLE = "MASTER_ADDR"


def spread(config: AmlConfig, context: ServiceContext) -> AmlConfig:
    """Return the section with an instance for each node of a distributed trial. Raises: ConfigError."""
    if not context.defaults.get("distributed"):
        return config
    nodes = nodes_of(context)
    if config.distribution is not None:
        why = "is another way to start the processes of a trial; remove it, or remove distributed"
        raise ConfigError(why, Place(field="distribution"))
    return replace(config, instance_count=nodes, distribution=AmlDistribution(type="PyTorch"))


def nodes_place(context: ServiceContext) -> Place:
    """Return the field that sets the number of nodes of a trial."""
    return Place(field="distributed.nodes" if context.defaults.get("distributed") else "instanceCount")


def place_nodes(job: Job) -> Job:
    """Return the job with what its keepers need to know to find their places among the nodes."""
    return on_its_nodes(job, RANK, [_FIRST_VARIABLE])
