"""The manager's end of an agent's connection: starts the agent, sends it requests, and moves files through it.

An agent is this package's `_worker`, sent to the machine's Python over the command's standard input. So nothing is
installed there, and it always has the manager's version.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import queue
import secrets
import shlex
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import paramiko
from paramiko.ssh_exception import SSHException

from nnilite.records import Json
from nnilite.services.bootstrap import file_digest
from nnilite.services.keeper_events import count_values
from nnilite.ssh.errors import LinkLost, MachineError, OutcomeUnknown, RemoteFileMissing, RunsWindows, get_error_text
from nnilite_remote._worker import program

log = logging.getLogger(__name__)

_NO_PYTHON = "NNILITE-NO-PYTHON"
_USUAL_PYTHONS = ("python3", "python", "/usr/bin/python3", "/usr/local/bin/python3", "/opt/homebrew/bin/python3")
_WINDOWS_SHELL = "'exec' is not recognized as "  # message of cmd.exe and PowerShell
_HELLO_S = 30.0
_MAX_NOISE_BYTES = 1_000_000
# The largest answers are a list of files and a piece of one in base64; see `_worker.transfer` and `_worker.agent`.
_MAX_LINE_BYTES = 3_000_000
_HANDED_OVER_BYTES = 4_000_000  # in messages that the event loop has not taken yet
_MOST_VALUES = 100_000  # 10,000 files that are listed are 60,000; they are parsed within 40 ms
_LEAST_BYTES = _HANDED_OVER_BYTES // 64  # the share of a short message
_UNSENT_MOST = 1000  # messages that the machine has not taken yet; what needs no answer is left out then
_CHUNK_BYTES = 1 << 15
_WINDOW_BYTES = 1 << 21  # on its way to us at a time; the default for connections that others open is small

# One line, and no quote, backslash or exclamation mark in it: the user's shell may be any. `$f` tells what was found.
_FIND_PYTHON = (
    'n=$1; shift; for p in "$@"; do case "$p" in "~/"*) p="$HOME/${p#??}";; esac; '
    'if "$p" -I -S -c "import sys; sys.exit(sys.version_info < (3, 8))" </dev/null 2>/dev/null; then '
    'exec "$p" -I -S -c "import sys;exec(compile(sys.stdin.buffer.read(int(sys.argv[1])),sys.argv[2],sys.argv[2]))" '
    '"$n" exec; fi; v=$("$p" -V 2>&1 </dev/null) && f="$f $p is $v;"; done; '
    f'echo "{_NO_PYTHON}$f"; exit 127'
)


def pythons(python_path: str | None) -> list[str]:
    """Return where Python may be, in the order of the search."""
    if not python_path:
        return list(_USUAL_PYTHONS)
    folder = python_path.rstrip("/") or "/"
    return [f"{folder}/python3", f"{folder}/python", f"{folder}/bin/python3", f"{folder}/bin/python", folder]


def command(candidates: Sequence[str]) -> str:
    """Return the command that starts an agent on the machine, with the first suitable Python."""
    words = ["exec", "/bin/sh", "-c", _FIND_PYTHON, "nnilite", str(len(program().text)), *candidates]
    return shlex.join(words)


class AgentStream:
    """An agent's standard streams over a channel. All methods block, so they belong in a thread."""

    def __init__(self, transport: paramiko.Transport, python_path: str | None, interpreter: str = "") -> None:
        self._python_path = python_path
        self._pending = b""
        try:
            self.channel = transport.open_session(window_size=_WINDOW_BYTES, timeout=_HELLO_S)
            self.channel.settimeout(_HELLO_S)
            self.channel.exec_command(command([interpreter] if interpreter else pythons(python_path)))
        except (SSHException, OSError, EOFError) as error:
            raise LinkLost(f"cannot start a command: {get_error_text(error)}") from error

    def greet(self, settings: dict[str, Json]) -> dict[str, Any]:
        """Send the agent and its settings; return its first message. Raises: MachineError, LinkLost."""
        nonce = secrets.token_hex(8)
        settings = {**settings, "nonce": nonce, "path_front": bool(self._python_path)}
        with contextlib.suppress(LinkLost):  # if nothing listens there, its output may say why
            self.send(b"".join(program()) + json.dumps(settings).encode("ascii") + b"\n")
        return self.read_message(nonce)

    def read_message(self, nonce: str) -> dict[str, Any]:
        """Return the next message with this nonce, without what a shell prints before it. Raises: MachineError."""
        noise = b""
        while len(noise) < _MAX_NOISE_BYTES:
            line = self.line()
            if line is None:
                raise self._silence(noise)
            if nonce.encode() in line:
                answer = _parse_bounded_json(line[line.index(b"{") :])
                if "error" in answer:
                    raise (RemoteFileMissing if answer.get("missing") is True else MachineError)(str(answer["error"]))
                answer["nonce"] = nonce
                return dict(answer)
            noise += line
            if _NO_PYTHON.encode() in line:
                raise self._explain_no_python(line)
        raise MachineError("its shell prints too much before a command starts; see its profile files", lasting=True)

    def _explain_no_python(self, line: bytes) -> MachineError:
        found = line.decode("utf-8", "replace").partition(_NO_PYTHON)[2].strip(" ;\r\n")
        where = f"under pythonPath ({self._python_path})" if self._python_path else "by the usual names"
        what = f", only {found}" if found else ""
        return MachineError(
            f"has no Python 3.8 or later {where}{what}: install one there (no packages are needed), or set pythonPath",
            lasting=True,
        )

    def _silence(self, noise: bytes) -> MachineError:
        status = self.channel.recv_exit_status() if self.channel.exit_status_ready() else -1
        if status == -1:
            return LinkLost("the connection broke while the agent was started")
        output = (noise + self.errors()).decode("utf-8", "replace").strip()[-500:]
        if _WINDOWS_SHELL in output:
            return RunsWindows()
        return MachineError(f"its command ended with exit code {status}: {output or 'no output'}")

    def errors(self) -> bytes:
        """Return the standard error so far."""
        data = b""
        while self.channel.recv_stderr_ready() and len(data) < _MAX_NOISE_BYTES:
            data += self.channel.recv_stderr(_CHUNK_BYTES)
        return data

    def line(self) -> bytes | None:
        """Return the next line, None at the end, or without a complete one. Raises: LinkLost."""
        line = bytearray(self._pending)
        looked = 0
        while (end := line.find(b"\n", looked)) < 0:
            looked = len(line)
            data = self.read()
            if not data or len(line) > _MAX_LINE_BYTES:
                return None
            line += data
        self._pending = bytes(line[end + 1 :])
        return bytes(line[: end + 1])

    def read(self) -> bytes:
        """Return the next bytes; none at the end. Raises: LinkLost."""
        try:
            return bytes(self.channel.recv(_CHUNK_BYTES))
        except (OSError, EOFError) as error:
            raise LinkLost("the connection is silent") from error

    def rest(self) -> bytes:
        """Return what was read beyond the last line."""
        data, self._pending = self._pending, b""
        return data

    def has_ended_well(self) -> bool:
        """Return whether the agent has ended by itself."""
        return bool(self.channel.status_event.wait(_HELLO_S) and self.channel.recv_exit_status() == 0)

    def close(self) -> None:
        """Close the channel without waiting, even if the connection is broken already."""
        with contextlib.suppress(OSError, EOFError, SSHException):
            self.channel.close()

    def send(self, data: bytes) -> None:
        """Send bytes to the agent. Raises: LinkLost."""
        try:
            self.channel.sendall(data)
        except (OSError, EOFError) as error:
            raise LinkLost(f"the connection broke: {get_error_text(error)}") from error


class AgentLink:
    """A serving agent: requests from the event loop, answers back to it. One thread reads, one writes."""

    def __init__(self, stream: AgentStream, ended: Callable[[], None], heard: Callable[[Json], None]) -> None:
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._ended = ended  # called once, on the loop, when the connection has broken
        self._heard = heard  # called on the loop for what the agent says unasked
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._over = False
        # A machine that says more than is taken has to wait, so that its messages do not pile up here.
        self._handing_over = _HandingOver()
        stream.channel.settimeout(None)  # broken links are noticed by pings, which close the connection
        for work in (self._read, self._write):
            threading.Thread(target=work, name="agent link", daemon=True).start()

    async def ask(self, do: str, timeout_s: float, **more: Json) -> Any:
        """Ask the agent; return its answer.

        Raises: LinkLost, also if the answer does not come in time; MachineError if the agent refuses.
        """
        if self._over:
            raise LinkLost("the connection is broken")
        self._number += 1
        number, answer = self._number, self._loop.create_future()
        self._waiting[number] = answer
        self._outbox.put(json.dumps({"id": number, "do": do, **more}).encode("ascii") + b"\n")
        try:
            return await asyncio.wait_for(answer, timeout_s)
        except asyncio.TimeoutError:
            raise LinkLost(f"did not answer within {timeout_s:g} s") from None
        finally:
            self._waiting.pop(number, None)

    def tell(self, do: str, **more: Json) -> None:
        """Send the agent a message without an answer. It is lost if the connection breaks, or accepts nothing."""
        if self._outbox.qsize() > _UNSENT_MOST:
            log.debug("the agent does not accept messages; dropped: %s", do)
            return
        self._outbox.put(json.dumps({"id": 0, "do": do, **more}).encode("ascii") + b"\n")

    def close(self) -> None:
        """End the agent; keepers continue."""
        self._outbox.put(None)

    def _write(self) -> None:
        try:
            while (data := self._outbox.get()) is not None:
                self._stream.send(data)
            self._stream.channel.shutdown_write()
        except (LinkLost, OSError, EOFError) as error:
            log.debug("nothing can be sent any more: %s", error)
            self._stream.close()

    def _read(self) -> None:
        try:
            while (line := self._stream.line()) is not None and self._handing_over.begin(len(line)):
                self._call(self._handle_message, _parsed(line), len(line))
        except (LinkLost, ValueError, RecursionError) as error:
            log.debug("the connection ended: %s", error)
        finally:
            self._stream.close()  # the other end does not talk like an agent
            self._call(self._finish)

    def _call(self, what: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what, *arguments)

    def _handle_message(self, message: dict[str, Any], size: int) -> None:
        self._handing_over.end(size)
        if "event" in message:
            self._heard(message)
            return
        answer = self._waiting.get(message["id"])
        if answer is None or answer.done():
            return
        if "error" in message:
            kind = OutcomeUnknown if message.get("unsure") is True else MachineError
            answer.set_exception(kind(str(message["error"]), lasting=message.get("lasting") is True))
        else:
            answer.set_result(message["ok"])

    def _finish(self) -> None:
        self._over = True
        self._outbox.put(None)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(LinkLost("the connection broke"))
        self._ended()


class _HandingOver:
    """Counts the bytes of messages on their way from the reading thread to the event loop."""

    def __init__(self) -> None:
        self._size = 0
        self._changed = threading.Condition()

    def begin(self, size: int) -> bool:
        """Wait until there is room for a message, and count it. Return False if that takes too long."""
        share = max(size, _LEAST_BYTES)
        with self._changed:
            has_room = self._changed.wait_for(lambda: self._size + share <= _HANDED_OVER_BYTES, _HELLO_S)
            self._size += share if has_room else 0
        return has_room

    def end(self, size: int) -> None:
        """Note that the event loop has received a message."""
        with self._changed:
            self._size -= max(size, _LEAST_BYTES)
            self._changed.notify()


def _parse_bounded_json(line: bytes) -> Any:
    """Parse a line, unless it has too many values. Raises: ValueError, RecursionError.

    The parser lets no other thread run before it is through with a line, and a value may take a hundred times the
    memory of its text.
    """
    if count_values(line) > _MOST_VALUES:
        raise ValueError("a message with too many values")
    return json.loads(line)


def _parsed(line: bytes) -> dict[str, Any]:
    """Return a message of an agent. Raises: ValueError, RecursionError."""
    message = _parse_bounded_json(line)
    is_event = isinstance(message, dict) and isinstance(message.get("event"), str)
    is_answer = isinstance(message, dict) and type(message.get("id")) is int and ("ok" in message or "error" in message)
    if not is_event and not is_answer:
        raise ValueError(f"this is not a message of an agent: {line[:80]!r}")
    return dict(message)


def upload(stream: AgentStream, settings: dict[str, Json], source: Path, progress: Callable[[float], None]) -> None:
    """Copy a file into the machine's cache, unless it exists there. Raises: MachineError, LinkLost, OSError."""
    size = source.stat().st_size
    settings = {**settings, "mode": "receive", "size": size, "sha256": file_digest(source)}
    answer = stream.greet(settings)
    if answer.get("done"):
        return
    stream.channel.settimeout(_HELLO_S)
    sent = int(answer["offset"])
    if sent:
        log.info("resuming the upload of %s at %d of %d MB", source.name, sent >> 20, size >> 20)
    with source.open("rb") as file:
        file.seek(sent)
        while chunk := file.read(1 << 18):
            try:
                stream.send(chunk)
            except LinkLost:  # or the machine has said why it takes no more
                stream.read_message(answer["nonce"])
                raise
            sent += len(chunk)
            progress(sent / size)
    stream.read_message(answer["nonce"])


def fetch(stream: AgentStream, settings: dict[str, Json]) -> str:
    """Have the machine get the code from the storage. Return why it cannot, or "". Raises: MachineError, LinkLost."""
    answer = stream.greet({**settings, "mode": "fetch"})
    while "trouble" not in answer:
        answer = stream.read_message(answer["nonce"])
    return str(answer["trouble"])
