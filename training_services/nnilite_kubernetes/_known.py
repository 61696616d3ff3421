"""The known state of a service's jobs: the objects and pods that two threads watch, and the memory of each job.

Callers get what is known. The server is asked only for objects that the watch does not have (yet, or any more).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from nnilite.errors import ServiceError
from nnilite.records import Json
from nnilite.service import Job
from nnilite_kubernetes import _manifest as manifests
from nnilite_kubernetes._api import PODS, Cluster
from nnilite_kubernetes._informer import Informer
from nnilite_kubernetes._kind import OperatorKind
from nnilite_kubernetes._memory import ClusterMemory
from nnilite_kubernetes._status import Facts, find_role, is_canceled

_FORGOTTEN = 1000

Changed = Callable[[Json, bool], None]
"""Gets an object that has changed, and whether it is gone."""


class KnownJobs:
    """Watches from `start` to `close`. Several threads may call all methods."""

    def __init__(self, cluster: Cluster, kind: OperatorKind, namespace: str, selector: str) -> None:
        self.cluster = cluster
        self.kind = kind
        self.namespace = namespace
        self._selector = selector
        self._objects: Informer | None = None
        self._pods: Informer | None = None
        self._memories: dict[tuple[str, str], ClusterMemory] = {}  # by the names and uids of the jobs' objects
        self._forgotten: deque[tuple[str, str]] = deque(maxlen=_FORGOTTEN)  # one watch may be late for them
        self.lock = threading.Lock()

    def start(self, object_changed: Changed, pod_changed: Changed) -> None:
        """Start to watch. Raises: ApiError if a list is refused."""
        place = (self.namespace, self._selector)
        self._objects = Informer(self.cluster, self.kind.resource, *place, object_changed)
        self._pods = Informer(self.cluster, PODS, *place, pod_changed)
        self._objects.start()
        self._pods.start()

    def close(self) -> None:
        """Stop watching."""
        for informer in (self._objects, self._pods):
            if informer is not None:
                informer.close()

    def check_fresh(self, silence_s: float) -> None:
        """Check that the server has answered recently. Raises: ServiceError."""
        informers = [informer for informer in (self._objects, self._pods) if informer is not None]
        stale = max(informers, key=lambda informer: informer.age_s)
        if stale.age_s > silence_s:
            what = f"has refused to list {stale.plural}" if stale.refused else "has not answered"
            raise ServiceError(f"the cluster {what} for {stale.age_s:.0f} s: {stale.trouble}")

    # ------------------------------------------------------------ objects and pods

    def objects(self) -> list[Json]:
        """Return all objects that the watch has reported."""
        return [] if self._objects is None else self._objects.all()

    def object(self, name: str) -> Json | None:
        """Return the object of a job, from the server if the watch does not have it yet. Raises: ApiError."""
        content = self.watched(name)
        if content is None:
            content = self.cluster.get(self.kind.resource, self.namespace, name)
            if content is not None:
                self.put(content)
        return content

    def watched(self, name: str) -> Json | None:
        """Return the object of a job, if the watch has reported it."""
        return None if self._objects is None else self._objects.get(name)

    def put(self, content: Json) -> None:
        """Keep an object that the server has just sent."""
        if self._objects is not None:
            self._objects.put(content)

    def pods(self) -> list[Json]:
        """Return the pods of all jobs."""
        return [] if self._pods is None else self._pods.all()

    def list_known_pods(self, name: str) -> list[Json]:
        """Return the pods of one job that the watch has reported."""
        return [pod for pod in self.pods() if find_job(pod) == name]

    def list_pods_now(self, name: str) -> list[Json]:
        """Return the pods of one job, from the server. Raises: ApiError."""
        selector = f"{manifests.JOB}={name}"
        return list(self.cluster.select(PODS, self.namespace, labelSelector=selector).get("items") or [])

    def role(self, pod: Json) -> manifests.Role | None:
        """Return the role of a pod; None if this service has no such role."""
        return next((role for role in self.kind.roles(_job(pod)) if role.name == find_role(pod)), None)

    # ------------------------------------------------------------ what is kept in mind

    def memory(self, name: str, uid: str) -> ClusterMemory:
        """Return the memory of a job, by the name and uid of its object."""
        if (name, uid) in self._forgotten:
            return ClusterMemory(removed=True)
        return self._memories.setdefault((name, uid), ClusterMemory())

    def find_memory(self, content: Json) -> ClusterMemory:
        """Return the memory of a job, by its object."""
        return self.memory(content["metadata"]["name"], content["metadata"]["uid"])

    def forget(self, name: str, uid: str, gone: bool) -> None:
        """Forget a job that is never asked for again. An object that is not gone yet still has to be watched."""
        if gone:
            self._forgotten.append((name, uid))
            self._memories.pop((name, uid), None)
        else:
            self._memories[name, uid] = ClusterMemory(removed=True)

    def facts(self, content: Json, more: Sequence[Json] = ()) -> Facts:
        """Return the facts about a job. `more`: pods as they are now, which may no longer be known."""
        name, memory = content["metadata"]["name"], self.find_memory(content)
        newer = {pod["metadata"]["uid"] for pod in more}
        pods = [*more, *(pod for pod in self.list_known_pods(name) if pod["metadata"]["uid"] not in newer)]
        if not pods and memory.reporter is not None and self.kind.outcome(content).state is not None:
            pods = [memory.reporter]  # deleted already, as the job has ended
        return Facts(content, pods, self.kind.roles(_job(content)), memory.canceled or is_canceled(content))


def find_job(pod: Json) -> str:
    """Return the name of the object of a pod's job; "" for pods that do not belong to a trial."""
    return str((pod["metadata"].get("labels") or {}).get(manifests.JOB) or "")


def _job(content: Json) -> Job:
    """Return a job with only the fields on which the names of its roles depend."""
    return Job(content["metadata"]["name"], "", "", 0, 0, {})
