"""The first node of a distributed trial: it gathers the others, starts them and ends them, and keeps their records.

If one process fails anywhere, all are ended within the grace. The records and the logs of all ranks are in its folder,
in `roles.json` and `roles/` (see `node_records`).
"""

from __future__ import annotations

import base64
import re
import time

from . import node_link
from .agent_server import AgentServer
from .launcher import explain
from .node_lines import NodeLines
from .node_link import LinkBroken
from .node_records import NodeRecords, check_record
from .node_run import BEAT_S, GATHER_S, LOST_S, Ended, NodeRun, find_interface
from .rank_variables import Layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Optional

    from .folder import Folder

PART_S = 3.0
SENSELESS = (LinkBroken, LookupError, TypeError, ValueError, AttributeError, OverflowError)
"""The errors of reading a message of a node that does not say what nodes say."""
_MOST_PROCESSES = 1000
_ROOM_S = 60.0  # how long a full disk is waited for when all ranks have ended


class FirstNode(NodeRun):
    """Leads the others, if there are any."""

    def __init__(self, plan: Mapping[str, Any], folder: Folder) -> None:
        super().__init__(plan, folder)
        self._others = range(1, int(plan["nodes"])) if int(plan["here"]) == 1 else range(0)
        self._lines = NodeLines(plan["secret"])
        self._silent_s = dict.fromkeys(self._others, 0.0)
        self._hello: Dict[int, Dict[str, Any]] = {}
        self._done: set[int] = set()
        self._layout: Optional[Layout] = None
        self._next_beat = 0.0
        self._records = NodeRecords(folder)
        self._room_until = 0.0
        self._server = AgentServer()
        # The launcher has failed, and so far that is the only reason; that of a rank or of a node would say more.
        self._by_launcher = False
        self._failed_s: Optional[float] = None  # when the rank failed that is the reason

    def run(self) -> None:
        """Run the trial to its end. Raises: Ended."""
        own = self.own_node()
        if self._others:
            try:
                self._lines.open(self.plan["ports"])
            except OSError as error:
                raise Ended("the first node cannot listen: {}".format(error), "machine") from error
        while not (self.terminated or self.ending or len(self._hello) == len(self._others)):
            if self.lived_s > GATHER_S:
                missing = ", ".join(str(node) for node in self._others if node not in self._hello)
                raise Ended("not all nodes have joined within {:g} s: {} missing".format(GATHER_S, missing), "machine")
            self._process_messages()
        if not self.terminated and not self.ending:
            self._begin(own)
        self._watch()

    def _begin(self, own: Dict[str, Any]) -> None:
        """Agree on the layout and start. Raises: Ended."""
        here = [own, *(self.own_node() for _ in range(1, int(self.plan["here"])))]
        nodes = [*here, *(self._hello[node] for node in self._others)]
        first = self._lines.get(1)
        if self.is_launched and self._others:
            lines = [self._lines.get(node) for node in self._others]
            self._server.name(nodes, [first.here if first else "", *(line.there if line else "" for line in lines)])
        self._layout = Layout(nodes, node_link.free_ports(1)[0])
        for node in self._others:
            self._lines.send(node, self._start_message())
        master = first.here if first else "127.0.0.1"
        self.start(self._layout, list(range(len(here))), master, find_interface(master))
        self._records.write(self.processes.records)

    def _start_message(self) -> Dict[str, Any]:
        assert self._layout is not None
        return {"start": {"nodes": self._layout.nodes, "port": self._layout.port}}

    def _watch(self) -> None:
        """Watch all processes, here and elsewhere, until all have ended. Raises: Ended."""
        while True:
            ended = self.look()
            for record in ended:
                if record["state"] == "FAILED":
                    self._fail(record, self.processes.last_lines(record["rank"]), record["ended"])
            if ended:
                self._records.write(self.processes.records)
            if self.terminated and not self.ending:
                self.end_all("canceled by SIGTERM")
            self._follow_launcher()
            if self.ending:
                self._tell_all({"end": True})
            if self.processes.over and (self.overdue or len(self._done) == len(self._others)):
                break
            self._process_messages()
        silent = [node for node in self._others if node not in self._done]
        if silent and self._by_launcher:
            host = self._hello[silent[0]]["host"]
            self._decide("node {} ({}) has not answered".format(silent[0], host), "machine")
        self._records.write(self.processes.records)
        self._records.close()
        self._part()
        raise Ended(self.why, self.cause)

    def _part(self) -> None:
        """Tell the others that all is over, and stay until they have it: they close their connections then."""
        self._tell_all({"over": True})
        deadline = time.monotonic() + PART_S
        while self._lines and time.monotonic() < deadline:
            self._process_messages()

    def _fail(self, record: Mapping[str, Any], lines: str, ended_s: float) -> None:
        """End all, since a process has failed. The first failure is the reason, even if others are reported sooner.

        Processes that wait for one that has failed soon fail, too, and say no more than that it is gone. `ended_s`: by
        the clock of this node.
        """
        is_earlier = self._failed_s is not None and ended_s < self._failed_s
        if is_earlier or self._by_launcher or not self.ending:
            self._failed_s = ended_s
            why = "rank {} on {}: {}".format(record["rank"], record["host"], record["reason"])
            reason = "\n".join(part for part in (why, lines) if part)
            self._decide(reason, "", record["exitCode"], says_more=is_earlier)

    def _decide(self, why: str, cause: str = "", code: Optional[int] = None, says_more: bool = False) -> None:
        """End all processes for this reason, unless they already end for one that says as much."""
        if self._by_launcher or says_more:
            self.why, self.cause, self.code = why, cause, code
            self._by_launcher = False
        self.end_all(why, cause, code)

    def _follow_launcher(self) -> None:
        """End all when the launcher has ended, and the launcher when all ranks have ended."""
        code = self.processes.launcher_code
        if code is not None and not self.ending:
            lacking = None if self._server.lacking is None else str(self._hello[self._server.lacking]["host"])
            why = explain(self.plan["launcher"], code, lacking, self.folder.stderr)
            self.end_all(why, "", code or None)
            self._by_launcher = bool(code)
        runs = self._records.any_runs_elsewhere or self.processes.runs_ranks
        if self.ending and not runs:
            self.processes.end_launcher(self.code is not None)

    def _process_messages(self) -> None:
        """Wait a moment for messages and take them."""
        lived_s = self.wait([*self._lines.open_lines, *self._server.lines], self._lines.listeners)
        self._accept_connections()
        for node, message in self._lines.read():
            self._silent_s[node] = 0.0
            try:
                self._handle_message(node, message)
            except SENSELESS as error:
                self.folder.add_to_log("a message of node {} cannot be read: {}".format(node, error))
                self._lines.drop(node)
        self._server.process_messages()
        while self._server.changed:
            node = self._server.changed.pop()
            self._lines.send(node, {"commands": self._server.wanted(node)})
        for node in self._others:
            self._silent_s[node] += lived_s
            if node in self._hello and node not in self._done and self._silent_s[node] > LOST_S:
                host = self._hello[node]["host"]
                self._done.add(node)
                self._records.lose(node)
                self._decide("node {} ({}) was silent for {:g} s".format(node, host, LOST_S), "machine")
        if time.monotonic() > self._next_beat:
            self._next_beat = time.monotonic() + BEAT_S
            self._tell_all({"beat": True, "have": self._records.sizes()} if self._records.lacking else {"beat": True})
            if not self._records.are_written:
                self._records.write(self.processes.records)

    def _accept_connections(self) -> None:
        """Take new connections, and those that have proven who they are."""
        for node, line in self._lines.accept_connections():
            if node == node_link.AGENT and self.is_launched:
                self._server.accept_agent(line)
            elif node not in self._others:
                line.close()
            elif self._lines.add(node, line):
                self._silent_s[node] = 0.0
                self._lines.send(node, {"have": self._records.sizes(), "have_of_commands": self._server.received(node)})
                if self._layout is not None:
                    self._lines.send(node, self._start_message())
                    self._lines.send(node, {"commands": self._server.wanted(node)})

    def _handle_message(self, node: int, message: Mapping[str, Any]) -> None:
        """Take a message of a node, which has proven that it belongs to the trial."""
        if "hello" in message and node not in self._hello:
            self._hello[node] = checked_hello(message["hello"])
        # A launcher decides by itself which ranks run on which node.
        place = None if self.is_launched else node
        for entry in message.get("ranks") or []:
            record = check_record(entry, self._layout or Layout([], 0), place)
            self._records.take(record)
            if record["state"] == "FAILED":
                self._fail(record, record["lines"], time.time() - record["age_s"])
        if "output" in message:
            rank, offset, data = message["output"]
            rank = (self._layout or Layout([], 0)).check_rank(rank, place)
            self._records.add_output(rank, int(offset), base64.b64decode(data))
        if "output_of_command" in message:
            number, offset, data = message["output_of_command"]
            self._server.add_output(node, int(number), int(offset), base64.b64decode(data))
        self._server.note_states(node, message.get("commands") or {})
        if message.get("leaving"):
            host = self._hello.get(node, {}).get("host", "?")
            self._decide("node {} ({}): {}".format(node, host, message["leaving"]), str(message.get("cause") or ""))
        if message.get("done") and self._has_all_of(node):
            self._done.add(node)
        if message.get("ranks"):
            self._records.write(self.processes.records)

    def _has_all_of(self, node: int) -> bool:
        """Return whether all output of a node is here, or the disk has been full for too long."""
        if not self._records.lack_output_of(node):
            return True
        self._room_until = self._room_until or time.monotonic() + _ROOM_S
        return time.monotonic() > self._room_until

    def _tell_all(self, message: Dict[str, Any]) -> None:
        for node in self._others:
            self._lines.send(node, message)


def checked_hello(hello: Any) -> Dict[str, Any]:
    """Return what a node has said of itself. A program of another version says something else. Raises: LinkBroken."""
    try:
        count = int(hello["processes"])
        if not 0 <= count <= _MOST_PROCESSES:
            raise ValueError("it has no usable number of processes")
        ports = [int(port) for port in hello["ports"][:count]]
        # It stands in a script for elastic Horovod.
        host = re.sub(r"[^\w.:-]", "_", str(hello["host"]))[:255]
        return {"host": host, "processes": count, "ports": ports}
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise LinkBroken("a node does not describe itself correctly") from error
