"""The other nodes of an elastic trial, as the first one sees them: who is there, who is lost, and how processes failed.

A node has a number, which no other node of the attempt has ever had, and a place in the layout of the present start.
"""

from __future__ import annotations

import base64
import signal
import time

from . import node_link
from .first_node import SENSELESS, checked_hello
from .node_lines import NodeLines
from .node_records import check_record
from .node_run import BEAT_S, LOST_S
from .rank_variables import Layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

    from .folder import Folder
    from .node_records import NodeRecords

MOST_KILLS = 3
"""How often processes of one node may be killed, until it is left out."""

_AWAY_S = 10.0  # how long a node may be disconnected after it, or its kernel, closed the connection
_DOUBT_S = 10.0  # a node that is silent for so long may be why processes fail
_ROOM_S = 60.0  # how long to wait for room on a full disk when all ranks have ended
_KILLED = (-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGKILL, 128 + signal.SIGTERM)


class _GroupNode:
    """A node, as long as it belongs to the trial."""

    def __init__(self, hello: Dict[str, Any]) -> None:
        self.hello = hello
        self.silent_s = 0.0
        self.away_s = 0.0  # without a connection
        self.unended_s = 0.0  # since it was to end its processes
        self.place = 0  # its number in the layout of this start; 0: it is not part of it
        self.is_done = False  # its processes have ended, and their output is here
        self.kills = 0
        self.room_until = 0.0

    @property
    def host(self) -> str:
        return str(self.hello["host"])


class ElasticGroup:
    """`losses` and `failure` are those of the present start: why it cannot continue as it is."""

    def __init__(self, plan: Mapping[str, Any], folder: Folder, records: NodeRecords) -> None:
        self.lines = NodeLines(plan["secret"])
        self.members: Dict[int, _GroupNode] = {}
        self.losses: List[str] = []
        self.failure: Optional[Tuple[str, int]] = None  # how the first process has failed by itself
        self.is_through = False  # rank 0 has ended well: its result counts, and nothing starts again
        self.start = -1
        self.own_kills = 0
        self._most = int(plan["max"])
        self._ending_s = float(plan["grace_s"]) + LOST_S  # how long a node may take to end its processes
        self._is_stopping = False
        self._left: Set[int] = set()  # the numbers of those that belong to it no more
        self._layout: Optional[Layout] = None
        self._next_beat = 0.0
        self._folder = folder
        self._records = records

    @property
    def are_done(self) -> bool:
        """Whether all with a part in this start have nothing more to do, and have said so."""
        return all(member.is_done for member in self.members.values() if member.place)

    @property
    def any_waits(self) -> bool:
        """Whether there are nodes without a part in this start."""
        return not all(member.place for member in self.members.values())

    def begin(self, own: Dict[str, Any]) -> Tuple[Layout, str]:
        """Give all that are there a part in a further start. Return the layout, and the address of this node for them.

        Raises: OSError if there is no port.
        """
        numbers = sorted(self.members)
        for place, number in enumerate(numbers, 1):
            member = self.members[number]
            member.place, member.is_done, member.room_until = place, False, 0.0
            member.unended_s = 0.0
        self.start += 1
        self._is_stopping, self.losses, self.failure = False, [], None
        nodes = [own, *(self.members[number].hello for number in numbers)]
        self._layout = Layout(nodes, node_link.free_ports(1)[0])
        for number in numbers:
            self.lines.send(number, self._start_message(number))
        lines = [self.lines.get(number) for number in numbers]
        return self._layout, next((line.here for line in lines if line is not None), "127.0.0.1")

    def extend(self) -> Layout:
        """Give those that wait a part in the present start. Return the nodes that are there."""
        assert self._layout is not None
        for number, member in sorted(self.members.items()):
            if not member.place:
                member.place = len(self._layout.nodes)
                self._layout = Layout([*self._layout.nodes, member.hello], self._layout.port)
                self.lines.send(number, self._start_message(number))
        places = sorted(member.place for member in self.members.values())
        return Layout([self._layout.nodes[place] for place in (0, *places)], self._layout.port)

    def _start_message(self, number: int) -> Dict[str, Any]:
        assert self._layout is not None
        layout = {"nodes": self._layout.nodes, "port": self._layout.port, "number": self.start}
        return {"start": {**layout, "place": self.members[number].place}}

    def stop(self) -> None:
        """Tell those that still have processes of this start to end them."""
        self._is_stopping = True
        for number, member in self.members.items():
            if member.place and not member.is_done:
                self.lines.send(number, {"stop": self.start})

    def leave_out_killed(self, most: int = MOST_KILLS) -> None:
        """Continue without the nodes on which processes were killed so often."""
        for number, member in list(self.members.items()):
            if member.kills >= most:
                self.lose(number, "has had processes killed {} times".format(member.kills))

    def lose(self, number: int, why: str) -> None:
        """Continue without a node."""
        member = self.members.pop(number)
        self._left.add(number)
        self.lines.send(number, {"over": True})
        if member.place:
            self._records.lose(member.place)
            self._records.are_written = False
            if not self.is_through:
                self.losses.append("node {} ({}) {}".format(member.place, member.host, why))

    def judge(self, record: Mapping[str, Any], lines: str, member: Optional[_GroupNode] = None) -> None:
        """Take the failure of a process. `member`: where it ran; None for the first node."""
        code = record["exitCode"]
        text = "rank {} on {}: {}".format(record["rank"], record["host"], record["reason"])
        is_in_doubt = any(other.place and other.silent_s > _DOUBT_S for other in self.members.values())
        if self.is_through and (code in _KILLED or is_in_doubt):
            return
        if code in _KILLED:
            self.losses.append(text)
            self.own_kills += member is None
            if member is not None:
                member.kills += 1
        elif is_in_doubt:
            self.losses.append("{}, while a node was silent".format(text))
        elif self.failure is None:
            self.failure = ("\n".join(part for part in (text, lines) if part), code)

    def process_messages(self, lived_s: float) -> None:
        """Take new connections and messages. `lived_s`: the seconds since this was last done."""
        for number, line in self.lines.accept_connections():
            if number > 0 and self.lines.add(number, line):
                self._greet(number)
            elif number <= 0:
                line.close()
        for number, message in self.lines.read():
            try:
                self._handle_message(number, message)
            except SENSELESS as error:
                self._folder.add_to_log("a message of node {} cannot be read: {}".format(number, error))
                self.lines.drop(number)
        self._count_silence(lived_s)
        if time.monotonic() > self._next_beat:
            self._next_beat = time.monotonic() + BEAT_S
            have = {"have": self._records.sizes(), "of_start": self.start} if self._records.lacking else {}
            self.tell_all({"beat": True, **have})

    def _count_silence(self, lived_s: float) -> None:
        for number, member in list(self.members.items()):
            member.silent_s += lived_s
            member.away_s = 0.0 if number in self.lines else member.away_s + lived_s
            member.unended_s += lived_s if self._is_stopping and member.place and not member.is_done else 0.0
            if member.silent_s > LOST_S:
                self.lose(number, "was silent for {:g} s".format(LOST_S))
            elif member.away_s > _AWAY_S:
                self.lose(number, "has closed its connection")
            elif member.unended_s > self._ending_s:  # one that a disk or driver holds cannot be killed
                self.lose(number, "has not ended its processes for {:g} s".format(self._ending_s))

    def _greet(self, number: int) -> None:
        """Tell a node that has connected how things are."""
        if number in self._left:
            self.lines.send(number, {"over": True})
            return
        self.lines.send(number, {"have": self._records.sizes(), "of_start": self.start})
        if number in self.members and self.members[number].place:
            self.lines.send(number, self._start_message(number))

    def _handle_message(self, number: int, message: Mapping[str, Any]) -> None:
        """Take a message of a node, which has proven that it belongs to the trial."""
        if number in self._left:
            return
        if message.get("leaving"):
            self._dismiss(number, str(message["leaving"]))
        elif "hello" in message and number not in self.members:
            self._admit(number, checked_hello(message["hello"]))
        member = self.members.get(number)
        if member is None:
            return
        member.silent_s = 0.0
        if member.place:
            for record in message.get("ranks") or []:
                self._take(record, member)
            if message.get("start") == self.start:
                self._take_rest(message, member)

    def _take(self, message: Mapping[str, Any], member: _GroupNode) -> None:
        """Take how a process of a node is, of this start."""
        if self._layout is None or message.get("start") != self.start or message.get("node") != member.place:
            return
        record = check_record(message, self._layout, member.place)
        known = self._records.state_of(record["rank"])
        self._records.take(record)
        if record["state"] != known:
            self._records.are_written = False
            if record["state"] == "FAILED":
                self.judge(record, record["lines"], member)

    def _take_rest(self, message: Mapping[str, Any], member: _GroupNode) -> None:
        """Take output of this start, and whether there is no more of it."""
        if "output" in message and self._layout is not None:
            rank, offset, data = message["output"]
            rank = self._layout.check_rank(rank, member.place)
            self._records.add_output(rank, int(offset), base64.b64decode(data))
        if message.get("done"):
            member.room_until = member.room_until or time.monotonic() + _ROOM_S
            late = time.monotonic() > member.room_until
            member.is_done = late or not self._records.lack_output_of(member.place)

    def _admit(self, number: int, hello: Dict[str, Any]) -> None:
        if 1 + len(self.members) >= self._most or self.is_through:
            self._dismiss(number, "")
            return
        self.members[number] = _GroupNode(hello)
        self._folder.add_to_log("{} has come, as number {}".format(hello["host"], number))

    def _dismiss(self, number: int, why: str) -> None:
        if number in self.members:
            self.lose(number, why)
        else:
            self._left.add(number)
            self.lines.send(number, {"over": True})

    def tell_all(self, message: Dict[str, Any]) -> None:
        for number in self.members:
            self.lines.send(number, message)
