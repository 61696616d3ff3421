"""What the REST interface needs of a manager, and nothing more.

The manager implements `Backend`; the handlers know only it and `nnilite.records`. Every method is called on the event
loop and must not block. Refusals are errors of `nnilite.errors` (ConfigError, NotFound, Conflict, ServiceError,
StoreError), or `Gap` and `GivenUp` for the trial callback; anything else is a bug and is answered with 500.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from nnilite._rest.changes import Changes, Reset, Subscription
from nnilite._rest.insight_views import Cursor, Curve, Importance, ImportanceMethod, RowPage, Table
from nnilite._rest.views import (
    CallbackAnswer,
    FileEntry,
    Limits,
    Listed,
    MetricPage,
    MetricQuery,
    Piece,
    Profile,
    TrialPage,
    TrialQuery,
    TrialSort,
    Waiting,
)
from nnilite.errors import Conflict
from nnilite.records import Attempt, Json, KeeperEvent, Trial, TrialState

__all__ = [
    "Backend",
    "CallbackAnswer",
    "Changes",
    "FileEntry",
    "Gap",
    "GivenUp",
    "Limits",
    "Listed",
    "MetricPage",
    "MetricQuery",
    "Piece",
    "Profile",
    "Reset",
    "Subscription",
    "TrialPage",
    "TrialQuery",
    "TrialSort",
    "Waiting",
]


class Gap(Conflict):
    """A batch begins after what the manager has: the keeper must resend from `answer`."""

    def __init__(self, answer: CallbackAnswer) -> None:
        super().__init__(f"events are missing before this batch; resend from metric {answer.metrics}")
        self.answer = answer


class GivenUp(Conflict):
    """The attempt was given up, or its experiment is over for good: its keeper must end."""


class Backend(Protocol):
    """A manager, as its REST interface sees it."""

    @property
    def experiment_id(self) -> str: ...

    @property
    def read_only(self) -> bool:
        """Opened by `view`: everything that would change something is refused before it gets here."""

    @property
    def token(self) -> str | None:
        """The manager's token; None: bound to loopback, nobody needs to sign in."""

    async def profile(self) -> Profile: ...

    async def update(self, changes: Mapping[str, Json]) -> Profile:
        """Change limits or the search space, all or nothing.

        Keys are fields of ExperimentConfig: trial_concurrency (int), max_trial_number (int or None),
        max_experiment_duration and max_trial_duration (int seconds, a text such as "2h", or None), search_space.
        """

    async def stop(self) -> None:
        """Begin to stop the experiment and return."""

    async def resume(self) -> None:
        """Go on with an experiment that is only viewed. Raises: Conflict if it is not."""

    async def trials(self, query: TrialQuery) -> TrialPage: ...

    async def trial(self, trial: str) -> tuple[Trial, Sequence[Attempt]]: ...

    async def add_trial(self, parameters: Json) -> Trial: ...

    async def cancel_trial(self, trial: str) -> Trial: ...

    async def scale_trial(self, trial: str, workers: int) -> Trial:
        """Change the number of workers of an elastic trial while it goes on. Raises: NotFound, Conflict."""

    async def rerun(self, ids: Sequence[str], state: TrialState | None) -> Sequence[Trial]:
        """Run ended trials again: those named, or all in `state`. Returns them as they are now."""

    async def metrics(self, query: MetricQuery) -> MetricPage: ...

    async def rows(self, table: Table, after: Cursor, limit: int) -> RowPage:
        """Trials or attempts that come or have changed after the cursor, with the columns of `_rest.insight`."""

    async def curves(self, trials: Sequence[str], points: int, key: str) -> Sequence[Curve]:
        """Intermediate results of these trials, at most about `points` of each; unknown trials are left out."""

    async def importance(self, method: ImportanceMethod) -> Importance:
        """How much each parameter matters. May take seconds. Raises: ServiceError."""

    async def events(self, job: str, events: Sequence[KeeperEvent]) -> CallbackAnswer:
        """Commit a batch of a job whose token was right. Raises: NotFound, Gap, GivenUp."""

    def callback_token(self, job: str) -> str:
        """The token of a job, existing or not (an HMAC of its name)."""

    async def log(self, name: str, offset: int, limit: int) -> Piece:
        """Part of the log "manager" or "tuner". A negative offset counts from the end."""

    async def output(self, trial: str, attempt: int | None, stream: str, offset: int, limit: int) -> Piece:
        """Part of "stdout" or "stderr"; `attempt` None: the latest. A negative offset counts from the end."""

    async def directory(self, trial: str, fetch: bool = True) -> Path:
        """The trial's folder on this machine; `fetch`: what lies elsewhere is copied into it first, however long that
        takes. Raises: NotFound where there is none (yet), ServiceError if it cannot be copied now."""

    def export(self) -> AsyncIterator[Trial]:
        """All ended trials, by sequence. May be called twice for one answer."""

    async def import_data(self, data: Sequence[tuple[Json, Json]]) -> int:
        """Tell the tuner of (parameters, value) pairs known from elsewhere; how many were new."""

    async def imported(self) -> Sequence[tuple[Json, Json]]:
        """The pairs imported so far."""

    def code_package(self, digest: str) -> Path:
        """The archive of a code package. Raises: NotFound."""

    def keeper(self) -> Path:
        """The keeper zipapp."""

    def subscribe(self) -> Subscription:
        """Changes from now on; see `nnilite._rest.changes.Changes`, which makes these."""

    async def others(self) -> Sequence[Listed]:
        """All experiments of this machine that the registry knows."""
