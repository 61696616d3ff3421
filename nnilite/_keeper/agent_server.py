"""The first node's side of launchers' commands for other nodes: see `launch_agent`.

Commands have numbers. What a node has to run and what has come of it are sent as they are, and not what has changed, so
a message may be sent again when a connection breaks.
"""

from __future__ import annotations

import base64

from .launcher import name_nodes
from .node_link import LinkBroken

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Sequence

    from .node_link import NodeConnection


_NOT_FOUND = 127  # what a shell says of a program that it does not find


class _Command:
    def __init__(self, node: int, text: str, line: NodeConnection) -> None:
        self.node = node
        self.text = text
        self.line: Optional[NodeConnection] = line  # None once the agent is gone, or has its answer
        self.received = 0


class AgentServer:
    """Takes commands of agents, and brings them what nodes say of these.

    `changed` has the nodes for which there is something new.
    """

    def __init__(self) -> None:
        self.names: Dict[str, int] = {}  # node numbers by the names that the launcher uses
        self.changed: set[int] = set()
        self.lacking: Optional[int] = None  # the node on which a program of the launcher was not found
        self._commands: Dict[int, _Command] = {}
        self._asking: List[NodeConnection] = []

    def name(self, nodes: Sequence[Dict[str, Any]], addresses: Sequence[str]) -> None:
        """Give each node of a layout a name for the launcher."""
        for number, name in enumerate(name_nodes(addresses, [str(node["host"]) for node in nodes])):
            nodes[number]["name"] = name
            self.names[name] = number

    @property
    def lines(self) -> List[NodeConnection]:
        found = [command.line for command in self._commands.values() if command.line is not None]
        return [*self._asking, *found]

    def accept_agent(self, line: NodeConnection) -> None:
        """Take an agent, which has proven that it belongs to the trial."""
        self._asking.append(line)

    def process_messages(self) -> None:
        """Take what agents say, and see which of them have gone."""
        for line in list(self._asking):
            try:
                line.flush()
                messages = line.read()
                if messages:
                    self._asking.remove(line)
                    self._take(line, str(messages[0].get("host")), str(messages[0].get("command")))
            except LinkBroken:
                if line in self._asking:
                    self._asking.remove(line)
                line.close()
        for command in self._commands.values():
            if command.line is None:
                continue
            try:
                command.line.flush()
                command.line.read()
            except LinkBroken:
                self._drop(command)

    def _take(self, line: NodeConnection, host: str, text: str) -> None:
        """Take a command of an agent. Raises: LinkBroken."""
        node = self.names.get(host)
        if node is None:
            line.send({"error": "{} is not a node of this trial; its nodes are {}".format(host, ", ".join(self.names))})
        elif node == 0:
            line.send({"here": True})
        else:
            self._commands[len(self._commands)] = _Command(node, text, line)
            self.changed.add(node)
            return
        line.close()

    def _drop(self, command: _Command) -> None:
        if command.line is not None:
            command.line.close()
            command.line = None
            self.changed.add(command.node)

    def wanted(self, node: int) -> Dict[int, Optional[str]]:
        """Return the commands of a node by number; None for one whose agent has gone."""
        return {
            number: command.text if command.line is not None else None
            for number, command in self._commands.items()
            if command.node == node
        }

    def received(self, node: int) -> Dict[int, int]:
        """Return how much of the output of a node's commands has come."""
        return {number: command.received for number, command in self._commands.items() if command.node == node}

    def add_output(self, node: int, number: int, offset: int, data: bytes) -> None:
        """Pass a piece of output on to the agent."""
        command = self._find(node, number)
        new = data[max(0, command.received - offset) :] if command and offset <= command.received else b""
        if command is not None and new:
            command.received += len(new)
            self._answer(command, {"output": base64.b64encode(new).decode("ascii")})

    def note_states(self, node: int, states: Mapping[str, Any]) -> None:
        """Take the exit codes of a node's commands, which come after all of their output."""
        for name, code in states.items():
            command = self._find(node, int(name))
            if command is not None and command.line is not None and code is not None:
                if int(code) == _NOT_FOUND:
                    self.lacking = node
                self._answer(command, {"code": int(code) if int(code) >= 0 else 128 - int(code)})
                self._drop(command)

    def _find(self, node: int, number: int) -> Optional[_Command]:
        command = self._commands.get(number)
        return command if command is not None and command.node == node else None

    def _answer(self, command: _Command, message: Dict[str, Any]) -> None:
        if command.line is None:
            return
        try:
            command.line.send(message)
        except LinkBroken:
            self._drop(command)
