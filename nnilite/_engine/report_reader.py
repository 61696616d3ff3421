"""Takes the events of jobs that the training service reads itself: from folders and logs, which may be slow or hang.

Where the service allows it (`TrainingService.reports_aside`), a slow reading continues during other calls, so that no
other trial waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from nnilite._engine import messages
from nnilite._engine.dedupe import Fenced, GapFound, JobKey
from nnilite._engine.guarded_calls import guarded
from nnilite._engine.service_answers import explain_odd_event
from nnilite.errors import NniliteError, ServiceError, StoreError
from nnilite.records import Attempt, Attributed, KeeperEvent, Output, Reported, Started, Used
from nnilite.service import Handle, JobState, JobStatus, TrainingService

log = logging.getLogger(__name__)

UNREAD_PATIENCE_S = 60.0
_POLL_WAITS_S = 2.0
_MOST_ASIDE = 16
_CANCELED_S = 5.0
_MOST_UNTAKEN_BYTES = 64_000_000  # of one attempt: no more is read until these are taken
_EVENT_BYTES = 500  # what a small event takes of the memory
_CHECKED_AT_ONCE = 500  # events; then other tasks have a turn
_OTHER_RUN = "the reports that its job left are from another run; the run that reported before has sent nothing more"


class ReportInbox(Protocol):
    """What the reader needs of the engine."""

    def now(self) -> float: ...

    def put(self, message: messages.Input, *, soon: bool = True) -> None:
        """Accept an input without waiting for it."""

    async def commit_events(
        self, trial: str, attempt: int, events: Sequence[KeeperEvent], over_gaps: bool = False
    ) -> object:
        """Accept events that the service read itself."""

    def is_live(self, attempt: Attempt) -> bool:
        """Return whether the attempt has no known end yet."""


class ReportReader:
    """Hands statuses to the engine, each after the events that came before it."""

    def __init__(self, service: TrainingService, inbox: ReportInbox) -> None:
        self._service = service
        self._inbox = inbox
        self._unread: dict[JobKey, float] = {}  # ended jobs whose reports are unavailable, and since when
        self._untaken: dict[JobKey, list[KeeperEvent]] = {}  # events that services may not give again
        self._complaints: dict[JobKey, str] = {}  # what was logged last of reports that do not come
        self._readings: dict[JobKey, asyncio.Task[None]] = {}
        self._until = 0.0  # when the poll waits for no reading any more

    def begin_poll(self) -> None:
        """Begin to hand over the statuses of a poll. Raises: what a reading in the background has raised."""
        self._until = asyncio.get_running_loop().time() + _POLL_WAITS_S
        for key, reading in list(self._readings.items()):
            if reading.done():
                del self._readings[key]
                reading.result()

    async def hand_over(self, attempt: Attempt, handle: Handle, status: JobStatus) -> None:
        """Hand over a status after the events, which are read first; if they are slow to read, later."""
        if not self._service.reports_aside:
            await self._read(attempt, handle, status)
            return
        key = (attempt.trial, attempt.number)
        if key not in self._readings and len(self._readings) < _MOST_ASIDE:
            reading = self._readings[key] = asyncio.create_task(self._read(attempt, handle, status))
            left_s = self._until - asyncio.get_running_loop().time()
            await asyncio.wait([reading], timeout=max(0.0, left_s))
            if reading.done():
                del self._readings[key]
                reading.result()
                return
            log.info("reading the reports of trial %s is slow; other trials do not wait for it", attempt.trial)
        if not status.state.ended:
            self._inbox.put(messages.Polled(*key, status, self._inbox.now()))

    def forget(self, attempt: Attempt) -> None:
        """Forget the attempt, as it is completely reported."""
        for about in (self._untaken, self._unread, self._complaints):
            about.pop((attempt.trial, attempt.number), None)

    async def stop(self, attempt: Attempt | None = None) -> None:
        """End the reading of this attempt, or all."""
        keys = list(self._readings) if attempt is None else [(attempt.trial, attempt.number)]
        readings = [reading for key in keys if (reading := self._readings.pop(key, None)) is not None]
        for reading in readings:
            reading.cancel()
        if readings:
            await asyncio.wait(readings, timeout=_CANCELED_S)

    async def _read(self, attempt: Attempt, handle: Handle, status: JobStatus) -> None:
        known = await self._take_after_reports(attempt, handle, status)
        if known is None:
            return
        if known.state.ended:
            self.forget(attempt)
        self._inbox.put(messages.Polled(attempt.trial, attempt.number, known, self._inbox.now()))

    async def _take_after_reports(self, attempt: Attempt, handle: Handle, status: JobStatus) -> JobStatus | None:
        """Take what the service has read of a job. Return its status then, or None to wait for the next poll."""
        key = (attempt.trial, attempt.number)
        try:
            await self._take_reports(attempt, handle, status.state.ended)
        except Fenced:
            self._untaken.pop(key, None)
            # The keeper reported the end first, and the trial is being tried again. Or the attempt belongs to another
            # run than that of the job, which may still report: it gets a while to do so.
            if not (status.state.ended and self._inbox.is_live(attempt)) or self._may_come(attempt):
                return None
            status = replace(status, state=JobState.LOST, reason=_OTHER_RUN, exit_code=None)
        except StoreError as error:
            # The disk is in trouble. The end must not be stored before the reports: the next poll gets both again.
            self._complain(attempt, f"the reports of trial {attempt.trial} are delayed: {error}")
            return None
        except (NniliteError, GapFound) as error:
            if isinstance(error, ServiceError) and status.state.ended and self._may_come(attempt):
                self._complain(attempt, f"cannot read the reports of trial {attempt.trial} now: {error}")
                return None
            self._complain(attempt, f"cannot accept the reports of trial {attempt.trial}: {error}")
        else:
            self._complaints.pop(key, None)
        self._unread.pop(key, None)
        return status

    def _complain(self, attempt: Attempt, words: str) -> None:
        """Log why there are no reports, unless the last poll has logged the same."""
        key = (attempt.trial, attempt.number)
        if self._complaints.get(key) != words:
            self._complaints[key] = words
            log.warning("%s", words)

    def _may_come(self, attempt: Attempt) -> bool:
        """Return whether to ask again for the reports of an ended job, before its end counts without them."""
        loop = asyncio.get_running_loop()
        since = self._unread.setdefault((attempt.trial, attempt.number), loop.time())
        return loop.time() - since < UNREAD_PATIENCE_S

    async def _take_reports(self, attempt: Attempt, handle: Handle, ended: bool) -> None:
        """Take the events that the service has read itself.

        A service may return each event only once. So events that could not be taken, because the disk failed or because
        of a gap before them, are kept here and offered again. At a gap, the service is asked again; if the job has
        ended, nothing can fill the gap any more. Nor can it where too much has come since: a hostile trial could leave
        a gap, and fill the memory.
        """
        key = (attempt.trial, attempt.number)
        for again in (False, True):
            name = self._service.name
            is_full = _weigh(self._untaken.get(key, ())) > _MOST_UNTAKEN_BYTES
            answer = () if is_full else await guarded(name, lambda: self._service.reports(handle))
            events = _in_order([*self._untaken.pop(key, ()), *await _check_events(name, answer)])
            try:
                await self._inbox.commit_events(*key, events, is_full or (ended and again))
                return
            except GapFound:
                self._untaken[key] = events
                if again:
                    raise
            except NniliteError:
                self._untaken[key] = events
                raise


def _weigh(events: Sequence[KeeperEvent]) -> int:
    """Return about how many bytes of memory these take."""

    def measure(event: KeeperEvent) -> int:
        if isinstance(event, Output):
            return len(event.data)
        return len(str(event.value)) if isinstance(event, Reported | Attributed) else 0

    return sum(_EVENT_BYTES + measure(event) for event in events)


def _in_order(events: Sequence[KeeperEvent]) -> list[KeeperEvent]:
    """Return the events by number, each once, as several readings may overlap.

    An end comes after all earlier reports.
    """

    def place(event: KeeperEvent) -> tuple[int, int, str, int, str]:
        if isinstance(event, Reported | Attributed):
            return 1, event.index, "", 0, event.run
        if isinstance(event, Output):
            return 1, event.offset, event.stream, len(event.data), event.run
        return (0 if isinstance(event, Started) else 2), 0, "", 0, event.run

    # While a disk is in trouble, a service that repeats its reports would otherwise add another copy at each poll.
    known = {place(event): event for event in reversed(events)}
    return [known[key] for key in sorted(known)]


async def _check_events(service: str, answer: object) -> Sequence[KeeperEvent]:
    """Check the events that a plugin has read from its platform. Raises: ServiceError."""
    if not isinstance(answer, (list, tuple)) or not all(isinstance(event, KeeperEvent) for event in answer):
        raise ServiceError(f"{service} returned {answer!r:.200} instead of a list of events")
    events = [event for event in answer if not isinstance(event, Used)]  # what is read so may be old
    for number, event in enumerate(events):
        if problem := explain_odd_event(event):
            raise ServiceError(f"{service} returned the event {event!r:.200}: {problem}")
        if number % _CHECKED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return events
