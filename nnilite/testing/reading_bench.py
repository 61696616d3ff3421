"""The bench for services that read reports themselves, of ended jobs for example, from the log of their platform."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

from nnilite.errors import ServiceError
from nnilite.records import EVENT_TYPES, Json, KeeperEvent, Reported
from nnilite.records.shapes import to_json
from nnilite.service import Job, JobStatus, ServiceContext, TrainingService
from nnilite.testing.bench import ServiceBench
from nnilite.testing.receiver import Received

_TYPES = {cls: name for name, cls in EVENT_TYPES.items()}


class ReadingBench(ServiceBench):
    """As ServiceBench, with `TrainingService.reports` asked for as the manager does.

    `common` replaces parts of the specification of each job, as in `linger_s=1`: keepers do not wait for long.
    """

    def __init__(
        self,
        folder: Path,
        make: Callable[[ServiceContext], TrainingService],
        *,
        with_nodes: bool = False,
        **common: Json,
    ) -> None:
        super().__init__(folder, make, with_nodes=with_nodes)
        self.common = common
        self._followed: set[str] = set()  # the jobs whose only reports are those that the service reads

    def job(self, command: str, trial: str = "", parameters: Json = None, gpus: int | None = None, **spec: Json) -> Job:
        job = super().job(command, trial, parameters, gpus, **{**self.common, **spec})
        if job.spec.get("report") == "stdout":
            self._followed.add(job.name)
        return job

    def status(self, name: str) -> JobStatus:
        """Return what the service says of a job now.

        The reports of all jobs are read too: some logs go with their jobs.
        """
        found = super().status(name)
        for job in self._followed & self.handles.keys():
            if not self.received(job).exits:
                # A platform that does not answer now is asked again, as the engine does.
                with contextlib.suppress(ServiceError):
                    self.report(job)
        return found

    def finish(self, name: str) -> Received:
        """Wait until the job has ended and its exit has come, by the receiver or by the service. Return what came."""
        self.wait(name)
        self.eventually(lambda: self.report(name).exits)
        return self.received(name)

    def report(self, name: str) -> Received:
        """Take what the service can read of a job by itself. Return what has come of it."""
        for event in self.call(self.service.reports(self.handles[name])):
            self.received(name).take(_sent(event))
        return self.received(name)


def _sent(event: KeeperEvent) -> Json:
    """Return an event as keepers send it."""
    value = {"value": json.dumps(event.value)} if isinstance(event, Reported) else {}
    return {"type": _TYPES[type(event)], **to_json(event), **value}
