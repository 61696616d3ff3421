"""Hold the attempts that a worker has, with their leases."""

from __future__ import annotations

import time
from pathlib import Path

from nnilite_redis._worker.attempt import FENCED, WorkerAttempt
from nnilite_redis._worker.checkpoints import Checkpoints
from nnilite_redis._worker.leases import Lease, Leases

_KEPT_S = 7 * 86400


class HeldAttempts:
    """All that one worker has in its folder."""

    def __init__(self, folder: Path, checkpoints: Checkpoints) -> None:
        self.attempts: dict[str, WorkerAttempt] = {}  # by job
        self.lease: dict[str, Lease] = {}
        self._fenced: dict[str, WorkerAttempt] = {}  # taken away: they are only ended and swept up
        self._checkpoints = checkpoints
        self._leases = Leases(folder)

    def get(self, job: str) -> WorkerAttempt | None:
        """Return the attempt of a job, also if it was taken away."""
        return self.attempts.get(job) or self._fenced.get(job)

    def token(self, job: str) -> str:
        """Return the token of a job; "" if there is no such job here."""
        attempt = self.get(job)
        return "" if attempt is None else attempt.token()

    @property
    def live(self) -> list[WorkerAttempt]:
        """Return the attempts that hold a processor."""
        return [attempt for attempt in self.attempts.values() if not attempt.over]

    @property
    def kept(self) -> list[WorkerAttempt]:
        """Return the attempts at which a keeper is at work."""
        return [a for a in (*self.attempts.values(), *self._fenced.values()) if a.has_running_keeper()]

    @property
    def booked(self) -> dict[str, list[int]]:
        """Return the GPUs of each job that runs."""
        return {attempt.name: list(attempt.gpus or ()) for attempt in self.live}

    @property
    def experiments(self) -> list[str]:
        return sorted({attempt.task.job.experiment for attempt in self.attempts.values()})

    def hold(self, attempt: WorkerAttempt, lease: Lease) -> None:
        """Hold a further attempt. Raises: OSError if its lease cannot be written; then it is not held."""
        self.attempts[attempt.name], self.lease[attempt.name] = attempt, lease
        try:
            self.write_leases()
        except OSError:
            # Redis keeps the entry of a job that was not begun, so a later look begins it.
            del self.attempts[attempt.name], self.lease[attempt.name]
            raise

    def fence(self, attempt: WorkerAttempt) -> None:
        """End an attempt at once that this worker has lost."""
        attempt.ask(FENCED)
        self.attempts.pop(attempt.name, None)
        self._fenced[attempt.name] = attempt

    def forget(self, attempt: WorkerAttempt) -> None:
        """Forget an attempt whose folder is gone."""
        self.attempts.pop(attempt.name, None)
        self.lease.pop(attempt.name, None)
        self._checkpoints.forget(attempt.task)
        experiment = attempt.task.job.experiment
        if experiment not in self.experiments:
            self._checkpoints.remove(experiment)

    def write_leases(self) -> None:
        """Write the leases for the guard. Raises: OSError."""
        live = self.live
        self._leases.write({a.path: self.lease[a.name] for a in live if a.name in self.lease})
        if live:
            self._leases.ensure_guard()

    def sweep(self) -> None:
        """Clean up attempts that were taken away, once their keepers have left, and those long unused."""
        for attempt in list(self._fenced.values()):
            if not attempt.has_running_keeper():
                attempt.clean()
                del self._fenced[attempt.name]
        for attempt in list(self.attempts.values()):
            ended = attempt.report().get("ended") if attempt.ended else None
            if isinstance(ended, (int, float)) and time.time() - ended > _KEPT_S and not attempt.has_running_keeper():
                attempt.clean()
                self.forget(attempt)
