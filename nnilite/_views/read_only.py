"""The refusals of a manager that only reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nnilite._answers.backend import CallbackAnswer, Profile, TrialUse
from nnilite.errors import Conflict
from nnilite.records import Json, KeeperEvent, Trial, TrialState


class ReadOnly:
    """Refuses each method of `nnilite._answers.backend.Backend` that would change something; nothing runs."""

    @property
    def experiment_id(self) -> str:
        raise NotImplementedError

    async def update(self, changes: Mapping[str, Json]) -> Profile:
        raise self._refusal("changed")

    async def stop(self) -> None:
        raise self._refusal("stopped")

    async def uses(self) -> Mapping[str, TrialUse]:
        """Return nothing, as nothing runs."""
        return {}

    async def add_trial(self, parameters: Json) -> Trial:
        raise self._refusal("given a trial")

    async def cancel_trial(self, trial: str) -> Trial:
        raise self._refusal("changed")

    async def interrupt_trial(self, trial: str) -> Trial:
        raise self._refusal("changed")

    async def scale_trial(self, trial: str, workers: int) -> Trial:
        raise self._refusal("changed")

    async def rerun(self, ids: Sequence[str], state: TrialState | None) -> Sequence[Trial]:
        raise self._refusal("changed")

    async def import_data(self, data: Sequence[tuple[Json, Json]]) -> tuple[int, str]:
        raise self._refusal("changed")

    async def events(self, job: str, events: Sequence[KeeperEvent]) -> CallbackAnswer:
        raise self._refusal("told of events")

    def callback_token(self, job: str) -> str:
        raise self._refusal("told of events")

    def _refusal(self, what: str) -> Conflict:
        cure = f"`nnictl resume {self.experiment_id}` resumes it"
        return Conflict(f"The experiment is open for reading only and cannot be {what}; {cure}.")
