"""An experiment that is only viewed, as its REST interface sees it: all that `nnictl view` needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nnilite._answers.backend import Listed, Profile, TrialUsage
from nnilite._answers.changes import Changes, Subscription
from nnilite._store.reader import Reader
from nnilite._store.tables import BulkReader
from nnilite._views.experiment_facts import ExperimentFacts, ExperimentProgress
from nnilite._views.folder_files import FolderFiles
from nnilite._views.profile_maker import ProfileMaker, list_experiments
from nnilite._views.view_control import NoCallbacks, ViewControl
from nnilite.records import ExperimentState


class Viewer:
    """Implements `nnilite._answers.backend.Backend` for an experiment that does not run here."""

    read_only = True

    def __init__(
        self,
        about: ExperimentFacts,
        progress: ExperimentProgress,
        reader: Reader,
        token: str,
        make_control: type[ViewControl] = ViewControl,
        files: FolderFiles | None = None,
    ) -> None:
        self.profiles = ProfileMaker(about, reader)
        self.token = token
        self.changes = Changes()
        self.results = reader
        self.bulk = BulkReader(reader, about.objectives)
        self.files = files or FolderFiles(about.directory, reader)
        self.control = make_control(about, reader, self.changes)
        self.callbacks = NoCallbacks(self.control.refusal)
        self._progress = progress

    @property
    def experiment_id(self) -> str:
        return self.profiles.about.id

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
        return await self.profiles.make(self.progress(), self.read_only, self.control.cannot_resume)

    async def uses(self) -> Mapping[str, TrialUsage]:
        """Return nothing, as nothing runs."""
        return {}

    async def others(self) -> Sequence[Listed]:
        return await list_experiments()

    def subscribe(self) -> Subscription:
        return self.changes.subscribe()
