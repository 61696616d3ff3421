"""What a service asks of a scheduler. To be inherited."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nnilite.errors import ServiceError
from nnilite.services.cluster.login import LoginHost, ShellAnswer
from nnilite.services.cluster.queued_job import QueuedJob
from nnilite.services.cluster.shared_folder import SharedFolder

_VERSION = re.compile(r"(?<!\d)(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")


UNKNOWN_OUTCOME, REFUSED = 76, 77
"""The exit status of a script that submits, where the scheduler has not answered, or refuses the job."""


@dataclass(frozen=True)
class Look:
    """What one look has found: jobs in the queue by their ids, and sizes of files."""

    jobs: Mapping[str, QueuedJob] | None  # None: the scheduler does not answer
    sizes: Mapping[str, int]
    trouble: str = ""  # what it said instead of an answer
    hanging: frozenset[str] = frozenset()  # folders in an unknown state, for they do not answer


class SchedulerApi(ABC):
    """One scheduler, by its commands on the login host. Methods raise ServiceError if it cannot be asked now."""

    def __init__(self, host: LoginHost, root: str = "") -> None:
        self.host = host
        self.files = SharedFolder(host, root)
        self.version: tuple[int, ...] = ()

    @abstractmethod
    async def check(self) -> None:
        """Check that the scheduler is there. Raises: ConfigError if it is not."""

    async def try_out(self, script: str, gpus: int | None) -> None:
        """Have the scheduler look at a script without submitting it. Raises: ConfigError if it will never take it."""

    @abstractmethod
    async def submit(self, folder: str, name: str, script: str, gpus: int | None) -> str:
        """Submit a script once for each folder; return the job's id. Raises: NoCapacity, ConfigError, ServiceError."""

    @abstractmethod
    async def look(self, prefix: str, ids: Sequence[str], files: Iterable[str]) -> Look:
        """Ask for all jobs whose names begin with a prefix, and the sizes of files, in one command.

        `ids`: those that matter.
        """

    async def history(self, ids: Sequence[str]) -> Mapping[str, QueuedJob]:
        """Ask what became of jobs that are not listed any more; nothing where it keeps no record."""
        return {}

    @abstractmethod
    async def cancel(self, folder: str, job: str) -> None:
        """Take back a job that waits, and ask one that runs to end. `job`: its id, or "" if it was not submitted."""

    @abstractmethod
    async def kill(self, job: str) -> None:
        """End a job that has not ended when it was asked to."""

    async def remove(self, folder: str, job: str) -> None:
        """End what still runs of a job, and remove what holds a secret or much space."""
        if job:
            await self.kill(job)
        await self.files.remove(folder)


def no_answer(scheduler: str, name: str, answer: ShellAnswer) -> ServiceError:
    """Return the error for a submission that the scheduler has not answered."""
    if answer.status == UNKNOWN_OUTCOME:
        return ServiceError(f"{scheduler} did not say whether it accepted the job {name}; nnilite will look for it")
    return ServiceError(f"{scheduler} does not answer: {answer.reason}")


def version_in(text: str) -> tuple[int, ...]:
    """Return the first version in a text; () if there is none.

    >>> version_in("PBS version = 23.06.06")
    (23, 6, 6)
    """
    found = _VERSION.search(text)
    return tuple(int(part) for part in found.groups() if part) if found else ()
