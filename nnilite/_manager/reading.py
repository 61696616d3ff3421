"""The half of a manager that only reads: all there is for `nnictl view`, and the base of the real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnilite import _registry, _version
from nnilite._manager.insight import Insight
from nnilite._manager.reader import Reader
from nnilite._rest.backend import (
    CallbackAnswer,
    Limits,
    Listed,
    MetricPage,
    MetricQuery,
    Piece,
    Profile,
    TrialPage,
    TrialQuery,
)
from nnilite._rest.changes import Changes, Subscription
from nnilite.errors import Conflict, NotFound
from nnilite.records import (
    Attempt,
    ExperimentState,
    Json,
    KeeperEvent,
    Trial,
    TrialState,
)

_LOGS = {"manager": "manager.log", "tuner": "tuner.log"}


@dataclass(frozen=True)
class About:
    """What does not change while a manager lives."""

    id: str
    directory: Path
    config: Mapping[str, Json]  # secrets hidden
    platforms: tuple[str, ...]
    created: float
    maximize: bool
    space: Json
    port: int = 0
    url: str = ""
    pid: int = 0


@dataclass(frozen=True)
class Standing:
    """Where the experiment stands."""

    state: ExperimentState
    reason: str
    duration_s: float
    ended: float | None
    limits: Limits
    counts: Mapping[TrialState, int]
    best: Trial | None
    next_sequence: int


class Reading(Insight):
    """Implements the reading half of `nnilite._rest.backend.Backend`, and refuses the rest."""

    read_only = True

    def __init__(self, about: About, standing: Standing, reader: Reader, token: str | None) -> None:
        super().__init__()
        self.about = about
        self.token = token
        self.reader = reader
        self.changes = Changes()
        self._standing = standing
        self.resuming = asyncio.Event()  # somebody wants to go on with what is viewed

    @property
    def experiment_id(self) -> str:
        return self.about.id

    def standing(self) -> Standing:
        return self._standing

    async def profile(self) -> Profile:
        about, now = self.about, self.standing()
        return Profile(
            id=about.id,
            name=str(about.config.get("experimentName", "")),
            state=now.state,
            reason=now.reason,
            config=about.config,
            space=about.space,
            platforms=about.platforms,
            directory=str(about.directory),
            version=_version.__version__,
            created=about.created,
            started=about.created,
            ended=now.ended,
            duration_s=now.duration_s,
            limits=now.limits,
            counts=dict(now.counts),
            best=now.best,
            optimize="maximize" if about.maximize else "minimize",
            port=about.port,
            url=about.url,
            pid=about.pid,
            read_only=self.read_only,
            next_sequence=now.next_sequence,
        )

    async def trials(self, query: TrialQuery) -> TrialPage:
        return await self.reader.trials(query)

    async def trial(self, trial: str) -> tuple[Trial, Sequence[Attempt]]:
        return await self.reader.trial(trial)

    async def metrics(self, query: MetricQuery) -> MetricPage:
        return await self.reader.metrics(query)

    def export(self) -> AsyncIterator[Trial]:
        return self.reader.ended()

    async def imported(self) -> Sequence[tuple[Json, Json]]:
        return await self.reader.imported()

    async def log(self, name: str, offset: int, limit: int) -> Piece:
        if name not in _LOGS:
            raise NotFound(f"There is no log {name!r}; there are {', '.join(_LOGS)}.")
        return await asyncio.to_thread(_piece, self.about.directory / "log" / _LOGS[name], offset, limit)

    async def output(self, trial: str, attempt: int | None, stream: str, offset: int, limit: int) -> Piece:
        found, _ = await self.reader.trial(trial)
        number = found.attempt if attempt is None else attempt
        path = self.about.directory / "trials" / found.id / str(number) / f"trial.{stream}"
        return await asyncio.to_thread(_piece, path, offset, limit)

    async def directory(self, trial: str, fetch: bool = True) -> Path:
        found, _ = await self.reader.trial(trial)
        path = self.about.directory / "trials" / found.id
        if not await asyncio.to_thread(path.is_dir):
            raise NotFound(f"Trial {trial} has no folder on this machine yet.")
        return path

    def code_package(self, digest: str) -> Path:
        path = self.about.directory / "code" / f"{digest}.tar.gz"
        if not digest.isalnum() or not path.is_file():
            raise NotFound(f"There is no code package {digest!r}.")
        return path

    def keeper(self) -> Path:
        return self.about.directory / "keeper.pyz"

    def subscribe(self) -> Subscription:
        return self.changes.subscribe()

    async def others(self) -> Sequence[Listed]:
        entries = await asyncio.to_thread(_registry.entries)
        return [
            Listed(
                id=e.id,
                name=e.name,
                state=e.state,
                port=e.port,
                url=e.url or "",
                pid=e.pid,
                directory=str(e.directory),
                platform=e.platform,
                started=e.started,
                ended=e.ended,
            )
            for e in entries
        ]

    # ------------------------------------------------------------ what a view refuses

    async def update(self, changes: Mapping[str, Json]) -> Profile:
        raise self._refusal("changed")

    async def stop(self) -> None:
        raise self._refusal("stopped")

    async def resume(self) -> None:
        """Let this process end its view and go on with the experiment, at the same address."""
        if not self.read_only:
            raise Conflict("The experiment has a running manager already.")
        self.resuming.set()

    async def add_trial(self, parameters: Json) -> Trial:
        raise self._refusal("given a trial")

    async def cancel_trial(self, trial: str) -> Trial:
        raise self._refusal("changed")

    async def scale_trial(self, trial: str, workers: int) -> Trial:
        raise self._refusal("changed")

    async def rerun(self, ids: Sequence[str], state: TrialState | None) -> Sequence[Trial]:
        raise self._refusal("changed")

    async def import_data(self, data: Sequence[tuple[Json, Json]]) -> int:
        raise self._refusal("changed")

    async def events(self, job: str, events: Sequence[KeeperEvent]) -> CallbackAnswer:
        raise self._refusal("told of events")

    def callback_token(self, job: str) -> str:
        raise self._refusal("told of events")

    def _refusal(self, what: str) -> Conflict:
        cure = f"`nnictl resume {self.about.id}` goes on with it"
        return Conflict(f"The experiment is open for reading only and cannot be {what}; {cure}.")


def _piece(path: Path, offset: int, limit: int) -> Piece:
    """Bytes of a growing file. A negative offset counts from the end; a file that is not there yet is empty."""
    try:
        with path.open("rb") as file:
            total = file.seek(0, 2)
            start = max(total + offset, 0) if offset < 0 else min(offset, total)
            file.seek(start)
            return Piece(file.read(limit), start, total)
    except FileNotFoundError:
        return Piece(b"", 0, 0)
