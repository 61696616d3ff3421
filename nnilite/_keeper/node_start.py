"""What the keeper does for a trial of several processes: it starts `node` in the place of the trial's command.

`Spec.distributed` has

    nodes, processes (of each node, or "gpu"), launcher
    min, max        of an elastic trial: the fewest and the most nodes; `nodes` is how many have been asked to come
    node            the number of this node, from 0; or
    node_variable   the environment variable with that number, on platforms that start the same job on all nodes: then
                    only the first one reports. A node that joins an elastic trial later has its number in
                    NNILITE_JOINED_NODE
    count_variable  the environment variable with the number of nodes that begin, in the place of `nodes`
    node_offset     what to add to it; 0 if not set
    here            how many nodes this machine stands for; 1 unless it stands for all of them
    first           the addresses at which other nodes may reach the first one, or
    first_variables  the environment variables with these, separated by commas, or
    first_command   a command of the shell that prints one
    secret          with which nodes recognize each other, where the specification has no token to derive it from
    shared          whether all nodes have the same folder: then the others use folders within it, and leave their
                    reports there
"""

from __future__ import annotations

import os
import re
import shlex
import sys

from .node_link import ports_of
from .output import OutputFile
from .proof import code
from .spec import SpecError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

    from .folder import Folder
    from .spec import Spec

_RANK_LOG = re.compile(r"rank-[1-9][0-9]{0,3}\.log")
_JOINED = "NNILITE_JOINED_NODE"
_ASK_S = 30.0
_IN_LOG_BYTES = 200_000  # for each rank, on platforms that carry it in a log
_MAIN = """import sys
sys.path.insert(0, sys.argv[1])
from nnilite._keeper.{} import main
sys.exit(main(sys.argv[2:]))
"""


def placed(spec: Spec) -> Spec:
    """Return the specification for this node. Raises: SpecError."""
    settings = dict(spec.distributed)
    variable = settings.get("node_variable")
    if variable:
        number = os.environ.get(_JOINED) or os.environ.get(variable) or ""
        if not number.isdigit():
            raise SpecError("{} has no number of this node".format(variable))
        settings["node"] = int(number) + int(settings.get("node_offset") or 0)
    count = os.environ.get(settings.get("count_variable") or "", "")
    if count.isdigit():
        settings["nodes"] = int(count)
    if settings.get("first_variables"):
        values = [os.environ.get(name, "") for name in settings["first_variables"]]
        settings["first"] = [word for value in values for word in value.split(",") if word]
    if settings.get("first_command") and settings.get("node"):
        settings["first"] = [_ask(settings["first_command"])]
    if not settings.get("node") or not (settings.get("shared") or variable):
        return spec.but(distributed=settings)
    storage = dict(spec.storage, read_only=True) if spec.storage else {}
    alone = {"callback": None, "callback_file": None, "report": "rest", "send_output": False, "storage": storage}
    place = os.path.join(spec.directory, "nodes", str(settings["node"])) if settings.get("shared") else spec.directory
    # Such a node reports nothing to the manager, but may have to fetch its code from there.
    settings["manager"] = {"callback": spec.callback, "callback_file": spec.callback_file}
    return spec.but(distributed=settings, directory=place, **alone)


def _ask(command: str) -> str:
    """Return what a command of the shell prints. Raises: SpecError."""
    import subprocess

    pipe = subprocess.PIPE
    try:
        found = subprocess.run(["/bin/sh", "-c", command], stdout=pipe, stderr=pipe, check=True, timeout=_ASK_S)
    except (OSError, subprocess.SubprocessError) as error:
        complaint = (getattr(error, "stderr", None) or b"").decode("utf-8", "replace").strip()
        raise SpecError("the address of the first node cannot be found: {}".format(complaint or error)) from error
    return found.stdout.decode("utf-8", "replace").strip()


def list_collected(spec: Spec, folder: Folder) -> Dict[str, OutputFile]:
    """Return the records and the output of ranks that the first node has, by the names of the streams that carry them.

    The trial is over. What goes into the log of a platform is cut first: such logs are kept short. Nothing is returned
    where output is not sent.
    """
    if spec.distributed.get("node") or not spec.send_output:
        return {}
    found = {"roles": OutputFile(os.path.join(folder.path, "roles.json"), 0)}
    place = os.path.join(folder.path, "roles")
    try:
        names = sorted(name for name in os.listdir(place) if _RANK_LOG.fullmatch(name))
    except OSError:  # no rank was started
        names = []
    for name in names:
        output = OutputFile(os.path.join(place, name), _IN_LOG_BYTES if spec.report == "stdout" else 0)
        output.grown()
        try:
            output.cut()
        except OSError as error:
            folder.add_to_log("{} cannot be cut: {}".format(output.path, error))
        found[name[: -len(".log")]] = output
    return found


def command(spec: Spec, folder: Folder) -> str:
    """Write the plan of this node, and return the command that starts its processes. Raises: OSError."""
    settings = spec.distributed
    plan = {
        "run": spec.job,
        "nodes": settings.get("nodes", 1),
        "node": settings.get("node", 0),
        "here": settings.get("here", 1),
        "processes": settings.get("processes", 1),
        "launcher": settings.get("launcher", "torch"),
        "first": settings.get("first") or [],
        "ports": ports_of(spec.job),
        "secret": settings.get("secret") or code(spec.token, "nodes", spec.job),
        "command": spec.command,
        "grace_s": spec.grace_s,
        "max_output_bytes": spec.max_output_bytes,
    }
    plan.update((name, settings[name]) for name in ("min", "max") if name in settings)
    path = os.path.join(folder.inner, "plan")
    if not folder.write("plan", plan):
        raise OSError("the plan of the nodes cannot be written to {}".format(path))
    os.chmod(path, 0o600)
    return "exec " + words_of("node", folder.path)


def words_of(module: str, folder: str) -> str:
    """Return what a shell runs to start a module of this package, with the folder of its node."""
    # The folder or the zipapp from which this program runs.
    place = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return " ".join(map(shlex.quote, [sys.executable, "-I", "-S", "-c", _MAIN.format(module), place, folder]))
