"""What turns the objects of jobs into pods and tells of them: the Job controller here, operators beside it."""

from __future__ import annotations

import threading
from typing import Any

from platforms.kube.store import Key, Store, now

PODS = ("", "v1", "pods")


class Controller:
    """Looks at all objects of one kind whenever something changes."""

    key: Key

    def __init__(self, store: Store) -> None:
        self.store = store
        self.closed = False
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self.closed = True
        self._thread.join(5)

    def _loop(self) -> None:
        while not self.closed:
            for content in self.store.all(self.key):
                if not content["metadata"].get("deletionTimestamp"):
                    self.reconcile(content)
            with self.store.changed:
                self.store.changed.wait(0.2)

    def reconcile(self, content: Any) -> None:
        """Bring one object forward."""
        raise NotImplementedError

    def pods(self, owner: Any) -> list[Any]:
        uid = owner["metadata"]["uid"]
        return [pod for pod in self.store.all(PODS) if uid in owners(pod)]

    def make_pod(self, owner: Any, name: str, template: Any, labels: dict[str, str], spec: Any = None) -> None:
        """Create a pod of an owner, unless it is there."""
        metadata = owner["metadata"]
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        own = template.get("metadata") or {}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {**(own.get("labels") or {}), **labels},
                "annotations": dict(own.get("annotations") or {}),
                "ownerReferences": [reference],
            },
            "spec": {**template["spec"], **(spec or {})},
            "status": {"phase": "Pending"},
        }
        try:
            self.store.create(PODS, metadata["namespace"], pod)
        except KeyError:
            pass

    def tell(self, owner: Any, **status: Any) -> None:
        metadata = owner["metadata"]
        place = (self.key, metadata["namespace"], metadata["name"])
        self.store.update(*place, lambda content: content.setdefault("status", {}).update(status))

    def conclude(self, owner: Any, kind: str, reason: str, message: str = "") -> None:
        """Add a condition; the same one is not added twice."""
        known = [entry for entry in (owner.get("status") or {}).get("conditions") or [] if entry["type"] != kind]
        had = len(known) != len((owner.get("status") or {}).get("conditions") or [])
        if not had:
            entry = {"type": kind, "status": "True", "reason": reason, "message": message}
            self.tell(owner, conditions=[*known, {**entry, "lastUpdateTime": now(), "lastTransitionTime": now()}])


class JobController(Controller):
    """batch/v1 Jobs with one pod that is not started again."""

    key = ("batch", "v1", "jobs")

    def reconcile(self, content: Any) -> None:
        status = content.get("status") or {}
        if status.get("conditions"):
            return
        pods = self.pods(content)
        if not pods and status.get("made"):
            self.conclude(content, "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
            return
        if not pods:
            self.tell(content, made=True)
            metadata = content["metadata"]
            self.make_pod(
                content, f"{metadata['name']}-x1", content["spec"]["template"], {"job-name": metadata["name"]}
            )
            return
        phases = {pod["status"]["phase"] for pod in pods}
        if phases == {"Succeeded"}:
            self.conclude(content, "Complete", "", "")
        elif "Failed" in phases:
            self.conclude(content, "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")


def owners(content: Any) -> set[str]:
    return {entry["uid"] for entry in content["metadata"].get("ownerReferences") or []}
