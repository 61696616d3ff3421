"""A whole cluster in this process: API server, controllers, one node. `with StandIn(folder) as cluster: ...`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from platforms.kube.controllers import Controller, JobController
from platforms.kube.kubelet import PODS, SECRETS, Kubelet
from platforms.kube.server import TOKEN, ApiServer
from platforms.kube.store import Key, Store, now

JOBS = JobController.key
EVENTS = ("", "v1", "events")
Operators = tuple[tuple[type[Controller], ...], dict[Key, str], dict[Key, Any]]


class StandIn:
    """`store` holds the objects, `api` and `node` take requests for faults."""

    def __init__(self, folder: Path, operators: Operators = ((), {}, {})) -> None:
        controllers, crds, admission = operators
        self.store = Store()
        self.node = Kubelet(self.store, folder / "node")
        self.api = ApiServer(self.store, dict(crds), self.node.read_log)
        self.api.admission.update(admission)
        self._controllers = [kind(self.store) for kind in (JobController, *controllers)]
        self._folder = folder

    def __enter__(self) -> StandIn:
        (self._folder / "node").mkdir(mode=0o700, parents=True)
        self.api.start()
        for part in (self.node, *self._controllers):
            part.start()
        return self

    def __exit__(self, *_: object) -> None:
        for part in (*self._controllers, self.node):
            part.close()
        self.api.stop()

    def kubeconfig(self) -> Path:
        """A file by which anybody may do anything."""
        path = self._folder / "kubeconfig"
        cluster = {"name": "stand-in", "cluster": {"server": self.api.url}}
        user = {"name": "test", "user": {"token": TOKEN}}
        context = {"name": "c", "context": {"cluster": "stand-in", "user": "test"}}
        whole = {"clusters": [cluster], "users": [user], "contexts": [context], "current-context": "c"}
        path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **whole}))
        path.chmod(0o600)
        return path

    def stop_controllers(self) -> None:
        """Nothing more becomes of objects."""
        for controller in self._controllers:
            controller.close()

    def pods(self) -> list[Any]:
        return self.store.all(PODS)

    def secrets(self) -> list[Any]:
        return self.store.all(SECRETS)

    def evict(self, pod: Any) -> None:
        """As a node does that runs out of memory: the pod stays, as failed."""
        metadata = pod["metadata"]
        self.node.run_of(metadata["name"]).kill()
        status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
        place = (PODS, metadata["namespace"], metadata["name"])
        self.store.update(*place, lambda content: content.update(status=status))

    def warn(self, content: Any, reason: str, message: str) -> None:
        """An event about an object."""
        metadata = content["metadata"]
        event = {
            "metadata": {"name": f"{metadata['name']}.{self.store.version}"},
            "involvedObject": {"name": metadata["name"], "uid": metadata["uid"]},
            "type": "Warning",
            "reason": reason,
            "message": message,
            "lastTimestamp": now(),
        }
        self.store.create(EVENTS, metadata["namespace"], event)
