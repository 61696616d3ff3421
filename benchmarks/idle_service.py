"""A training service that starts nothing: its jobs run until they are cancelled. Somebody else is their keepers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from nnilite.service import Handle, Job, JobState, JobStatus, TrainingService

PLATFORM = "benchmarks.idle_service.IdleService"


@dataclass(frozen=True)
class IdleConfig:
    """It has no settings."""


class IdleService(TrainingService):
    """Its memory is all that there is: a manager that is resumed finds no job again."""

    Config: ClassVar[type] = IdleConfig

    async def open(self) -> None:
        self._ended: set[str] = set()

    async def close(self) -> None:
        """There is nothing to let go."""

    async def submit(self, job: Job) -> Handle:
        return {"job": job.name}

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        states = (JobState.CANCELED if handle["job"] in self._ended else JobState.RUNNING for handle in handles)
        return [JobStatus(state, host="nowhere") for state in states]

    async def cancel(self, handle: Handle) -> None:
        self._ended.add(str(handle["job"]))
        self.context.wake()
