"""A further node of a distributed trial: it follows the first one, and reports the state of its own processes.

It ends when it gets the order, or when the first node is silent for a while.
"""

from __future__ import annotations

import base64
import os
import time

from .node_link import Caller, LinkBroken, NodeConnection
from .node_run import BEAT_S, ELASTIC_GATHER_S, GATHER_S, LOST_S, Ended, NodeRun, find_interface
from .rank_variables import Layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Tuple

    from .folder import Folder
    from .output import OutputFile

_RECONNECT_S = 15.0  # silence after which a node connects again
_PIECE_BYTES = 128 * 1024
_MAX_WAITING_BYTES = 1_000_000
_OF_RANK, _OF_COMMAND = "output", "output_of_command"


class OtherNode(NodeRun):
    """Follows the first node."""

    def __init__(self, plan: Mapping[str, Any], folder: Folder) -> None:
        super().__init__(plan, folder)
        addresses: List[Tuple[str, int]] = [(host, port) for host in plan["first"] for port in plan["ports"]]
        self._caller = Caller(addresses, plan["secret"], self.number, os.urandom(8).hex(), self.wake)
        self._line: Optional[NodeConnection] = None
        self._silent_s = 0.0
        self._linked_s = 0.0  # how long it had lived when it last had a connection
        self._hello: Dict[str, Any] = {}
        # How much of each rank's and command's output the first node has confirmed; None before that.
        self._sent: Optional[Dict[Tuple[str, int], int]] = None
        self._sent_states: Dict[int, Optional[int]] = {}
        self._over = False
        self._leaving: Dict[str, Any] = {}
        self._begun = False
        self._start = 0  # how often the processes of an elastic trial were started before
        self._tell_again = False
        self._next_beat = 0.0

    def run(self) -> None:
        """Run the processes of this node until the first node says that all is over. Raises: Ended."""
        try:
            self._hello = self.own_node()
        except Ended as error:
            self._hello = {"host": os.uname().nodename, "processes": 0, "ports": []}
            self._leaving = {"leaving": str(error), "cause": error.cause}
        limit_s = 2 * ELASTIC_GATHER_S if "min" in self.plan else GATHER_S
        while not (self._over and self.processes.over):
            changed = bool(self.look())
            if self.terminated and not self.ending:
                self._leaving = {"leaving": "it was taken away (SIGTERM)", "cause": "machine"}
                self.end_all("canceled by SIGTERM")
                self._tell_again = True
            self._talk(changed)
            if self._silent_s > LOST_S and not self.ending and self._begun:
                self.end_all("the first node was silent for {:g} s".format(LOST_S), "machine")
            if self.processes.over and self._is_left_alone():
                break
            if not self._begun and self._line is None and self.lived_s > max(limit_s, self._linked_s + LOST_S):
                raise Ended("the first node was not found: {}".format(self._caller.trouble), "machine")
        raise Ended(self.why, self.cause)

    def _is_left_alone(self) -> bool:
        """Return whether there is nothing more to send to the first node, or no way to do so."""
        if self.ending and not self._begun and self._line is None:
            return True
        return self.overdue or (self._begun and self._silent_s > LOST_S)

    def _talk(self, changed: bool) -> None:
        """Keep the connection, tell what is new, and take messages for a moment."""
        if self._line is None:
            self._caller.call()
            self._line = self._caller.accept()
            self._tell_again = self._line is not None
            self._sent = None
        self._silent_s += self.wait([self._line] if self._line else [], [])
        if self._line is None:
            return
        self._linked_s = self.lived_s
        try:
            self._send_state(changed)
            for message in self._line.read():
                self._silent_s = 0.0
                self._handle_message(message)
            if time.monotonic() - self._line.heard > _RECONNECT_S:
                raise LinkBroken("silent")
        except LinkBroken as error:
            self._caller.trouble = str(error)
            self._line.close()
            self._line = None

    def _send_state(self, changed: bool) -> None:
        """Send the state of this node. Raises: LinkBroken."""
        assert self._line is not None
        self._line.flush()
        over = self.processes.over and (self._begun or self.ending)
        if self._tell_again:
            self._line.send({"hello": self._hello, **self._leaving})
        if changed or self._tell_again or time.monotonic() > self._next_beat:
            self._next_beat = time.monotonic() + BEAT_S
            ranks = [{**record, **self._more_of(record)} for record in self.processes.records.values()]
            self._line.send({"ranks": ranks if changed or self._tell_again or over else []})
        whole = self._send_output(over)
        self._tell_states()
        if over and whole:
            self._line.send({"done": True, "start": self._start})
        self._tell_again = False

    def _more_of(self, record: Mapping[str, Any]) -> Dict[str, Any]:
        """Return what a rank that has failed has printed last, and how long ago it ended, as clocks differ."""
        if record["state"] != "FAILED":
            return {}
        return {"lines": self.processes.last_lines(record["rank"]), "age_s": time.time() - record["ended"]}

    def _tell_states(self) -> None:
        """Tell how the launcher's commands have ended, each after all of its output. Raises: LinkBroken."""
        assert self._line is not None
        if self._sent is None:
            return
        states: Dict[int, Optional[int]] = {}
        for number, code in self.processes.command_states().items():
            output = self.processes.command_logs.get(number)
            whole = output is None or self._sent.get((_OF_COMMAND, number), 0) >= output.size
            states[number] = code if whole else None
        if self._tell_again or states != self._sent_states:
            self._line.send({"commands": states})
            self._sent_states = states

    def _send_output(self, over: bool) -> bool:
        """Send what ranks and commands have printed; what a cut may still change goes after the end.

        Return whether the first node has all. Raises: LinkBroken.
        """
        if self._sent is None:  # messages in flight when a connection broke may be lost
            return False
        states = self.processes.command_states()
        whole = [self._send_one(_OF_RANK, rank, output, over) for rank, output in self.processes.logs.items()]
        for number, output in self.processes.command_logs.items():
            whole.append(self._send_one(_OF_COMMAND, number, output, over or states[number] is not None))
        return all(whole)

    def _send_one(self, kind: str, number: int, output: OutputFile, over: bool) -> bool:
        """Send what one rank or command has printed. Return whether the first node has all. Raises: LinkBroken."""
        assert self._line is not None
        assert self._sent is not None
        output.grown()
        end = output.size if over else min(output.size, output.stable)
        at = self._sent.get((kind, number), 0)
        while at < end and self._line.waiting_bytes < _MAX_WAITING_BYTES:
            try:
                data = output.read(at, min(_PIECE_BYTES, end - at))
            except OSError as error:
                self.folder.add_to_log("{} cannot be read: {}".format(output.path, error))
                data = b""
            if not data:
                at = end  # there is no more to be had
                break
            self._line.send({kind: [number, at, base64.b64encode(data).decode("ascii")], "start": self._start})
            at += len(data)
        self._sent[kind, number] = at
        return at >= end

    def _handle_message(self, message: Mapping[str, Any]) -> None:
        if "have" in message and message.get("of_start", self._start) == self._start:
            self._sent = {(_OF_RANK, int(rank)): int(size) for rank, size in message["have"].items()}
            received = message.get("have_of_commands") or {}
            self._sent.update({(_OF_COMMAND, int(number)): int(size) for number, size in received.items()})
        if "start" in message and not self.ending:
            self._start_again(message["start"])
        if message.get("stop") == self._start and self._begun:
            self.stop_processes()
        if "commands" in message:
            self.processes.run_commands({int(number): text for number, text in message["commands"].items()})
        if message.get("end") and not self.ending:
            self.is_ended_by_first_node = True
            self.end_all("ended, since another node has ended")
        if message.get("over"):
            self._over = True
            if not self.processes.over:
                self.end_all("")

    def _start_again(self, message: Mapping[str, Any]) -> None:
        """Start processes as the first node says, unless that has been done."""
        number = int(message.get("number", 0))
        if self._begun and (number <= self._start or not self.processes.over):
            return
        assert self._line is not None
        layout, place = Layout(message["nodes"], int(message["port"])), int(message.get("place", self.number))
        self._begun = True
        try:
            if "number" in message:
                self._forget_output(number)
            self.start(layout, [place], self._line.there, find_interface(self._line.here))
        except (Ended, OSError) as error:
            self._leaving = {"leaving": str(error), "cause": getattr(error, "cause", "machine")}
            self.end_all(str(error), self._leaving["cause"])
        self._tell_again = True

    def _forget_output(self, number: int) -> None:
        """Prepare for a further start: the first node has what there was before. Raises: OSError."""
        self.renew_processes(number)
        self._start = number
        place = os.path.join(self.folder.path, "roles")
        for name in os.listdir(place) if os.path.isdir(place) else []:
            os.unlink(os.path.join(place, name))
        self._sent = {}
