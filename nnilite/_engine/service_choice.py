"""What the engine asks wherever several services may take a job, and the answers of a single one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from nnilite.service import Job, TrainingService


class PlacementNotes(Protocol):
    """Knows which member was asked last to take a job. A later manager reads the notes, too."""

    def asked(self, job: Job) -> str:
        """Return the name of the member that was asked last, "" if none was."""

    def held(self, job: Job) -> Mapping[str, int]:
        """Return how many other jobs each member has, or may have."""

    def tried(self, job: Job) -> Sequence[str]:
        """Return the members that had the earlier attempts of the job's trial."""

    async def record(self, job: Job, member: str) -> None:
        """Note which member is asked, and return when that is stored.

        Raises: ServiceError if the job is no longer needed.
        """


class ServiceChoice(Protocol):
    """One or more services that take the trials of an experiment. The service caller sets `notes`."""

    notes: PlacementNotes

    @property
    def most_submits(self) -> int:
        """How many submissions may be under way, while services are slow to answer."""

    async def open(self, *, resumed: bool = False) -> None:
        """Open all services, as `TrainingService.open` says. Where the experiment is resumed, one is enough."""

    def aside(self) -> dict[str, str]:
        """Return the services that are set aside, and why."""

    def place_to_move(self, job: Job, extra: Mapping[str, int], tried: Collection[str]) -> str:
        """Return a service with room for a job that waits elsewhere, "" if there is none."""


class SingleService:
    """The choice where there is none."""

    notes: PlacementNotes  # not asked

    def __init__(self, service: TrainingService) -> None:
        self._service = service

    @property
    def most_submits(self) -> int:
        return max(1, self._service.submits_at_once)

    async def open(self, *, resumed: bool = False) -> None:
        await self._service.open()

    def aside(self) -> dict[str, str]:
        return {}

    def place_to_move(self, job: Job, extra: Mapping[str, int], tried: Collection[str]) -> str:
        return ""
