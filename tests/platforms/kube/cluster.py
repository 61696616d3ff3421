"""Clusters to test on. All three are used in the same way, by their API alone:

StandIn     an API server in this process, with controllers and one node beside it
RealServer  a real kube-apiserver, with the same controllers and the same node
Given       the one of NNILITE_TEST_KUBECONFIG, with whatever operators and nodes it has
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import Any

from nnilite.testing import eventually
from nnilite_kubernetes._api import ApiError
from nnilite_kubernetes._exec import ExecError
from platforms.kube.apiserver import KubeApiserver
from platforms.kube.client import ACCOUNTS, BINDINGS, CLUSTER_RUNTIMES, KINDS, PODS, QUOTAS, ROLES, SECRETS, Api, Key
from platforms.kube.controllers import Collector, Controller, JobController, Operators, QuotaController
from platforms.kube.direct import DirectCluster
from platforms.kube.kubeconfig import cluster_of, write_kubeconfig
from platforms.kube.node import Node
from platforms.kube.registry import Registry
from platforms.kube.server import ApiServer
from platforms.kube.store import Store

IMAGE = os.environ.get("NNILITE_TEST_IMAGE", "python:3.11-slim")
_RBAC = "rbac.authorization.k8s.io"


class Machinery:
    """What turns objects into running processes in one namespace: controllers and a node."""

    def __init__(self, api: Api, namespace: str, folder: Path, operators: Operators, apart: bool = False) -> None:
        kinds: list[type[Controller]] = [JobController, QuotaController, *operators.controllers]
        self._api, self._namespace = api, namespace
        self.node = Node(api, namespace, folder, apart)
        self._controllers = [kind(api, namespace) for kind in kinds]
        owned = tuple(key for key in operators.crds if key != CLUSTER_RUNTIMES)  # which are in no namespace
        self._controllers.append(Collector(api, namespace, owned))

    def start(self) -> None:
        for part in (self.node, *self._controllers):
            part.start()

    def close(self) -> None:
        for part in (*self._controllers, self.node):
            part.close()
        self._api.leave(self._namespace)


class Cluster:
    """Use as a context manager; `operators` is what it has to have installed."""

    name = ""
    here: bool | None = True  # pods run on this machine, so that they see its files
    callback = "127.0.0.1"  # where pods reach this machine; "": nowhere
    limit_s = 30.0  # for what should be soon
    allocates = False  # AdaptDL's allocator decides how many replicas a job has

    def __init__(self, folder: Path, operators: Operators | None = None) -> None:
        self.folder = folder
        self.operators = operators or Operators()
        self.namespace = "default"
        self.image = IMAGE
        self._made: list[tuple[Key, str]] = []

    def __enter__(self) -> Any:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.api = self._connect()
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self.api.close()

    def kubeconfig(self) -> Path:
        """A file by which one may do all that tests do."""
        raise NotImplementedError

    def _connect(self) -> Api:
        return Api(self.kubeconfig())

    def _begin(self) -> None:
        self.machinery = Machinery(self.api, self.namespace, self.folder / "node", self.operators)
        self.machinery.start()

    def _end(self) -> None:
        self.machinery.close()

    @property
    def node(self) -> Node:
        """The one node of a cluster of ours."""
        return self.machinery.node

    @property
    def minor(self) -> int:
        """The second part of the version of Kubernetes; 0 where a server was built without one."""
        return int(self.api.cluster.call("GET", "/version")["minor"].rstrip("+") or 0)

    # what is there

    def all(self, key: Key) -> list[Any]:
        return self.api.all(key, self.namespace)

    def pods(self) -> list[Any]:
        return self.all(PODS)

    def running(self) -> list[Any]:
        """The pods that run."""
        return [pod for pod in self.pods() if (pod.get("status") or {}).get("phase") == "Running"]

    def logs(self, job: str) -> list[bytes]:
        """What the first containers of a job's pods have printed."""
        found = []
        for pod in self.pods():
            if pod["metadata"]["labels"].get("nnilite/job") == job:
                container = pod["spec"]["containers"][0]["name"]
                try:
                    stamped = [*self.api.cluster.pod_log(self.namespace, pod["metadata"]["name"], container).lines()]
                except ApiError as error:
                    # So answers a real API server until the container has started.
                    if error.status != 400:
                        raise
                    stamped = []
                found.append(b"".join(line.partition(b" ")[2] + b"\n" for line in stamped))
        return found

    def execute(self, pod: Any, command: list[str]) -> bytes:
        """The first line that a command in a pod's first container prints; b"" if the pod has ended meanwhile."""
        place = (self.namespace, pod["metadata"]["name"], pod["spec"]["containers"][0]["name"])
        try:
            execution = self.api.cluster.execute(*place, command)
            try:
                return execution.line()
            finally:
                execution.close()
        except ExecError:
            return b""

    def secrets(self) -> list[Any]:
        """Those that trials have; a cluster may have some of its own."""
        return [secret for secret in self.all(SECRETS) if secret.get("type") in (None, "Opaque")]

    # what somebody else does there

    def delete(self, key: Key, content: Any, policy: str = "Background") -> None:
        metadata = content["metadata"]
        self.api.delete(key, self.namespace, metadata["name"], metadata["uid"], propagationPolicy=policy)

    def evict(self, pod: Any) -> None:
        """As `kubectl drain` and autoscalers do."""
        metadata = pod["metadata"]
        version = "policy/v1" if self.minor >= 22 else "policy/v1beta1"
        body = {"apiVersion": version, "kind": "Eviction", "metadata": {"name": metadata["name"]}}
        place = f"/api/v1/namespaces/{self.namespace}/pods/{metadata['name']}/eviction"
        self.api.cluster.call("POST", place, body)

    def disrupt(self, pod: Any, reason: str, message: str) -> None:
        """As the scheduler does for a pod of higher priority, and the node controller for a taint: say why, delete."""
        entry = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
        known = [each for each in pod["status"].get("conditions") or [] if each["type"] != entry["type"]]
        change = {"status": {"conditions": [*known, entry]}}
        self.api.patch(PODS, self.namespace, pod["metadata"]["name"], change, "status")
        self.delete(PODS, pod)

    def limit(self, **hard: int) -> None:
        """Set a quota, `pods` or `jobs`; 0 is none, and a negative number is no limit any more."""
        names = {"pods": "pods", "jobs": "count/jobs.batch"}
        for name, number in hard.items():
            if number < 0:
                self.api.delete(QUOTAS, self.namespace, name)
                continue
            self._make(QUOTAS, {"metadata": {"name": name}, "spec": {"hard": {names[name]: number}}})
            self._await_quota(name)

    def _await_quota(self, name: str) -> None:
        """It counts from when its controller has seen it."""
        get = lambda: self.api.get(QUOTAS, self.namespace, name) or {}  # noqa: E731
        eventually(lambda: (get().get("status") or {}).get("used"), self.limit_s)

    def label_nodes(self, name: str, value: str | None) -> None:
        """Set a label on all nodes; None takes it away."""
        change = {"metadata": {"labels": {name: value}}}
        for node in self.api.cluster.call("GET", "/api/v1/nodes")["items"]:
            self.api.cluster.call("PATCH", f"/api/v1/nodes/{node['metadata']['name']}", change, kind="merge")

    def stranger(self) -> Path:
        """The kubeconfig of somebody whom the server does not know."""
        return write_kubeconfig(self.folder / "kubeconfig.stranger", self._where(), {"token": "of-nobody"})

    def limited(self, *rules: tuple[str, list[str], list[str]]) -> Path:
        """The kubeconfig of an account that may do only this: group, things, verbs."""
        name = f"limited-{secrets.token_hex(4)}"
        entries = [{"apiGroups": [group], "resources": things, "verbs": verbs} for group, things, verbs in rules]
        self._make(ACCOUNTS, {"metadata": {"name": name}})
        self._make(ROLES, {"metadata": {"name": name}, "rules": entries})
        subjects = [{"kind": "ServiceAccount", "name": name, "namespace": self.namespace}]
        role = {"apiGroup": _RBAC, "kind": "Role", "name": name}
        self._make(BINDINGS, {"metadata": {"name": name}, "roleRef": role, "subjects": subjects})
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{name}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = self.api.cluster.call("POST", path, request)["status"]["token"]
        return write_kubeconfig(self.folder / f"kubeconfig.{name}", self._where(), {"token": token})

    def _make(self, key: Key, content: Any) -> None:
        self.api.create(key, self.namespace, content)
        self._made.append((key, content["metadata"]["name"]))

    def _where(self) -> dict[str, Any]:
        return cluster_of(self.kubeconfig())


class StandIn(Cluster):
    """`store` holds the objects, `api_server` serves them, `requests` says what has been asked for."""

    name = "stand-in"

    def __init__(self, folder: Path, operators: Operators | None = None) -> None:
        super().__init__(folder, operators)
        self.store = Store()
        self.registry = Registry(self.store, dict(self.operators.crds), self.operators.admission)
        self.server = ApiServer(self.registry)

    def __enter__(self) -> StandIn:
        self.server.listener.start()
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.server.listener.stop()

    def kubeconfig(self) -> Path:
        where = {"server": self.server.listener.url}
        return write_kubeconfig(self.folder / "kubeconfig", where, {"token": self.server.rights.admin})

    def _connect(self) -> Api:
        return Api(DirectCluster(self.kubeconfig(), self.server))

    def halt(self) -> None:
        self.server.listener.stop()
        self.store.wake()

    def resume(self) -> None:
        """As a server that was restarted, it knows of no earlier changes."""
        self.store.compact()
        self.server.listener.start()


class RealServer(Cluster):
    """A namespace of its own on a server that several tests share."""

    name = "kube-apiserver"

    def __init__(self, server: KubeApiserver, folder: Path, operators: Operators | None = None) -> None:
        super().__init__(folder, operators)
        self.server = server
        self.namespace = f"test-{secrets.token_hex(4)}"

    def kubeconfig(self) -> Path:
        return self.server.kubeconfig

    def _begin(self) -> None:
        self.server.define(list(self.operators.crds.values()))
        make_namespace(self.api, self.namespace)
        super()._begin()

    def halt(self) -> None:
        self.server.halt()

    def resume(self) -> None:
        self.server.resume()


class Given(Cluster):
    """A namespace of its own, or that of NNILITE_TEST_NAMESPACE. It has what it has."""

    name = "given"
    allocates = True
    limit_s = 240.0
    here = None  # found out once

    def __init__(self, kubeconfig: Path, folder: Path, operators: Operators | None = None) -> None:
        super().__init__(folder, operators)
        self._kubeconfig = kubeconfig
        self._own = "NNILITE_TEST_NAMESPACE" not in os.environ
        self.namespace = f"nnilite-test-{secrets.token_hex(4)}" if self._own else os.environ["NNILITE_TEST_NAMESPACE"]

    def kubeconfig(self) -> Path:
        return self._kubeconfig

    def lacks(self) -> list[str]:
        """The kinds that the tests need and the cluster does not have."""
        with contextlib.closing(Api(self._kubeconfig)) as api:
            return [KINDS[key] for key in self.operators.crds if key[2] not in api.cluster.served(*key[:2])]

    def _begin(self) -> None:
        if self._own:
            make_namespace(self.api, self.namespace)
        if Given.here is None:
            Given.here = _sees_this_machine(self.api, self.namespace, self.folder)
            Given.callback = os.environ.get("NNILITE_TEST_CALLBACK") or ("127.0.0.1" if Given.here else "")

    def _end(self) -> None:
        """Nothing of the test stays."""
        if self._own:
            self.api.cluster.call("DELETE", f"/api/v1/namespaces/{self.namespace}")
        for key, name in self._made:
            self.api.delete(key, self.namespace, name)


def make_namespace(api: Api, name: str) -> None:
    api.cluster.call(
        "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    )


def _sees_this_machine(api: Api, namespace: str, folder: Path) -> bool:
    """Whether a pod finds a file that is here."""
    mark = folder / "mark"
    mark.touch()
    command = ["test", "-e", str(mark)]
    spec = {"restartPolicy": "Never", "containers": [{"name": "look", "image": IMAGE, "command": command}]}
    api.create(PODS, namespace, {"metadata": {"name": "look"}, "spec": spec})
    ended = ("Succeeded", "Failed")
    eventually(lambda: api.get(PODS, namespace, "look")["status"]["phase"] in ended, Given.limit_s)
    found = api.get(PODS, namespace, "look")["status"]["phase"] == "Succeeded"
    api.delete(PODS, namespace, "look", gracePeriodSeconds=0)
    return found
