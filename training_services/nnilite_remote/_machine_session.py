"""One machine's connection, the agent that serves on it, and the threads for blocking calls.

The connection and the agent are new after each break; the threads are the machine's own for as long as it is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import paramiko
from paramiko.ssh_exception import SSHException

from nnilite.records import Json
from nnilite.ssh.connect import Connection, connect
from nnilite.ssh.errors import LinkLost, MachineError, get_error_text
from nnilite.ssh.route import RouteMap
from nnilite_remote._agent_answers import read_facts
from nnilite_remote._agent_link import AgentLink, AgentStream, fetch, upload
from nnilite_remote._config import MachineConfig, RemoteConfig
from nnilite_remote._tunnel import WINDOW_BYTES

T = TypeVar("T")

_ANSWER_S = 15.0
_THREADS = 6
_CHANNELS_SEEN = 4096  # far more than can be closed here while the other side does not know it yet
TRANSFER_S = 3600.0
"""How long moving a file or a folder may take."""


class MachineSession:
    """The connection of a machine. All methods are for the event loop.

    `away` returns the state of an unreachable machine.
    """

    def __init__(self, config: MachineConfig, service: RemoteConfig, away: Callable[[], str]) -> None:
        self.facts: dict[str, Any] = {}  # what the agent has said of its machine: root, boot, python, ...
        self.broken = asyncio.Event()
        self._config = config
        self._service = service
        self._away = away
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix=f"ssh {config.title}")
        self._connection: Connection | None = None
        self._link: AgentLink | None = None

    @property
    def title(self) -> str:
        """The machine's name in messages."""
        return self._config.title

    async def connect(self) -> None:
        """Connect to the machine. Raises: MachineError."""
        self.broken.clear()
        self.facts.pop("interpreter", None)  # it may have been replaced meanwhile
        self._connection = await self.blocking(self._connect)

    def _connect(self) -> Connection:
        hops = RouteMap(self._service).hops(self._config)
        return connect(hops, self._service.host_key_policy)

    async def serve(self, settings: dict[str, Json], heard: Callable[[Json], None]) -> None:
        """Start the agent that stays, and pass on its unrequested messages. Raises: MachineError."""
        stream = await self.blocking(self._stream)
        self.facts = read_facts(await self.blocking(stream.greet, {**self._settings(), "mode": "serve", **settings}))
        self._link = AgentLink(stream, self.broken.set, heard)

    def drop(self) -> None:
        """Drop the connection without waiting."""
        connection, self._connection = self._connection, None
        self._link = None
        if connection is not None:
            self._pool.submit(connection.close)

    def close(self) -> None:
        """End the agent, the connection and the threads; keepers continue."""
        if self._link is not None:
            self._link.close()
        self.drop()
        self._pool.shutdown(wait=False)

    async def blocking(self, work: Callable[..., T], *arguments: Any, limit_s: float = 120.0) -> T:
        """Run something in a thread of this machine's own. Raises: MachineError for any failure of SSH."""
        future = asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)
        try:
            return await asyncio.wait_for(future, limit_s)
        except asyncio.TimeoutError:
            raise LinkLost(f"did not answer within {limit_s:.0f} s") from None
        except (OSError, EOFError, SSHException) as error:
            if isinstance(error, FileNotFoundError):
                raise MachineError(str(error)) from error
            raise LinkLost(f"the connection broke: {get_error_text(error)}") from error

    async def ask(self, do: str, answer_s: float | None = None, **more: Json) -> Any:
        """Ask the agent; return its answer.

        Raises: MachineError if it refuses, LinkLost if it does not answer in time.
        """
        if self._link is None:
            raise LinkLost(self._away())
        return await self._link.ask(do, _ANSWER_S if answer_s is None else answer_s, **more)

    def tell(self, do: str, **more: Json) -> None:
        """Send the agent a message without an answer, if it is connected."""
        if self._link is not None:
            self._link.tell(do, **more)

    async def upload(self, name: str, source: Path, progress: Callable[[float], None] | None = None) -> None:
        """Copy a file into the machine's cache; `progress` gets the fraction, in a thread. Raises: MachineError."""
        await self.blocking(self._upload, name, source, progress or (lambda part: None), limit_s=TRANSFER_S)

    def _upload(self, name: str, source: Path, progress: Callable[[float], None]) -> None:
        stream = self._stream()
        try:
            upload(stream, {**self._settings(), "name": name}, source, progress)
        finally:
            stream.close()

    async def fetch(self, name: str, keeper: str, storage: Mapping[str, Json]) -> str:
        """Have a keeper copy the code from the shared storage into the cache. Return why that is not possible, or "".

        Raises: MachineError.
        """
        settings = {**self._settings(), "name": name, "keeper": keeper, "storage": dict(storage)}
        return await self.blocking(self._fetch, settings, limit_s=TRANSFER_S)

    def _fetch(self, settings: dict[str, Json]) -> str:
        stream = self._stream()
        try:
            return fetch(stream, settings)
        finally:
            stream.close()

    async def receive(self, directory: str, take: Callable[[AgentStream], None], attempt: bool) -> None:
        """Receive a folder of an attempt, or another one; `take` gets it in a thread. Raises: MachineError."""
        settings: dict[str, Json] = {"mode": "send", "path": directory, "attempt": attempt}
        await self.blocking(self._receive, settings, take, limit_s=TRANSFER_S)

    async def receive_file(self, directory: str, name: str, take: Callable[[AgentStream], object]) -> None:
        """Receive one file of an attempt; `take` gets it in a thread. Raises: MachineError."""
        settings: dict[str, Json] = {"mode": "send_file", "path": directory, "name": name}
        await self.blocking(self._receive, settings, take, limit_s=TRANSFER_S)

    def _receive(self, settings: dict[str, Json], take: Callable[[AgentStream], object]) -> None:
        stream = self._stream()
        try:
            stream.greet({**self._settings(), **settings})
            take(stream)
            if not stream.has_ended_well():
                raise LinkLost("the connection broke off")
        finally:
            stream.close()

    async def open_callback_route(self, ports: Sequence[int], admit: Callable[[Any], None]) -> int:
        """Have the machine's sshd listen on its loopback, at the first free one of `ports` (0: any); return the port.

        Each connection there calls `admit` with its channel, in a thread. Raises: MachineError.
        """
        return await self.blocking(self._forward, ports, admit)

    def _forward(self, ports: Sequence[int], admit: Callable[[Any], None]) -> int:
        return open_tunnel(self._open().transport, ports, admit)

    def _open(self) -> Connection:
        if self._connection is None:
            raise LinkLost("the connection is broken")
        return self._connection

    def _settings(self) -> dict[str, Json]:
        return {"directory": self._service.remote_directory}

    def _stream(self) -> AgentStream:
        transport = self._open().transport
        return AgentStream(transport, self._config.python_path, str(self.facts.get("interpreter") or ""))


def open_tunnel(transport: paramiko.Transport, ports: Sequence[int], admit: Callable[[Any], None]) -> int:
    """Have the other end listen on its loopback; return the port. Blocks; see `MachineSession.open_callback_route`."""
    # For the connections that come by the tunnel. Those that are opened from here say how much they want.
    transport.default_window_size = WINDOW_BYTES

    def come(channel: paramiko.Channel, *_: object) -> None:
        _forget_seen(transport)
        admit(channel)

    for port in ports:
        try:
            return int(transport.request_port_forward("127.0.0.1", port, come))
        except SSHException as error:
            refused = error
    raise MachineError(
        f"its sshd allows no connection back to the manager ({refused}): set AllowTcpForwarding in its sshd_config, or "
        f"nniManagerIp here",
        lasting=True,
    )


def _forget_seen(transport: paramiko.Transport) -> None:
    """Keep paramiko's notes on closed channels short: it would remember each connection ever made."""
    seen = transport.channels_seen
    if len(seen) < 2 * _CHANNELS_SEEN:
        return
    with transport.lock:  # it is held wherever a channel is noted
        for number in list(seen)[:-_CHANNELS_SEEN]:
            del seen[number]
