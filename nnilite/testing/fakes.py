"""Training services without a platform, to test the manager with: one that obeys, and four that misbehave.

    context = fake_context(folder)
    service = FakeService("fake", NoConfig(), context)
    handle = await service.submit(job)
    service.jobs[job.name].start()
    service.jobs[job.name].finish(exit_code=1)

No command is run. What a keeper would report has to be given to the manager by the test.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from nnilite.codedir import CodePackage
from nnilite.errors import NniliteError, ServiceError
from nnilite.records import KeeperEvent
from nnilite.service import Handle, Job, JobState, JobStatus, ServiceContext, TrainingService


@dataclass(frozen=True)
class NoConfig:
    """The section of a service that has no settings."""


class FakeJob:
    """A job that is in the state that the test says. `cancels` counts the calls of `cancel`."""

    def __init__(self, job: Job, wake: Any) -> None:
        self.job = job
        self.status = JobStatus(JobState.WAITING, "waits for the test")
        self.cancels = 0
        self.obeys = True  # ends at once when it is canceled
        self.removed = False
        self.events: list[KeeperEvent] = []  # what `reports` returns
        self._wake = wake

    def start(self) -> None:
        """Start the command."""
        self._become(JobStatus(JobState.RUNNING, host="fake", started=time.time()))

    def wait(self, reason: str) -> None:
        """Let the job wait, for this reason."""
        self._become(JobStatus(JobState.WAITING, reason))

    def finish(self, exit_code: int = 0, reason: str = "") -> None:
        """End the command."""
        state = JobState.FAILED if exit_code else JobState.SUCCEEDED
        self._become(JobStatus(state, reason, exit_code, "fake", started=self.status.started, ended=time.time()))

    def lose(self, reason: str = "the node is gone") -> None:
        """Lose the job."""
        self._become(JobStatus(JobState.LOST, reason, started=self.status.started, ended=time.time()))

    def cancel(self) -> None:
        """Do what the service does when it is asked to cancel."""
        self.cancels += 1
        if self.obeys and not self.status.state.ended:
            self._become(JobStatus(JobState.CANCELED, started=self.status.started, ended=time.time()))

    def _become(self, status: JobStatus) -> None:
        self.status = status
        self._wake()


class FakeService(TrainingService):
    """Jobs in memory. `refuse_with` and `remove_with` are raised by `submit` and `remove` as long as they are set.

    `calls` names all calls in order.
    """

    Config: ClassVar[type] = NoConfig

    def __init__(self, name: str = "fake", config: Any = None, context: ServiceContext | None = None) -> None:
        super().__init__(name, config or NoConfig(), context or fake_context(Path()))
        self.jobs: dict[str, FakeJob] = {}  # by name, in the order of submission
        self.refuse_with: NniliteError | None = None
        self.remove_with: NniliteError | None = None
        self.calls: list[str] = []
        self.is_open = False

    async def open(self) -> None:
        self.calls.append("open")
        self.is_open = True

    async def submit(self, job: Job) -> Handle:
        self.calls.append(f"submit {job.name}")
        if self.refuse_with is not None:
            raise self.refuse_with
        if job.name not in self.jobs:
            self.jobs[job.name] = FakeJob(job, self.context.wake)
        return {"job": job.name}

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        self.calls.append("poll")
        lost = JobStatus(JobState.LOST, "the platform does not know this job")
        found = (self.jobs.get(str(handle["job"])) for handle in handles)
        return [job.status if job else lost for job in found]

    async def cancel(self, handle: Handle) -> None:
        self.calls.append(f"cancel {handle['job']}")
        job = self.jobs.get(str(handle["job"]))
        if job is not None:
            job.cancel()

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        job = self.jobs.get(str(handle["job"]))
        return list(job.events) if job else []

    async def remove(self, handle: Handle) -> None:
        self.calls.append(f"remove {handle['job']}")
        if self.remove_with is not None:
            raise self.remove_with
        job = self.jobs.get(str(handle["job"]))
        if job is not None:
            job.removed = True

    async def close(self) -> None:
        self.calls.append("close")
        self.is_open = False


class SlowService(FakeService):
    """Delays each call by `delay_s`."""

    delay_s = 0.5

    async def open(self) -> None:
        await asyncio.sleep(self.delay_s)
        await super().open()

    async def submit(self, job: Job) -> Handle:
        await asyncio.sleep(self.delay_s)
        return await super().submit(job)

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        await asyncio.sleep(self.delay_s)
        return await super().poll(handles)

    async def cancel(self, handle: Handle) -> None:
        await asyncio.sleep(self.delay_s)
        await super().cancel(handle)

    async def close(self) -> None:
        await asyncio.sleep(self.delay_s)
        await super().close()


class NeverService(FakeService):
    """The calls named in `never` do not return; `timeouts` counts how often the caller did not wait any longer."""

    never: frozenset[str] = frozenset({"submit"})

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.timeouts = 0

    async def _misbehave(self, call: str) -> None:
        if call not in self.never:
            return
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.timeouts += 1

    async def open(self) -> None:
        await self._misbehave("open")
        await super().open()

    async def submit(self, job: Job) -> Handle:
        await self._misbehave("submit")
        return await super().submit(job)

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        await self._misbehave("poll")
        return await super().poll(handles)

    async def cancel(self, handle: Handle) -> None:
        await self._misbehave("cancel")
        await super().cancel(handle)

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        await self._misbehave("reports")
        return await super().reports(handle)

    async def close(self) -> None:
        await self._misbehave("close")
        await super().close()


class BadService(FakeService):
    """The calls named in `bad` raise `error`: what a plugin's bug does, or, with a ServiceError, a platform's."""

    bad: frozenset[str] = frozenset({"submit", "poll", "cancel"})
    error: BaseException = RuntimeError("a bug in the plugin")

    def _misbehave(self, call: str) -> None:
        if call in self.bad:
            raise self.error

    async def open(self) -> None:
        self._misbehave("open")
        await super().open()

    async def submit(self, job: Job) -> Handle:
        self._misbehave("submit")
        return await super().submit(job)

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        self._misbehave("poll")
        return await super().poll(handles)

    async def cancel(self, handle: Handle) -> None:
        self._misbehave("cancel")
        await super().cancel(handle)

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        self._misbehave("reports")
        return await super().reports(handle)

    async def close(self) -> None:
        self._misbehave("close")
        await super().close()


class LyingService(FakeService):
    """Polls wrong, in the way that `lie` names.

    "short"     fewer statuses than handles
    "garbage"   something that is not a status
    "state"     a status with a state that does not exist
    "alive"     all jobs run, also those that have ended
    "dead"      all jobs are lost, also those that run
    "restless"  each poll says the opposite of the one before
    "future"    times that cannot be
    """

    lie = "short"

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        truth = await super().poll(handles)
        lies: list[JobStatus] = _LIES[self.lie](truth, self.calls.count("poll"))
        return lies


def _all(state: JobState) -> Any:
    return lambda truth, polls: [JobStatus(state, "a lie") for _ in truth]


_LIES: dict[str, Any] = {
    "short": lambda truth, polls: truth[:-1],
    "garbage": lambda truth, polls: [{"state": "RUNNING"} for _ in truth],
    "state": lambda truth, polls: [JobStatus("DANCING") for _ in truth],  # type: ignore[arg-type]
    "alive": _all(JobState.RUNNING),
    "dead": _all(JobState.LOST),
    "restless": lambda truth, polls: _all((JobState.RUNNING, JobState.SUCCEEDED)[polls % 2])(truth, polls),
    "future": lambda truth, polls: [
        JobStatus(status.state, started=4e9, ended=-1.0, exit_code=status.exit_code) for status in truth
    ],
}


def fake_context(directory: Path, **more: Any) -> ServiceContext:
    """Return a context without a manager behind it; `more` replaces parts of it."""

    def package() -> CodePackage:
        raise ServiceError("there is no code directory here")

    parts: dict[str, Any] = {
        "experiment": "fake",
        "directory": directory,
        "code_directory": directory,
        "package": package,
        "keeper": directory / "keeper.pyz",
        "callback_url": lambda: "http://127.0.0.1:9",
        "wake": lambda: None,
    }
    return ServiceContext(**{**parts, **more})
