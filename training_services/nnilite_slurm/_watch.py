"""What becomes of one job: from Slurm's word, its keeper's, and what was seen of it before.

The keeper's record of the end stands in the attempt's folder and tells more than Slurm, which in turn knows why a
keeper was killed. A network file system may show a file some time after it was written elsewhere, so its absence counts
late.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nnilite.records import EndCause
from nnilite.service import JobState, JobStatus
from nnilite.services.keeper_folder import end_status
from nnilite_slurm import _listing as listing
from nnilite_slurm._listing import SlurmJob
from nnilite_slurm._reasons import how_it_ended, why_it_waits

SHOWN_LATE_S = 60.0
"""How long a file may take from one node to be seen on another."""
_STARTED, _EXIT = ".nni/started", ".nni/exit"
NOTES = ("again", "array", "failed", "job", "owner", _EXIT, _STARTED)
"""Small files that are written once, whole."""
NOTE_MAX_BYTES = 1_000_000
"""A larger file in the place of a note is none: the trial has put it there, and it is never fetched."""
SIGNS = ("canceled", "script", "spec.json")
"""Files of which only the presence counts."""


@dataclass
class SlurmWatch:
    """One job. All that it remembers is a cache, but for the times since when something is so."""

    name: str
    folder: str  # relative to the folder of all files
    id: str = ""  # Slurm's; "" until its array was submitted
    notes: dict[str, bytes] = field(default_factory=dict)
    signs: frozenset[str] = frozenset()
    sizes: dict[str, int] = field(default_factory=dict)  # of files that grow
    canceled: bool = False
    had_begun: bool = False  # before Slurm was asked last
    since: dict[str, float] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic

    def files(self, growing: tuple[str, ...]) -> list[str]:
        """What has still to be looked for."""
        wanted = [name for name in (*NOTES, *SIGNS) if name not in self.notes]
        return [f"{self.folder}/{name}" for name in (*wanted, *growing)]

    def found(self, sizes: Mapping[str, int]) -> list[str]:
        """Take what is there; the notes that have not been read yet."""
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
        """A note's text."""
        return self.notes.get(name, b"").decode("utf-8", "replace").strip()

    def record(self, name: str) -> Mapping[str, Any] | None:
        """A record of the keeper; None if there is none. The trial may have written to it."""
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
        value = (self.record(_STARTED) or {}).get("time")
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def for_s(self, what: str) -> float:
        """For how long something is so."""
        now = self.clock()
        return now - self.since.setdefault(what, now)

    # ------------------------------------------------------------ the verdict

    def status(self, job: SlurmJob | None) -> JobStatus:
        """The status, given Slurm's word; None: Slurm knows no such job (any more)."""
        if job is None:
            return self._unlisted()
        if job.state in listing.WAITING:
            return self._waiting(job)
        if job.state in listing.RUNNING:
            return self._running(job)
        if job.state in listing.ENDED:
            return self._ended(job)
        return JobStatus(JobState.UNKNOWN, f"Slurm tells a state that nnilite does not know: {job.state}")

    def _unlisted(self) -> JobStatus:
        if self.exited is not None:
            return end_status(self.exited, started=self.started)
        if not self.signs:
            return JobStatus(JobState.LOST, "its folder is gone, and Slurm does not know it")
        if self.canceled:
            return JobStatus(JobState.CANCELED, "canceled before it began")
        # A set-up line of the user's, or a setting such as pythonPath: another node would fail alike.
        if "failed" in self.notes:
            return JobStatus(JobState.FAILED, self.text("failed"))
        if self.for_s("missing") < SHOWN_LATE_S:
            return JobStatus(JobState.UNKNOWN, "Slurm does not list it")
        return JobStatus(JobState.LOST, f"Slurm does not know the job {self.id} any more, and it has left no word")

    def _waiting(self, job: SlurmJob) -> JobStatus:
        self.since.clear()
        if self.had_begun:
            return JobStatus(JobState.LOST, f"Slurm has put it back into the queue ({job.reason or job.state})")
        return JobStatus(JobState.WAITING, why_it_waits(job.reason))

    def _running(self, job: SlurmJob) -> JobStatus:
        self.since.clear()
        if "again" in self.notes:
            return JobStatus(JobState.LOST, self.text("again"), host=job.host)
        if self.exited is None and self.started is None:
            what = "its node is being made ready" if job.state == "CONFIGURING" else "its set-up runs"
            return JobStatus(JobState.WAITING, f"Slurm has started it on {job.host}: {what}", host=job.host)
        asked = self.canceled or (self.exited or {}).get("cause") == EndCause.INTERRUPTED.value
        # The keeper may still be delivering. Why Slurm has ended it, or that all is over, Slurm itself has to say.
        if self.exited is not None and not asked:
            return end_status(self.exited, job.host, self.started)
        reason = "" if self.exited is None else f"it has ended; Slurm: {job.state}"
        return JobStatus(JobState.RUNNING, reason, host=job.host, started=self.started or job.started)

    def _ended(self, job: SlurmJob) -> JobStatus:
        told = how_it_ended(job.state, job.reason)
        if self.exited is not None:
            return self._by_keeper(self.exited, job, told)
        state, reason, code = self._without_keeper(job, told)
        return JobStatus(state, reason, code, job.host, started=self.started)

    def _without_keeper(self, job: SlurmJob, told: str) -> tuple[JobState, str, int | None]:
        """State, reason and exit code of a job that has ended, and whose keeper has left no record of it."""
        if job.state in listing.LOST:
            return JobState.LOST, told, None
        if self.canceled or job.state == "CANCELLED":
            return JobState.CANCELED, "canceled" if self.canceled else f"{told}, but not by nnilite", None
        if "failed" in self.notes:
            return JobState.FAILED, self.text("failed"), job.exit_code
        if "again" in self.notes:
            return JobState.LOST, self.text("again"), None
        # Slurm's own word for what it has killed is enough.
        if job.state not in ("COMPLETED", "FAILED"):
            return JobState.FAILED, told, job.exit_code
        if self.for_s("ended") < SHOWN_LATE_S:
            return JobState.RUNNING, f"{told}; the last word of its keeper is awaited", None
        if job.state == "FAILED":
            return JobState.FAILED, f"{told}; see job.log in its folder", job.exit_code or None
        return JobState.LOST, f"{told}, but its keeper has left no word", None

    def _by_keeper(self, exited: Mapping[str, Any], job: SlurmJob, told: str) -> JobStatus:
        status = end_status(exited, job.host, self.started)
        if exited.get("cause") == EndCause.INTERRUPTED.value and not self.canceled:
            if job.state in listing.LOST or "again" in self.notes:
                return replace(status, state=JobState.LOST, reason=self.text("again") or told)
            state = JobState.FAILED if job.state in ("TIMEOUT", "DEADLINE") else JobState.CANCELED
            return replace(status, state=state, reason=told)
        if job.state == "OUT_OF_MEMORY" and status.state is JobState.FAILED:
            return replace(status, reason=f"{status.reason}; {told}" if status.reason else told)
        return status
