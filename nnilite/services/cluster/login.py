"""The machine where the scheduler's commands are run: this one, or a login node that is reached by SSH.

All that is done there is done by one thing, a shell command with standard input and output: it needs nothing there but
the scheduler and the usual programs. A command gets its arguments as words, so that nothing of them is read by a shell.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shlex
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nnilite.errors import ConfigError, Place, ServiceError
from nnilite.ssh.answer_sink import MOST_COMPLAINT_BYTES, AnswerSink
from nnilite.ssh.errors import MachineError
from nnilite.ssh.settings import SshMachine, SshSettings

if TYPE_CHECKING:
    from nnilite.ssh.connect import Connection

USUAL_S = 30.0
TRANSFER_S = 1800.0
_THREADS = 5  # one of them watches for the ends of trials
_DRAIN_S = 5.0
_CHUNK_BYTES = 1 << 18


@dataclass(frozen=True, kw_only=True)
class LoginConfig(SshSettings, SshMachine):
    """The login node, where the commands of the scheduler are run."""


@dataclass(frozen=True)
class ShellAnswer:
    """What a command has printed, and its exit status."""

    status: int
    output: bytes
    complaint: str

    @property
    def text(self) -> str:
        """Return its output as text."""
        return self.output.decode("utf-8", "replace")

    @property
    def reason(self) -> str:
        """Return its complaint, in one line."""
        return " ".join(self.complaint.split()) or ("no answer" if self.status == 124 else f"exit status {self.status}")


class LoginHost(ABC):
    """Runs shell commands where the scheduler is. Methods are for the event loop.

    `programs` is the folder of the scheduler's commands there, if PATH lacks it. `before` are shell commands that come
    before each script.
    """

    title: str
    is_remote = True

    def __init__(self, programs: str | None, before: Sequence[str] = ()) -> None:
        path = "" if programs is None else f"PATH={shlex.quote(programs)}:$PATH; export PATH\n"
        self._front = path + "".join(f"{{\n{command}\n}} >/dev/null 2>&1 </dev/null\n" for command in before)

    @abstractmethod
    async def run(
        self, script: str, *words: str, given: bytes | Path = b"", limit_s: float = USUAL_S, save: Path | None = None
    ) -> ShellAnswer:
        """Run a shell script with these words as $1, $2, ... `given` is its standard input.

        What it prints goes to the file `save` if that is given, as long as the disk has room; else it is held, up to
        64 MB. It has to read its input before it prints much.
        Raises: ServiceError if the machine does not answer, or says too much: whether the script has run is not known
        then.
        """

    async def close(self) -> None:
        """Let the machine go."""


class ThisMachine(LoginHost):
    """The scheduler is here. Its commands get this environment; None: that of this process."""

    title = "this machine"
    is_remote = False

    def __init__(
        self, programs: str | None, environment: Mapping[str, str] | None = None, before: Sequence[str] = ()
    ) -> None:
        super().__init__(programs, before)
        self._environment = environment

    async def run(
        self, script: str, *words: str, given: bytes | Path = b"", limit_s: float = USUAL_S, save: Path | None = None
    ) -> ShellAnswer:
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(given.open("rb")) if isinstance(given, Path) else asyncio.subprocess.PIPE
            sink = AnswerSink(save)
            stack.callback(sink.close)
            try:
                process = await asyncio.create_subprocess_exec(
                    *("/bin/sh", "-c", self._front + script, "nnilite", *words),
                    stdin=source,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    env=dict(os.environ if self._environment is None else self._environment),
                    start_new_session=True,
                )
            except OSError as error:  # no free process or file descriptor at the moment
                raise ServiceError(f"no command can be started now: {error.strerror or error}") from error
            try:
                data = given if isinstance(given, bytes) else None
                complaint = await asyncio.wait_for(_talk(process, data, sink), limit_s)
            except asyncio.TimeoutError:
                raise ServiceError(f"a command did not answer within {limit_s:.0f} s") from None
            finally:
                if process.returncode is None:
                    _kill(process)
                    await _drain(process)
        return ShellAnswer(process.returncode or 0, sink.output, complaint.decode("utf-8", "replace"))


async def _talk(process: asyncio.subprocess.Process, given: bytes | None, sink: AnswerSink) -> bytes:
    """Give a process its input and take what it prints. Return its complaints. Raises: ServiceError, OSError."""
    complaint = bytearray()

    def complain(piece: bytes) -> None:
        complaint.extend(piece[: MOST_COMPLAINT_BYTES - len(complaint)])

    troubles = await asyncio.gather(
        _give(process, given),
        _read_output(process, process.stdout, sink.add),
        _read_output(process, process.stderr, complain),
    )
    await process.wait()
    for trouble in troubles:
        if trouble is not None:
            raise trouble
    return bytes(complaint)


async def _give(process: asyncio.subprocess.Process, data: bytes | None) -> None:
    """Send the input. A process that ends without reading has said why."""
    if process.stdin is None:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(data or b"")
        await process.stdin.drain()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.close()
        await process.stdin.wait_closed()


async def _read_output(
    process: asyncio.subprocess.Process, stream: asyncio.StreamReader | None, take: Callable[[bytes], None]
) -> ServiceError | OSError | None:
    """Read the output to its end. If it cannot be stored, kill the process, and return why."""
    trouble: ServiceError | OSError | None = None
    while stream is not None and (piece := await stream.read(_CHUNK_BYTES)):
        if trouble is None:
            try:
                take(piece)
            except (ServiceError, OSError) as error:
                trouble = error
                _kill(process)
    return trouble


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Wait for the end of a killed process, which asyncio notices only once its output was read."""
    with contextlib.suppress(asyncio.TimeoutError):
        for stream in (process.stdout, process.stderr):
            await asyncio.wait_for(_read_output(process, stream, lambda piece: None), _DRAIN_S)
        await asyncio.wait_for(process.wait(), _DRAIN_S)


class SshLogin(LoginHost):
    """The scheduler is on a machine that is reached by SSH. The next command replaces a connection that broke."""

    def __init__(self, config: LoginConfig, programs: str | None, before: Sequence[str] = ()) -> None:
        super().__init__(programs, before)
        self.title = config.title
        self._config = config
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix=f"ssh {config.title}")
        self._connecting = asyncio.Lock()
        self._connection: Connection | None = None

    async def run(
        self, script: str, *words: str, given: bytes | Path = b"", limit_s: float = USUAL_S, save: Path | None = None
    ) -> ShellAnswer:
        from nnilite.ssh.commands import run_command
        from nnilite.ssh.errors import LinkLost

        connection = await self._ensure_connected()
        # What the user's own shell prints before is cut off.
        begin = secrets.token_hex(8)
        text = f"printf '%s\\n' {begin}\n{self._front}{script}"
        command = shlex.join(["exec", "/bin/sh", "-c", text, "nnilite", *words])
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(self._pool, run_command, connection, command, given, limit_s, save)
        except LinkLost as error:
            self._drop(connection)
            raise ServiceError(f"{self.title}: {error}") from error
        except asyncio.CancelledError:
            # The thread waits for an answer that is not needed any more.
            self._drop(connection)
            raise
        mark = f"{begin}\n".encode()
        if save is not None:
            await loop.run_in_executor(self._pool, _cut_file, save, mark)
        _, found, output = answer.output.partition(mark)
        if save is None and not found:
            noise = (answer.output + answer.complaint).decode("utf-8", "replace").strip()[-300:]
            raise ServiceError(
                f"{self.title}: its shell cannot run commands: {noise or f'exit status {answer.status}'}"
            )
        return ShellAnswer(answer.status, output, answer.complaint.decode("utf-8", "replace"))

    async def _ensure_connected(self) -> Connection:
        async with self._connecting:
            connection = self._connection
            if connection is None or not connection.transport.is_active():
                self._drop(connection)
                loop = asyncio.get_running_loop()
                try:
                    connection = await loop.run_in_executor(self._pool, self._connect)
                except MachineError as error:
                    raise MachineError(f"{self.title} {error}", error.lasting) from error
                self._connection = connection
            return connection

    def _connect(self) -> Connection:
        from nnilite.ssh.connect import connect
        from nnilite.ssh.route import RouteMap

        return connect(RouteMap(self._config).hops(self._config), self._config.host_key_policy)

    def _drop(self, connection: Connection | None) -> None:
        if connection is self._connection:
            self._connection = None
        if connection is not None:
            connection.close()

    async def close(self) -> None:
        self._drop(self._connection)
        self._pool.shutdown(wait=False)


def _cut_file(path: Path, mark: bytes) -> None:
    """Remove what comes before the mark."""
    rest = path.with_name(path.name + ".rest")
    with path.open("rb") as source, rest.open("wb") as target:
        for line in source:
            if line.endswith(mark):
                break
        while chunk := source.read(1 << 20):
            target.write(chunk)
    rest.replace(path)


def login_host(
    login: LoginConfig | None,
    programs: str | None,
    extra: str,
    environment: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
) -> LoginHost:
    """Return where the commands are run. `extra`: what pip installs for SSH. `environment`: on this machine only.

    Raises: ConfigError if SSH is wanted, and its library is not installed.
    """
    if login is None:
        return ThisMachine(programs, environment, before)
    try:
        import nnilite.ssh.connect  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"needs the module {error.name!r}: pip install 'nnilite[{extra}]'", Place(field="login")
        ) from error
    return SshLogin(login, programs, before)
