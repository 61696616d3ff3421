"""What people can do with an experiment that is only viewed: write remarks, and resume it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from nnilite._answers.backend import CallbackAnswer, TrialRemarks
from nnilite._answers.changes import Changes
from nnilite._store.reader import Reader
from nnilite._store.trial_remarks import write_remarks
from nnilite._views.experiment_facts import ExperimentFacts
from nnilite.errors import Conflict
from nnilite.records import Json, KeeperEvent, Trial, TrialState


class ViewControl:
    """Implements `nnilite._answers.backend.Control`, and refuses what needs a running manager."""

    def __init__(self, about: ExperimentFacts, reader: Reader, changes: Changes) -> None:
        self.resuming = asyncio.Event()  # set when a user asks to resume the experiment
        self._about = about
        self._reader = reader
        self._changes = changes

    @property
    def cannot_resume(self) -> str:
        """Why the experiment cannot be resumed, "" if it can."""
        return ""

    async def update(self, changes: Mapping[str, Json]) -> None:
        raise self.refusal("changed")

    async def stop(self) -> None:
        raise self.refusal("stopped")

    async def resume(self) -> None:
        """Let this process end the view and resume the experiment at the same address."""
        self.resuming.set()

    async def add_trial(self, parameters: Json) -> Trial:
        raise self.refusal("given a trial")

    async def cancel_trial(self, trial: str) -> Trial:
        raise self.refusal("changed")

    async def interrupt_trial(self, trial: str) -> Trial:
        raise self.refusal("changed")

    async def scale_trial(self, trial: str, workers: int) -> Trial:
        raise self.refusal("changed")

    async def rerun(self, ids: Sequence[str], state: TrialState | None) -> Sequence[Trial]:
        raise self.refusal("changed")

    async def remark(self, remarks: TrialRemarks) -> TrialRemarks:
        kept = await asyncio.to_thread(write_remarks, self._reader.path, remarks)
        self._changes.publish(kept)
        return kept

    async def import_data(self, data: Sequence[tuple[Json, Json]]) -> tuple[int, int, str]:
        raise self.refusal("changed")

    def refusal(self, what: str) -> Conflict:
        cure = f"`nnictl resume {self._about.id}` resumes it"
        return Conflict(f"The experiment is open for reading only and cannot be {what}; {cure}.")


class NoCallbacks:
    """Implements `nnilite._answers.backend.Callbacks` where no trial runs."""

    def __init__(self, refusal: Callable[[str], Conflict]) -> None:
        self._refusal = refusal

    async def events(self, job: str, events: Sequence[KeeperEvent]) -> CallbackAnswer:
        raise self._refusal("told of events")

    def callback_token(self, job: str) -> str:
        raise self._refusal("told of events")
