"""The processes of a trial on one node: started together, ended together, each with its output.

They stay in the process group of this program, so that a signal to the group reaches all of them, and nothing is left
when the group is killed. What rank 0 prints is the output of the trial. Any other rank has a log of its own, with the
cap of the trial's output.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time

from . import process
from .exit_code import sentence
from .output import OutputFile
from .rank_variables import variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Sequence

    from .rank_variables import Layout

_LAST_BYTES = 2000
_PROGRAMS = {
    "mpi": ("mpirun", "-np", "{size}"),
    "horovod": ("horovodrun", "-np", "{size}", "-H", "localhost:{size}"),
}
"""What starts all processes of one machine; each of these programs has its own way to tell them their ranks."""
_FOR_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
"""Open MPI 4 and 5 run as any user, and more processes than there are processors, as the other launchers do."""


class NodeProcesses:
    """All processes on this machine; of several nodes if the machine stands for these."""

    def __init__(self, plan: Mapping[str, Any], folder: str) -> None:
        self.records: Dict[int, Dict[str, Any]] = {}  # by rank, as they are shown
        self.logs: Dict[int, OutputFile] = {}
        self._plan = plan
        self._folder = folder
        self._running: Dict[int, subprocess.Popen[bytes]] = {}

    @property
    def over(self) -> bool:
        return not self._running

    def start(self, layout: Layout, nodes: List[int], master: str, more: Mapping[str, str]) -> None:
        """Start the processes of these nodes. Raises: OSError, and then some of them may run."""
        os.makedirs(os.path.join(self._folder, "roles"), mode=0o700, exist_ok=True)
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        shares = _shares(gpus.split(",") if gpus else [], len(nodes))
        if self._plan["launcher"] in _PROGRAMS:
            env = dict(more, **_FOR_MPI, **variables(layout, 0, 0, master, self._plan["launcher"]))
            self._start(0, 0, str(layout.nodes[0]["host"]), env, _PROGRAMS[self._plan["launcher"]], layout.size)
            return
        for place, node in enumerate(nodes):
            share = shares[place]
            own = dict(more, CUDA_VISIBLE_DEVICES=",".join(share)) if share else dict(more)
            count = 1 if self._plan["launcher"] == "none" else int(layout.nodes[node]["processes"])
            for local in range(count):
                env = dict(own, **variables(layout, node, local, master, self._plan["launcher"]))
                self._start(int(env["RANK"]), node, str(layout.nodes[node]["host"]), env)

    def _start(
        self, rank: int, node: int, host: str, env: Dict[str, str], program: Sequence[str] = (), size: int = 0
    ) -> None:
        env = dict(os.environ, **env)
        log = None
        if rank:
            env.update(self._silenced(rank))
            self.logs[rank] = OutputFile(self._log_path(rank), self._plan["max_output_bytes"])
            log = os.open(self._log_path(rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        shell = next((shell for shell in ("/bin/bash", "/usr/bin/bash") if os.path.exists(shell)), "/bin/sh")
        words = [*(word.format(size=size) for word in program), shell, "-c", self._plan["command"]]
        try:
            child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        finally:
            if log is not None:
                os.close(log)
        self._running[rank] = child
        self.records[rank] = {
            "role": "rank",
            "rank": rank,
            "node": node,
            "host": host,
            "reports": rank == 0,
            "state": "RUNNING",
            "exitCode": None,
            "reason": "",
            "started": time.time(),
            "ended": None,
            "log": "rank-{}.log".format(rank) if rank else None,
        }

    def _silenced(self, rank: int) -> Dict[str, str]:
        """Return the variables of a rank whose reports do not count, also for NNI's own package in an image."""
        own = os.path.join(self._folder, ".ranks", str(rank))
        os.makedirs(os.path.join(own, ".nni"), mode=0o700, exist_ok=True)
        parameters = os.path.join(self._folder, "parameter.cfg")
        target = os.path.join(own, "parameter.cfg")
        if os.path.exists(parameters) and not os.path.lexists(target):
            os.symlink(parameters, target)
        return {"NNI_SYS_DIR": own, "NNILITE_METRICS": os.path.join(own, ".nni", "metrics")}

    def _log_path(self, rank: int) -> str:
        return os.path.join(self._folder, "roles", "rank-{}.log".format(rank))

    def reap(self, ending: bool) -> List[Dict[str, Any]]:
        """Return the records of those that have just ended. `ending`: all of them were sent a signal."""
        ended = []
        for rank, child in list(self._running.items()):
            code = child.poll()
            if code is None:
                continue
            del self._running[rank]
            state = "SUCCEEDED" if code == 0 else "CANCELED" if ending else "FAILED"
            self.records[rank].update(
                state=state, exitCode=code, reason=sentence(code) if code else "", ended=time.time()
            )
            ended.append(self.records[rank])
        return ended

    def last_lines(self, rank: int) -> str:
        """Return the last lines that a rank has printed; "" for rank 0, whose output is the trial's."""
        return self.logs[rank].last(_LAST_BYTES) if rank in self.logs else ""

    def cut_logs(self) -> None:
        """Keep the logs below their cap. Raises: OSError."""
        for output in self.logs.values():
            output.grown()
            output.cut()

    def end(self) -> None:
        """Send SIGTERM to all, what they have started included. This program gets it, too."""
        os.killpg(os.getpgrp(), signal.SIGTERM)

    def kill(self) -> None:
        """Kill all that is left in the group but this program."""
        for child in self._running.values():
            child.kill()
        group = str(os.getpgrp())
        for name in os.listdir("/proc") if os.path.exists("/proc/self/stat") else []:
            if name.isdigit() and int(name) != os.getpid() and process.stat_of(int(name))[2:3] == [group]:
                try:
                    os.kill(int(name), signal.SIGKILL)
                except ProcessLookupError:  # it has just ended
                    continue


def _shares(gpus: List[str], nodes: int) -> List[List[str]]:
    """Return the GPUs of each node, where one machine stands for several."""
    if nodes == 1 or len(gpus) % nodes:
        return [[] for _ in range(nodes)]
    size = len(gpus) // nodes
    return [gpus[number * size : (number + 1) * size] for number in range(nodes)]
