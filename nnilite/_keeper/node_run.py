"""What the first node of a distributed trial and the others have in common."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time

from . import node_link
from .launched_processes import LaunchedProcesses
from .launcher import PROGRAMS, find_missing, not_found
from .node_processes import NodeProcesses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Dict, List, Mapping, Optional

    from .folder import Folder
    from .node_link import NodeConnection
    from .rank_variables import Layout

GATHER_S = 1800.0
"""Until all nodes are there: on some platforms each of them has an image to load."""

ELASTIC_GATHER_S = 60.0
"""How long an elastic trial waits at its beginning for more than its fewest nodes; twice that for these."""

LOST_S = 75.0
"""Silence after which a node counts as lost."""

BEAT_S = 3.0
_LATE_S = 10.0  # after the grace period, for the other nodes to report their ends
_PAUSE_S = 0.25


class Ended(Exception):
    """The trial is over, or cannot begin. The text says why; "" if its command has ended well."""

    def __init__(self, text: str = "", cause: str = "") -> None:
        super().__init__(text)
        self.cause = cause


class NodeRun:
    """What the first node and the others have in common."""

    def __init__(self, plan: Mapping[str, Any], folder: Folder) -> None:
        self.plan = plan
        self.folder = folder
        self.number = int(plan["node"])
        self.is_launched = plan["launcher"] in PROGRAMS
        kind = LaunchedProcesses if self.is_launched else NodeProcesses
        self.processes: NodeProcesses = kind(plan, folder.path)
        self.why = ""  # why all must end; "" if they need not
        self.cause = ""
        self.code: Optional[int] = None  # exit code of the failed process
        self.terminated = False
        self.is_ended_by_first_node = False  # the node process knows the reason
        self.lived_s = 0.0  # without the time in which this program was stopped
        self._kill_at: Optional[float] = None
        self._stopped_by: Optional[float] = None  # when to kill the processes whose end the other nodes follow
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        os.set_blocking(self._reader, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, self._terminate)

    def _terminate(self, number: int, frame: Optional[FrameType]) -> None:
        # Once the end has begun, this is the signal that this program has sent to its own group.
        self.terminated = self.terminated or not self.ending

    def wake(self) -> None:
        try:
            os.write(self._writer, b"\0")
        except BlockingIOError:  # it will wake up already
            return

    def wait(self, lines: List[NodeConnection], sockets: List[socket.socket]) -> float:
        """Wait for a message, a signal or a moment. Return the seconds in which this program was not stopped."""
        before = time.monotonic()
        writing = [line.socket for line in lines if line.waiting_bytes]
        reading: List[Any] = [self._reader, *(line.socket for line in lines), *sockets]
        select.select(reading, writing, [], _PAUSE_S)
        try:
            os.read(self._reader, 4096)
        except BlockingIOError:
            pass
        lived_s = min(time.monotonic() - before, 2 * _PAUSE_S)
        self.lived_s += lived_s
        return lived_s

    def own_node(self) -> Dict[str, Any]:
        """Return what this node adds to the layout. Raises: Ended."""
        missing = find_missing(self.plan["launcher"]) if self.number == 0 else ""
        if missing:
            raise Ended(not_found(missing, _host()))
        count = self.plan["processes"]
        if count == "gpu":
            count = _visible_gpus() // int(self.plan["here"])
            if count == 0:
                raise Ended("processesPerNode is gpu, but {} shows no GPU; set a number".format(_host()))
        ports = node_link.free_ports(int(count)) if self.plan["launcher"] == "tensorflow" else []
        host = os.environ.get("NNILITE_HOST") or _host()
        return {"host": host, "processes": int(count), "ports": ports}

    def end_all(self, why: str, cause: str = "", code: Optional[int] = None) -> None:
        """Begin to end the processes of this node, if that has not begun."""
        if self._kill_at is not None:
            return
        self.why, self.cause, self.code = why, cause, code
        self._kill_at = time.monotonic() + float(self.plan["grace_s"])
        self.processes.end()

    @property
    def ending(self) -> bool:
        return self._kill_at is not None

    @property
    def overdue(self) -> bool:
        """Whether the other nodes have had time to end, too."""
        return self._kill_at is not None and time.monotonic() > self._kill_at + _LATE_S

    def stop_processes(self) -> None:
        """Begin to end the processes of this node; it stays, and may start others."""
        if self._stopped_by is None and not self.ending:
            self._stopped_by = time.monotonic() + float(self.plan["grace_s"])
            self.processes.stop()

    def renew_processes(self, start: int) -> None:
        """Prepare for further processes, after all earlier ones have ended. `start`: how often there were some."""
        self.processes.kill()  # what they have left
        self.processes = NodeProcesses(dict(self.plan, start=start), self.folder.path)
        self._stopped_by = None

    def look(self) -> List[Dict[str, Any]]:
        """Look at the processes; kill those that outlast the grace. Return the records of those that have ended."""
        ended = self.processes.reap(self.ending or self._stopped_by is not None)
        try:
            self.processes.cut_logs()
        except OSError as error:
            self.folder.add_to_log("the output of a rank cannot be cut: {}".format(error))
        if time.monotonic() >= min(self._kill_at or float("inf"), self._stopped_by or float("inf")):
            self.processes.kill()
        return ended

    def start(self, layout: Layout, nodes: List[int], master: str, interface: str) -> None:
        """Start the processes of this node. Raises: Ended."""
        more: Dict[str, str] = {}
        if interface and "GLOO_SOCKET_IFNAME" not in os.environ:
            more["GLOO_SOCKET_IFNAME"] = interface
        try:
            write_hosts(self.folder, layout)
            more["NNILITE_HOST_FILE"] = os.path.join(self.folder.inner, "hosts")
            more["NNILITE_DISCOVER_HOSTS"] = os.path.join(self.folder.inner, "discover_hosts.sh")
            self.processes.start(layout, nodes, master, more)
        except OSError as error:
            text = "the processes cannot be started on {}: {}".format(_host(), error)
            raise Ended(text, "machine") from error


def write_hosts(folder: Folder, layout: Layout) -> None:
    """Write what lists the nodes for launchers, each file at once. Raises: OSError."""
    files = {"hosts": layout.host_file(), "discover_hosts.sh": layout.discovery_script()}
    for name, text in files.items():
        path = os.path.join(folder.inner, name)
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path + ".new", 0o700)
        os.replace(path + ".new", path)


def _host() -> str:
    return os.uname().nodename


def _visible_gpus() -> int:
    """Return how many GPUs the processes of this node see."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return len([word for word in given.split(",") if word.strip() and word.strip() != "-1"])
    import subprocess

    try:
        found = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, check=False, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return 0
    return found.stdout.count(b"GPU ") if found.returncode == 0 else 0


def find_interface(address: str) -> str:
    """Return the name of the network interface with this address, for Gloo, which would ask for the host's name."""
    if address == "127.0.0.1" or ":" in address or not sys.platform.startswith("linux"):
        return "lo" if address == "127.0.0.1" and sys.platform.startswith("linux") else ""
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(asked, 0x8915, struct.pack("256s", name[:15].encode()))  # SIOCGIFADDR
            except OSError:  # it has no address
                continue
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    return ""
