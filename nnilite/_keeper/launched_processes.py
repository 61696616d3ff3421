"""The processes of a trial on one node where a launcher, such as mpirun, starts the ranks.

The first node starts the launcher. On another node the launcher runs commands, by `launch_agent` on the first one: they
start its daemon there. Each rank is started by `rank_program`, which leaves a record in `.nni/launched`: so this node
knows its ranks, signals them itself, and has their output, as if it had started them.

Launchers, daemons and ranks have process groups or sessions of their own. All of them are found by their environment,
which has the job and the folder of the node.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time

from . import launcher, process
from .command_start import find_shell
from .exit_code import sentence
from .folder import Folder
from .node_processes import NodeProcesses
from .output import OutputFile
from .rank_variables import variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional

    from .rank_variables import Layout

_MAX_COMMAND_OUTPUT_BYTES = 1_000_000
_ENDS_ITSELF_S = 3.0


class LaunchedProcesses(NodeProcesses):
    """The launcher or what it runs here, and the ranks that have come of it."""

    def __init__(self, plan: Mapping[str, Any], folder: str) -> None:
        super().__init__(plan, folder)
        self._here = Folder(folder)
        self._hosts: Dict[int, str] = {}
        self._owners: Dict[int, Dict[str, Any]] = {}  # the process that represents a rank, by rank
        self._pids: Dict[int, int] = {}
        self._changed: List[Dict[str, Any]] = []  # records since the last `reap`
        self._signaled: List[int] = []  # ranks that were sent a signal, so that their ends are no failures
        self._launcher: Optional[subprocess.Popen[bytes]] = None
        self._signal_at = 0.0  # when the launcher gets a signal to end
        self._commands: Dict[int, Optional[subprocess.Popen[bytes]]] = {}
        self._dropped_at: Dict[int, float] = {}
        self._expects_more = int(plan["node"]) > 0  # false once the first node says that all is over
        self._env: Dict[str, str] = {}

    @property
    def over(self) -> bool:
        """Whether nothing runs here, and nothing more will."""
        commands = any(child is not None and child.returncode is None for child in self._commands.values())
        launching = self._launcher is not None and self._launcher.returncode is None
        return not (self._expects_more or commands or launching or self.runs_ranks)

    @property
    def runs_ranks(self) -> bool:
        return any(record["state"] == "RUNNING" for record in self.records.values())

    @property
    def launcher_code(self) -> Optional[int]:
        """The exit code of the launcher; None while it runs, and if it is not on this node."""
        return None if self._launcher is None else self._launcher.returncode

    def start(self, layout: Layout, nodes: List[int], master: str, more: Mapping[str, str]) -> None:
        """Prepare this node for the launcher, and start that on the first node. Raises: OSError."""
        node, inner = nodes[0], self._here.inner
        for place in (
            os.path.join(self._folder, "roles"),
            os.path.join(inner, "launched"),
            os.path.join(inner, "agent"),
        ):
            os.makedirs(place, mode=0o700, exist_ok=True)
        common = variables(layout, node, 0, master, self._plan["launcher"])
        self._env = {**launcher.cleaned(os.environ), **more, **common}
        self._hosts = {number: str(entry["host"]) for number, entry in enumerate(layout.nodes)}
        agent = os.path.join(inner, "agent")
        plan = {
            "nodes": layout.nodes,
            "port": layout.port,
            "node": node,
            "here": len(nodes),
            "master": master,
            "launcher": self._plan["launcher"],
            "command": self._plan["command"],
            "directory": os.getcwd(),
            "environment": self._env,
            "agent": agent,
        }
        if not self._here.write("rank-plan", plan):
            raise OSError("the plan of the ranks cannot be written to {}".format(inner))
        launcher.write_script(os.path.join(inner, "rank"), "rank_program", self._folder)
        if node == 0:
            launcher.write_script(os.path.join(agent, "ssh"), "launch_agent", self._folder)
            self._start_launcher(layout, agent, more.get("GLOO_SOCKET_IFNAME", ""))

    def _start_launcher(self, layout: Layout, agent: str, interface: str) -> None:
        env = {**self._env, **launcher.environment(self._env, layout, self._here.inner, interface)}
        env["PATH"] = os.pathsep.join([agent, env.get("PATH") or os.defpath])
        words = launcher.words(self._plan["launcher"], layout, self._folder)
        # In a folder that is there on all nodes. In a session of its own, so that a signal to this program's group does
        # not reach it: it would give the ranks less than their grace.
        self._launcher = subprocess.Popen(words, stdin=subprocess.DEVNULL, env=env, cwd="/", start_new_session=True)

    def run_commands(self, wanted: Mapping[int, Optional[str]]) -> None:
        """Run those of the launcher's commands that are new, and end those that are no longer wanted (None)."""
        for number, text in wanted.items():
            if number not in self._commands:
                self._commands[number] = None if text is None or not self._expects_more else self._run(number, text)
            child = self._commands[number]
            if text is None and child is not None and child.returncode is None and number not in self._dropped_at:
                self._dropped_at[number] = time.monotonic()
                process.signal_group(child.pid, signal.SIGTERM)

    def _run(self, number: int, text: str) -> Optional[subprocess.Popen[bytes]]:
        path = os.path.join(self._here.inner, "command-{}.log".format(number))
        self.command_logs[number] = OutputFile(path, _MAX_COMMAND_OUTPUT_BYTES)
        env = {**self._env, launcher.NODE_FOLDER: self._folder}
        try:
            log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                return subprocess.Popen(
                    [find_shell(), "-c", text],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=env,
                    cwd="/",
                    start_new_session=True,
                )
            finally:
                os.close(log)
        except OSError as error:
            self._here.add_to_log("a command of the launcher cannot be started: {}".format(error))
            return None

    def command_states(self) -> Dict[int, Optional[int]]:
        """Return the exit codes of the launcher's commands, by number; None for those that run."""
        return {number: 255 if child is None else child.returncode for number, child in self._commands.items()}

    def reap(self, ending: bool) -> List[Dict[str, Any]]:
        """Return the records of ranks that have come or gone. `ending`: all of them were sent a signal."""
        for child in [self._launcher, *self._commands.values()]:
            if child is not None:
                child.poll()
        for number, when in self._dropped_at.items():
            child = self._commands[number]
            late = time.monotonic() > when + float(self._plan["grace_s"])
            if child is not None and child.returncode is None and late:
                process.signal_group(child.pid, signal.SIGKILL)
        self._read_records(ending)
        changed, self._changed = self._changed, []
        return changed

    def _read_records(self, ending: bool) -> None:
        place = os.path.join(self._here.inner, "launched")
        names = os.listdir(place) if os.path.exists(place) else []
        for rank in sorted(int(name) for name in names if name.isdigit()):
            if rank in self.records and self.records[rank]["state"] != "RUNNING":
                continue
            gone = rank in self._owners and not process.is_running(self._owners[rank])
            note = self._here.read("launched/{}".format(rank))
            if note is None or not _is_record(note):
                continue  # the trial may have written anything to it
            if rank not in self.records:
                self._note_start(rank, note)
                self._changed.append(self.records[rank])
            if "code" in note or gone:
                self._note_end(rank, note, ending)
                self._changed.append(self.records[rank])

    def _note_start(self, rank: int, note: Mapping[str, Any]) -> None:
        self._owners[rank], self._pids[rank] = note["own"], note["pid"]
        node = note["node"]
        if rank:
            self.logs[rank] = OutputFile(self._log_path(rank), self._plan["max_output_bytes"])
        self.records[rank] = self._new_record(rank, node, self._hosts.get(node, "?"), note["started"])

    def _note_end(self, rank: int, note: Mapping[str, Any], ending: bool) -> None:
        """Note how a rank has ended; the process that stands for it may have been killed before it could tell."""
        code: Optional[int] = note.get("code")
        by_signal = code is None or code in (-signal.SIGTERM, -signal.SIGKILL, 128 + signal.SIGTERM)
        ended_by_launcher = bool(note.get("asked")) or (code is None and self._launcher is None)
        if code == 0:
            state = "SUCCEEDED"
        elif ending or rank in self._signaled or (by_signal and (ended_by_launcher or self.launcher_code is not None)):
            state = "CANCELED"
        else:
            state = "FAILED"
        reason = "killed with the launcher" if code is None else sentence(code) if code else ""
        self.records[rank].update(state=state, exitCode=code, reason=reason, ended=note.get("ended") or time.time())
        if code is None:
            process.signal_group(self._pids[rank], signal.SIGKILL)

    def end(self) -> None:
        """Send SIGTERM to all ranks here. The launcher and its commands end after them."""
        self._read_records(False)
        self._expects_more = False
        if os.path.isdir(os.path.join(self._here.inner, "launched")):
            self._here.write("launched/ending", {})
        for rank, record in self.records.items():
            if record["state"] == "RUNNING":
                self._signaled.append(rank)
                process.signal_group(self._pids[rank], signal.SIGTERM)

    def end_launcher(self, failed: bool) -> None:
        """Let the launcher end, once there are no ranks. `failed`: one of them has failed.

        The launcher may be ending by itself then, after MPI_Abort, and Open MPI 4 crashes if a signal comes meanwhile.
        So it is shown the rank that has failed, or any if that is elsewhere, and gets a signal only if it stays.
        """
        if self._launcher is None or self._launcher.returncode is not None:
            return
        now = time.monotonic()
        if not self._signal_at:
            self._signal_at = now + (_ENDS_ITSELF_S if failed else 0.0)
            shown = [rank for rank, record in self.records.items() if record["state"] == "FAILED"] or list(self._owners)
            for rank in shown if failed else ():
                if process.is_running(self._owners[rank]):
                    os.kill(self._owners[rank]["pid"], signal.SIGTERM)
        if now >= self._signal_at:
            self._signal_at = float("inf")
            process.signal_group(self._launcher.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill all that is left, here, of this job."""
        children = [self._launcher, *self._commands.values()]
        groups = [child.pid for child in children if child is not None and child.returncode is None]
        groups += [self._pids[rank] for rank, record in self.records.items() if record["state"] == "RUNNING"]
        for group in {*groups, *process.find_groups(os.environ.get("NNILITE_JOB", ""), self._folder)}:
            process.signal_group(group, signal.SIGKILL)

    def close(self) -> None:
        """Leave nothing behind."""
        self.kill()
        for name in ("rank-plan", "rank", "agent/ssh"):
            try:
                os.unlink(os.path.join(self._here.inner, name))
            except OSError:  # it was not written
                continue


def _is_record(note: Mapping[str, Any]) -> bool:
    """Return whether `rank_program` can have written this."""
    numbers = type(note.get("node")) is int and type(note.get("pid")) is int and type(note.get("code", 0)) is int
    times = isinstance(note.get("started"), float) and isinstance(note.get("ended", 0.0), float)
    return numbers and times and note["pid"] > 1 and isinstance(note.get("own"), dict)
