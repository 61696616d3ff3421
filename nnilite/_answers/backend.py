"""What the REST interface needs of a manager, and nothing more.

The manager implements `Backend`, and its parts the other protocols; the handlers know only these and `nnilite.records`.
Every method is called on the event loop and must not block. Refusals are errors of `nnilite.errors` (ConfigError,
NotFound, Conflict, ServiceError, StoreError), or `GapConflict` and `FencedConflict` for the trial callback; anything
else is a bug, answered with 500.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from nnilite._answers.bulk_queries import Curve, Importance, ImportanceMethod, PageCursor, RowPage, Table
from nnilite._answers.changes import Changes, Reset, Subscription
from nnilite._answers.queries import (
    Backlog,
    CallbackAnswer,
    FileEntry,
    FileListing,
    Listed,
    MetricPage,
    MetricQuery,
    NonFileEntry,
    Piece,
    Profile,
    RemarksQuery,
    ServiceState,
    TrialPage,
    TrialQuery,
    TrialRemarks,
    TrialSort,
    TrialUsage,
    Waiting,
)
from nnilite.errors import Conflict
from nnilite.records import Attempt, Json, KeeperEvent, Trial, TrialState

__all__ = [
    "Backend",
    "Backlog",
    "BulkResults",
    "CallbackAnswer",
    "Callbacks",
    "Changes",
    "Control",
    "ExperimentFiles",
    "FencedConflict",
    "FileEntry",
    "FileListing",
    "GapConflict",
    "Listed",
    "MetricPage",
    "MetricQuery",
    "NonFileEntry",
    "Piece",
    "Profile",
    "RemarksQuery",
    "Reset",
    "Results",
    "ServiceState",
    "Subscription",
    "TrialPage",
    "TrialQuery",
    "TrialRemarks",
    "TrialSort",
    "TrialUsage",
    "Waiting",
]


class GapConflict(Conflict):
    """A batch begins after what the manager has: the keeper must resend from `answer`."""

    def __init__(self, answer: CallbackAnswer) -> None:
        super().__init__(f"events are missing before this batch; resend from metric {answer.metrics}")
        self.answer = answer


class FencedConflict(Conflict):
    """The attempt is fenced: a newer one has taken its place, or its experiment is over. Its keeper must end."""


class Results(Protocol):
    """Answers questions about trials and metrics from what is committed."""

    async def trials(self, query: TrialQuery) -> TrialPage: ...

    async def trial(self, trial: str) -> tuple[Trial, Sequence[Attempt]]:
        """Return one trial with its attempts. Raises: NotFound."""

    async def metrics(self, query: MetricQuery) -> MetricPage: ...

    async def remarks(self, query: RemarksQuery) -> Sequence[TrialRemarks]:
        """Return what people have written about trials. Trials without remarks are left out."""

    def read_ended(self) -> AsyncIterator[Trial]:
        """Yield all ended trials, by sequence. May be called twice for one answer."""

    async def imported(self) -> Sequence[Sequence[tuple[Json, Json]]]:
        """Return the pairs of each import so far."""


class BulkResults(Protocol):
    """Answers questions about many trials at once."""

    async def rows(self, table: Table, after: PageCursor, limit: int) -> RowPage:
        """Return trials or attempts that are new or changed since the cursor, with the columns of `_rest.insight`."""

    async def curves(self, trials: Sequence[str], points: int, key: str) -> Sequence[Curve]:
        """Return intermediate results of these trials, at most about `points` of each; unknown trials are left out."""

    async def importance(self, method: ImportanceMethod, key: str, stopped: bool = False) -> Importance:
        """Return how much each parameter matters for the number `key` of the final results. May take seconds.

        With `stopped`, trials that were stopped early count with their latest results.

        Raises: ServiceError.
        """


class ExperimentFiles(Protocol):
    """Finds the files of an experiment and of its trials."""

    async def log(self, name: str, offset: int, limit: int) -> Piece:
        """Return part of the log "manager" or "tuner". A negative offset counts from the end."""

    async def starts(self) -> Sequence[Mapping[str, Json]]:
        """Return what was recorded at each start of a manager, the latest last. Raises: DamagedFile, UnreadableFile."""

    async def recorded_workers(self) -> Sequence[Mapping[str, Json]]:
        """Return what trials ran with on their hosts, once for all hosts that have the same; the latest first."""

    async def output(self, trial: str, attempt: int | None, stream: str, offset: int, limit: int) -> Piece:
        """Return part of "stdout" or "stderr".

        `attempt` None means the latest. A negative offset counts from the end.
        """

    async def directory(self, trial: str) -> Path:
        """Return the trial's folder on this machine. Raises: NotFound if there is none (yet)."""

    async def list_files(self, trial: str, elsewhere: bool) -> FileListing:
        """List a trial's files: those on this machine, and with `elsewhere` those of its latest attempt where it ran.

        Nothing large is copied for that. Raises: NotFound if there is no folder (yet).
        """

    async def fetch_files(self, trial: str) -> None:
        """Copy all files of the trial's latest attempt to this machine, however long that takes.

        Raises: NotFound if there is no such trial, ServiceError if they cannot be copied now.
        """

    async def fetch_file(self, trial: str, path: str) -> None:
        """Copy one file to this machine unless it is here: `path` as listed.

        Raises: Conflict if it is larger than the limit for such copies, ServiceError if it cannot be copied now.
        """

    def code_package(self, digest: str) -> Path:
        """Return the archive of a code package. Raises: NotFound."""

    def keeper(self) -> Path:
        """Return the keeper zipapp."""


class Control(Protocol):
    """Does what people ask of an experiment."""

    async def update(self, changes: Mapping[str, Json]) -> None:
        """Change limits or the search space, all or nothing.

        The keys are fields of ExperimentLimits, and search_space; the values have been checked. Raises: ConfigError,
        TunerError, both for a search space.
        """

    async def stop(self) -> None:
        """Begin to stop the experiment and return."""

    async def resume(self) -> None:
        """Resume an experiment that is only viewed. Raises: Conflict if it is not only viewed."""

    async def add_trial(self, parameters: Json) -> Trial: ...

    async def cancel_trial(self, trial: str) -> Trial: ...

    async def interrupt_trial(self, trial: str) -> Trial:
        """End the running attempt as the loss of its machine would: it is tried again, whatever maxTrialRetries says.

        Raises: NotFound, Conflict if the trial does not run.
        """

    async def scale_trial(self, trial: str, workers: int) -> Trial:
        """Change the number of workers of an elastic trial while it runs. Raises: NotFound, Conflict."""

    async def rerun(self, ids: Sequence[str], state: TrialState | None) -> Sequence[Trial]:
        """Run ended trials again: those of `ids`, or all in `state`. Return them as they are now."""

    async def remark(self, remarks: TrialRemarks) -> TrialRemarks:
        """Replace the remarks of that trial and revision, also if the experiment is only viewed; they are checked.

        Return them with their new revision. Raises: NotFound, Conflict if they have another revision by now.
        """

    async def import_data(self, data: Sequence[tuple[Json, Json]]) -> tuple[int, int, str]:
        """Hand the tuner (parameters, value) pairs known from elsewhere, fitted to the search space.

        Return how many were new, how many were known already, and a sentence on those that were changed or left out
        ("" if there are none).
        """


class Callbacks(Protocol):
    """Takes what keepers report."""

    async def events(self, job: str, events: Sequence[KeeperEvent]) -> CallbackAnswer:
        """Commit a batch of a job whose token has been checked. Raises: NotFound, GapConflict, FencedConflict."""

    def callback_token(self, job: str) -> str:
        """Return the token of a job, existing or not (an HMAC of its name)."""


class Backend(Protocol):
    """A manager, as its REST interface sees it: what it says of the experiment as a whole, and its parts."""

    @property
    def experiment_id(self) -> str: ...

    @property
    def read_only(self) -> bool:
        """Whether `nnictl view` has opened it. Then requests that would change something are refused before this."""

    @property
    def token(self) -> str:
        """The manager's token."""

    @property
    def results(self) -> Results: ...

    @property
    def bulk(self) -> BulkResults: ...

    @property
    def files(self) -> ExperimentFiles: ...

    @property
    def control(self) -> Control: ...

    @property
    def callbacks(self) -> Callbacks: ...

    async def profile(self) -> Profile: ...

    async def uses(self) -> Mapping[str, TrialUsage]:
        """Return what each running trial uses now; trials without a known value are left out."""

    async def others(self) -> Sequence[Listed]:
        """Return all experiments of this machine that the registry knows."""

    def subscribe(self) -> Subscription:
        """Return a subscription to changes from now on, made by `nnilite._answers.changes.Changes`."""
