"""What mpirun and horovodrun need to start the ranks of a trial on its nodes.

They run on the first node, and start a daemon on each other node by a program named `ssh`: Open MPI, MPICH, Intel MPI
and Horovod have that in common. In front of their PATH is another one, `launch_agent`. So no node needs a login to
another one, or an sshd. What they start as a rank is `rank_program`, which runs the trial's command.

A node has a name for the launcher: its address, since all launchers take one without asking a name server. Where two
nodes have the same (two containers on one machine may have the machine's), a launcher would take them for one node, so
each has a name that is made up.
"""

from __future__ import annotations

import os
import shutil

from .exit_code import sentence
from .node_start import words_of
from .output import OutputFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Sequence

    from .rank_variables import Layout

PROGRAMS = {"mpi": "mpirun", "horovod": "horovodrun"}
"""What starts all processes of a trial, by the launcher's name."""

NODE_FOLDER = "NNILITE_NODE_FOLDER"
"""The variable with the folder of this node in all that the launcher starts, except on the first node.

Some launchers give their own environment to all ranks. They do not have this variable.
"""

_LAST_BYTES = 2000
_UNLESS_SET = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
"""Open MPI 4 and 5 are as the other launchers, unless the trial's environment says otherwise.

Any user may run them, and more processes than there are processors. A process may use all processors: they would bind
each to one, and those of all trials on a machine to the same ones.
"""
_BY_SSH = {
    "OMPI_MCA_plm": "rsh",
    "OMPI_MCA_plm_rsh_agent": "ssh",
    "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
    "OMPI_MCA_plm_rsh_disable_qrsh": "1",
    "OMPI_MCA_orte_leave_session_attached": "1",
    "OMPI_MCA_ras": "^slurm,tm,lsf,gridengine,alps",
    "PRTE_MCA_plm": "ssh",
    "PRTE_MCA_plm_ssh_agent": "ssh",
    "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
    "PRTE_MCA_plm_ssh_disable_qrsh": "1",
    "PRTE_MCA_ras": "^slurm,pbs,lsf,gridengine",
    "HYDRA_LAUNCHER": "ssh",
    "HYDRA_RMK": "user",
    "I_MPI_HYDRA_BOOTSTRAP": "ssh",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC": "ssh",
}
"""All daemons are started from the first node, by ssh, whatever batch system the nodes belong to.

These are for Open MPI 4, Open MPI 5 (PRRTE), MPICH, and Intel MPI. Each of them ignores those of the others.
"""
_OF_ANOTHER_LAUNCH = ("PMI_", "PMI2_", "PMIX_", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "HOROVOD_RANK", NODE_FOLDER)
_RANK = 'exec /bin/sh "${NNILITE_NODE_FOLDER:-$0}/.nni/rank"'


def find_missing(launcher: str) -> str:
    """Return the name of the launcher's program if this machine does not have it, else ""."""
    program = PROGRAMS.get(launcher, "")
    return program if program and shutil.which(program) is None else ""


def not_found(program: str, host: str) -> str:
    """Return the sentence for a host that lacks a launcher, or a part of it."""
    return "{} was not found on {}; install it there, or set another launcher".format(program, host)


def explain(launcher: str, code: int, lacking: Optional[str], stderr: str) -> str:
    """Return why the launcher has failed with this exit code; "" if it has not.

    `lacking`: the host on which it has not found a program of its own. `stderr`: the file with standard error.
    """
    if code and lacking is not None:
        return not_found(PROGRAMS[launcher], lacking)
    lines = OutputFile(stderr, 0).last(_LAST_BYTES)
    why = "{} on {}: {}\n{}".format(PROGRAMS[launcher], os.uname().nodename, sentence(code), lines)
    return why.rstrip() if code else ""


def name_nodes(addresses: Sequence[str], hosts: Sequence[str]) -> List[str]:
    """Return the name of each node for the launcher. `addresses`: of the nodes, as the first one knows them.

    >>> name_nodes(["10.0.0.1", "10.0.0.2", "10.0.0.2"], ["a", "b", "b"])
    ['10.0.0.1', 'b-node-1', 'b-node-2']
    """
    usable = [address if ":" not in address and addresses.count(address) == 1 else "" for address in addresses]
    if addresses and ":" not in addresses[0]:
        usable[0] = addresses[0]  # only the others need names of their own
    return [name or "{}-node-{}".format(hosts[node], node) for node, name in enumerate(usable)]


def words(launcher: str, layout: Layout, folder: str) -> List[str]:
    """Return the words of the command that starts all ranks. `folder`: that of the first node."""
    found = [PROGRAMS[launcher], "-np", str(layout.size)]
    if launcher == "horovod":
        # What it has once found of hosts of these names may be wrong for this trial's.
        found += ["--disable-cache", "-H", ",".join(_with_slots(layout))]
    return [*found, "/bin/sh", "-c", _RANK, folder]


def _with_slots(layout: Layout) -> List[str]:
    if "name" not in layout.nodes[0]:
        return ["localhost:{}".format(layout.size)]
    return ["{}:{}".format(node["name"], node["processes"]) for node in layout.nodes]


def cleaned(env: Mapping[str, str]) -> Dict[str, str]:
    """Return an environment without what says that its process is a rank of another launch, such as one of srun."""
    return {name: value for name, value in env.items() if not name.startswith(_OF_ANOTHER_LAUNCH)}


def environment(given: Mapping[str, str], layout: Layout, inner: str, interface: str) -> Dict[str, str]:
    """Write what the launcher reads, and return what its environment has, too. Raises: OSError.

    `given`: the environment of the trial. `inner`: the folder for these files. `interface`: the network interface that
    leads to the other nodes, if known.
    """
    variables = {name: given.get(name, value) for name, value in _UNLESS_SET.items()}
    if "name" not in layout.nodes[0]:
        return variables
    files = {
        "launcher-hosts": ["{} slots={}".format(node["name"], node["processes"]) for node in layout.nodes],
        "launcher-hosts-of-hydra": _with_slots(layout),
    }
    for name, lines in files.items():
        with open(os.path.join(inner, name), "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))
    hosts, hosts_of_hydra = (os.path.join(inner, name) for name in files)
    variables.update(_BY_SSH, OMPI_MCA_orte_default_hostfile=hosts, PRTE_MCA_prte_default_hostfile=hosts)
    variables.update(HYDRA_HOST_FILE=hosts_of_hydra, I_MPI_HYDRA_HOST_FILE=hosts_of_hydra)
    if interface:
        variables["HYDRA_IFACE"] = interface  # the daemons of MPICH would ask for the host's name
    return variables


def write_script(path: str, module: str, folder: str) -> None:
    """Write a script that runs a module of this package with the folder and its own arguments. Raises: OSError."""
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write('#!/bin/sh\nexec {} "$@"\n'.format(words_of(module, folder)))
    os.chmod(path, 0o700)
