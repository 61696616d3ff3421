"""A manager's side of a service on a cluster: it also takes what the service reads from the logs of ended pods."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nnilite.records import Exited, KeeperEvent, Output, Reported, Started
from nnilite.service import Job, JobState, JobStatus, ServiceContext, TrainingService
from nnilite.testing import ServiceContract
from nnilite.testing.bench import ServiceBench, eventually, keeper_zipapp
from nnilite.testing.receiver import Received
from platforms.kube.cluster import Cluster
from platforms.kube.controllers import Operators


@dataclass(frozen=True)
class Platform:
    """A service, its section's class, the fields that it cannot do without, and what clusters need for it."""

    service: type[Any]
    config: type[Any]
    fields: dict[str, Any] = field(default_factory=dict)
    operators: Operators = field(default_factory=Operators)

    def maker(
        self, cluster: Cluster, kubeconfig: Path | None = None, **fields: Any
    ) -> Callable[[ServiceContext], TrainingService]:
        """Makes a service on this cluster."""
        place = {"kubeconfig": kubeconfig or cluster.kubeconfig(), "namespace": cluster.namespace}
        config = self.config(**{**place, **self.fields, **fields})
        return lambda context: self.service(self.service.__name__.lower(), config, context)


class KubeBench(ServiceBench):
    """As ServiceBench, with the keeper to be fetched, and with `reports` asked for as the manager does.

    Where pods cannot reach this machine, trials report by their logs, unless their jobs say otherwise. `linger_s` is
    for how long keepers wait for a receiver that is away.
    """

    def __init__(
        self, folder: Path, make: Callable[[ServiceContext], TrainingService], cluster: Cluster, linger_s: float = 60.0
    ) -> None:
        super().__init__(folder, make)
        self._limit_s = cluster.limit_s
        self._here = cluster.here
        self._common = {"linger_s": linger_s, **({} if cluster.here else {"report": "stdout"})}

    def __enter__(self) -> KubeBench:
        self.receiver.packages["/api/v1/keeper.pyz"] = keeper_zipapp()
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            for handle in self.handles.values():
                self.call(self.service.remove(handle))
        finally:
            super().__exit__(*error)

    def job(self, command: str, trial: str = "", parameters: Any = None, gpus: int | None = None, **spec: Any) -> Job:
        return super().job(command, trial, parameters, gpus, **{**self._common, **spec})

    def python(self, program: str, **more: Any) -> str:
        return super().python(program, **more) if self._here else self.run(f"python3 -c {shlex.quote(program)}", **more)

    def wait(self, name: str, state: JobState | None = None, limit_s: float = 0.0) -> JobStatus:
        return super().wait(name, state, limit_s or self._limit_s)

    def finish(self, name: str) -> Received:
        self.wait(name)
        eventually(lambda: self.report(name).exits, self._limit_s)
        return self.received(name)

    def report(self, name: str) -> Received:
        """Take what the service can read of a job by itself."""
        for event in self.call(self.service.reports(self.handles[name])):
            self.received(name).take(wire(event))
        return self.received(name)


class ClusterContract(ServiceContract):
    """The contract of all services, for one kind of object. `fields` are those of its section."""

    pushes = True
    has_logs = False  # what trials print comes with their events
    fields: dict[str, Any] = {}

    @pytest.fixture
    def make_service(self, cluster, platform, this_machine):
        return platform.maker(cluster, **self.fields)

    @pytest.fixture
    def bench(self, tmp_path, make_service, cluster):
        with KubeBench(tmp_path, make_service, cluster, linger_s=1 if self.ends_alone else 60) as bench:
            yield bench


def wire(event: KeeperEvent) -> dict[str, Any]:
    """An event as keepers send it."""
    if isinstance(event, Started):
        return {"type": "started", "time": event.time, "host": event.host, "pid": event.pid}
    if isinstance(event, Reported):
        known = {"index": event.index, "kind": event.kind.value, "sequence": event.sequence, "time": event.time}
        return {"type": "metric", "value": json.dumps(event.value), **known}
    if isinstance(event, Output):
        data = base64.b64encode(event.data).decode()
        return {"type": "output", "stream": event.stream, "offset": event.offset, "data": data}
    assert isinstance(event, Exited)
    return {"type": "exit", "time": event.time, "code": event.code, "message": event.message}
