"""One machine: connected, made ready, watched, and connected again.

    down -> connecting -> preparing (keeper, code package) -> up -> down ...

`run` is a task of the event loop that owns all this. A machine that fails is set aside with the reason and tried again
after growing pauses; one whose connection breaks, at once. Its `session` is the connection, its `attempts` are the jobs
there, and its `callback_route` is the address at which keepers there reach the manager.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnilite.errors import NniliteError
from nnilite.records import Json
from nnilite.services.gpu import Gpu
from nnilite.ssh.errors import LinkLost, MachineError
from nnilite_remote._agent_answers import read_gpus, read_use
from nnilite_remote._attempts import Attempts
from nnilite_remote._callback_route import CallbackRoute
from nnilite_remote._config import MachineConfig, RemoteConfig
from nnilite_remote._machine_preload import MachinePreload
from nnilite_remote._machine_session import MachineSession

log = logging.getLogger(__name__)

_PING_EVERY_S = 5.0
_GPUS_S = 5.0
_LOOK_EVERY_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_FINISH_S = 4.0
_AVOID_S = 30.0


@dataclass(frozen=True)
class MachineSupply:
    """The files and settings that every machine gets."""

    experiment: str
    service: str  # its name within the experiment
    keeper: Path
    keeper_name: str  # hash of its content
    archive: Callable[[], Path]  # the code package; blocks where it is not packed yet
    stored_code: Callable[[str], Mapping[str, Json] | None]  # see `ServiceContext`
    manager: Callable[[], str]  # base URL as seen from here
    manager_socket: Path  # where keepers on this machine report to it
    grace_s: float
    keep_checkpoints: bool  # when the experiment has stopped
    preload: Json | None  # the modules that are imported once for all trials, and their command


class Machine:
    """One machine of the list. All methods are for the event loop."""

    def __init__(
        self, config: MachineConfig, service: RemoteConfig, supply: MachineSupply, changed: Callable[[], None]
    ) -> None:
        self.config = config
        self.state = "connecting"
        self.trouble = ""  # the last error
        self.gpus: list[Gpu] | None = None  # as last read
        self.use: dict[str, Json] = {}  # how busy it is: see `nnilite.services.worker_side.HostMeter`
        self.own_pids: frozenset[int] = frozenset()
        self.tried = asyncio.Event()  # it has come up, or failed, once
        self.lasting = False  # the last error will not go away by itself
        self.field = ""  # config field that caused the trouble
        self._service = service
        self._supply = supply
        self._changed = changed
        self._heard_s = time.monotonic()
        self._reading = asyncio.Lock()
        self._looked_s = self._avoid_until_s = 0.0
        self._sent_again_s = -math.inf
        self._session = MachineSession(config, service, self.away)
        self.attempts = Attempts(self._session)
        self._preload = MachinePreload(self._session, supply.preload)
        self.callback_route = CallbackRoute(
            self._session, supply.manager, supply.manager_socket, service.nni_manager_ip
        )

    @property
    def title(self) -> str:
        return self.config.title

    @property
    def up(self) -> bool:
        return self.state == "up"

    @property
    def silent_s(self) -> float:
        """Return the seconds since the machine last answered."""
        return 0.0 if self.up else time.monotonic() - self._heard_s

    @property
    def avoided(self) -> str:
        """Why the machine gets no new trials although it is up; "" if it may."""
        return self.trouble if time.monotonic() < self._avoid_until_s else ""

    def avoid(self, reason: str, for_s: float = _AVOID_S) -> None:
        """Give the machine no new trials for a while."""
        self.trouble = reason
        self._avoid_until_s = time.monotonic() + for_s

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that its agent has reported: root, boot, python, ..."""
        return self._session.facts

    @property
    def root(self) -> str:
        return str(self.facts.get("root", ""))

    @property
    def callback_file(self) -> str:
        return f"{self.root}/{self._supply.experiment}/callback-{self._key}"

    @property
    def _key(self) -> str:
        return _word(self.config.key)

    async def run(self) -> None:
        """Keep the machine connected, until cancelled."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                await self._bring_up()
                self._set("up", "")
                pause_s = _FIRST_PAUSE_S
                await self._stay()
                self._drop("down", "the connection broke")
                await asyncio.sleep(random.uniform(0.05, 0.3))
                continue
            except NniliteError as error:
                self.lasting = isinstance(error, MachineError) and error.lasting
                self.field = error.field if isinstance(error, MachineError) else ""
                self._drop("down", str(error))
            except Exception as error:  # otherwise it would be "connecting" forever, without a reason
                log.exception("machine %s is set aside because of an internal error", self.title)
                self.lasting = False
                self._drop("down", f"an internal error: {error!r}")
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
        self.use = {}
        self._session.drop()
        self._set(state, trouble)

    def away(self) -> str:
        """Return what to say of a machine that is not up: "is down: the connection broke"."""
        return f"is {self.state}{': ' + self.trouble if self.trouble else ''}"

    async def _bring_up(self) -> None:
        """Connect, start the agent and bring all files. Raises: MachineError."""
        self._set("connecting", "")
        await self._session.connect()
        self._set("preparing", "")
        keeper = (self._supply.keeper_name, self._supply.keeper)
        archive = await self._session.blocking(self._supply.archive)
        await self._serve([keeper[0], archive.name])
        cached = set(self.facts["cached"])
        if keeper[0] not in cached:
            await self._session.upload(*keeper, self._show_progress)
        if archive.name not in cached:
            await self._send_code(archive)
        await self.callback_route.open()
        await self._preload.order()

    async def _serve(self, files: Sequence[str]) -> None:
        """Start the agent that stays."""
        settings: dict[str, Json] = {
            "experiment": self._supply.experiment,
            "service": _word(self._supply.service),
            "key": self._key,
            "keeper": self._supply.keeper_name,
            "files": list(files),
            "cache_s": self._service.cache_s,
        }

        def handle_event(event: Json) -> None:  # a report of a keeper, or that one has ended
            if event["event"] == "report":
                self.callback_route.pass_on(event)
            elif not self._preload.handle_event(event):
                self._changed()

        await self._session.serve(settings, handle_event)

    def _show_progress(self, part: float) -> None:
        if not self.up:
            self.state = f"uploading, {part:.0%}"

    async def send_code_again(self) -> None:
        """Send what the machine has lost, without new trials meanwhile: for a while if it loses that again so soon."""
        soon = time.monotonic() - self._sent_again_s < _AVOID_S
        self.avoid("is being sent the code again")
        try:
            archive = await self._session.blocking(self._supply.archive)
            await self._session.upload(self._supply.keeper_name, self._supply.keeper, self._show_progress)
            await self._send_code(archive)
        except MachineError as error:
            self.avoid(str(error))
        else:
            self.avoid("has lost the code again and again" if soon else "", _AVOID_S if soon else 0.0)
        self._sent_again_s = time.monotonic()

    async def _send_code(self, archive: Path) -> None:
        """Copy the code from the shared storage if that has it, else from here. Raises: MachineError."""
        stored = self._supply.stored_code(archive.name.partition(".")[0])
        if stored is not None:
            trouble = await self._session.fetch(archive.name, self._supply.keeper_name, stored)
            if not trouble:
                return
            log.warning("sending the code to machine %s from this machine: %s", self.title, trouble)
        await self._session.upload(archive.name, archive, self._show_progress)

    async def _stay(self) -> None:
        """Wait until the connection breaks, or the machine no longer answers."""
        broken = self._session.broken
        while not broken.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(broken.wait(), _PING_EVERY_S)
            if not broken.is_set():
                try:
                    self.use = read_use(await self._session.ask("ping"))
                except LinkLost as error:
                    log.warning("machine %s %s", self.title, error)
                    return
                self._heard_s = time.monotonic()
                await self._look_at_gpus()

    async def _look_at_gpus(self) -> None:
        """Read the GPUs again where trials use them, to see how busy they are.

        A driver that hangs does not matter here.
        """
        if self.gpus is not None and time.monotonic() - self._looked_s >= _LOOK_EVERY_S:
            self._looked_s = time.monotonic()
            with contextlib.suppress(MachineError):
                await self.read_gpus()

    async def close(self, canceled: Sequence[Json]) -> bool:
        """Let the machine go, and remove there what has ended. Return False if the machine could not be asked."""
        has_answered = self.up and await self._finish(canceled)
        self._session.close()
        self.callback_route.close()
        self._set("closed", "")
        return has_answered

    async def _finish(self, canceled: Sequence[Json]) -> bool:
        has_answered = False
        try:
            await self._session.ask("ping", _FINISH_S)  # a link that was cut just now still counts as up
            has_answered = True
            await self._session.ask(
                "finish",
                _FINISH_S,
                canceled=list(canceled),
                keep=self._service.keep,
                keep_checkpoints=self._supply.keep_checkpoints,
                grace_s=self._supply.grace_s,
                cache_s=self._service.cache_s,
            )
        except LinkLost:
            return has_answered  # it takes longer, and continues without us
        except MachineError as error:
            log.warning("machine %s could not clean up: %s", self.title, error)
            return False
        return True

    def left_behind(self, experiment: str) -> str:
        """Return a sentence on what an experiment has left there, and how to remove it."""
        place = f"{self.root or self._service.remote_directory.removeprefix('~/')}/{experiment}"
        by_hand = shlex.join([*self.config.ssh_command, shlex.join(["rm", "-r", place])])
        return (
            f"{self.title} was unreachable, so its trials may still run, and its files stay in {place}. When it is "
            f"reachable again, run `nnictl resume {experiment}` and `nnictl stop {experiment}`, or `{by_hand}`, which "
            f"also ends its trials"
        )

    async def read_gpus(self) -> list[Gpu]:
        """Return the machine's GPUs. Raises: MachineError, also if it has no driver."""
        async with self._reading:  # the agent refuses a second reading at the same time
            found = await self._session.ask("gpus", _GPUS_S)
        self.gpus, self.own_pids = read_gpus(found)
        return self.gpus


def _word(name: str) -> str:
    """Return a name in a form that can be part of a file's name."""
    return "".join(c if c.isalnum() or c in ".-" else "_" for c in name)
