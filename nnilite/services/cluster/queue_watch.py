"""What becomes of one job, according to the scheduler, its keeper, and earlier observations.

The keeper's record of the end is in the attempt's folder and says more than the scheduler, which in turn knows why a
keeper was killed. A network file system may show a file some time after it was written elsewhere, so its absence counts
late.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nnilite.records import EndCause
from nnilite.service import JobState, JobStatus
from nnilite.services.cluster.queued_job import QueuedJob, QueuePhase
from nnilite.services.cluster.shared_folder import NOTE_MAX_BYTES
from nnilite.services.first_seen import FirstSeen
from nnilite.services.keeper_folder import end_status, read_clock_time

SHOWN_LATE_S = 60.0
"""How long a file from one node may take to appear on another."""
_STARTED, _EXIT = ".nni/started", ".nni/exit"
NOTES = ("again", "array", "failed", "job", "owner", _EXIT, _STARTED)
"""Small files that are written once, whole."""
SIGNS = ("canceled", "script", "spec.json")
"""Files whose content does not matter, only that they exist."""


@dataclass
class QueueWatch:
    """One job. All that it remembers is a cache, except for the times at which a condition was first seen."""

    title: str  # the scheduler's name
    name: str
    folder: str  # relative to the folder of all files
    id: str = ""  # the scheduler's; "" until it was submitted
    by_log: bool = False  # whether it reports by its folder
    notes: dict[str, bytes] = field(default_factory=dict)
    signs: frozenset[str] = frozenset()
    sizes: dict[str, int] = field(default_factory=dict)  # sizes of growing files
    canceled: bool = False
    had_begun: bool = False  # whether the trial had begun before the scheduler was last asked
    is_end_reported: bool = False  # a later cancellation takes nothing of that back
    since: FirstSeen = field(default_factory=FirstSeen)

    def files(self, growing: tuple[str, ...]) -> list[str]:
        """Return what has still to be looked for."""
        wanted = [name for name in (*NOTES, *SIGNS) if name not in self.notes]
        return [f"{self.folder}/{name}" for name in (*wanted, *growing)]

    @property
    def awaited(self) -> str:
        """The keeper's record of the end, if it is to be watched for; else ""."""
        return f"{self.folder}/{_EXIT}" if self.by_log and _EXIT not in self.notes else ""

    def found(self, sizes: Mapping[str, int]) -> list[str]:
        """Note the sizes of the files, and return the records that have not been read yet."""
        self.had_begun = _STARTED in self.notes
        own = {name: size for name in (*NOTES, *SIGNS) if (size := sizes.get(f"{self.folder}/{name}")) is not None}
        self.signs = frozenset({*own, *self.notes})
        self.canceled = self.canceled or "canceled" in own
        new = [name for name in own if name in NOTES and name not in self.notes]
        return [f"{self.folder}/{name}" for name in new if own[name] < NOTE_MAX_BYTES]

    def read(self, taken: Mapping[str, bytes]) -> None:
        """Take the notes that were read."""
        for name in NOTES:
            if f"{self.folder}/{name}" in taken:
                self.notes[name] = taken[f"{self.folder}/{name}"]
        # Of two jobs that were submitted for it, the one that has begun it counts.
        self.id = self.text("owner") or self.id or self.text("job")

    def text(self, name: str) -> str:
        """Return a note's text."""
        return self.notes.get(name, b"").decode("utf-8", "replace").strip()

    def record(self, name: str) -> Mapping[str, Any] | None:
        """Return a record of the keeper; None if there is none. The trial may have written to it."""
        try:
            value = json.loads(self.notes[name])
        except (KeyError, ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    @property
    def exited(self) -> Mapping[str, Any] | None:
        return self.record(_EXIT)

    @property
    def started(self) -> float | None:
        return read_clock_time((self.record(_STARTED) or {}).get("time"))

    # ------------------------------------------------------------ the verdict

    def status(self, job: QueuedJob | None) -> JobStatus:
        """Return the status, given what the scheduler reports; None: it knows no such job (any more)."""
        found = self._judge(job)
        # A scheduler may list a job as running after it has left it out, or has reported its end.
        self.is_end_reported = self.is_end_reported or (found.state.ended and self.exited is not None)
        return found

    def _judge(self, job: QueuedJob | None) -> JobStatus:
        if job is None:
            return self._judge_unlisted()
        if job.phase is QueuePhase.WAITING:
            return self._waiting(job)
        if job.phase is QueuePhase.UNKNOWN:
            return JobStatus(JobState.UNKNOWN, f"{self.title} reported the unknown state {job.state!r}")
        return self._ended(job) if job.phase.is_over else self._running(job)

    def _judge_unlisted(self) -> JobStatus:
        if self.exited is not None:
            return end_status(self.exited, started=self.started)
        if not self.signs:
            return JobStatus(JobState.LOST, f"the trial's folder is gone, and {self.title} does not know the job")
        if self.canceled:
            return JobStatus(JobState.CANCELED, "the job was canceled before it began")
        # A set-up line of the user's, or a setting such as pythonPath: another node would fail alike.
        if "failed" in self.notes:
            return JobStatus(JobState.FAILED, self.text("failed"))
        if self.since.lasts_s("missing") < SHOWN_LATE_S:
            return JobStatus(JobState.UNKNOWN, f"{self.title} does not list the job")
        return JobStatus(
            JobState.LOST, f"{self.title} no longer knows the job {self.id}, and its keeper reported no end"
        )

    def _waiting(self, job: QueuedJob) -> JobStatus:
        self.since.clear()
        if self.had_begun:
            return JobStatus(JobState.LOST, f"{self.title} put the job back into the queue ({job.reason or job.state})")
        return JobStatus(JobState.WAITING, job.words)

    def _running(self, job: QueuedJob) -> JobStatus:
        self.since.clear()
        if "again" in self.notes:
            return JobStatus(JobState.LOST, self.text("again"), host=job.host)
        if self.exited is None and self.started is None:
            what = "the node is being prepared" if job.phase is QueuePhase.PREPARING else "the set-up lines run"
            where = f" on {job.host}" if job.host else ""
            return JobStatus(JobState.WAITING, f"{self.title} started the job{where}: {what}", host=job.host)
        asked = self.canceled or (self.exited or {}).get("cause") == EndCause.INTERRUPTED.value
        # The keeper may still be delivering. Why it was ended, or that all is over, the scheduler itself has to say.
        if self.exited is not None and (self.is_end_reported or not asked):
            return end_status(self.exited, job.host, self.started)
        reason = "" if self.exited is None else f"the job has ended; {self.title}: {job.state}"
        return JobStatus(JobState.RUNNING, reason, host=job.host, started=self.started or job.started)

    def _ended(self, job: QueuedJob) -> JobStatus:
        if self.exited is not None:
            return self._judge_by_keeper(self.exited, job)
        state, reason, code = self._judge_without_keeper(job)
        return JobStatus(state, reason, code, job.host, started=self.started)

    def _judge_without_keeper(self, job: QueuedJob) -> tuple[JobState, str, int | None]:
        """Return state, reason and exit code of an ended job without a record of its keeper."""
        if job.phase is QueuePhase.LOST:
            return JobState.LOST, job.words, None
        if self.canceled or job.phase is QueuePhase.CANCELED:
            return JobState.CANCELED, "canceled" if self.canceled else f"{job.words}, but not by nnilite", None
        if "failed" in self.notes:
            return JobState.FAILED, self.text("failed"), job.exit_code
        if "again" in self.notes:
            return JobState.LOST, self.text("again"), None
        # The scheduler's own word for what it has killed is enough.
        if job.phase not in (QueuePhase.COMPLETED, QueuePhase.FAILED):
            return JobState.FAILED, job.words, job.exit_code
        if self.since.lasts_s("ended") < SHOWN_LATE_S:
            return JobState.RUNNING, f"{job.words}; waiting for the last report of its keeper", None
        if job.phase is QueuePhase.FAILED:
            return JobState.FAILED, f"{job.words}; see job.log in its folder", job.exit_code or None
        return JobState.LOST, f"{job.words}, but its keeper reported no end", None

    def _judge_by_keeper(self, exited: Mapping[str, Any], job: QueuedJob) -> JobStatus:
        status = end_status(exited, job.host, self.started)
        if exited.get("cause") == EndCause.INTERRUPTED.value and not self.canceled:
            if job.phase is QueuePhase.LOST or "again" in self.notes:
                return replace(status, state=JobState.LOST, reason=self.text("again") or job.words)
            state = JobState.FAILED if job.phase is QueuePhase.TIMED_OUT else JobState.CANCELED
            return replace(status, state=state, reason=job.words)
        if job.phase is QueuePhase.KILLED and status.state is JobState.FAILED:
            return replace(status, reason=f"{status.reason}; {job.words}" if status.reason else job.words)
        return status
