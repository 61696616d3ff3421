"""For services that run trials on several nodes: the launchers, and how each node finds its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nnilite.records import Json
from nnilite.service import Job

LAUNCHERS = ("torch", "mpi", "horovod", "jax", "tensorflow", "none")
"""What works where the keepers of all nodes meet."""


def on_its_nodes(job: Job, node_variable: str, first_variables: Sequence[str], *, shared: bool = False) -> Job:
    """Return the job with what its keepers need to know to find their places among the nodes.

    `node_variable`: the environment variable with the number of a node; `first_variables`: those with addresses of the
    first one; `shared`: whether all nodes have the same folder.
    """
    told = job.spec.get("distributed")
    if not told:
        return job
    places: dict[str, Json] = {"node_variable": node_variable, "first_variables": list(first_variables)}
    return replace(job, spec={**job.spec, "distributed": {**told, **places, **({"shared": True} if shared else {})}})
