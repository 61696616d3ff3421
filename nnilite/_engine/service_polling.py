"""The looks at the jobs that the training service has."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from nnilite._engine import messages
from nnilite._engine.guarded_calls import PluginFault, guarded
from nnilite._engine.live_trial import ActiveTrial
from nnilite._engine.report_reader import ReportReader
from nnilite._engine.service_answers import check_statuses, storable_status
from nnilite._engine.service_choice import PlacementNotes, ServiceChoice
from nnilite.errors import NniliteError
from nnilite.records import Attempt, KeeperEvent, Trial
from nnilite.service import Job, JobState, JobStatus, TrainingService

log = logging.getLogger(__name__)


class EngineInterface(Protocol):
    """What the service caller needs of the engine."""

    @property
    def notes(self) -> PlacementNotes:
        """The notes for a hybrid service."""

    def now(self) -> float: ...

    def put(self, message: messages.Input, *, soon: bool = True) -> None:
        """Accept an input without waiting for it.

        One that is not urgent is taken with the next one, or later.
        """

    async def commit_events(
        self, trial: str, attempt: int, events: Sequence[KeeperEvent], over_gaps: bool = False
    ) -> object:
        """Accept events that the service read itself."""

    def stuck(self) -> list[ActiveTrial]:
        """Return the trials that have waited in the queue of one service for longer than `moveAfter`."""

    def submitted(self) -> list[Attempt]:
        """Return the attempts that the service has, which are to be polled."""

    def is_live(self, attempt: Attempt) -> bool:
        """Return whether the attempt has no known end yet."""

    def is_delivering(self, attempt: Attempt) -> bool:
        """Return whether new events of this attempt came in the last few seconds."""


class ServicePoller:
    """Polls the service, and hands the statuses to the rules, each after the events that came before it."""

    def __init__(
        self,
        service: TrainingService,
        choice: ServiceChoice,
        inbox: EngineInterface,
        job: Callable[[Trial, Attempt], Job],
        reader: ReportReader,
        follow: Collection[str],
    ) -> None:
        self.trouble = ""  # why the last poll failed, "" if it did not
        self.failures = 0  # how many have failed one after the other
        self._service = service
        self._choice = choice
        self._inbox = inbox
        self._job = job
        self._reader = reader
        self._follow = follow  # services whose trials report by their logs, which are read during the run, too

    async def poll(self) -> None:
        """Look at all jobs that the service has, and hand on what has changed."""
        attempts = [a for a in self._inbox.submitted() if a.handle is not None]
        if not attempts:
            return
        try:
            handles = [a.handle for a in attempts if a.handle is not None]
            found = await guarded(self._service.name, lambda: self._service.poll(handles))
            statuses = check_statuses(self._service.name, found, len(attempts))
        except NniliteError as error:
            if str(error) != self.trouble:
                log.warning("%s cannot be polled: %s", self._service.name, error)
            self.trouble = str(error)
            self.failures = min(self.failures + 1, 6)
            if isinstance(error, PluginFault):
                self._tell_trials(attempts, str(error))
            return
        self.trouble, self.failures = "", 0
        self._reader.begin_poll()
        for attempt, status in zip(attempts, statuses, strict=True):
            await self._report(attempt, status)
        self._move()

    def _tell_trials(self, attempts: Sequence[Attempt], mistake: str) -> None:
        """Show a mistake in the plugin, which hardly passes by itself, at the trials whose state it hides."""
        status = storable_status(JobStatus(JobState.UNKNOWN, mistake))
        for attempt in attempts:
            self._inbox.put(messages.Polled(attempt.trial, attempt.number, status, self._inbox.now()))

    def _move(self) -> None:
        """Take trials out of queues in which they have waited long, as far as other services have room."""
        moving: Counter[str] = Counter()
        for live in self._inbox.stuck():
            if live.attempt is None:
                continue
            service = live.attempt.service
            target = self._choice.place_to_move(self._job(live.trial, live.attempt), moving, {*live.tried, service})
            if target:
                moving[target] += 1
                reason = f"moved, because it waited long in the queue of {service} and {target} has room"
                log.info("trial %s is %s", live.trial.id, reason)
                self._inbox.put(messages.Move(live.trial.id, live.attempt.number, reason, self._inbox.now()))

    async def _report(self, attempt: Attempt, status: JobStatus) -> None:
        """Hand a status to the rules; if the platform reports an end, after all events that the keeper left."""
        # Since the poll began, the keeper may have reported the end: then everything before it is stored.
        if not self._inbox.is_live(attempt):
            self._reader.forget(attempt)
            return
        if self._is_left_to_keeper(attempt, status):
            return
        if (status.state.ended or attempt.service in self._follow) and attempt.handle is not None:
            await self._reader.hand_over(attempt, attempt.handle, status)
        else:
            self._inbox.put(messages.Polled(attempt.trial, attempt.number, status, self._inbox.now()))

    def _is_left_to_keeper(self, attempt: Attempt, status: JobStatus) -> bool:
        """Return whether to wait for the next poll, since the ended command's keeper is still delivering.

        Reading the whole spool at the same time would do the same work twice, which takes seconds for 100,000 reports.
        """
        has_ended = status.state.ended and status.state is not JobState.LOST and attempt.service not in self._follow
        return has_ended and self._inbox.is_delivering(attempt)
