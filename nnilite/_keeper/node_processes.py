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
from .command_start import find_shell
from .exit_code import sentence
from .output import OutputFile
from .rank_variables import torch_variables, variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional

    from .rank_variables import Layout

_LAST_BYTES = 2000


class NodeProcesses:
    """All processes on this machine; of several nodes if the machine stands for these."""

    def __init__(self, plan: Mapping[str, Any], folder: str) -> None:
        self.records: Dict[int, Dict[str, Any]] = {}  # by rank, as they are shown
        self.logs: Dict[int, OutputFile] = {}
        self.command_logs: Dict[
            int, OutputFile
        ] = {}  # what a launcher's commands print; it has some only if it starts ranks
        self._plan = plan
        self._folder = folder
        self._running: Dict[int, subprocess.Popen[bytes]] = {}

    @property
    def over(self) -> bool:
        return not self._running

    @property
    def runs_ranks(self) -> bool:
        return bool(self._running)

    @property
    def launcher_code(self) -> Optional[int]:
        """The exit code of the launcher, if there is one here and it has ended."""
        return None

    def start(self, layout: Layout, nodes: List[int], master: str, more: Mapping[str, str]) -> None:
        """Start the processes of these nodes. Raises: OSError, and then some of them may run."""
        os.makedirs(os.path.join(self._folder, "roles"), mode=0o700, exist_ok=True)
        if "start" in self._plan:
            more = dict(more, TORCHELASTIC_RESTART_COUNT=str(self._plan["start"]))
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        shares = _shares(gpus.split(",") if gpus else [], len(nodes))
        for place, node in enumerate(nodes):
            share = shares[place]
            own = dict(more, CUDA_VISIBLE_DEVICES=",".join(share)) if share else dict(more)
            count = 1 if self._plan["launcher"] == "none" else int(layout.nodes[node]["processes"])
            for local in range(count):
                env = dict(own, **variables(layout, node, local, master, self._plan["launcher"]))
                if self._plan["launcher"] == "torch":
                    env.update(torch_variables(env, os.environ, self._plan["run"], int(self._plan.get("start", 0))))
                self._start(int(env["RANK"]), node, str(layout.nodes[node]["host"]), env)

    def _start(self, rank: int, node: int, host: str, env: Dict[str, str]) -> None:
        env = dict(os.environ, **env)
        log = None
        if rank:
            env.update(silenced(self._folder, rank))
            self.logs[rank] = OutputFile(self._log_path(rank), self._plan["max_output_bytes"])
            log = os.open(self._log_path(rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        words = [find_shell(), "-c", self._plan["command"]]
        try:
            child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        finally:
            if log is not None:
                os.close(log)
        self._running[rank] = child
        self.records[rank] = self._new_record(rank, node, host, time.time())

    def _new_record(self, rank: int, node: int, host: str, started: float) -> Dict[str, Any]:
        return {
            "role": "rank",
            "rank": rank,
            "node": node,
            "host": host,
            "reports": rank == 0,
            "state": "RUNNING",
            "exitCode": None,
            "reason": "",
            "started": started,
            "ended": None,
            "log": "rank-{}.log".format(rank) if rank else None,
            **({"start": self._plan["start"]} if "start" in self._plan else {}),
        }

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
        """Return the last lines that a rank has printed; "" for one whose output is the trial's."""
        return self.logs[rank].last(_LAST_BYTES) if rank in self.logs else ""

    def cut_logs(self) -> None:
        """Keep the logs below their cap. Raises: OSError."""
        for output in [*self.logs.values(), *self.command_logs.values()]:
            output.grown()
            output.cut()

    def run_commands(self, wanted: Mapping[int, Optional[str]]) -> None:
        """Run the commands of a launcher on another node; there is none where this program starts all processes."""

    def command_states(self) -> Dict[int, Optional[int]]:
        """Return the exit codes of such commands by their numbers; None for those that run."""
        return {}

    def end_launcher(self, failed: bool) -> None:
        """Let the launcher end, once there are no ranks. `failed`: one of them has failed."""

    def end(self) -> None:
        """Send SIGTERM to all, what they have started included. This program gets it, too."""
        os.killpg(os.getpgrp(), signal.SIGTERM)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to all in the group but this program, which may start others."""
        for child in self._running.values():
            child.send_signal(number)
        group, children = str(os.getpgrp()), [child.pid for child in self._running.values()]
        for name in os.listdir("/proc") if os.path.exists("/proc/self/stat") else []:
            known = not name.isdigit() or int(name) in (os.getpid(), *children)
            if not known and process.stat_of(int(name))[2:3] == [group]:
                try:
                    os.kill(int(name), number)
                except ProcessLookupError:  # it has just ended
                    continue

    def kill(self) -> None:
        """Kill all that is left in the group but this program."""
        self.stop(signal.SIGKILL)

    def close(self) -> None:
        """Leave nothing behind: all of them are in the group, which ends with this program."""


def silenced(folder: str, rank: int) -> Dict[str, str]:
    """Return the variables of a rank whose reports do not count, also for NNI's own package in an image.

    `folder`: that of its node. Raises: OSError.
    """
    own = os.path.join(folder, ".ranks", str(rank))
    os.makedirs(os.path.join(own, ".nni"), mode=0o700, exist_ok=True)
    parameters = os.path.join(folder, "parameter.cfg")
    target = os.path.join(own, "parameter.cfg")
    if os.path.exists(parameters) and not os.path.lexists(target):
        os.symlink(parameters, target)
    return {"NNI_SYS_DIR": own, "NNILITE_METRICS": os.path.join(own, ".nni", "metrics")}


def _shares(gpus: List[str], nodes: int) -> List[List[str]]:
    """Return the GPUs of each node, where one machine stands for several."""
    if nodes == 1 or len(gpus) % nodes:
        return [[] for _ in range(nodes)]
    size = len(gpus) // nodes
    return [gpus[number * size : (number + 1) * size] for number in range(nodes)]
