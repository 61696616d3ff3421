"""The child process of the tuner host: its start, the lines to and from it, and its end.

What counts is the process itself, and not who holds its connection: the user's code may fork processes that survive
with all that they have inherited. So its end is awaited, and then the connection is shut and its group is killed. Its
successor gets another connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from asyncio.subprocess import DEVNULL
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from nnilite._keeper import exit_code
from nnilite._logging.log_file import open_log
from nnilite._tuner_host import LONGEST_LINE
from nnilite.records import find_error_line
from nnilite.services.module_command import module_command

_CLOSE_TIMEOUT_S = 5.0
_LAST_WORDS_BYTES = 2000


class TunerPlace:
    """Where a process of the tuner of the experiment in a folder works, and what it is told of that."""

    def __init__(self, directory: Path) -> None:
        self.logs = directory / "log"
        self.log = self.logs / "tuner.log"
        self.environment: Mapping[str, str] = {
            "NNI_CHECKPOINT_DIRECTORY": str(directory / "checkpoint"),
            "NNI_LOG_DIRECTORY": str(self.logs),
        }

    def open_log(self) -> IO[bytes]:
        """Open the log to append to it. Raises: OSError."""
        log = os.fdopen(open_log(self.log), "ab")
        log.seek(0, os.SEEK_END)
        return log


class StartedProcess(Protocol):
    """What the tuner host needs of a process: asyncio's have it."""

    @property
    def pid(self) -> int: ...

    async def wait(self) -> int:
        """Await its end. Return its exit code, or minus the signal that ended it."""
        ...


class TunerProcess:
    """A process that can hold a tuner and an assessor, and holds none at first."""

    def __init__(
        self,
        process: StartedProcess,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        log: Path,
        log_start: int,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._log = log
        self._log_start = log_start  # where in the log its words begin
        self._watch = asyncio.create_task(self._await_end())

    @classmethod
    async def start(cls, directory: Path) -> TunerProcess:
        """Start the process for the experiment in a folder. Raises: OSError."""
        ours, theirs = socket.socketpair()
        command = module_command("nnilite._tuner_host.child", str(theirs.fileno()))
        place = TunerPlace(directory)
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours, limit=LONGEST_LINE)
            try:
                with place.open_log() as out:
                    log_start = out.tell()
                    process = await asyncio.create_subprocess_exec(
                        *command,
                        stdin=DEVNULL,
                        stdout=out,
                        stderr=out,
                        pass_fds=[theirs.fileno()],
                        cwd=place.logs,
                        env={**os.environ, **place.environment},
                        # In a session of its own it gets no Ctrl-C from a terminal, which the manager has to handle.
                        start_new_session=True,
                    )
            except BaseException:
                writer.close()
                raise
        return cls(process, reader, writer, place.log, log_start)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def send(self, lines: Sequence[bytes]) -> None:
        """Send lines. Raises: OSError if no process is there to take them."""
        self._writer.write(b"".join(line + b"\n" for line in lines))
        await self._writer.drain()

    async def line(self) -> bytes:
        """Return the next line from it, which has no end if the process ended.

        Raises: OSError, ValueError if too long.
        """
        return await self._reader.readline()

    async def end(self) -> None:
        """Kill the process with all that it has started, unless it has ended, and drop the connection."""
        self._writer.close()
        if not self._watch.done():
            self._kill_group()
        await asyncio.wait([self._watch], timeout=_CLOSE_TIMEOUT_S)

    async def exit_word(self) -> str:
        """Return how it has ended; "" if it has not."""
        with contextlib.suppress(asyncio.TimeoutError):
            code = await asyncio.wait_for(self._process.wait(), _CLOSE_TIMEOUT_S)
            return f" ({exit_code.sentence(code)})"
        return ""

    def last_words(self) -> str:
        """Return what it has written last of an error, or at all; "" if it has written nothing."""
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - _LAST_WORDS_BYTES))
            return find_error_line(log.read(_LAST_WORDS_BYTES).decode(errors="replace"))
        return ""

    async def _await_end(self) -> None:
        """End the connection and the group with the process, whichever processes still have them."""
        await self._process.wait()
        self._kill_group()
        # What it has written can still be read; what others write to it from now on is refused by the system.
        link = self._writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            link.shutdown(socket.SHUT_RDWR)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
