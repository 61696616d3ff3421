"""What the keeper does for a trial of several processes: it starts `node` in the place of the trial's command.

`Spec.distributed` has

    nodes, processes (of each node, or "gpu"), launcher
    node            the number of this node, from 0; or
    node_variable   the environment variable with that number, on platforms that start the same job on all nodes: then
                    only the first one reports
    here            how many nodes this machine stands for; 1 unless it stands for all of them
    first           the addresses at which other nodes may reach the first one, or
    first_variables  the environment variables with these, separated by commas
    shared          whether all nodes have the same folder: then the others use folders within it, and leave their
                    reports there
"""

from __future__ import annotations

import os
import shlex
import sys

from .node_link import ports_of
from .proof import code
from .spec import SpecError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .folder import Folder
    from .spec import Spec

_MAIN = """import sys
sys.path.insert(0, sys.argv[1])
from nnilite._keeper.node import main
sys.exit(main(sys.argv[2]))
"""


def placed(spec: Spec) -> Spec:
    """Return the specification for this node. Raises: SpecError."""
    told = dict(spec.distributed)
    variable = told.get("node_variable")
    if variable:
        number = os.environ.get(variable) or ""
        if not number.isdigit():
            raise SpecError("{} has no number of this node".format(variable))
        told["node"] = int(number)
    if told.get("first_variables"):
        values = [os.environ.get(name, "") for name in told["first_variables"]]
        told["first"] = [word for value in values for word in value.split(",") if word]
    if not told.get("node") or not (told.get("shared") or variable):
        return spec.but(distributed=told)
    storage = dict(spec.storage, read_only=True) if spec.storage else {}
    alone = {"callback": None, "callback_file": None, "report": "rest", "send_output": False, "storage": storage}
    place = os.path.join(spec.directory, "nodes", str(told["node"])) if told.get("shared") else spec.directory
    return spec.but(distributed=told, directory=place, **alone)


def command(spec: Spec, folder: Folder) -> str:
    """Write the plan of this node, and return the command that starts its processes. Raises: OSError."""
    told = spec.distributed
    plan = {
        "nodes": told.get("nodes", 1),
        "node": told.get("node", 0),
        "here": told.get("here", 1),
        "processes": told.get("processes", 1),
        "launcher": told.get("launcher", "torch"),
        "first": told.get("first") or [],
        "ports": ports_of(spec.job),
        "secret": code(spec.token, "nodes", spec.job),
        "command": spec.command,
        "grace_s": spec.grace_s,
        "max_output_bytes": spec.max_output_bytes,
    }
    path = os.path.join(folder.inner, "plan")
    if not folder.write("plan", plan):
        raise OSError("the plan of the nodes cannot be written to {}".format(path))
    os.chmod(path, 0o600)
    # The folder or the zipapp from which this program runs.
    place = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    words = [sys.executable, "-I", "-S", "-c", _MAIN, place, folder.path]
    return "exec " + " ".join(map(shlex.quote, words))
