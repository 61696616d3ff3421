"""The first node's connections to the others. Each has a number, and proves that it belongs to the trial."""

from __future__ import annotations

import time

from . import node_link
from .node_link import LinkBroken, NodeConnection, PendingConnection

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple


class NodeLines:
    """Takes connections of nodes, and closes those that break: the node connects again, or counts as lost."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._lines: Dict[int, NodeConnection] = {}
        self._runs: Dict[int, str] = {}
        self._pending: List[PendingConnection] = []
        self._listener: Optional[socket.socket] = None

    def open(self, ports: Sequence[int]) -> None:
        """Listen. Raises: OSError."""
        self._listener = node_link.listen(ports)

    def __contains__(self, node: int) -> bool:
        return node in self._lines

    def __bool__(self) -> bool:
        return bool(self._lines)

    def get(self, node: int) -> Optional[NodeConnection]:
        return self._lines.get(node)

    @property
    def open_lines(self) -> List[NodeConnection]:
        """All connections, those that have still to prove themselves included."""
        return [*self._lines.values(), *(pending.line for pending in self._pending)]

    @property
    def listeners(self) -> List[socket.socket]:
        return [self._listener] if self._listener else []

    def accept_connections(self) -> List[Tuple[int, NodeConnection]]:
        """Take new connections. Return those that have just proven who they are, with the numbers that they give.

        The caller takes each of them by `add`, or otherwise.
        """
        if self._listener is not None:
            node_link.accept(self._listener, self._pending, self._secret)
        proven = []
        for pending in list(self._pending):
            try:
                found = pending.proven()
            except LinkBroken:
                self._pending.remove(pending)
                pending.line.close()
                continue
            if found is not None:
                self._pending.remove(pending)
                pending.line.run = found[1]
                proven.append((found[0], pending.line))
            elif time.monotonic() >= pending.deadline:
                self._pending.remove(pending)
                pending.line.close()
        return proven

    def add(self, node: int, line: NodeConnection) -> bool:
        """Take a connection as that of a node. Return False if another program has this number."""
        if self._runs.setdefault(node, line.run) != line.run:
            line.close()
            return False
        if node in self._lines:
            self._lines[node].close()
        self._lines[node] = line
        return True

    def read(self) -> Iterator[Tuple[int, Dict[str, Any]]]:
        """Read the messages that have come, each with its node."""
        for node, line in list(self._lines.items()):
            try:
                line.flush()
                for message in line.read():
                    if self._lines.get(node) is line:  # otherwise its earlier messages could not be processed
                        yield node, message
            except LinkBroken:
                self._close(node, line)

    def drop(self, node: int) -> None:
        line = self._lines.get(node)
        if line is not None:
            self._close(node, line)

    def _close(self, node: int, line: NodeConnection) -> None:
        line.close()
        if self._lines.get(node) is line:
            del self._lines[node]

    def send(self, node: int, message: Dict[str, Any]) -> None:
        """Send a message to a node, if it is connected."""
        line = self._lines.get(node)
        if line is None:
            return
        try:
            line.send(message)
        except LinkBroken:
            self._close(node, line)
