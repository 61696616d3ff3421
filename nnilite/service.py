"""The plugin API of training services: everything a plugin and the core know of each other.

A training service runs *jobs* on one platform; a job is one attempt of a trial. It decides only how the keeper gets
started there. The engine calls a service from one task, never twice at a time, so a service needs no locks:

    open()                   once, before all else; also at a resume, with the old jobs possibly still running
    submit(job) -> handle    returns at once; the handle is JSON and is kept in the store
    poll(handles)            facts about jobs, by their handles alone: what the service remembers is only a cache
    cancel(handle)           asks and returns; poll tells when the job has ended
    close()                  lets go of connections; jobs go on running

Called on the event loop: no method may block. `context.wake()` makes the engine poll now instead of later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

from nnilite.codedir import CodePackage
from nnilite.records import Host, Json, KeeperEvent

__all__ = ["Handle", "Host", "Job", "JobState", "JobStatus", "ServiceContext", "TrainingService"]

Handle = Mapping[str, Json]
"""A JSON object by which a service finds its job again after a restart of the manager."""


class JobState(str, Enum):
    """What a platform knows of a job. Members that mean that the job has ended have `ended`."""

    WAITING = "WAITING"  # accepted, its command not started yet; `reason` says what it waits for
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"  # the trial command ended with exit code 0
    FAILED = "FAILED"  # the trial command ended with another exit code, or could not be started at all
    CANCELED = "CANCELED"  # ended because `cancel` asked for it
    UNKNOWN = "UNKNOWN"  # cannot be told now, its host does not answer: no word on the job, good or bad
    LOST = "LOST"  # ended without a word: node gone, preempted, removed, keeper killed, unknown to the platform

    @property
    def ended(self) -> bool:
        return self not in (JobState.WAITING, JobState.RUNNING, JobState.UNKNOWN)


@dataclass(frozen=True)
class JobStatus:
    """The facts about one job: never a guess. What cannot be told now is UNKNOWN, or ServiceError for all."""

    state: JobState
    reason: str = ""  # why it waits, or a short word on its end
    exit_code: int | None = None  # negative for a signal
    host: str = ""
    url: str = ""  # the job's own page, where the platform has one
    started: float | None = None
    ended: float | None = None


@dataclass(frozen=True)
class Job:
    """One attempt of a trial, to be run.

    `spec` is what the keeper needs, as JSON (see `nnilite._keeper`): the command, parameters, token and callback.
    It holds secrets: hand it over in a file of mode 0600, on standard input or in a platform's secret, never on a
    command line. `spec_for` completes it with what only the service knows.
    """

    name: str  # nni-<experiment>-<trial>-<attempt>: submitting the same name twice must start it once
    experiment: str
    trial: str
    attempt: int
    sequence: int
    spec: Mapping[str, Json]
    gpus: int | None = None  # None: leave the GPU variables alone; 0: hide all GPUs

    def spec_for(self, directory: str | Path, **more: Json) -> dict[str, Json]:
        """The keeper's whole specification: `directory` is the trial's folder on the worker.

        `more` may set `code` (see the keeper), `env` (added to the trial's environment) and `callback_file`.
        """
        env = {**self.spec.get("env", {}), **more.pop("env", {})}
        return {**self.spec, "directory": str(directory), "env": env, **more}


@dataclass(frozen=True)
class ServiceContext:
    """What a service gets from the manager."""

    experiment: str  # the experiment's id
    directory: Path  # the experiment's folder on the manager's machine; trials of it live in `trials/`
    code_directory: Path  # the user's code directory
    package: Callable[[], CodePackage]  # packs the code directory (once; cached by content); call it in a thread
    keeper: Path  # the keeper zipapp, to be started by any Python >= 3.8
    callback_url: Callable[[], str]  # base URL of the manager's REST interface, as seen from this machine
    wake: Callable[[], None]  # makes the engine poll this service soon; safe from any thread
    defaults: Mapping[str, Json] = field(default_factory=dict)  # experiment-wide settings: trialGpuNumber, ...


class TrainingService(ABC):
    """Runs jobs on one platform. One instance per experiment.

    `Config` is a frozen dataclass: its fields, with their types, defaults and units (`nnilite.units`), are the
    service's part of the YAML; its `__post_init__` may raise ConfigError for rules between fields. It is checked
    before anything starts. Everything needed to find a job again is in its handle.
    """

    Config: ClassVar[type]

    def __init__(self, name: str, config: Any, context: ServiceContext) -> None:
        self.name = name  # unique within the experiment; the platform's name unless there are several of one
        self.config = config
        self.context = context

    @abstractmethod
    async def open(self) -> None:
        """Connect and check access. Raises: ConfigError if it can never work, ServiceError if it cannot now."""

    @abstractmethod
    async def submit(self, job: Job) -> Handle:
        """Start a job, idempotent on `job.name`. Raises: NoCapacity with the reason to wait, ServiceError."""

    @abstractmethod
    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        """The status of each job, in the order of the handles. Raises: ServiceError if it cannot be told now."""

    @abstractmethod
    async def cancel(self, handle: Handle) -> None:
        """Ask for the job's end: SIGTERM to its process group, SIGKILL after the grace. Harmless if it has ended."""

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        """Events of a job that the service can read itself, where the keeper cannot deliver them (any more).

        Called after a job has ended without its keeper's word, and regularly for `callback: log`. It may repeat
        events: duplicates are dropped by number.
        """
        return ()

    async def logs(self, handle: Handle, stream: str, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes of "stdout" or "stderr" from `offset`, where the service can read them."""
        return b""

    async def fetch(self, handle: Handle, target: Path) -> None:
        """Copy the trial's folder to `target`. Raises: NotFound where it is gone."""

    async def scale(self, handle: Handle, workers: int) -> None:
        """Change the number of workers of an elastic job while it runs; the platform keeps it, for this job alone.

        Raises: Conflict where jobs are not elastic, or not so far; NotFound where the job is gone.
        """
        from nnilite.errors import Conflict

        raise Conflict(f"{self.name} jobs have a fixed number of workers")

    def describe(self, job: Job) -> Json:
        """What `submit` would send, secrets hidden, for `nnictl create --dry-run`. Must not touch the network."""
        return {"name": job.name}

    def hosts(self) -> list[Host]:
        """The machines of this service and their health, as last seen."""
        return []

    async def remove(self, handle: Handle) -> None:
        """Free what an ended job still holds on the platform (a Secret, a queue entry, a folder).

        Asked for, by the next manager too, until it returns without an error: harmless if all is free already.
        Raises: ServiceError if it cannot be done now.
        """

    async def close(self) -> None:
        """Let go of connections. Running jobs go on. Raises: ServiceError on what should have gone and has not."""
