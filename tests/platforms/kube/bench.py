"""A manager's side of a service on a cluster: it also takes what the service reads from the logs of ended pods."""

from __future__ import annotations

import base64
import json
from typing import Any

from nnilite.records import Exited, KeeperEvent, Output, Reported, Started
from nnilite.testing.bench import ServiceBench, eventually, keeper_zipapp
from nnilite.testing.receiver import Received


class KubeBench(ServiceBench):
    """As ServiceBench, with the keeper to be fetched, and with `reports` asked for as the manager does."""

    def __enter__(self) -> KubeBench:
        self.receiver.packages["/api/v1/keeper.pyz"] = keeper_zipapp()
        super().__enter__()
        return self

    def finish(self, name: str) -> Received:
        self.wait(name)
        eventually(lambda: self.report(name).exits)
        return self.received(name)

    def report(self, name: str) -> Received:
        """Take what the service can read of a job by itself."""
        for event in self.call(self.service.reports(self.handles[name])):
            self.received(name).take(wire(event))
        return self.received(name)


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
