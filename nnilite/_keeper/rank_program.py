"""What a launcher such as mpirun starts as a rank: it runs the trial's command with the variables of that rank.

It knows its rank from the launcher, and all else from its node. What ranks other than 0 print goes to a log of their
own, and a record in `.nni/launched` says how the rank came and went.

A launcher kills all ranks one second after the first one has failed. So that they have their grace, this program stays
once its command has failed, or the trial is ending, until the launcher or its node ends it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from . import process
from .command_start import find_shell
from .exit_code import status
from .folder import Folder
from .node_processes import silenced
from .rank_variables import Layout, variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Dict, List, Mapping, Optional, Tuple

_NOT_STARTED = 4
_BY_HOROVOD = ("HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE")
_BY_MPI = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("PMIX_RANK", "", ""),
)
"""The variables in which launchers tell rank, local rank and local size: Horovod with Gloo, Open MPI, MPICH."""


def main(arguments: List[str]) -> int:
    """Run the command as a rank. Return its exit code."""
    folder = Folder(arguments[0])
    plan = folder.read("rank-plan")
    given = _given_by_launcher(os.environ)
    if plan is None or given is None:
        sys.stderr.write(
            "a rank of a trial cannot start: {}\n".format(
                "its plan is gone" if plan is None else "the launcher gives it no number"
            )
        )
        return _NOT_STARTED
    return _Rank(folder, plan, *given).run()


def _given_by_launcher(env: Mapping[str, str]) -> Optional[Tuple[int, Optional[int], Optional[int]]]:
    """Return rank, local rank and local size, as far as the launcher gives them; None without a rank."""
    for names in (_BY_HOROVOD, *_BY_MPI):
        if env.get(names[0], "").isdigit():
            local, size = (int(env[name]) if env.get(name, "").isdigit() else None for name in names[1:])
            return int(env[names[0]]), local, size
    return None


def environment_of(plan: Mapping[str, Any], env: Mapping[str, str]) -> Dict[str, str]:
    """Return the environment of this node, with what the launcher has added.

    Some launchers give the environment of the first node to all ranks. Then this node's own values count. Others change
    this node's own, for example to add their libraries, and then that counts.
    """
    own = plan["environment"]
    if env.get("NODE_RANK") != own["NODE_RANK"]:
        return {**env, **own}
    environment = {**own, **env}
    path = environment.get("PATH", "").split(os.pathsep)
    environment["PATH"] = os.pathsep.join(
        folder for folder in path if folder != plan["agent"]
    )  # the trial's ssh is the real one
    return environment


class _Rank:
    def __init__(
        self, folder: Folder, plan: Mapping[str, Any], rank: int, local: Optional[int], size: Optional[int]
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._rank = rank
        layout = Layout(plan["nodes"], int(plan["port"]))
        self._node = layout.node_of(rank) if int(plan["here"]) > 1 else int(plan["node"])
        counted = rank - layout.first_rank(self._node)
        env = environment_of(plan, os.environ)
        env.update(variables(layout, self._node, counted, plan["master"], plan["launcher"]), RANK=str(rank))
        if local is not None and size is not None:
            env.update(LOCAL_RANK=str(local), LOCAL_WORLD_SIZE=str(size))
        if rank:
            env.update(silenced(folder.path, rank))
        self._env = env
        self._child: Optional[subprocess.Popen[bytes]] = None
        self._asked = False  # by the launcher: its node signals the command itself
        self._over = False

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self._terminate)
        if self._is_ending:
            return 128 + signal.SIGTERM
        started = time.time()
        out, err = self._open_streams()
        self._child = subprocess.Popen(
            [find_shell(), "-c", self._plan["command"]],
            cwd=self._plan["directory"],
            env=self._env,
            stdout=out,
            stderr=err,
            close_fds=False,  # MPICH talks to its ranks through a file that they inherit
            start_new_session=True,  # a session of its own, which the node can signal
        )
        record = {"node": self._node, "started": started, "pid": self._child.pid, "own": process.identity(os.getpid())}
        name = "launched/{}".format(self._rank)
        self._folder.write(name, record)
        if self._asked:
            self._pass_on()
        code = self._child.wait()
        self._over = True
        self._folder.write(name, dict(record, ended=time.time(), code=code, asked=self._asked))
        while (code or self._is_ending) and not self._asked:
            signal.pause()
        return status(code)

    @property
    def _is_ending(self) -> bool:
        return os.path.exists(os.path.join(self._folder.inner, "launched", "ending"))

    def _open_streams(self) -> Tuple[Optional[int], Optional[int]]:
        """Open the files to which the command prints; None for what the launcher passes on. Raises: OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        if self._rank:
            log = os.open(os.path.join(self._folder.path, "roles", "rank-{}.log".format(self._rank)), flags, 0o600)
            return log, log
        if self._node:  # no launcher puts rank 0 there by itself
            return None, None
        return os.open(self._folder.stdout, flags, 0o600), os.open(self._folder.stderr, flags, 0o600)

    def _terminate(self, number: int, frame: Optional[FrameType]) -> None:
        if self._over and not self._asked:
            self._asked = True
            os._exit(status(self._child.returncode) if self._child and self._child.returncode else 143)
        self._asked = True
        self._pass_on()

    def _pass_on(self) -> None:
        if self._child is not None and self._child.returncode is None:
            process.signal_group(self._child.pid, signal.SIGTERM)
