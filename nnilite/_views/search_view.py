"""Shows a search that a Python program makes, while its processes work on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from nnilite._answers.backend import MetricQuery, Profile, TrialQuery
from nnilite._experiments import search_folder
from nnilite._store.reader import Reader
from nnilite._views.experiment_facts import ExperimentFacts, ExperimentProgress
from nnilite._views.view_control import ViewControl
from nnilite._views.viewer import Viewer
from nnilite.errors import Conflict, NniliteError, StoreError
from nnilite.records import ExperimentState, TrialState

log = logging.getLogger(__name__)

LOOK_S = 1.0
_CHUNK = 1000


class SearchView(Viewer):
    """A viewer that rereads the progress each time. `read_progress` blocks, and is called once at a time."""

    def __init__(
        self, about: ExperimentFacts, read_progress: Callable[[], ExperimentProgress], reader: Reader, token: str
    ) -> None:
        self._read_progress = read_progress
        super().__init__(about, self._now(about), reader, token, SearchControl)
        self._viewed = False
        self._turn = asyncio.Lock()

    def show_as_viewed(self) -> None:
        self._viewed = True

    def progress(self) -> ExperimentProgress:
        """Return the progress as it was when the profile was last requested."""
        was = self._progress
        if not self._viewed:
            return was
        return replace(was, state=ExperimentState.VIEWED, reason=f"it is open for reading, and is {was.state.value}")

    async def profile(self) -> Profile:
        async with self._turn:
            self._progress = await asyncio.to_thread(self._now, self.profiles.about)
        return await super().profile()

    async def watch(self) -> None:
        """Publish what the processes of the search have written, until this is canceled."""
        last_error, shown, place = "", self._progress, (0, 0)
        place = await self._publish(place, silent=True)
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                now = await self._publish(place, silent=False)
                profile = await self.profile()
                if now != place or self._progress != shown:
                    self.changes.publish(profile)
                place, shown, last_error = now, self._progress, ""
            except (StoreError, OSError) as error:
                if str(error) != last_error:
                    log.error("%s", error)
                last_error = str(error)

    async def _publish(self, place: tuple[int, int], silent: bool) -> tuple[int, int]:
        """Publish what came after the revision and the metric of this place. Return the place of the last."""
        revision, metric = place
        metrics = await self.results.metrics(MetricQuery(after=metric, limit=_CHUNK))
        while metrics.metrics:
            metric = metrics.next
            for one in [] if silent else metrics.metrics:
                self.changes.publish(one)
            metrics = await self.results.metrics(MetricQuery(after=metric, limit=_CHUNK))
        page = await self.results.trials(TrialQuery(after_revision=revision, limit=_CHUNK))
        for trial in [] if silent else page.trials:
            self.changes.publish(trial)
        return page.revision, metric

    def _now(self, about: ExperimentFacts) -> ExperimentProgress:
        progress = self._read_progress()
        try:
            state, ended = search_folder.read_state(about.directory)
        except NniliteError as error:
            return replace(progress, reason=str(error))
        running = progress.counts.get(TrialState.RUNNING, 0)
        reason = f"{running} trials were interrupted" if running and state is ExperimentState.STOPPED else ""
        return replace(progress, state=state, ended=ended, reason=reason)


class SearchControl(ViewControl):
    """Refuses to resume a search, too: only its program can do that."""

    @property
    def cannot_resume(self) -> str:
        return search_folder.explain_no_resume_of_search(self._about.id, self._about.directory)

    async def resume(self) -> None:
        raise Conflict(self.cannot_resume)

    def refusal(self, what: str) -> Conflict:
        return Conflict(
            f"{self._about.id} is a search of a Python program and cannot be {what} here, only in that program."
        )
