"""One machine: connected, made ready, watched, and connected again.

    down -> connecting -> preparing (keeper, code package) -> up -> down ...

`run` is a task of the event loop that owns all this; what blocks is done in a small pool of threads of the machine's
own. A machine that fails is set aside with the reason and tried again later and later; one whose connection breaks,
at once. Each connection has an agent, a reverse tunnel (unless the manager is called directly), and an address for
keepers, which is written to a file there, so that those of earlier connections find us again.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import random
import shlex
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from paramiko.ssh_exception import SSHException

from nnilite.errors import NniliteError
from nnilite.gpu import Gpu
from nnilite.records import Json, KeeperEvent
from nnilite.spool import read_events
from nnilite_remote._agent_link import AgentLink, Stream, digest_of, upload
from nnilite_remote._config import MachineConfig, RemoteConfig
from nnilite_remote._connect import Connection, connect
from nnilite_remote._download import save, unpack
from nnilite_remote._errors import LinkLost, MachineError, words
from nnilite_remote._route import RouteMap
from nnilite_remote._tunnel import Gate

log = logging.getLogger(__name__)

T = TypeVar("T")

_PING_EVERY_S = 5.0
_ANSWER_S = 15.0
_START_S = 20.0
_PREPARE_S = 3600.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_PIECE_BYTES = 4 << 20
_FINISH_S = 4.0
_AVOID_S = 30.0
_TRACE_S = 3.0


@dataclass(frozen=True)
class Supply:
    """What every machine gets."""

    experiment: str
    keeper: Path
    keeper_name: str  # by its content
    archive: Callable[[], Path]  # the code package; blocks where it is not packed yet
    manager: Callable[[], str]  # base URL as seen from here
    grace_s: float
    keep_checkpoints: bool  # when the experiment has stopped


class Machine:
    """One machine of the list. All methods are for the event loop."""

    def __init__(
        self, config: MachineConfig, service: RemoteConfig, supply: Supply, changed: Callable[[], None]
    ) -> None:
        self.config = config
        self.state = "connecting"
        self.trouble = ""  # the last error
        self.facts: dict[str, Any] = {}  # what its agent has told: root, boot, python, ...
        self.gpus: list[Gpu] | None = None  # as last read
        self.own_pids: frozenset[int] = frozenset()
        self.tried = asyncio.Event()  # it has come up, or failed, once
        self.lasting = False  # the last error will not go away by itself
        self._service = service
        self._supply = supply
        self._changed = changed
        self._pool = ThreadPoolExecutor(6, thread_name_prefix=f"ssh {config.title}")
        self._connection: Connection | None = None
        self._link: AgentLink | None = None
        self._gone = asyncio.Event()
        self._port = 0
        self._address = ""  # the manager's, as seen from there
        self._heard_s = time.monotonic()
        self._avoid_until_s = 0.0

    @property
    def title(self) -> str:
        return self.config.title

    @property
    def up(self) -> bool:
        return self.state == "up"

    @property
    def silent_s(self) -> float:
        """For how long nothing has been heard of it."""
        return 0.0 if self.up else time.monotonic() - self._heard_s

    @property
    def avoided(self) -> str:
        """Why it gets no new trials though it is up; "" if it may."""
        return self.trouble if time.monotonic() < self._avoid_until_s else ""

    def avoid(self, reason: str, for_s: float = _AVOID_S) -> None:
        """Give it no new trials for a while."""
        self.trouble = reason
        self._avoid_until_s = time.monotonic() + for_s

    @property
    def root(self) -> str:
        return str(self.facts.get("root", ""))

    @property
    def callback_file(self) -> str:
        return f"{self.root}/{self._supply.experiment}/callback-{self._key}"

    @property
    def address(self) -> str:
        """The manager's base URL as seen from the machine."""
        return self._address

    @property
    def _key(self) -> str:
        return "".join(c if c.isalnum() or c in ".-" else "_" for c in self.config.key)

    # ------------------------------------------------------------ its life

    async def run(self) -> None:
        """Keep the machine connected, until cancelled."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                self._gone.clear()
                await self._come_up()
                self._set("up", "")
                pause_s = _FIRST_PAUSE_S
                await self._stay()
                self._drop("down", "the connection broke")
                await asyncio.sleep(random.uniform(0.05, 0.3))
                continue
            except NniliteError as error:
                self.lasting = isinstance(error, MachineError) and error.lasting
                self._drop("down", str(error))
            except Exception as error:  # else it would be "connecting" for ever, and nobody would know why
                log.exception("machine %s is set aside for a fault of this program", self.title)
                self.lasting = False
                self._drop("down", f"a fault of this program: {error!r}")
            await asyncio.sleep(pause_s * random.uniform(0.8, 1.2))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _set(self, state: str, trouble: str) -> None:
        if (state, trouble) != (self.state, self.trouble):
            level = logging.WARNING if trouble and state == "down" else logging.INFO
            log.log(level, "machine %s is %s%s", self.title, state, f": {trouble}" if trouble else "")
        self.state = state
        self.trouble = trouble or (self.trouble if state not in ("up", "down") else "")
        if state in ("up", "down"):
            self.tried.set()
        self._changed()

    def _drop(self, state: str, trouble: str) -> None:
        connection, self._connection = self._connection, None
        self._link = None
        if connection is not None:
            self._pool.submit(connection.close)
        self._set(state, trouble)

    async def _come_up(self) -> None:
        """Raises: MachineError."""
        self._set("connecting", "")
        self.facts.pop("interpreter", None)  # it may have been replaced meanwhile
        self._connection = await self._blocking(self._connect)
        self._set("preparing", "")
        keeper = (self._supply.keeper_name, self._supply.keeper)
        archive = await self._blocking(self._supply.archive)
        await self._serve([keeper[0], archive.name])
        cached = set(self.facts["cached"])
        for name, source in (keeper, (archive.name, archive)):
            if name not in cached:
                await self._blocking(self._upload, name, source, limit_s=_PREPARE_S)
        await self._publish_address()

    def _connect(self) -> Connection:
        hops = RouteMap(self._service).hops(self.config)
        return connect(hops, self._service.host_key_policy)

    async def _serve(self, files: Sequence[str]) -> None:
        """Start the agent that stays."""
        settings = {
            **self._settings(),
            "mode": "serve",
            "experiment": self._supply.experiment,
            "key": self._key,
            "keeper": self._supply.keeper_name,
            "files": list(files),
            "cache_s": self._service.cache_s,
        }
        stream = await self._blocking(self._stream)
        self.facts = await self._blocking(stream.greet, settings)
        self._link = AgentLink(stream, self._gone.set, self._heard)

    def _settings(self) -> dict[str, Json]:
        return {"directory": self._service.remote_directory}

    def _stream(self) -> Stream:
        connection = self._connection
        if connection is None:
            raise LinkLost("the connection is broken")
        return Stream(connection.transport, self.config.python_path, str(self.facts.get("interpreter") or ""))

    def _upload(self, name: str, source: Path) -> None:
        stream = self._stream()

        def progress(part: float) -> None:
            if not self.up:
                self.state = f"uploading, {part:.0%}"

        try:
            upload(stream, {**self._settings(), "name": name}, source, progress)
        finally:
            stream.close()

    async def upload_code(self) -> None:
        """Bring the code package again: somebody has removed it there. Raises: MachineError."""
        archive = await self._blocking(self._supply.archive)
        await self._blocking(self._upload, self._supply.keeper_name, self._supply.keeper, limit_s=_PREPARE_S)
        await self._blocking(self._upload, archive.name, archive, limit_s=_PREPARE_S)

    async def _publish_address(self) -> None:
        """Find a way back to the manager, and tell keepers of it."""
        direct = self._service.nni_manager_ip
        if direct:
            url = urlsplit(self._supply.manager())
            host = f"[{direct}]" if ":" in direct else direct
            self._address = url._replace(netloc=f"{host}:{url.port}").geturl()
            await self._check_reach(direct, url.port or 80)
        else:
            await self._blocking(self._open_tunnel)
            self._address = f"http://127.0.0.1:{self._port}"
        await self._ask("callback", url=self._address)

    async def _check_reach(self, host: str, port: int) -> None:
        try:
            await self._ask("reach", host=host, port=port, limit_s=5)
        except LinkLost:
            raise
        except MachineError as error:
            raise MachineError(
                f"cannot reach the manager at {host} port {port} ({error}): see that the manager listens there "
                f"(nnictl create --host 0.0.0.0) and no firewall is in between, or leave nniManagerIp out"
            ) from error

    def _open_tunnel(self) -> None:
        """On the same port as before, if that is free: then keepers need not even be told."""
        connection = self._connection
        if connection is None:
            raise LinkLost("the connection is broken")
        gate = Gate(self._supply.manager)

        def admit(channel: Any, *_: object) -> None:
            gate.admit(channel)

        for port in dict.fromkeys((self._port, 0)):
            try:
                self._port = connection.transport.request_port_forward("127.0.0.1", port, admit)
            except SSHException as error:
                refused = error
            else:
                return
        raise MachineError(
            f"its sshd opens no way back to the manager ({refused}): set AllowTcpForwarding in its sshd_config, or "
            f"nniManagerIp here",
            lasting=True,
        )

    async def _stay(self) -> None:
        """Until the connection breaks, or nothing is heard any more."""
        while not self._gone.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._gone.wait(), _PING_EVERY_S)
            if not self._gone.is_set():
                try:
                    await self._ask("ping")
                except LinkLost as error:
                    log.warning("machine %s %s", self.title, error)
                    return
                self._heard_s = time.monotonic()

    def _heard(self, event: Json) -> None:
        self._changed()

    async def close(self, canceled: Sequence[Json]) -> bool:
        """Let the machine go: what has ended is removed there. False if it could not be told that."""
        told = self.up and await self._finish(canceled)
        if self._link is not None:
            self._link.close()
        self._drop("closed", "")
        self._pool.shutdown(wait=False)
        return told

    async def _finish(self, canceled: Sequence[Json]) -> bool:
        told = False
        try:
            await self._ask("ping", _FINISH_S)  # a link that was cut just now still counts as up
            told = True
            await self._ask(
                "finish",
                _FINISH_S,
                canceled=list(canceled),
                keep=self._service.keep,
                keep_checkpoints=self._supply.keep_checkpoints,
                grace_s=self._supply.grace_s,
                cache_s=self._service.cache_s,
            )
        except LinkLost:
            return told  # it takes longer, and goes on without us
        except MachineError as error:
            log.warning("machine %s could not clean up: %s", self.title, error)
            return False
        return True

    def left_behind(self, experiment: str) -> str:
        """What to do about what an experiment has left there, in a sentence."""
        place = f"{self.root or self._service.remote_directory.removeprefix('~/')}/{experiment}"
        by_hand = shlex.join([*self.config.ssh_command, shlex.join(["rm", "-r", place])])
        return (
            f"{self.title} was away, so what ran there runs on, and its files stay in {place}. When it is back, "
            f"`nnictl resume {experiment}` and `nnictl stop {experiment}` clean up; or `{by_hand}`, which ends what "
            f"runs there too"
        )

    # ------------------------------------------------------------ asking it

    async def _blocking(self, work: Callable[..., T], *arguments: Any, limit_s: float = 120.0) -> T:
        """Run something in a thread of this machine's own. Raises: MachineError for whatever of SSH goes wrong."""
        future = asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)
        try:
            return await asyncio.wait_for(future, limit_s)
        except asyncio.TimeoutError:
            raise LinkLost(f"did not answer within {limit_s:.0f} s") from None
        except (OSError, EOFError, SSHException) as error:
            if isinstance(error, FileNotFoundError):
                raise MachineError(str(error)) from error
            raise LinkLost(f"the connection broke: {words(error)}") from error

    async def _ask(self, do: str, answer_s: float = _ANSWER_S, **more: Json) -> Any:
        if self._link is None:
            raise LinkLost(f"is {self.state}{': ' + self.trouble if self.trouble else ''}")
        return await self._link.ask(do, answer_s, **more)

    async def start(self, spec: Json) -> Json:
        """Start a keeper: its pid, start and boot; or {"missing": name}. Raises: MachineError, LinkLost."""
        return await self._ask("start", _START_S, spec=spec)

    async def statuses(self, jobs: Sequence[Json]) -> list[Json]:
        """Raises: MachineError."""
        return list(await self._ask("status", jobs=list(jobs)))

    async def cancel(self, job: Json) -> None:
        await self._ask("cancel", job=job)

    async def remove(self, job: Json) -> None:
        await self._ask("remove", job=job)

    async def read_gpus(self) -> list[Gpu]:
        """The machine's GPUs. Raises: MachineError, also if it has no driver."""
        found = await self._ask("gpus", 5.0)
        self.own_pids = frozenset(pid for gpu in found for pid in gpu.pop("own", ()))
        self.gpus = [Gpu(**{**gpu, "processes": tuple(gpu.get("processes", ()))}) for gpu in found]
        return self.gpus

    async def read(self, directory: str, name: str, offset: int, limit: int) -> bytes | None:
        """A piece of a file of an attempt; None if there is no such file. Raises: MachineError."""
        answer = await self._ask("read", directory=directory, name=name, offset=offset, limit=limit)
        return None if answer["data"] is None else base64.b64decode(answer["data"])

    async def events(self, directory: str) -> Sequence[KeeperEvent]:
        """What an attempt's files tell. Raises: MachineError."""
        with tempfile.TemporaryDirectory(prefix="nnilite-") as copy:
            inner = Path(copy) / ".nni"
            inner.mkdir()
            for name in ("exit", "started", "metrics"):  # the end first: nothing is reported after it
                await self._copy(directory, f".nni/{name}", inner / name)
            return await self._blocking(read_events, Path(copy))

    async def _copy(self, directory: str, name: str, target: Path) -> None:
        offset = 0
        while piece := await self.read(directory, name, offset, _PIECE_BYTES):
            with target.open("ab") as file:
                file.write(piece)
            offset += len(piece)

    async def fetch(self, directory: str, target: Path) -> None:
        """Copy an attempt's folder. Raises: MachineError."""
        await self._blocking(self._fetch, directory, True, lambda stream: unpack(stream, target), limit_s=_PREPARE_S)

    def _fetch(self, directory: str, attempt: bool, take: Callable[[Stream], None]) -> None:
        stream = self._stream()
        try:
            stream.greet({**self._settings(), "mode": "send", "path": directory, "attempt": attempt})
            take(stream)
            if not stream.ended_well():
                raise LinkLost("the connection broke off")
        finally:
            stream.close()

    # ------------------------------------------------------------ checkpoints

    async def trace(self, trial: str) -> Json:
        """What earlier attempts of the trial have left there. Raises: MachineError."""
        return await self._ask("trace", _TRACE_S, trial=trial)

    async def give_checkpoints(self, directory: str, archive: Path) -> None:
        """Write a trial's checkpoints to an archive here. Raises: MachineError."""
        await self._blocking(self._fetch, directory, False, lambda stream: save(stream, archive), limit_s=_PREPARE_S)

    async def take_checkpoints(self, trial: str, attempt: int, archive: Path) -> None:
        """Put there what `attempt` had written elsewhere. Raises: MachineError."""
        name = f"checkpoints-{trial}-{attempt}-{(await self._blocking(digest_of, archive))[:16]}.tar"
        await self._blocking(self._upload, name, archive, limit_s=_PREPARE_S)
        await self._ask("restore", _PREPARE_S, trial=trial, attempt=attempt, archive=name)
