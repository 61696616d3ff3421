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
    from typing import Any, Dict, List, Mapping, Set

    from .folder import Folder

_MORE_BYTES = 500  # by which the record of a rank may grow: its state, exit code, reason and time


class NodeRecords:
    """What is kept of all ranks. `lacking`: the ranks elsewhere whose output has come and could not be written."""

    def __init__(self, folder: Folder) -> None:
        self.lacking: Set[int] = set()
        self.are_written = True
        self._folder = folder
        self._elsewhere: Dict[int, Dict[str, Any]] = {}  # records by rank
        self._path = os.path.join(folder.path, "roles.json")
        self._draft = os.path.join(folder.inner, "roles.new")

    @property
    def any_runs_elsewhere(self) -> bool:
        return any(record.get("state") == "RUNNING" for record in self._elsewhere.values())

    def take(self, record: Dict[str, Any]) -> None:
        """Take how a rank elsewhere is now, as its node says. Raises: KeyError, TypeError, ValueError."""
        self._elsewhere[int(record["rank"])] = record

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
        """Return how much of the output of a rank elsewhere is here."""
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
            file = os.open(self._log(rank), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
        entries: List[Any] = [
            {key: known[rank][key] for key in known[rank] if key != "lines"} for rank in sorted(known)
        ]
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
