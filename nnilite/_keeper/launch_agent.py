"""The program `ssh` of launchers such as mpirun, on the first node: it runs a command on another node of the trial.

It asks the first node's program, which knows it by the trial's secret and asks the other node. The command gets no
input, and its output comes as one stream. Exit codes: the command's own, or 255 as ssh if there is none.
"""

from __future__ import annotations

import base64
import os
import select
import sys
import time

from .folder import Folder
from .node_link import AGENT, Caller, LinkBroken

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

    from .node_link import NodeConnection

_NO_COMMAND = 255
_WITH_VALUE = "BDEFIJLOPQRSWbceilmopw"
"""The options of ssh that take a value, which may be the next word."""
_CALL_S = 60.0
_AGAIN_S = 0.2
_TURN_S = 10.0


def main(arguments: List[str]) -> int:
    """Run the command that ssh's arguments name, behind the folder of this node. Return the exit code."""
    folder, words = Folder(arguments[0]), arguments[1:]
    host, command = split_words(words)
    if not host or not command:
        return _fail("no host and command in {}".format(" ".join(words)))
    plan = folder.read("plan")
    if plan is None:
        return _fail("the trial is over")
    try:
        line = _call(Caller([("127.0.0.1", port) for port in plan["ports"]], plan["secret"], AGENT, "0", _idle))
        line.send({"host": host, "command": command})
        return _follow(line, command)
    except LinkBroken as error:
        return _fail(str(error))


def split_words(words: List[str]) -> Tuple[str, str]:
    """Return host and command of the arguments of ssh; "" for what is missing. ssh also takes options after the host.

    >>> split_words(["-x", "-p", "22", "me@host", "-oBatchMode=yes", "echo", "-n", "a  b"])
    ('host', 'echo -n a  b')
    """
    before = _without_options(words)
    return (before[0].rpartition("@")[2], " ".join(_without_options(before[1:]))) if before else ("", "")


def _without_options(words: List[str]) -> List[str]:
    """Return the words from the first one that is neither an option of ssh nor its value."""
    rest = list(words)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if len(option) == 2 and option[1] in _WITH_VALUE and rest:
            rest.pop(0)
    return rest


def _call(caller: Caller) -> NodeConnection:
    """Connect to the program of this node. Raises: LinkBroken."""
    left_s = _CALL_S
    while True:
        before = time.monotonic()
        line = caller.connect()
        if line is not None:
            return line
        time.sleep(_AGAIN_S)  # it takes only so many at once
        left_s -= min(time.monotonic() - before, _TURN_S)  # not the time in which this program was stopped
        if left_s < 0:
            raise LinkBroken(caller.trouble)


def _follow(line: NodeConnection, command: str) -> int:
    """Pass on what comes of the command. Return its exit code. Raises: LinkBroken."""
    while True:
        select.select([line.socket], [line.socket] if line.waiting_bytes else [], [])
        line.flush()
        for message in line.read():
            if "output" in message:
                sys.stdout.buffer.write(base64.b64decode(message["output"]))
                sys.stdout.flush()
            if "error" in message:
                return _fail(str(message["error"]))
            if message.get("here"):
                os.execv("/bin/sh", ["/bin/sh", "-c", command])
            if "code" in message:
                return int(message["code"]) % 256


def _idle() -> None:
    """Nothing waits for the connection."""


def _fail(why: str) -> int:
    sys.stderr.write("ssh of nnilite: {}\n".format(why))
    return _NO_COMMAND
