"""What tests, controllers and nodes do at an API server, over HTTP, whichever server it is.

The connection is the plugin's own; nothing else of it is used here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nnilite_kubernetes._api import ApiError, Cluster, Resource, connect
from nnilite_kubernetes._informer import Informer

Key = tuple[str, str, str]  # group, version, plural

NODES: Key = ("", "v1", "nodes")
PODS: Key = ("", "v1", "pods")
SECRETS: Key = ("", "v1", "secrets")
MAPS: Key = ("", "v1", "configmaps")
SERVICES: Key = ("", "v1", "services")
EVENTS: Key = ("", "v1", "events")
CLAIMS: Key = ("", "v1", "persistentvolumeclaims")
QUOTAS: Key = ("", "v1", "resourcequotas")
ACCOUNTS: Key = ("", "v1", "serviceaccounts")
JOBS: Key = ("batch", "v1", "jobs")
ROLES: Key = ("rbac.authorization.k8s.io", "v1", "roles")
BINDINGS: Key = ("rbac.authorization.k8s.io", "v1", "rolebindings")
TFJOBS: Key = ("kubeflow.org", "v1", "tfjobs")
PYTORCHJOBS: Key = ("kubeflow.org", "v1", "pytorchjobs")
MPIJOBS_V1: Key = ("kubeflow.org", "v1", "mpijobs")
MPIJOBS_V2: Key = ("kubeflow.org", "v2beta1", "mpijobs")
FRAMEWORKS: Key = ("frameworkcontroller.microsoft.com", "v1", "frameworks")
ADAPTDLJOBS: Key = ("adaptdl.petuum.com", "v1", "adaptdljobs")
TRAINJOBS: Key = ("trainer.kubeflow.org", "v1alpha1", "trainjobs")
RUNTIMES: Key = ("trainer.kubeflow.org", "v1alpha1", "trainingruntimes")
CLUSTER_RUNTIMES: Key = ("trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes")
JOBSETS: Key = ("jobset.x-k8s.io", "v1alpha2", "jobsets")
WORKLOADS: Key = ("kueue.x-k8s.io", "v1beta1", "workloads")
POD_GROUPS: Key = ("scheduling.volcano.sh", "v1beta1", "podgroups")
KINDS: dict[Key, str] = {
    TRAINJOBS: "TrainJob",
    RUNTIMES: "TrainingRuntime",
    CLUSTER_RUNTIMES: "ClusterTrainingRuntime",
    JOBSETS: "JobSet",
    WORKLOADS: "Workload",
    NODES: "Node",
    PODS: "Pod",
    SECRETS: "Secret",
    MAPS: "ConfigMap",
    SERVICES: "Service",
    POD_GROUPS: "PodGroup",
    EVENTS: "Event",
    CLAIMS: "PersistentVolumeClaim",
    QUOTAS: "ResourceQuota",
    ACCOUNTS: "ServiceAccount",
    JOBS: "Job",
    ROLES: "Role",
    BINDINGS: "RoleBinding",
    TFJOBS: "TFJob",
    PYTORCHJOBS: "PyTorchJob",
    MPIJOBS_V1: "MPIJob",
    MPIJOBS_V2: "MPIJob",
    FRAMEWORKS: "Framework",
    ADAPTDLJOBS: "AdaptDLJob",
}


class Api:
    """An API server, as whom the kubeconfig says, or as which this connection was made."""

    def __init__(self, way: Path | Cluster) -> None:
        self.cluster = way if isinstance(way, Cluster) else connect(str(way), None)
        # For controllers, a node and a test; the plugin needs few.
        self.cluster._way.pool.connection_pool_kw["maxsize"] = 50
        self._followed: dict[tuple[Key, str], tuple[Informer, list[Callable[[], object]]]] = {}

    def close(self) -> None:
        self.cluster.close()

    def all(self, key: Key, namespace: str, **query: str) -> list[Any]:
        """All objects that a query selects, each with its kind."""
        items = self.cluster.select(resource(key), namespace, **query).get("items") or []
        return [{**find_kind(key), **item} for item in items]

    def get(self, key: Key, namespace: str, name: str) -> Any | None:
        return self.cluster.get(resource(key), namespace, name)

    def create(self, key: Key, namespace: str, content: Any) -> Any:
        """The object as it is now. Raises: ApiError, also where there is one of that name (409)."""
        return self.cluster.call("POST", resource(key).path(namespace), {**find_kind(key), **content})

    def ensure(self, key: Key, namespace: str, content: Any) -> Any:
        """The object of that name, made now or before."""
        return self.cluster.create(resource(key), namespace, {**find_kind(key), **content})

    def patch(self, key: Key, namespace: str, name: str, change: Any, part: str = "") -> Any | None:
        """Merge a change into an object or a part of it (status, binding); None if it is gone."""
        path = resource(key).path(namespace, name)
        try:
            return self.cluster.call("PATCH", f"{path}/{part}" if part else path, change, kind="merge")
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def delete(self, key: Key, namespace: str, name: str, uid: str = "", **options: Any) -> bool:
        """Whether there was one. Pods end gracefully unless the options say otherwise."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", **options}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            self.cluster.call("DELETE", resource(key).path(namespace, name), body)
        except ApiError as error:
            if error.status in (404, 409):
                return False
            raise
        return True

    def follow(self, key: Key, namespace: str, changed: Callable[[], object]) -> Informer:
        """A copy of all objects of a kind, which is kept up to date; `changed` is called when they do.

        Controllers and nodes follow the same kinds: who follows one as well gets the same copy.
        """
        if (key, namespace) not in self._followed:
            listeners: list[Callable[[], object]] = []
            informer = Informer(self.cluster, resource(key), namespace, "", lambda content, gone: _call_all(listeners))
            self._followed[key, namespace] = informer, listeners
            informer.start()
        informer, listeners = self._followed[key, namespace]
        listeners.append(changed)
        return informer

    def leave(self, namespace: str) -> None:
        """Follow nothing of a namespace any more."""
        for key, place in list(self._followed):
            if place == namespace:
                self._followed.pop((key, place))[0].close()


def _call_all(listeners: list[Callable[[], object]]) -> None:
    for listener in list(listeners):
        listener()


def resource(key: Key) -> Resource:
    return Resource(*key, KINDS[key])


def find_kind(key: Key) -> dict[str, str]:
    return {"apiVersion": resource(key).api_version, "kind": KINDS[key]}


def key_of(api_version: str, kind: str) -> Key | None:
    """The kind that an owner reference means."""
    return next(
        (key for key, name in KINDS.items() if find_kind(key) == {"apiVersion": api_version, "kind": kind}), None
    )


def now(later_s: float = 0.0) -> str:
    """The time, as Kubernetes writes it; or that in so many seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + later_s))
