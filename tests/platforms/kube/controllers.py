"""What turns the objects of jobs into pods and tells of them: the base of all controllers, and Kubernetes' own."""

from __future__ import annotations

import copy
import logging
import threading
from dataclasses import dataclass, field
from typing import Any

from nnilite_kubernetes._api import ApiError
from nnilite_kubernetes._informer import Informer
from platforms.kube.client import (
    CLAIMS,
    EVENTS,
    JOBS,
    MAPS,
    PODS,
    QUOTAS,
    SECRETS,
    SERVICES,
    Api,
    Key,
    find_kind,
    key_of,
    now,
)
from platforms.kube.quota import used

log = logging.getLogger(__name__)

_FINALIZERS = ("foregroundDeletion", "kubernetes.io/pvc-protection")
INDEX = "batch.kubernetes.io/job-completion-index"
_TURN_S = 1.0  # the longest pause; changes end it


@dataclass(frozen=True)
class Operators:
    """What a cluster has beyond Kubernetes: controllers, the files of their definitions, webhooks (stand-in only)."""

    controllers: tuple[type[Controller], ...] = ()
    crds: dict[Key, str] = field(default_factory=dict)
    admission: dict[Key, Any] = field(default_factory=dict)


class Controller:
    """Looks at all objects of one kind in a namespace whenever they or their pods change."""

    key: Key
    follows: tuple[Key, ...] = (PODS,)
    status_part = "status"  # "" for kinds whose status is no part by itself

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.informers: dict[Key, Informer] = {}
        self._closed = False
        self._changed = threading.Event()
        self._thread = threading.Thread(target=self._loop, name=type(self).__name__, daemon=True)

    def start(self) -> None:
        for key in (self.key, *self.follows):
            self.informers[key] = self.api.follow(key, self.namespace, self._changed.set)
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        self._changed.set()
        self._thread.join(5)

    def _loop(self) -> None:
        while not self._closed:
            self._changed.clear()
            try:
                self.look()
            except ApiError as error:
                log.debug("%s: %s", type(self).__name__, error)  # the next turn sees to it
                self._changed.wait(0.1)
                continue
            self._changed.wait(_TURN_S)

    def look(self) -> None:
        """Bring all objects forward. The server is not asked where there are none: the copy tells of the first one."""
        if not self.informers[self.key].all():
            return
        for content in self.api.all(self.key, self.namespace):
            if not content["metadata"].get("deletionTimestamp"):
                self.reconcile(content)

    def reconcile(self, content: Any) -> None:
        """Bring one object forward."""
        raise NotImplementedError

    def pods(self, owner: Any) -> list[Any]:
        uid = owner["metadata"]["uid"]
        return [pod for pod in self.api.all(PODS, self.namespace) if uid in owners(pod)]

    def make_pod(self, owner: Any, name: str, template: Any, labels: dict[str, str], spec: Any = None) -> bool:
        """Create a pod of an owner, unless it is there; a refusal is told by an event. False if it was refused."""
        own = template.get("metadata") or {}
        metadata = {
            "name": name,
            "labels": {**(own.get("labels") or {}), **labels},
            "annotations": dict(own.get("annotations") or {}),
            "ownerReferences": [reference(owner)],
        }
        try:
            self.api.ensure(PODS, self.namespace, {"metadata": metadata, "spec": {**template["spec"], **(spec or {})}})
        except ApiError as error:
            if error.passing:
                raise
            self.refused(owner, name, f"Error creating: {error}")
            return False
        return True

    def refused(self, owner: Any, pod: str, message: str) -> None:
        """Tell that a pod cannot be made."""
        self.warn(owner, "FailedCreate", message)

    def delete(self, pods: list[Any]) -> None:
        for pod in pods:
            self.api.delete(PODS, self.namespace, pod["metadata"]["name"], pod["metadata"]["uid"])

    def warn(self, content: Any, reason: str, message: str, **other: str) -> None:
        """An event about an object, or about another one of which name, uid and kind are given; told once."""
        metadata = {**content["metadata"], **other}
        kind = {"apiVersion": "batch/v1", "kind": "Job"} if other else find_kind(self.key)
        about = {**kind, "name": metadata["name"], "namespace": self.namespace, "uid": metadata["uid"]}
        event = {
            "metadata": {"name": f"{metadata['name']}.{reason.lower()}"},
            "involvedObject": about,
            "type": "Warning",
            "reason": reason,
            "message": message,
            "lastTimestamp": now(),
        }
        self.api.ensure(EVENTS, self.namespace, event)

    def tell(self, owner: Any, **status: Any) -> None:
        """Change the status, in the cluster and in the copy at hand."""
        own = owner.setdefault("status", {})
        if any(own.get(name) != value for name, value in status.items()):
            own.update(status)
            self.api.patch(self.key, self.namespace, owner["metadata"]["name"], {"status": status}, self.status_part)

    def conclude(self, owner: Any, kind: str, reason: str, message: str = "") -> None:
        """Add a condition; the same one is not added twice."""
        known = (owner.get("status") or {}).get("conditions") or []
        if kind in [entry["type"] for entry in known]:
            return
        entry = {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": now()}
        entry["message"] = message or f"it is {kind}"  # some servers take "" for null in custom resources
        self.tell(owner, conditions=[*known, entry])


class JobController(Controller):
    """batch/v1 Jobs with one pod that is not started again, or with numbered ones."""

    key = JOBS

    def __init__(self, api: Api, namespace: str) -> None:
        super().__init__(api, namespace)
        self._made: dict[str, set[str]] = {}  # the names of numbered pods, by the uids of their Jobs
        self._over: set[str] = set()

    def reconcile(self, content: Any) -> None:
        status = content.get("status") or {}
        if {entry["type"] for entry in status.get("conditions") or []} - {"Suspended"}:
            return
        if content["spec"].get("suspend"):
            self.suspended(content, "True", "Job suspended")
            return
        if content["spec"].get("suspend") is False and status.get("conditions"):
            self.suspended(content, "False", "Job resumed")
        pods = self.pods(content)
        phases = {pod["status"]["phase"] for pod in pods}
        if content["spec"].get("completionMode") == "Indexed":
            self._number(content, pods)
        elif (not pods and status.get("startTime")) or "Failed" in phases:
            self.conclude(content, "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        elif not pods:
            metadata = content["metadata"]
            labels = {"job-name": metadata["name"]}
            self.make_pod(content, f"{metadata['name']}-x1", content["spec"]["template"], labels)
        elif phases == {"Succeeded"}:
            self.conclude(content, "Complete", "", "")
        else:
            self.tell(content, startTime=status.get("startTime") or now(), active=len(pods))

    def _number(self, job: Any, pods: list[Any]) -> None:
        """Make the numbered pods of a Job. A pod that is gone has failed; one that fails ends the others first.

        Source: syncJob and manageJob in pkg/controller/job/job_controller.go.
        """
        metadata, spec = job["metadata"], job["spec"]
        made, uid = self._made.setdefault(metadata["uid"], set()), metadata["uid"]
        missing = made - {pod["metadata"]["name"] for pod in pods}
        if missing or any(pod["status"]["phase"] == "Failed" for pod in pods) or uid in self._over:
            self._over.add(uid)
            alive = [pod for pod in pods if pod["status"]["phase"] in ("Pending", "Running")]
            self.delete(alive)
            if not alive:
                self.conclude(job, "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
            return
        for number in range(spec["completions"]):
            name = f"{metadata['name']}-{number}-x1"
            if name not in made and self.make_pod(job, name, *_numbered(job, number)):
                made.add(name)
        if len(pods) == spec["completions"] and all(pod["status"]["phase"] == "Succeeded" for pod in pods):
            self.conclude(job, "Complete", "", "")
        else:
            active = sum(pod["status"]["phase"] in ("Pending", "Running") for pod in pods)
            self.tell(job, startTime=(job.get("status") or {}).get("startTime") or now(), active=active)

    def suspended(self, job: Any, value: str, message: str) -> None:
        """Tell that a Job is suspended, or is no longer."""
        known = (job.get("status") or {}).get("conditions") or []
        if [entry["status"] for entry in known] != [value]:
            entry = {"type": "Suspended", "status": value, "reason": message.replace(" ", ""), "message": message}
            self.tell(job, conditions=[{**entry, "lastTransitionTime": now()}])


def _numbered(job: Any, number: int) -> tuple[Any, dict[str, str], dict[str, str]]:
    """The template, the labels and the host name of a numbered pod."""
    template, name = copy.deepcopy(job["spec"]["template"]), job["metadata"]["name"]
    own = template.setdefault("metadata", {})
    own["annotations"] = {**(own.get("annotations") or {}), INDEX: str(number)}
    for container in template["spec"]["containers"]:
        mark = {"name": "JOB_COMPLETION_INDEX", "value": str(number)}
        container["env"] = [*(container.get("env") or []), mark]
    return template, {"job-name": name}, {"hostname": f"{name}-{number}"}


class Collector(Controller):
    """Deletes what belongs to objects that are gone or wait for that."""

    key = PODS

    def __init__(self, api: Api, namespace: str, kinds: tuple[Key, ...]) -> None:
        super().__init__(api, namespace)
        self.follows = (SECRETS, MAPS, CLAIMS, JOBS, SERVICES, *kinds)

    def look(self) -> None:
        everything = [(key, content) for key, informer in self.informers.items() for content in informer.all()]
        known = {content["metadata"]["uid"]: content for _, content in everything}
        for key, content in everything:
            if owners(content) and not content["metadata"].get("deletionTimestamp"):
                self._collect(key, content, known)
        for key, content in everything:
            metadata = content["metadata"]
            if metadata.get("deletionTimestamp") and not (_goes_last(content) and self._blocked(metadata["uid"])):
                rest = [name for name in metadata.get("finalizers") or [] if name not in _FINALIZERS]
                if rest != (metadata.get("finalizers") or []):
                    self.api.patch(key, self.namespace, metadata["name"], {"metadata": {"finalizers": rest}})

    def _collect(self, key: Key, content: Any, known: dict[str, Any]) -> None:
        metadata = content["metadata"]
        references = metadata["ownerReferences"]
        found = [known.get(entry["uid"]) or self._owner(entry) for entry in references]
        waits = all(owner is not None and _goes_last(owner) for owner in found)
        blocks = any(entry.get("blockOwnerDeletion") for entry in references)
        if (waits and blocks) or not any(found):
            self.api.delete(key, self.namespace, metadata["name"], metadata["uid"], propagationPolicy="Background")

    def _owner(self, entry: Any) -> Any | None:
        key = key_of(entry["apiVersion"], entry["kind"])
        assert key is not None, entry
        owner = self.api.get(key, self.namespace, entry["name"])
        return owner if owner is not None and owner["metadata"]["uid"] == entry["uid"] else None

    def _blocked(self, uid: str) -> bool:
        """Whether something keeps its owner from going."""
        return any(
            entry["uid"] == uid and entry.get("blockOwnerDeletion")
            for key in self.informers
            for content in self.api.all(key, self.namespace)
            for entry in content["metadata"].get("ownerReferences") or []
        )


class QuotaController(Controller):
    """Tells how much of a quota is used: without that, the server does not apply it."""

    key = QUOTAS
    follows = (PODS, JOBS)

    def reconcile(self, content: Any) -> None:
        hard = content["spec"].get("hard") or {}
        have = {key: self.api.all(key, self.namespace) for key in self.follows}
        self.tell(content, hard=hard, used=used(hard, have))


def owners(content: Any) -> set[str]:
    return {entry["uid"] for entry in content["metadata"].get("ownerReferences") or []}


def reference(owner: Any) -> dict[str, Any]:
    """What an object says of its owner."""
    known = {name: owner[name] for name in ("apiVersion", "kind")}
    metadata = {name: owner["metadata"][name] for name in ("name", "uid")}
    return {**known, **metadata, "controller": True, "blockOwnerDeletion": True}


def _goes_last(content: Any) -> bool:
    return "foregroundDeletion" in (content["metadata"].get("finalizers") or [])
