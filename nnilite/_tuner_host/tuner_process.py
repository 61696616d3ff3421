"""The child process of the tuner host: its start, the lines to and from it, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Sequence
from pathlib import Path

_CLOSE_TIMEOUT_S = 5.0
_LONGEST_LINE = 1 << 28


class TunerProcess:
    """A process that can hold a tuner and an assessor, and holds none at first."""

    def __init__(self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, directory: Path) -> TunerProcess:
        """Start it for the experiment in a folder. Raises: OSError."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "nnilite._tuner_host.child", str(theirs.fileno())]
        logs = directory / "log"
        about = {"NNI_CHECKPOINT_DIRECTORY": str(directory / "checkpoint"), "NNI_LOG_DIRECTORY": str(logs)}
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours, limit=_LONGEST_LINE)
            try:
                with (logs / "tuner.log").open("ab") as out:
                    process = await asyncio.create_subprocess_exec(
                        *command,
                        stdin=DEVNULL,
                        stdout=out,
                        stderr=out,
                        pass_fds=[theirs.fileno()],
                        cwd=logs,
                        env={**os.environ, **about},
                        # In a session of its own it gets no Ctrl-C from a terminal, which the manager has to handle.
                        start_new_session=True,
                    )
            except BaseException:
                writer.close()
                raise
        return cls(process, reader, writer)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def send(self, lines: Sequence[bytes]) -> None:
        """Raises: OSError if nobody is there to take them."""
        self._writer.write(b"".join(line + b"\n" for line in lines))
        await self._writer.drain()

    async def line(self) -> bytes:
        """The next line from it, which has no end if the process ended. Raises: OSError, ValueError if too long."""
        return await self._reader.readline()

    async def end(self) -> None:
        """Kill it, unless it has ended, and drop the connection."""
        self._writer.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._process.wait(), _CLOSE_TIMEOUT_S)

    async def exit_word(self) -> str:
        """How it has ended; "" if it has not."""
        with contextlib.suppress(asyncio.TimeoutError):
            code = await asyncio.wait_for(self._process.wait(), _CLOSE_TIMEOUT_S)
            return f" by signal {-code}" if code < 0 else f" with exit code {code}"
        return ""
