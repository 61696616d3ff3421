"""Running one command on a machine, over a connection. It blocks: for a thread."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paramiko.ssh_exception import SSHException

from nnilite.ssh.answer_sink import MOST_COMPLAINT_BYTES, AnswerSink
from nnilite.ssh.connect import Connection
from nnilite.ssh.errors import LinkLost, get_error_text

_OPEN_S = 15.0
_CHUNK_BYTES = 1 << 16
_LOST = -1  # paramiko's exit status for a command whose connection broke


@dataclass(frozen=True)
class CommandResult:
    """What a command has printed, and its exit status."""

    status: int
    output: bytes
    complaint: bytes


def run_command(
    connection: Connection, command: str, given: bytes | Path, limit_s: float, save: Path | None = None
) -> CommandResult:
    """Run a command of the user's shell there, with `given` (bytes, or a file's) on its standard input.

    What it prints goes to the file `save` if that is given. The command has to read its input before it prints much.
    Raises: LinkLost if the connection broke or the time was over: whether the command has run is not known then.
    """
    deadline = time.monotonic() + limit_s
    try:
        channel = connection.transport.open_session(timeout=_OPEN_S)
    except (SSHException, OSError, EOFError) as error:
        raise LinkLost(f"cannot start a command: {get_error_text(error)}") from error
    with contextlib.closing(channel):
        try:
            channel.settimeout(limit_s)
            channel.exec_command(command)
            _send(channel, given, deadline)
            output = _receive(channel, save, deadline)
            complaint = channel.makefile_stderr("rb").read(MOST_COMPLAINT_BYTES)
            status = channel.recv_exit_status()
        except TimeoutError as error:
            raise LinkLost(f"did not answer within {limit_s:.0f} s") from error
        except (SSHException, OSError, EOFError) as error:
            raise LinkLost(f"the connection broke: {get_error_text(error)}") from error
    if status == _LOST:
        raise LinkLost("the connection broke")
    return CommandResult(status, output, complaint)


def _send(channel: Any, given: bytes | Path, deadline: float) -> None:
    # A command that ends without reading closes its input; its output says why.
    with contextlib.suppress(BrokenPipeError):
        if isinstance(given, Path):
            with given.open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    _set_limit(channel, deadline)
                    channel.sendall(chunk)
        else:
            channel.sendall(given)
    with contextlib.suppress(OSError):
        channel.shutdown_write()


def _receive(channel: Any, save: Path | None, deadline: float) -> bytes:
    with contextlib.closing(AnswerSink(save)) as sink:
        while chunk := channel.recv(_CHUNK_BYTES):
            sink.add(chunk)
            _set_limit(channel, deadline)
    return sink.output


def _set_limit(channel: Any, deadline: float) -> None:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    channel.settimeout(left_s)
