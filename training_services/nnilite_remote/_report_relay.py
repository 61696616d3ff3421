"""Passes reports from an agent's connection on to the manager, through the manager's own socket.

See `nnilite_remote._worker.report_socket`. A line goes to the manager unchanged: it holds the token of its job, and the
manager checks it like a report of a keeper on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from nnilite.records import Json
from nnilite.services.callback_address import SparseLog, connect_to_socket

log = logging.getLogger(__name__)

_ANSWER_S = 25.0  # less than a keeper waits for it
_MOST_BYTES = 1_000_000
_MOST_AT_ONCE = 256

_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ReportRelay:
    """The relay of one machine. `send_answer(caller, line)` sends an answer to its agent; "" means: use the tunnel."""

    def __init__(self, path: Path, send_answer: Callable[[int, str], None]) -> None:
        self._path = path
        self._send_answer = send_answer
        self._free: list[_Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._oddities = SparseLog()

    def pass_on(self, message: Json) -> None:
        """Pass on an agent's `{"event": "report", ...}`."""
        caller, line = message.get("caller"), message.get("line")
        if type(caller) is not int or type(line) is not str:
            more = self._oddities.more("report")
            if more is not None:
                log.warning("an agent sent an invalid report%s", more)
            return
        if len(line) > _MOST_BYTES or not line.isascii() or "\n" in line or len(self._tasks) >= _MOST_AT_ONCE:
            self._send_answer(caller, "")
            return
        task = asyncio.get_running_loop().create_task(self._pass_on(caller, line))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, caller: int, line: str) -> None:
        answer = ""
        try:
            answer = await asyncio.wait_for(self._ask(line), _ANSWER_S)
        except (OSError, ValueError, asyncio.TimeoutError, asyncio.IncompleteReadError) as error:
            log.debug("the manager's socket does not answer: %r", error)
        self._send_answer(caller, answer)

    async def _ask(self, line: str) -> str:
        """Send a report and return the manager's answer. Raises: OSError, ValueError, IncompleteReadError."""
        reader, writer = self._free.pop() if self._free else await self._connect()
        try:
            writer.write(line.encode("ascii") + b"\n")
            await writer.drain()
            answer = await reader.readuntil(b"\n")
        except BaseException:  # also when it takes too long: a later answer must not be taken for that of the next
            writer.close()
            raise
        self._free.append((reader, writer))
        return answer.decode("ascii").rstrip("\n")

    async def _connect(self) -> _Connection:
        return await asyncio.open_unix_connection(sock=connect_to_socket(self._path))

    def close(self) -> None:
        """Close the connections."""
        for task in self._tasks:
            task.cancel()
        while self._free:
            with contextlib.suppress(OSError):
                self._free.pop()[1].close()
