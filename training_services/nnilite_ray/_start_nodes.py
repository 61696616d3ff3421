"""The driver of a trial on several nodes: it reserves all of them at once, and starts a keeper on each.

Its text is part of the package that Ray unpacks, and runs with the Python of the cluster's nodes, 3.8 or later. Its
only argument is a JSON object with `nodes` and `bundle`, the resources of each node; of an elastic trial `nodes` is the
fewest, and `most` is there, too.

A placement group gets all its nodes, or waits and holds none. On each is an actor, whose child becomes the keeper. The
keepers find out by themselves when a node is lost, and end the trial, or continue if it is elastic. Further nodes of an
elastic trial have actors of their own. What the first keeper prints is the log of the job.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

import ray
from ray.util import get_node_ip_address
from ray.util.placement_group import placement_group, placement_group_table
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

_EVENT = "NNILITE_EVENT "
_PIECE_BYTES = 1 << 16
_READ_S = 0.5
_LAST_S = 20.0  # time for the other nodes to end once the first one has ended
_BEGIN_S = 10.0  # for further nodes to be there at the beginning
_ASKED_S = 15.0  # for a machine to have room for one more node; then another machine is asked
_LOOK_S = 5.0
_STEADY_S = 300.0  # how long a node stays at least where nothing is wrong with its machine
_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 1800.0


class NodeActor:
    """One node of the trial. Its methods run in the main thread: the keeper ends with the thread that starts it."""

    def __init__(self) -> None:
        self._keeper: Optional[subprocess.Popen[bytes]] = None

    def find_addresses(self) -> List[str]:
        """Return the addresses at which other nodes may reach this one, the host's name last."""
        return [get_node_ip_address(), os.uname().nodename]

    def find_machine(self) -> str:
        """Return Ray's id of the machine."""
        return str(ray.get_runtime_context().get_node_id())

    def start(self, node: int, addresses: Sequence[str], count: int) -> None:
        """Start the keeper. Raises: OSError."""
        # The parent tells the child who it is: if Ray kills it, the keeper gets a signal and ends the trial.
        more = {
            "NNILITE_NODE": str(node),
            "NNILITE_NODES": str(count),
            "NNILITE_FIRST_NODE": ",".join(addresses),
            "NNILITE_PARENT": str(os.getpid()),
        }
        out = subprocess.PIPE if node == 0 else subprocess.DEVNULL
        self._keeper = subprocess.Popen(
            ["sh", "./nnilite-start"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=dict(os.environ, **more),
            start_new_session=True,
        )

    def read(self) -> Tuple[bytes, Optional[int]]:
        """Return what the first keeper has printed, after a moment at most, and its exit code once there is no more."""
        assert self._keeper is not None
        pipe = self._keeper.stdout
        if pipe is None:
            return b"", self._keeper.poll()
        code = self._keeper.poll()  # before the look at the pipe, so that nothing is left in it
        if not select.select([pipe], [], [], _READ_S)[0]:
            return b"", code
        data = os.read(pipe.fileno(), _PIECE_BYTES)
        return data, None if data else self._keeper.wait()

    def end(self) -> None:
        """Ask the keeper to end the trial."""
        if self._keeper is not None and self._keeper.poll() is None:
            self._keeper.send_signal(signal.SIGTERM)


class NodeMember:
    """A node of the trial, or one that is asked to be: its actor, and where that is to run."""

    def __init__(self, bundle: Dict[str, float], place: str, strategy: Any) -> None:
        wanted = dict(bundle)
        plain = {
            "num_cpus": wanted.pop("CPU", 0),
            "num_gpus": wanted.pop("GPU", 0),
            "memory": wanted.pop("memory", None),
        }
        plain = {name: value for name, value in plain.items() if value is not None}
        made = ray.remote(NodeActor).options(scheduling_strategy=strategy, resources=wanted, **plain)
        self.place = place
        self.machine = ""  # Ray's id of it, once it is known
        self.actor = made.remote()
        self.begun = time.monotonic()
        self._found = self.actor.find_machine.remote()
        self._look: Any = None

    def is_there(self) -> bool:
        """Return whether the actor runs. Raises: RayError if it never will."""
        if not self.machine and ray.wait([self._found], timeout=0)[0]:
            self.settle()
        return bool(self.machine)

    def settle(self) -> None:
        """Wait until the actor runs. Raises: RayError."""
        self.machine = ray.get(self._found)

    def has_ended(self) -> bool:
        """Return whether the keeper, or its machine, was seen to have ended. It waits for nothing."""
        if self._look is None:
            self._look = self.actor.read.remote()
        if not ray.wait([self._look], timeout=0)[0]:
            return False
        look, self._look = self._look, None
        try:
            return ray.get(look)[1] is not None
        except ray.exceptions.RayError:
            return True


class NodeSearch:
    """Finds further nodes for an elastic trial. One place at a time is asked, and given up if it has no room."""

    def __init__(self, bundle: Dict[str, float], most: int, group: Any, count: int) -> None:
        self._bundle, self._most = bundle, most
        # Ray moves a bundle of the group to another machine if its own is lost.
        self._bundles = {
            "bundle {}".format(number): PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)
            for number in range(1, count)
        }
        self._asked: Optional[NodeMember] = None
        self._ends: Dict[str, int] = {}  # by place: how often it was given up, or its node has ended soon
        self._until: Dict[str, float] = {}  # until when it is left alone
        self._next_look = 0.0

    def begin(self, members: Sequence[NodeMember]) -> List[NodeMember]:
        """Return members in all other places that have room now, as far as the trial may have them."""
        places = self._free_places(members)[: self._most - len(members)]
        found = [NodeMember(self._bundle, *place) for place in places]
        deadline = time.monotonic() + _BEGIN_S
        while not all(map(_is_there, found)) and time.monotonic() < deadline:
            time.sleep(_READ_S / 5)
        there = [member for member in found if _is_there(member)]
        for member in found:
            if member not in there:
                self._give_up(member)
        return there

    def look(self, members: List[NodeMember]) -> Optional[NodeMember]:
        """Take out of the members those that have ended. Return one that is to join them, if it is there."""
        for member in [one for one in members[1:] if one.has_ended()]:
            members.remove(member)
            self._give_up(member)
        if self._asked is not None:
            return self._look_at_asked(members)
        if len(members) < self._most and time.monotonic() > self._next_look:
            self._next_look = time.monotonic() + _LOOK_S
            places = [] if _do_others_wait() else self._free_places(members)
            self._asked = NodeMember(self._bundle, *places[0]) if places else None
        return None

    def _look_at_asked(self, members: Sequence[NodeMember]) -> Optional[NodeMember]:
        asked = self._asked
        assert asked is not None
        if _is_there(asked) and asked.machine not in [one.machine for one in members]:
            self._asked = None
            return asked
        if asked.machine or time.monotonic() > asked.begun + _ASKED_S:
            self._asked = None
            self._give_up(asked)
        return None

    def _free_places(self, members: Sequence[NodeMember]) -> List[Tuple[str, Any]]:
        """Return where a further node could be, that which was given up least often first."""
        taken = {name for one in members for name in (one.place, one.machine)}
        places = dict(self._bundles)
        for node in ray.nodes():
            has = node.get("Resources") or {}
            if node.get("Alive") and all(has.get(name, 0) >= amount for name, amount in self._bundle.items()):
                places[node["NodeID"]] = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        now = time.monotonic()
        free = [name for name in places if name not in taken and self._until.get(name, 0.0) < now]
        return [(name, places[name]) for name in sorted(free, key=lambda name: self._ends.get(name, 0))]

    def _give_up(self, member: NodeMember) -> None:
        """End an actor, and leave its place alone for a while: each time for longer."""
        ray.kill(member.actor)
        if time.monotonic() > member.begun + _STEADY_S:
            self._ends.pop(member.place, None)
        number = self._ends.get(member.place, 0)
        self._ends[member.place] = number + 1
        self._until[member.place] = time.monotonic() + min(_PAUSE_S * 2 ** min(number, 10), _LONGEST_PAUSE_S)


class Nodes:
    """All nodes of the trial, from their reservation to their end."""

    def __init__(self, number: int, bundle: Dict[str, float], most: int = 0) -> None:
        self._number, self._bundle, self._most = number, bundle, most
        self._members: List[NodeMember] = []
        self._growth: Optional[NodeSearch] = None
        self._addresses: List[str] = []  # addresses of the first node
        self._started = 0  # how many nodes there have been
        self._is_ending = False
        self._last_line = ""  # last, of what prevents growth
        self._is_line_whole = True  # whether the first keeper's output ends with a whole line

    def run(self) -> int:
        """Run the trial on all nodes, and return the exit code of the first one's keeper."""
        ray.init(logging_level="ERROR", log_to_driver=False)
        stop_signals: List[int] = []
        signal.signal(signal.SIGTERM, lambda number, frame: stop_signals.append(number))
        group = placement_group([self._bundle] * self._number, strategy="STRICT_SPREAD")
        ready = group.ready()
        while not ray.wait([ready], timeout=_READ_S)[0]:
            if stop_signals:
                return 128 + signal.SIGTERM
        ray.get(ready)
        try:
            self._start(group)
        except Exception as error:  # noqa: BLE001  Ray raises whatever a node has raised
            return _report("not all nodes could be started: {}".format(_last_line(error)))
        return self._follow(stop_signals)

    def _start(self, group: Any) -> None:
        for number in range(self._number):
            place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)
            self._members.append(NodeMember(self._bundle, "bundle {}".format(number), place))
        self._addresses = ray.get(self._members[0].actor.find_addresses.remote())
        if self._most > self._number:
            self._growth = NodeSearch(self._bundle, self._most, group, self._number)
            for member in self._members:
                member.settle()
            self._members += self._growth.begin(self._members)
        count = len(self._members)
        ray.get([self._start_keeper(member, count) for member in self._members])

    def _start_keeper(self, member: NodeMember, count: int) -> Any:
        """Start the keeper of a further node. `count`: with how many nodes the trial begins."""
        started = member.actor.start.remote(self._started, self._addresses, count)
        self._started += 1
        return started

    def _follow(self, stop_signals: List[int]) -> int:
        """Pass on what the first keeper prints until it ends."""
        first = self._members[0].actor
        while True:
            if stop_signals and not self._is_ending:
                self._is_ending = True
                first.end.remote()  # which ends the trial on all nodes
            try:
                data, code = ray.get(first.read.remote())
            except ray.exceptions.RayError as error:
                return _report("the first node was lost: {}".format(_last_line(error)))
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            self._is_line_whole = data.endswith(b"\n") if data else self._is_line_whole
            if code is not None:
                break
            if self._growth is not None and not self._is_ending:
                self._grow(self._growth)
        self._wait_for_others()
        return int(code)

    def _grow(self, growth: NodeSearch) -> None:
        """Take further nodes, and forget those that have ended. Whatever that raises, the trial runs on."""
        try:
            member = growth.look(self._members)
            if member is not None:
                self._start_keeper(member, len(self._members) + 1)
                self._members.append(member)
        except Exception as error:  # noqa: BLE001  Ray raises many kinds of errors
            line = "the trial cannot grow now: {}\n".format(_last_line(error))
            if line != self._last_line and self._is_line_whole:
                sys.stdout.write(line)
                sys.stdout.flush()
                self._last_line = line

    def _wait_for_others(self) -> None:
        """Let the other keepers end: Ray kills their actors when this program ends."""
        left, deadline = [member.actor for member in self._members[1:]], time.monotonic() + _LAST_S
        while left and time.monotonic() < deadline:
            time.sleep(_READ_S / 5)
            left = [actor for actor in left if not _has_ended(actor)]


def _is_there(member: NodeMember) -> bool:
    try:
        return member.is_there()
    except ray.exceptions.RayError:  # its machine is gone
        return False


def _do_others_wait() -> bool:
    """Return whether another trial of several nodes waits for them."""
    return any(group.get("state") == "PENDING" for group in placement_group_table().values())


def _has_ended(actor: Any) -> bool:
    try:
        return ray.get(actor.read.remote(), timeout=_LAST_S)[1] is not None
    except ray.exceptions.RayError:  # its node is gone, or stands still, which is a GetTimeoutError
        return True


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:400] if lines else type(error).__name__


def _report(message: str) -> int:
    """Report that the trial has no end of its own, as its keeper would have reported the end."""
    end = {"type": "exit", "time": time.time(), "code": None, "message": message, "cause": "machine"}
    sys.stdout.write("\n{}{}\n".format(_EVENT, json.dumps(end)))
    sys.stdout.flush()
    return 4


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    sys.exit(Nodes(settings["nodes"], settings["bundle"], settings.get("most", 0)).run())
