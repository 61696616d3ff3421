"""The variables with which the processes of a trial on several nodes find each other. Pure.

A process has a rank, from 0 over all nodes, and a local rank, from 0 on its node. `Layout` is what all nodes agree on.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Sequence

_MOST_RANKS = 10_000


class Layout:
    """The nodes of a trial in their order: the host, the number of processes and the free ports of each."""

    def __init__(self, nodes: Sequence[Dict[str, Any]], port: int) -> None:
        self.nodes = nodes
        self.port = port  # where rank 0 may listen
        self.size = sum(int(node["processes"]) for node in nodes)

    def first_rank(self, node: int) -> int:
        """Return the rank of the first process of a node."""
        return sum(int(entry["processes"]) for entry in self.nodes[:node])

    def node_of(self, rank: int) -> int:
        """Return the node on which a rank runs."""
        return max(node for node in range(len(self.nodes)) if self.first_rank(node) <= rank)

    def check_rank(self, rank: object, node: Optional[int] = None) -> int:
        """Return a rank that is one of this node; None: a launcher decides which it has. Raises: ValueError."""
        first = 0 if node is None else self.first_rank(node)
        end = _MOST_RANKS if node is None else self.first_rank(node + 1)
        if type(rank) is int and first <= rank < end:
            return rank
        raise ValueError("{:.20} is none of its ranks, {} to {}".format(repr(rank), first, end - 1))

    def host_file(self) -> str:
        """Return the host file of mpirun and horovodrun."""
        return "".join("{} slots={}\n".format(node["host"], node["processes"]) for node in self.nodes)

    def discovery_script(self) -> str:
        """Return the script that lists the hosts for elastic Horovod."""
        lines = ["echo {}:{}".format(node["host"], node["processes"]) for node in self.nodes]
        return "\n".join(["#!/bin/sh", *lines, ""])


def torch_variables(basic: Mapping[str, str], env: Mapping[str, str], run: str, start: int) -> Dict[str, str]:
    """Return what torchrun sets as well, given the variables of a process and the environment that it inherits.

    No agent has a store here, and no process that has failed by itself is started again. `run`: the name of the job.
    """
    defaults = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    if basic["LOCAL_WORLD_SIZE"] != "1":
        defaults["OMP_NUM_THREADS"] = "1"  # each of them would have threads for all processors
    return {
        "ROLE_NAME": "default",
        "ROLE_RANK": basic["RANK"],
        "ROLE_WORLD_SIZE": basic["WORLD_SIZE"],
        "TORCHELASTIC_RUN_ID": run,
        "TORCHELASTIC_RESTART_COUNT": str(start),
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        **{name: value for name, value in defaults.items() if name not in env},
    }


def variables(layout: Layout, node: int, local: int, master: str, launcher: str) -> Dict[str, str]:
    """Return the variables of one process. `master` is the address of the first node as this node reaches it."""
    size, rank = int(layout.nodes[node]["processes"]), layout.first_rank(node) + local
    found = {
        "MASTER_ADDR": master,
        "MASTER_PORT": str(layout.port),
        "RANK": str(rank),
        "WORLD_SIZE": str(layout.size),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(size),
        "NODE_RANK": str(node),
        "GROUP_RANK": str(node),
        "GROUP_WORLD_SIZE": str(len(layout.nodes)),
        "NNODES": str(len(layout.nodes)),
        "NNILITE_WORLD_SIZE": str(layout.size),
    }
    if launcher == "jax":
        found["JAX_COORDINATOR_ADDRESS"] = "{}:{}".format(_bracketed(master), layout.port)
        found["JAX_NUM_PROCESSES"] = str(layout.size)
        found["JAX_PROCESS_ID"] = str(rank)
    if launcher == "tensorflow":
        task = {"type": "worker", "index": rank}
        found["TF_CONFIG"] = json.dumps({"cluster": {"worker": _addresses(layout, master)}, "task": task})
    return found


def _addresses(layout: Layout, master: str) -> List[str]:
    """Return the address of each process, for TensorFlow."""
    found = []
    for number, node in enumerate(layout.nodes):
        host = _bracketed(master if number == 0 else str(node["host"]))
        found += ["{}:{}".format(host, node["ports"][local]) for local in range(int(node["processes"]))]
    return found


def _bracketed(host: str) -> str:
    return "[{}]".format(host) if ":" in host else host
