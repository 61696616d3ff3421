"""The records and the output of all ranks, in the folder of the first node.

A full disk loses nothing of them. Output that another node has sent, and that cannot be written, is asked for again.
The records always have room on the disk for their next state, as the end of a trial has.
"""

from __future__ import annotations

import json
import os
import stat
import time

from . import plain_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Set

    from .folder import Folder
    from .rank_variables import Layout

_MOST_EARLIER = 2000
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # the trial may have put a pipe there
_NOT_KEPT = ("lines", "age_s")  # fields that a node reports for a rank and that are not kept
_MOST_CHARS, _MOST_LINES_CHARS = 1000, 100_000
_MORE_BYTES = 500  # how much the record of a rank may grow: by its state, exit code, reason and time


def check_record(message: Any, layout: Layout, node: Optional[int]) -> Dict[str, Any]:
    """Return the record that a node sends of one of its ranks. Raises: KeyError, TypeError, ValueError.

    A node may be under the control of a stranger, so its record has to be about a rank of its own, and only known
    fields are taken from it. `node`: its place in the layout; None where the launcher decides which ranks run there.
    """
    if not isinstance(message, dict):
        raise TypeError("a record has to be an object")
    rank, code = layout.check_rank(message["rank"], node), message["exitCode"]
    if not (code is None or (type(code) is int and abs(code) < 1 << 31)):
        raise TypeError("it has no exit code")
    record: Dict[str, Any] = {name: str(message[name])[:_MOST_CHARS] for name in ("host", "state", "reason")}
    record.update(rank=rank, node=int(message["node"]), role="rank", reports=rank == 0, exitCode=code)
    record.update({name: None if message[name] is None else _finite(message[name]) for name in ("started", "ended")})
    record["log"] = "rank-{}.log".format(rank) if rank else None
    if "start" in message:
        record["start"] = int(message["start"])
    return dict(
        record, lines=str(message.get("lines") or "")[-_MOST_LINES_CHARS:], age_s=_finite(message.get("age_s") or 0.0)
    )


def _finite(value: Any) -> float:
    number = float(value)
    if number - number != 0.0:
        raise ValueError("a time must be finite")
    return number


class NodeRecords:
    """What is kept of all ranks. `lacking`: the ranks elsewhere whose output has come and could not be written."""

    def __init__(self, folder: Folder) -> None:
        self.lacking: Set[int] = set()
        self.are_written = True
        self._folder = folder
        self._elsewhere: Dict[int, Dict[str, Any]] = {}  # records by rank
        self._earlier: List[Dict[str, Any]] = []  # records of earlier starts of an elastic trial
        self._bases: Dict[int, int] = {}  # how much output of earlier starts the log of a rank has
        self._path = os.path.join(folder.path, "roles.json")
        self._draft = os.path.join(folder.inner, "roles.new")

    @property
    def any_runs_elsewhere(self) -> bool:
        return any(record.get("state") == "RUNNING" for record in self._elsewhere.values())

    def begin_start(self, own: Mapping[int, Dict[str, Any]], max_output_bytes: int) -> None:
        """Keep the records of the ranks that have ended, before others begin. `own`: those on this node."""
        known = {**self._elsewhere, **own}
        self._earlier = [*self._earlier, *(known[rank] for rank in sorted(known))][-_MOST_EARLIER:]
        self._elsewhere, self.lacking, self._bases = {}, set(), {}
        place = os.path.join(self._folder.path, "roles")
        for name in os.listdir(place) if os.path.isdir(place) else []:
            rank = name[len("rank-") : -len(".log")]
            if name != "rank-{}.log".format(rank) or not rank.isdecimal() or int(rank) in own:
                continue
            if 0 < max_output_bytes < self._written(int(rank)):  # there must be an end to it
                os.unlink(os.path.join(place, name))
            self._bases[int(rank)] = self._written(int(rank))

    def state_of(self, rank: int) -> object:
        """Return the last known state of a rank elsewhere; None if nothing is known of it."""
        return self._elsewhere.get(rank, {}).get("state")

    def take(self, record: Dict[str, Any]) -> None:
        """Take how a rank elsewhere is now, as `check_record` returns it."""
        self._elsewhere[record["rank"]] = record

    def lose(self, node: int) -> None:
        """Note that a node was lost with its ranks."""
        for record in self._elsewhere.values():
            if record.get("node") == node and record.get("state") == "RUNNING":
                record.update(state="LOST", reason="its node was lost", ended=time.time())

    def lack_output_of(self, node: int) -> bool:
        """Return whether output of a node's ranks could not be written."""
        return any(self._elsewhere.get(rank, {}).get("node") == node for rank in self.lacking)

    def sizes(self) -> Dict[str, int]:
        """Return how much of the output of each rank elsewhere is here."""
        return {str(rank): self.size(rank) for rank in self._elsewhere}

    def size(self, rank: int) -> int:
        """Return how much of the output of a rank elsewhere is here, since it was last started."""
        return max(0, self._written(rank) - self._bases.get(rank, 0))

    def _written(self, rank: int) -> int:
        try:
            facts = os.lstat(self._log(rank))
        except OSError:
            return 0
        return facts.st_size if stat.S_ISREG(facts.st_mode) else 0

    def add_output(self, rank: int, offset: int, data: bytes) -> None:
        """Write a piece of output of a rank elsewhere, unless what comes before it is missing."""
        try:
            if offset > self.size(rank):
                self.lacking.add(rank)
                return
            offset += self._bases.get(rank, 0)
            file = os.open(self._log(rank), _FLAGS, 0o600)
            try:
                while data:
                    written = os.pwrite(file, data, offset)
                    offset, data = offset + written, data[written:]
            finally:
                os.close(file)
            self.lacking.discard(rank)
        except OSError as error:
            if rank not in self.lacking:
                self._folder.add_to_log("output of rank {} cannot be written now: {}".format(rank, error))
            self.lacking.add(rank)

    def write(self, own: Mapping[int, Dict[str, Any]]) -> None:
        """Write the records of all ranks. If that fails, it can be tried again. `own`: those of ranks on this node."""
        known = {**self._elsewhere, **own}
        records = [*self._earlier, *(known[rank] for rank in sorted(known))]
        entries: List[Any] = [{key: record[key] for key in record if key not in _NOT_KEPT} for record in records]
        content = json.dumps(entries, indent=1).encode("ascii")
        try:
            plain_file.write(self._draft, content, flags=0, cut_at=len(content))
            os.replace(self._draft, self._path)
        except OSError as error:
            if self.are_written:
                self._folder.add_to_log("{} cannot be written now: {}".format(self._path, error))
            self.are_written = False
            return
        self.are_written = True
        try:
            plain_file.write(self._draft, b" " * (len(content) + _MORE_BYTES * len(entries)))
        except OSError:  # the next state has to find room itself
            return

    def close(self) -> None:
        """Give back the room for a next state."""
        try:
            os.unlink(self._draft)
        except OSError:
            return

    def _log(self, rank: int) -> str:
        return os.path.join(self._folder.path, "roles", "rank-{}.log".format(rank))
