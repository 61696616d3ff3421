"""The driver of a trial on several nodes: it reserves all of them at once, and starts a keeper on each.

Its text is part of the package that Ray unpacks, and runs with the Python of the cluster's nodes, 3.8 or later. Its
only argument is a JSON object with `nodes` and `bundle`, the resources of each node.

A placement group gets all its nodes, or waits and holds none. On each is an actor, whose child becomes the keeper. The
keepers find out by themselves when a node is lost, and end the trial. What the first one prints is the log of the job.
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
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

_EVENT = "NNILITE_EVENT "
_PIECE_BYTES = 1 << 16
_READ_S = 0.5
_LAST_S = 20.0  # for the other nodes to end, once the first one has


class NodeActor:
    """One node of the trial. Its methods run in the main thread: the keeper ends with the thread that starts it."""

    def __init__(self) -> None:
        self._keeper: Optional[subprocess.Popen[bytes]] = None

    def find_addresses(self) -> List[str]:
        """Return the addresses at which other nodes may reach this one, the host's name last."""
        return [get_node_ip_address(), os.uname().nodename]

    def start(self, node: int, addresses: Sequence[str]) -> None:
        """Start the keeper. Raises: OSError."""
        # The parent tells the child who it is: if Ray kills it, the keeper gets a signal and ends the trial.
        more = {
            "NNILITE_NODE": str(node),
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


class Nodes:
    """All nodes of the trial, from their reservation to their end."""

    def __init__(self, number: int, bundle: Dict[str, float]) -> None:
        self._number, self._bundle = number, bundle
        self._actors: List[Any] = []
        self._is_told = False

    def run(self) -> int:
        """Run the trial on all nodes, and return the exit code of the first one's keeper."""
        ray.init(logging_level="ERROR", log_to_driver=False)
        told: List[int] = []
        signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
        group = placement_group([self._bundle] * self._number, strategy="STRICT_SPREAD")
        ready = group.ready()
        while not ray.wait([ready], timeout=_READ_S)[0]:
            if told:
                return 128 + signal.SIGTERM
        ray.get(ready)
        try:
            self._start(group)
        except Exception as error:  # noqa: BLE001  Ray raises whatever a node has raised
            return _report("not all nodes could be started: {}".format(_last_line(error)))
        return self._follow(told)

    def _start(self, group: Any) -> None:
        wanted = dict(self._bundle)
        plain = {
            "num_cpus": wanted.pop("CPU", 0),
            "num_gpus": wanted.pop("GPU", 0),
            "memory": wanted.pop("memory", None),
        }
        plain = {name: value for name, value in plain.items() if value is not None}
        for node in range(self._number):
            place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=node)
            made = ray.remote(NodeActor).options(scheduling_strategy=place, resources=wanted, **plain)
            self._actors.append(made.remote())
        first = ray.get(self._actors[0].find_addresses.remote())
        ray.get([actor.start.remote(node, first) for node, actor in enumerate(self._actors)])

    def _follow(self, told: List[int]) -> int:
        """Pass on what the first keeper prints until it ends."""
        while True:
            if told and not self._is_told:
                self._is_told = True
                self._actors[0].end.remote()  # which ends the trial on all nodes
            try:
                data, code = ray.get(self._actors[0].read.remote())
            except ray.exceptions.RayError as error:
                return _report("the first node was lost: {}".format(_last_line(error)))
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            if code is not None:
                break
        self._wait_for_others()
        return int(code)

    def _wait_for_others(self) -> None:
        """Let the other keepers end: Ray kills their actors when this program ends."""
        left, deadline = self._actors[1:], time.monotonic() + _LAST_S
        while left and time.monotonic() < deadline:
            time.sleep(_READ_S / 5)
            left = [actor for actor in left if not _has_ended(actor)]


def _has_ended(actor: Any) -> bool:
    try:
        return ray.get(actor.read.remote(), timeout=_LAST_S)[1] is not None
    except ray.exceptions.RayError:  # its node is gone, or stands still, which is a GetTimeoutError
        return True


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:400] if lines else type(error).__name__


def _report(said: str) -> int:
    """Report that the trial has no end of its own, as its keeper would have reported the end."""
    end = {"type": "exit", "time": time.time(), "code": None, "message": said, "cause": "machine"}
    sys.stdout.write("\n{}{}\n".format(_EVENT, json.dumps(end)))
    sys.stdout.flush()
    return 4


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    sys.exit(Nodes(settings["nodes"], settings["bundle"]).run())
