"""The reading half of a manager: all that `nnictl view` needs, and the base class of the running manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from nnilite import _version
from nnilite._answers.backend import (
    FileListing,
    Listed,
    MetricPage,
    MetricQuery,
    Piece,
    Profile,
    RemarksQuery,
    ServiceState,
    TrialPage,
    TrialQuery,
    TrialRemarks,
)
from nnilite._answers.changes import Changes, Subscription
from nnilite._experiments import registry
from nnilite._rest.files import in_folder
from nnilite._store.reader import Reader
from nnilite._store.tables import Insight
from nnilite._store.trial_remarks import write_remarks
from nnilite._views.about import About, ExperimentProgress
from nnilite._views.file_listing import listing_of
from nnilite._views.latest_notices import LatestNotices
from nnilite._views.read_only import ReadOnly
from nnilite._webhooks.debts import Debts
from nnilite.errors import Conflict, NotFound
from nnilite.foreign_files import open_below
from nnilite.records import (
    Attempt,
    ExperimentState,
    Json,
    Trial,
)

T = TypeVar("T")
_SLOW_S = 10.0
_LOGS = {"manager": "manager.log", "tuner": "tuner.log"}


class Viewer(ReadOnly, Insight):
    """Implements the reading half of `nnilite._answers.backend.Backend` and refuses the other half."""

    read_only = True

    @property
    def cannot_resume(self) -> str:
        """Why it cannot be resumed, "" if it can."""
        return ""

    def __init__(
        self, about: About, progress: ExperimentProgress, reader: Reader, token: str, changes: Changes | None = None
    ) -> None:
        super().__init__(about.objectives)
        self.about = about
        self.token = token
        self.reader = reader
        self.changes = changes or Changes()
        self._progress = progress
        self._notices = LatestNotices(reader)
        self._debts = Debts(about.directory, about.config, about.maximize)
        self.resuming = asyncio.Event()  # set when a user asks to resume the viewed experiment

    @property
    def experiment_id(self) -> str:
        return self.about.id

    def progress(self) -> ExperimentProgress:
        return self._progress

    def show_as_viewed(self) -> None:
        """Show the state VIEWED from now on, with the experiment's own state in the reason."""
        was = self._progress
        reason = f"it is open for reading, and was {was.state.value}" + (f": {was.reason}" if was.reason else "")
        self._progress = replace(was, state=ExperimentState.VIEWED, reason=reason)

    async def watch(self) -> None:
        """Publish changes from outside while this shows the experiment; an ordinary one does not change meanwhile."""

    async def profile(self) -> Profile:
        owed = await asyncio.to_thread(self._debts.look, self.reader.path) if self._debts.is_possible else ()
        notices = await self._notices.find(self.about.objectives)
        about, now = self.about, self.progress()
        return Profile(
            id=about.id,
            name=about.name or str(about.config.get("experimentName", "")),
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
            objectives=about.objectives,
            without_effect=about.without_effect,
            notices=notices,
            port=about.port,
            url=about.url,
            pid=about.pid,
            read_only=self.read_only,
            cannot_resume=self.cannot_resume,
            next_sequence=now.next_sequence,
            owed=owed,
            services=[_with_spent(one, now.spent) for one in about.services],
            spent=sum(now.spent.values()) if now.spent or about.has_prices else None,
        )

    async def trials(self, query: TrialQuery) -> TrialPage:
        return await self.reader.trials(query)

    async def trial(self, trial: str) -> tuple[Trial, Sequence[Attempt]]:
        return await self.reader.trial(trial)

    async def metrics(self, query: MetricQuery) -> MetricPage:
        return await self.reader.metrics(query)

    async def remarks(self, query: RemarksQuery) -> Sequence[TrialRemarks]:
        return await self.reader.remarks(query)

    async def remark(self, remarks: TrialRemarks) -> TrialRemarks:
        kept = await asyncio.to_thread(write_remarks, self.reader.path, remarks)
        self.changes.publish(kept)
        return kept

    def export(self) -> AsyncIterator[Trial]:
        return self.reader.ended()

    async def imported(self) -> Sequence[Sequence[tuple[Json, Json]]]:
        return await self.reader.imported()

    async def log(self, name: str, offset: int, limit: int) -> Piece:
        if name not in _LOGS:
            raise NotFound(f"There is no log {name!r}; there are {', '.join(_LOGS)}.")
        return await asyncio.to_thread(piece, self.about.directory / "log", _LOGS[name], offset, limit)

    async def output(self, trial: str, attempt: int | None, stream: str, offset: int, limit: int) -> Piece:
        found, _ = await self.reader.trial(trial)
        number = found.attempt if attempt is None else attempt
        trials, folder = self.about.directory / "trials", f"{found.id}/{number}"
        path = f"{folder}/trial.{stream}"
        return await in_folder(trials / folder, lambda: piece(trials, path, offset, limit))

    async def files(self, trial: str, elsewhere: bool) -> FileListing:
        folder = await self.directory(trial)
        return await in_folder(folder, lambda: listing_of(folder))

    async def bring(self, trial: str) -> None:
        """Do nothing, as nothing is elsewhere that could be copied."""
        await self.reader.trial(trial)

    async def bring_file(self, trial: str, path: str) -> None:
        """Do nothing, as nothing is elsewhere that could be copied."""
        await self.reader.trial(trial)

    async def directory(self, trial: str) -> Path:
        found, _ = await self.reader.trial(trial)
        path = self.about.directory / "trials" / found.id
        if not await in_folder(path, path.is_dir):
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
        entries = await asyncio.to_thread(registry.everything)
        return [
            Listed(
                id=e.id,
                name=e.name,
                state=e.state,
                port=e.port,
                url=e.url or "",
                pid=e.pid,
                directory=str((e.origin or e).directory),
                platform=e.platform,
                started=e.started,
                ended=e.ended,
            )
            for e in entries
        ]

    async def resume(self) -> None:
        """Let this process end the view and resume the experiment at the same address."""
        if not self.read_only:
            raise Conflict("The experiment has a running manager already.")
        self.resuming.set()


def _with_spent(service: ServiceState, spent: Mapping[str, float]) -> ServiceState:
    return replace(service, spent=spent.get(service.name, None if service.cost is None else 0.0))


def piece(root: Path, path: str, offset: int, limit: int) -> Piece:
    """Return bytes of a growing file below `root`, where no link is followed.

    A negative offset counts from the end. Without a file (yet) there are none.
    """
    try:
        with open_below(root, path) as file:
            total = file.seek(0, 2)
            start = max(total + offset, 0) if offset < 0 else min(offset, total)
            file.seek(start)
            return Piece(file.read(limit), start, total)
    except NotFound:
        return Piece(b"", 0, 0)
