"""For services that run trials on several nodes: the launchers, and how each node finds its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nnilite.records import Json, NodeCounts, count_nodes
from nnilite.service import Job

LAUNCHERS = ("torch", "mpi", "horovod", "jax", "tensorflow", "none")
"""What works where the keepers of all nodes meet."""

ELASTIC_LAUNCHERS = ("torch", "jax", "tensorflow", "none")
"""Those whose processes the keepers can start again on other nodes, or leave alone when nodes come and go."""


def nodes_of_job(job: Job) -> NodeCounts:
    """Return how many nodes a job has: one if it is not distributed."""
    return count_nodes(job.spec.get("distributed"))


def on_its_nodes(
    job: Job, node_variable: str, first_variables: Sequence[str], *, shared: bool = False, count_variable: str = ""
) -> Job:
    """Return the job with what its keepers need to know to find their places among the nodes.

    `node_variable`: the environment variable with the number of a node; `first_variables`: those with addresses of the
    first one; `shared`: whether all nodes have the same folder; `count_variable`: the one with the number of nodes with
    which an elastic job begins.
    """
    distributed = job.spec.get("distributed")
    if not distributed:
        return job
    places: dict[str, Json] = {"node_variable": node_variable, "first_variables": list(first_variables)}
    if shared:
        places["shared"] = True
    if nodes_of_job(job).is_elastic:
        places["count_variable"] = count_variable
    return replace(job, spec={**job.spec, "distributed": {**distributed, **places}})
