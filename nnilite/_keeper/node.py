"""Runs the processes of a trial on one of its nodes: the command of a keeper whose specification says `distributed`.

gather the nodes -> agree on the layout -> start the processes -> watch them -> end all, everywhere

The first node leads. Each other node reports to it by `node_link`, and ends when it gets the order, or when the first
node is silent for a while. If one process fails anywhere, all are ended within the grace; the
first node writes why, with rank and host, to `.nni/ranks`, where its keeper reads it. It also keeps the records and the
logs of all ranks in its folder, in `roles.json` and `roles/`.

A message may be sent twice, when a connection breaks: all of them say how things are, and not what has changed.
"""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import socket
import sys
import time

from . import node_link
from .exit_code import status
from .folder import Folder
from .node_link import Caller, Guest, LinkBroken, NodeConnection
from .node_processes import NodeProcesses
from .rank_variables import Layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Dict, List, Mapping, Optional, Tuple

_GATHER_S = 1800.0  # until all nodes are there: on some platforms each of them has an image to load
_BEAT_S = 3.0
_RECONNECT_S = 15.0  # silence after which a node connects again
_LOST_S = 75.0  # silence after which a node counts as lost
_LATE_S = 10.0  # beyond the grace, for the other nodes to tell their ends
_PART_S = 3.0
_PAUSE_S = 0.25
_PIECE_BYTES = 128 * 1024
_MAX_WAITING_BYTES = 1_000_000
_NO_RANKS = 4


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
        self.processes = NodeProcesses(plan, folder.path)
        self.why = ""  # why all must end; "" if they need not
        self.cause = ""
        self.code: Optional[int] = None  # of the process that has failed
        self.terminated = False
        self._kill_at: Optional[float] = None
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
        return min(time.monotonic() - before, 2 * _PAUSE_S)

    def own_node(self) -> Dict[str, Any]:
        """Return what this node adds to the layout. Raises: Ended."""
        count = self.plan["processes"]
        if count == "gpu":
            count = _visible_gpus() // int(self.plan["here"])
            if count == 0:
                raise Ended("processesPerNode is gpu, but {} shows no GPU; set a number".format(os.uname().nodename))
        ports = node_link.free_ports(int(count)) if self.plan["launcher"] == "tensorflow" else []
        host = os.environ.get("NNILITE_HOST") or os.uname().nodename
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

    def look(self) -> List[Dict[str, Any]]:
        """Look at the processes; kill those that outlast the grace. Return the records of those that have ended."""
        ended = self.processes.reap(self.ending)
        try:
            self.processes.cut_logs()
        except OSError as error:
            self.folder.note("the output of a rank cannot be cut: {}".format(error))
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self.processes.kill()
        return ended

    def start(self, layout: Layout, nodes: List[int], master: str, interface: str) -> None:
        """Start the processes of this node. Raises: Ended."""
        files = {"hosts": layout.host_file(), "discover_hosts.sh": layout.discovery_script()}
        more: Dict[str, str] = {}
        if interface and "GLOO_SOCKET_IFNAME" not in os.environ:
            more["GLOO_SOCKET_IFNAME"] = interface
        try:
            for name, text in files.items():
                path = os.path.join(self.folder.inner, name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                os.chmod(path, 0o700)
            more["NNILITE_HOST_FILE"] = os.path.join(self.folder.inner, "hosts")
            more["NNILITE_DISCOVER_HOSTS"] = os.path.join(self.folder.inner, "discover_hosts.sh")
            self.processes.start(layout, nodes, master, more)
        except OSError as error:
            text = "the processes cannot be started on {}: {}".format(os.uname().nodename, error)
            raise Ended(text, "machine") from error


class FirstNode(NodeRun):
    """Leads the others, if there are any."""

    def __init__(self, plan: Mapping[str, Any], folder: Folder) -> None:
        super().__init__(plan, folder)
        self._others = range(1, int(plan["nodes"])) if int(plan["here"]) == 1 else range(0)
        self._lines: Dict[int, NodeConnection] = {}
        self._runs: Dict[int, str] = {}
        self._silent_s = dict.fromkeys(self._others, 0.0)
        self._hello: Dict[int, Dict[str, Any]] = {}
        self._records: Dict[int, Dict[str, Any]] = {}  # of ranks elsewhere
        self._done: set[int] = set()
        self._guests: List[Guest] = []
        self._listener: Optional[socket.socket] = None
        self._layout: Optional[Layout] = None
        self._next_beat = 0.0

    def run(self) -> None:
        """Run the trial to its end. Raises: Ended."""
        own = self.own_node()
        if self._others:
            try:
                self._listener = node_link.listen(self.plan["ports"])
            except OSError as error:
                raise Ended("the first node cannot listen: {}".format(error), "machine") from error
        deadline = time.monotonic() + _GATHER_S
        while not (self.terminated or self.ending or len(self._hello) == len(self._others)):
            if time.monotonic() > deadline:
                missing = ", ".join(str(node) for node in self._others if node not in self._hello)
                raise Ended("not all nodes have come within {:g} s: {} missing".format(_GATHER_S, missing), "machine")
            self._hear()
        if not self.terminated and not self.ending:
            self._begin(own)
        self._watch()

    def _begin(self, own: Dict[str, Any]) -> None:
        """Agree on the layout and start. Raises: Ended."""
        here = [own, *(self.own_node() for _ in range(1, int(self.plan["here"])))]
        nodes = [*here, *(self._hello[node] for node in self._others)]
        self._layout = Layout(nodes, node_link.free_ports(1)[0])
        first = self._lines.get(1)
        for node in self._others:
            self._send(node, self._start_message())
        master = first.here if first else "127.0.0.1"
        self.start(self._layout, list(range(len(here))), master, _interface(master))
        self._write_records()

    def _start_message(self) -> Dict[str, Any]:
        assert self._layout is not None
        return {"start": {"nodes": self._layout.nodes, "port": self._layout.port}}

    def _watch(self) -> None:
        """Watch all processes, here and elsewhere, until all have ended. Raises: Ended."""
        while True:
            ended = self.look()
            for record in ended:
                if record["state"] == "FAILED":
                    self._fail(record, self.processes.last_lines(record["rank"]))
            if ended:
                self._write_records()
            if self.terminated and not self.ending:
                self.end_all("canceled by SIGTERM")
            if self.ending:
                self._tell_all({"end": True})
            if self.processes.over and (self.overdue or len(self._done) == len(self._others)):
                break
            self._hear()
        self._write_records()
        self._part()
        raise Ended(self.why, self.cause)

    def _part(self) -> None:
        """Tell the others that all is over, and stay until they have it: they close their connections then."""
        self._tell_all({"over": True})
        deadline = time.monotonic() + _PART_S
        while self._lines and time.monotonic() < deadline:
            self._hear()

    def _fail(self, record: Mapping[str, Any], lines: str) -> None:
        """End all, since a process has failed."""
        why = "rank {} on {}: {}".format(record["rank"], record["host"], record["reason"])
        self.end_all("\n".join(part for part in (why, lines) if part), "", record["exitCode"])

    def _hear(self) -> None:
        """Wait a moment for messages and take them."""
        lines = [*self._lines.values(), *(guest.line for guest in self._guests)]
        lived_s = self.wait(lines, [self._listener] if self._listener else [])
        self._welcome()
        for node, line in list(self._lines.items()):
            self._take_all(node, line)
        for node in self._others:
            self._silent_s[node] += lived_s
            if self._hello and node in self._hello and node not in self._done and self._silent_s[node] > _LOST_S:
                host = self._hello[node]["host"]
                self._done.add(node)
                for record in self._records.values():
                    if record.get("node") == node and record.get("state") == "RUNNING":
                        record.update(state="LOST", reason="its node was lost", ended=time.time())
                self.end_all("node {} ({}) was silent for {:g} s".format(node, host, _LOST_S), "machine")
        if time.monotonic() > self._next_beat:
            self._next_beat = time.monotonic() + _BEAT_S
            self._tell_all({"beat": True})

    def _take_all(self, node: int, line: NodeConnection) -> None:
        try:
            line.flush()
            for message in line.read():
                self._silent_s[node] = 0.0
                self._take(node, message)
        except (LinkBroken, KeyError, TypeError, ValueError) as error:  # it connects again, or counts as lost
            if not isinstance(error, LinkBroken):
                self.folder.note("a message of node {} cannot be read: {}".format(node, error))
            line.close()
            self._lines.pop(node, None)

    def _welcome(self) -> None:
        """Take new connections, and those that have proven who they are."""
        if self._listener is not None:
            node_link.accept(self._listener, self._guests, self.plan["secret"])
        for guest in list(self._guests):
            try:
                found = guest.proven()
            except LinkBroken:
                found = (-1, "")
            if found is None and time.monotonic() < guest.deadline:
                continue
            self._guests.remove(guest)
            node, run = found or (-1, "")
            if node not in self._others or self._runs.setdefault(node, run) != run:
                guest.line.close()
                continue
            if node in self._lines:
                self._lines[node].close()
            self._lines[node] = guest.line
            self._silent_s[node] = 0.0
            self._send(node, {"have": self._have()})
            if self._layout is not None:
                self._send(node, self._start_message())

    def _have(self) -> Dict[str, int]:
        """Return how much of the output of ranks elsewhere is here."""
        found = {}
        for rank in self._records:
            path = os.path.join(self.folder.path, "roles", "rank-{}.log".format(rank))
            found[str(rank)] = os.path.getsize(path) if os.path.exists(path) else 0
        return found

    def _take(self, node: int, message: Mapping[str, Any]) -> None:
        """Take a message of a node, which has proven that it belongs to the trial."""
        if "hello" in message and node not in self._hello:
            self._hello[node] = _checked_hello(message["hello"])
        for record in message.get("ranks") or []:
            self._records[int(record["rank"])] = record
            if record.get("state") == "FAILED" and not self.ending:
                self._fail(record, str(record.get("lines") or ""))
        if "output" in message:
            rank, offset, data = message["output"]
            self._append(int(rank), int(offset), base64.b64decode(data))
        if message.get("leaving") and not self.ending:
            host = self._hello.get(node, {}).get("host", "?")
            self.end_all("node {} ({}): {}".format(node, host, message["leaving"]), str(message.get("cause") or ""))
        if message.get("done"):
            self._done.add(node)
        if message.get("ranks"):
            self._write_records()

    def _append(self, rank: int, offset: int, data: bytes) -> None:
        path = os.path.join(self.folder.path, "roles", "rank-{}.log".format(rank))
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(file, data, offset)
            finally:
                os.close(file)
        except OSError as error:
            self.folder.note("{} cannot be written: {}".format(path, error))

    def _send(self, node: int, message: Dict[str, Any]) -> None:
        line = self._lines.get(node)
        if line is None:
            return
        try:
            line.send(message)
        except LinkBroken:
            line.close()
            self._lines.pop(node, None)

    def _tell_all(self, message: Dict[str, Any]) -> None:
        for node in self._others:
            self._send(node, message)

    def _write_records(self) -> None:
        """Write what is known of all ranks to `roles.json`."""
        known = {**self._records, **self.processes.records}
        entries = [{key: known[rank][key] for key in known[rank] if key != "lines"} for rank in sorted(known)]
        path = os.path.join(self.folder.path, "roles.json")
        try:
            with open(path + ".new", "w", encoding="ascii") as file:
                json.dump(entries, file, indent=1)
            os.replace(path + ".new", path)
        except OSError as error:
            self.folder.note("{} cannot be written: {}".format(path, error))


def _checked_hello(hello: Any) -> Dict[str, Any]:
    """Return what a node has said of itself. A program of another version says something else. Raises: LinkBroken."""
    try:
        ports = [int(port) for port in hello["ports"]]
        return {"host": str(hello["host"])[:255], "processes": int(hello["processes"]), "ports": ports}
    except (KeyError, TypeError, ValueError) as error:
        raise LinkBroken("a node says nothing of use of itself") from error


class OtherNode(NodeRun):
    """Follows the first node."""

    def __init__(self, plan: Mapping[str, Any], folder: Folder) -> None:
        super().__init__(plan, folder)
        addresses: List[Tuple[str, int]] = [(host, port) for host in plan["first"] for port in plan["ports"]]
        self._caller = Caller(addresses, plan["secret"], self.number, os.urandom(8).hex(), self.wake)
        self._line: Optional[NodeConnection] = None
        self._silent_s = 0.0
        self._hello: Dict[str, Any] = {}
        self._sent: Optional[Dict[int, int]] = (
            None  # how much of each rank's output the first node has, once it says so
        )
        self._over = False
        self._leaving: Dict[str, Any] = {}
        self._begun = False
        self._tell_again = False
        self._next_beat = 0.0

    def run(self) -> None:
        """Run the processes of this node until the first node says that all is over. Raises: Ended."""
        try:
            self._hello = self.own_node()
        except Ended as error:
            self._hello = {"host": os.uname().nodename, "processes": 0, "ports": []}
            self._leaving = {"leaving": str(error), "cause": error.cause}
        deadline = time.monotonic() + _GATHER_S
        while not (self._over and self.processes.over):
            changed = bool(self.look())
            if self.terminated and not self.ending:
                self._leaving = {"leaving": "it was taken away (SIGTERM)", "cause": "machine"}
                self.end_all("canceled by SIGTERM")
                self._tell_again = True
            self._talk(changed)
            if self._silent_s > _LOST_S and not self.ending and self._begun:
                self.end_all("the first node was silent for {:g} s".format(_LOST_S), "machine")
            if self.processes.over and self._is_left_alone():
                break
            if not self._begun and time.monotonic() > deadline:
                raise Ended("the first node was not found: {}".format(self._caller.trouble), "machine")
        raise Ended(self.why, self.cause)

    def _is_left_alone(self) -> bool:
        """Return whether there is nothing more to send to the first node, or no way to do so."""
        if self.ending and not self._begun and self._line is None:
            return True
        return self.overdue or (self._begun and self._silent_s > _LOST_S)

    def _talk(self, changed: bool) -> None:
        """Keep the connection, tell what is new, and take messages for a moment."""
        if self._line is None:
            self._caller.call()
            self._line = self._caller.take()
            self._tell_again = self._line is not None
            self._sent = None
        lived_s = self.wait([self._line] if self._line else [], [])
        self._silent_s += lived_s
        if self._line is None:
            return
        try:
            self._tell(changed)
            for message in self._line.read():
                self._silent_s = 0.0
                self._take(message)
            if self._silent_s > _RECONNECT_S and int(self._silent_s / _RECONNECT_S) > int(
                (self._silent_s - lived_s) / _RECONNECT_S
            ):
                raise LinkBroken("silent")
        except LinkBroken as error:
            self._caller.trouble = str(error)
            self._line.close()
            self._line = None

    def _tell(self, changed: bool) -> None:
        """Tell how things are here. Raises: LinkBroken."""
        assert self._line is not None
        self._line.flush()
        over = self.processes.over and (self._begun or self.ending)
        if self._tell_again:
            self._line.send({"hello": self._hello, **self._leaving})
        if changed or self._tell_again or time.monotonic() > self._next_beat:
            self._next_beat = time.monotonic() + _BEAT_S
            ranks = [dict(record, lines=self._lines_of(record)) for record in self.processes.records.values()]
            self._line.send({"ranks": ranks if changed or self._tell_again or over else []})
        whole = self._send_output(over)
        if over and whole:
            self._line.send({"done": True})
        self._tell_again = False

    def _lines_of(self, record: Mapping[str, Any]) -> str:
        return self.processes.last_lines(record["rank"]) if record["state"] == "FAILED" else ""

    def _send_output(self, over: bool) -> bool:
        """Send what ranks have printed; what a cut may still change goes after the end. Return whether it has all."""
        assert self._line is not None
        if self._sent is None:  # what was on its way when a connection broke may be lost
            return False
        whole = True
        for rank, output in self.processes.logs.items():
            output.grown()
            end = output.size if over else min(output.size, output.stable)
            at = self._sent.get(rank, 0)
            while at < end and self._line.waiting_bytes < _MAX_WAITING_BYTES:
                try:
                    data = output.read(at, min(_PIECE_BYTES, end - at))
                except OSError as error:
                    self.folder.note("{} cannot be read: {}".format(output.path, error))
                    data = b""
                if not data:
                    at = end  # there is no more to be had
                    break
                self._line.send({"output": [rank, at, base64.b64encode(data).decode("ascii")]})
                at += len(data)
            self._sent[rank] = at
            whole = whole and at >= end
        return whole

    def _take(self, message: Mapping[str, Any]) -> None:
        if "have" in message:
            self._sent = {int(rank): int(size) for rank, size in message["have"].items()}
        if "start" in message and not self._begun and not self.ending:
            self._begun = True
            told = message["start"]
            layout = Layout(told["nodes"], int(told["port"]))
            assert self._line is not None
            try:
                self.start(layout, [self.number], self._line.there, _interface(self._line.here))
            except Ended as error:
                self._leaving = {"leaving": str(error), "cause": error.cause}
                self.end_all(str(error), error.cause)
            self._tell_again = True
        if message.get("end") and not self.ending:
            self.end_all("ended, since another node has ended")
        if message.get("over"):
            self._over = True
            if not self.processes.over:
                self.end_all("")


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


def _interface(address: str) -> str:
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


def main(directory: str) -> int:
    """Run this node's part of the trial in the folder. Return the exit code of the command."""
    folder = Folder(directory)
    plan = folder.read("plan")
    if plan is None:
        sys.stderr.write("the plan of the nodes is gone from {}\n".format(directory))
        return _NO_RANKS
    node = FirstNode(plan, folder) if int(plan["node"]) == 0 else OtherNode(plan, folder)
    try:
        node.run()
        ended = Ended()
    except Ended as error:
        ended = error
    finally:
        if not node.processes.over:
            node.end_all("")
            node.processes.kill()
    if str(ended) and not node.terminated:
        folder.write("ranks", {"message": str(ended), "cause": ended.cause, "code": node.code})
        return status(node.code) if node.code else _NO_RANKS
    return 143 if node.terminated else 0
