"""What becomes of one job, according to its platform, its log, and earlier observations.

This is the same on all platforms that take a job, report on it when they are asked, and keep its log. A service writes
what is its own:

    class MyWatch(JobWatch[MyJob]):
        platform = "Foo"

        async def fetch(self) -> MyJob:                      # asks for this job; Missing if there is none
            return await self._api.job(self.id)

        def interpret(self, found: MyJob) -> SeenJob:            # pure: from the platform's state to ours
            return SeenJob(STATES[found.status], found.reason, started=found.started)

        async def kill(self) -> None:                        # the platform's hard end
            await self._api.stop(self.id)

        def end(self, found: MyJob, word: Exited | None) -> JobStatus:    # pure: how it ended
            ...

All that a watch remembers is a cache: the watch of another manager comes to the same result, if later.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, TypeVar

from nnilite.errors import ConfigError, Conflict, NniliteError, NotFound, ServiceError
from nnilite.records import Exited, KeeperEvent
from nnilite.service import Handle, JobState, JobStatus
from nnilite.services.first_seen import FirstSeen
from nnilite.services.job_log import JobLog
from nnilite.services.keeper_folder import end_status

__all__ = ["JobWatch", "Patience", "SeenJob", "keeper_status"]

log = logging.getLogger(__name__)

JobT = TypeVar("JobT")


@dataclass(frozen=True)
class Patience:
    """The waits before a service draws a conclusion. One set of times for all platforms, in seconds."""

    list_pause_s: float = 5.0
    """Jobs are listed at most once in this time: platforms limit calls."""
    log_pause_s: float = 5.0
    """The log of a running job is read at most once in this time."""
    young_s: float = 30.0
    """A job that was submitted less than this ago may not be known to all of its platform yet."""
    gone_s: float = 60.0
    """A job counts as lost when its platform has not known it for this long: databases fail for a moment."""
    log_lag_s: float = 60.0
    """How long after the job its log may end."""
    soft_extra_s: float = 5.0
    """How long after the keeper should have ended the trial softly the platform is asked to kill it."""
    call_s: float = 40.0
    """The limit on all tries of one call, where the client takes it from here: the engine gives up after 60 s."""


@dataclass(frozen=True)
class SeenJob:
    """What a platform reports about a job now, in terms that all platforms share."""

    state: JobState
    """WAITING, RUNNING or UNKNOWN; an end where the platform says so. LOST needs no log, and is the end at once."""
    reason: str = ""
    started: float | None = None
    host: str = ""
    url: str = ""
    is_stopping: bool = False
    """Whether the platform is ending it already."""
    holds: bool = False
    """Whether it has ended and still holds something, which `kill` frees."""

    def status(self, state: JobState | None = None, reason: str | None = None) -> JobStatus:
        """Return it as the status of a job, with another state or reason if they are given."""
        reason = self.reason if reason is None else reason
        return JobStatus(state or self.state, reason, host=self.host, started=self.started, url=self.url)


class JobWatch(ABC, Generic[JobT]):
    """One job. Subclasses say how to ask the platform; `status`, `cancel`, `remove` and `reports` follow from that."""

    platform: ClassVar[str] = ""
    """The platform's name in messages."""

    def __init__(self, handle: Handle, log: JobLog, patience: Patience) -> None:
        self.name = str(handle["job"])
        self.id = str(handle.get("id") or self.name)
        """What the platform calls it: the key in its listing."""
        self.by_log = handle.get("report") == "stdout"
        self.log = log
        self.patience = patience
        self.soft_end: Callable[[], Awaitable[None]] | None = None
        """Asks the platform for a soft end, where it has one as well as the keeper; raises as `kill`."""
        self.url = ""
        self.host = ""
        """The node on which it was seen to run."""
        self.ran = False
        """Whether its command was ever seen to run."""
        self.canceled = False
        """Whether the platform was asked to end it."""
        self.over: JobStatus | None = None
        """Its end, once that is known."""
        self._submitted = float("-inf")
        self._known = False  # whether this manager has submitted it, or has looked at it
        self._learned = False
        self._seen_first = FirstSeen()
        self._cancel_at: float | None = None
        self._read_whole = False

    # ------------------------------------------------------------ what a platform says for itself

    @abstractmethod
    async def fetch(self) -> JobT:
        """Ask the platform for this job, with all details. Raises: Missing if there is none, Problem."""

    @abstractmethod
    def interpret(self, job: JobT) -> SeenJob:
        """Return what the platform's answer means. It may depend on what was seen before."""

    @abstractmethod
    async def kill(self) -> None:
        """Ask the platform for a hard end. Raises: Missing, Problem."""

    @abstractmethod
    def end(self, job: JobT, word: Exited | None) -> JobStatus:
        """Return how the job has ended.

        `word` is the record of its keeper, which takes precedence; None if there is none.
        """

    async def learn(self, job: JobT) -> JobT:
        """Ask for what a listing lacks. Raises: Problem.

        Called when the job begins to run, when it has ended, and where an earlier manager may have seen it run.
        """
        return job

    def knows_enough(self) -> bool:
        """Return whether all was learned of the running job that is needed before its end."""
        return self._learned

    def is_this(self, job: JobT) -> bool:
        """Return whether what was found by the id is this job; platforms may use an id again."""
        return True

    def taken_away(self, job: JobT, seen: SeenJob) -> JobStatus:
        """Return the status of a job that has run, and waits again."""
        reason = f"{self.platform} took the job off its node to start it again"
        return seen.status(JobState.LOST, f"{reason}: {seen.reason}" if seen.reason else reason)

    def speaks(self, job: JobT, seen: SeenJob) -> bool:
        """Return whether the log of an ended job should say how it ended, so that it is worth waiting for."""
        return self.ran and not (seen.state is JobState.CANCELED and self.canceled)

    # ------------------------------------------------------------ its status

    def submitted(self) -> None:
        """Note that the platform has just taken it."""
        self._submitted, self._known = time.monotonic(), True

    def lasts_s(self, what: str, holds: bool = True) -> float:
        """Return the seconds for which `what` has held: see `FirstSeen`."""
        return self._seen_first.lasts_s(what, holds)

    async def status(self, jobs: Mapping[str, JobT]) -> JobStatus:
        """Return the status now. `jobs` are those that the platform has listed, by `id`."""
        if self.over is not None:
            return self.over
        try:
            found = jobs.get(self.id)
            found = await self._fetch_job() if found is None else found
            status = await self._found(found) if self.is_this(found) else self.missing()
        except NotFound:
            status = self.missing()
        except NniliteError as problem:
            # This job's problem does not make the status of the other jobs unknown.
            return JobStatus(JobState.UNKNOWN, str(problem), url=self.url)
        # A field of a platform's answer may have any type and value.
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            log.debug("%s: an answer about %s makes no sense", self.platform, self.name, exc_info=True)
            reason = f"{self.platform} says of the job what makes no sense ({type(error).__name__}: {error})"
            return JobStatus(JobState.UNKNOWN, reason, url=self.url)
        status = replace(status, url=status.url or self.url, host=status.host or self.host)
        if status.state.ended:
            self.over = status
        return status

    async def _fetch_job(self) -> JobT:
        found = await self.fetch()
        if not self.is_this(found):
            raise NotFound(f"{self.platform} has a different job with this id")
        return found

    def missing(self) -> JobStatus:
        """Return the status of a job that the platform does not know. It may be overridden, as `judged`."""
        if time.monotonic() - self._submitted < self.patience.young_s:
            return JobStatus(JobState.WAITING, f"{self.platform} has just accepted the job")
        if self.canceled:
            return JobStatus(JobState.CANCELED, "canceled")
        if self.lasts_s("missing") < self.patience.gone_s:
            return JobStatus(JobState.UNKNOWN, f"{self.platform} does not know the job at the moment")
        return JobStatus(JobState.LOST, f"{self.platform} no longer knows the job")

    async def _found(self, job: JobT) -> JobStatus:
        """Take up what the platform found. Raises: Problem, ServiceError."""
        self.lasts_s("missing", False)
        if self._cancel_at is not None and not self.canceled and time.monotonic() >= self._cancel_at:
            await self._end()
        return await self.judged(job)

    async def judged(self, job: JobT) -> JobStatus:
        """Return the status of a job that was found. Override it if `interpret` does not suffice. Raises: Problem."""
        job, seen = await self._looked_at(job)
        if seen.state is JobState.LOST or seen.state is JobState.UNKNOWN:
            return seen.status()
        if seen.state.ended:
            return await self._ended(job)
        if seen.state is JobState.WAITING and self.ran:
            job = await self.learn(job)
            return self.taken_away(job, self._seen(job))
        if seen.is_stopping and not self.ran:
            return seen.status(JobState.WAITING)
        return seen.status(reason=seen.reason if self._cancel_at is None else "the job is being canceled")

    def _seen(self, job: JobT) -> SeenJob:
        seen = self.interpret(job)
        self.host, self.url = seen.host or self.host, seen.url or self.url
        return seen

    async def _looked_at(self, job: JobT) -> tuple[JobT, SeenJob]:
        seen = self._seen(job)
        runs = seen.state is JobState.RUNNING and not seen.is_stopping
        if (runs and not self.knows_enough()) or (seen.state is JobState.WAITING and not self._known):
            job = await self.learn(job)
            seen, self._known, self._learned = self._seen(job), True, runs
        self.ran = self.ran or runs or seen.started is not None
        return job, seen

    async def _ended(self, job: JobT) -> JobStatus:
        job = await self.learn(job)
        seen = self._seen(job)
        self.ran = self.ran or seen.started is not None
        late = self.lasts_s("ended") >= self.patience.log_lag_s
        speaks = self.speaks(job, seen)
        try:
            await self.log.follow()
        except NniliteError:
            if speaks and not late:
                raise
        if speaks and self.log.lags and self.log.exited is None and not late:
            return seen.status(JobState.RUNNING, "the job has ended; waiting for the end of its log")
        end = self.end(job, self.log.exited)
        if self.canceled and end.state is not JobState.SUCCEEDED:
            end = replace(end, state=JobState.CANCELED, reason=end.reason or "canceled")
        return end

    # ------------------------------------------------------------ its end

    async def cancel(self, soft_s: float) -> None:
        """Ask for its end: in `soft_s` seconds if it runs, by when its trial may have ended softly; else now."""
        if self.over is not None or self._cancel_at is not None:
            return
        try:
            seen = self.interpret(await self._fetch_job())
        except NotFound:
            # The platform may know it again later; then it is ended at once.
            self._cancel_at = time.monotonic()
            return
        if _has_ended(seen):
            return
        runs = seen.state is JobState.RUNNING and not seen.is_stopping
        await self._end(softly=bool(runs and soft_s))
        self._cancel_at = time.monotonic() + (soft_s if runs else 0.0)

    async def _end(self, softly: bool = False) -> None:
        """End the job. Raises: Problem, ServiceError if the platform refuses it for a job that has not ended."""
        call = self.soft_end if softly else self.kill
        if call is None:
            return
        try:
            await call()
        except NotFound:
            return
        except (ConfigError, Conflict) as problem:
            if not _has_ended(self.interpret(await self._fetch_job())):
                raise ServiceError(str(problem)) from problem
        self.canceled = self.canceled or not softly

    async def remove(self) -> None:
        """End the job, unless it has ended and holds nothing. Raises: ServiceError while it still runs, Problem."""
        try:
            seen = self.interpret(await self._fetch_job())
            if seen.holds or not (_has_ended(seen) or seen.is_stopping):
                await self._end()
                seen = self.interpret(await self._fetch_job())
        except NotFound:
            return
        if not _has_ended(seen):
            raise ServiceError(f"{self.platform} is still stopping the job {self.id}")

    # ------------------------------------------------------------ its log

    async def reports(self) -> Sequence[KeeperEvent]:
        """Return the news of its log; once it has ended, all of it again. Raises: Problem."""
        if self.over is not None and not self._read_whole:
            self._read_whole = True
            self.log.rewind()
        await self.read_log()
        return self.log.events(self.by_log)

    async def read_log(self) -> None:
        """Read on in the log, unless that was done just now. Raises: Problem."""
        if self.over is not None or time.monotonic() - self.log.last_read >= self.patience.log_pause_s:
            try:
                await self.log.follow()
            except NotFound:
                # The job, or its log, does not exist (any more).
                return


def _has_ended(seen: SeenJob) -> bool:
    """Return whether the job has ended. A job that is lost may still be there, and be begun again."""
    return seen.state.ended and seen.state is not JobState.LOST


def keeper_status(word: Exited, started: float | None = None) -> JobStatus:
    """Return how a job has ended by its keeper's record alone."""
    record = {"code": word.code, "message": word.message, "cause": word.cause.value, "time": word.time}
    return end_status(record, started=started)
