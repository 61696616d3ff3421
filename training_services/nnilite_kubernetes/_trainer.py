"""TrainJobs of Kubeflow Trainer (version 2): a TrainJob for each trial, with a TrainingRuntime of its own.

A TrainJob says which runtime it runs on, and little else: the runtime says what its pods look like. So each trial gets
one, made from nothing or from the runtime that the config names, whose pods then also are the trial's. Trainer makes a
JobSet of both, and that a Job, whose pods are numbered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace

from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite.service import Job
from nnilite_kubernetes._api import ApiError, Cluster, Resource
from nnilite_kubernetes._config import DEFAULT_IMAGE
from nnilite_kubernetes._kind import ObjectOutcome, OperatorKind, judge_by_conditions
from nnilite_kubernetes._kubeflow import FLAVORS, KubeflowConfig
from nnilite_kubernetes._manifest import Role, make_object_name, merged
from nnilite_kubernetes._node_pods import check_replicas, on_nodes

_TRAINJOBS = FLAVORS["trainer"].resource
_GROUP, _VERSION = _TRAINJOBS.group, _TRAINJOBS.version
RUNTIMES = Resource(_GROUP, _VERSION, "trainingruntimes", "TrainingRuntime")
CLUSTER_RUNTIMES = Resource(_GROUP, _VERSION, "clustertrainingruntimes", "ClusterTrainingRuntime")
_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"  # a label: the part of a TrainJob that a replicated Job runs
_NODE = "node"  # the name that Trainer wants for the container that trains, and the usual one of its replicated Job
_RUNTIME = Place(field="runtime")
_INDEX = "JOB_COMPLETION_INDEX"


class TrainJob(OperatorKind):
    """A TrainJob whose nodes are the pods of the role `worker`. `check` reads the runtime that the config names."""

    resource = _TRAINJOBS
    owned = (RUNTIMES,)
    failure_ends_all = True

    def __init__(self, config: KubeflowConfig) -> None:
        self._config = config
        self._named: Json | None = None  # the spec of the runtime of the config

    def distribute(self, nodes: int) -> None:
        check_replicas(self._config.present["worker"].replicas, nodes, "worker.replicas")
        self.nodes = nodes

    @property
    def _number(self) -> int:
        """The number of pods of a trial."""
        return self.nodes or self._config.present["worker"].replicas

    def check(self, cluster: Cluster) -> None:
        served = cluster.served(_GROUP, _VERSION)
        if not {_TRAINJOBS.plural, RUNTIMES.plural} <= set(served):
            raise ConfigError(
                f"the cluster has no TrainJob of {_GROUP}/{_VERSION}: is Kubeflow Trainer (version 2) installed? The "
                "operators of version 1 are tf-operator, pytorch-operator and mpi-operator",
                Place(field="operator"),
            )
        if self._config.runtime:
            self._named = _check_usable(self._config.runtime, self._read(cluster, self._config.runtime))
            network = self._named["template"]["spec"].get("network") or {}
            if self.nodes and network.get("enableDNSHostnames") is False:
                why = "gives its pods no host names (enableDNSHostnames: false), which distributed needs"
                raise ConfigError(f"{self._config.runtime!r} {why}; use another runtime", _RUNTIME)

    def _read(self, cluster: Cluster, name: str) -> Json:
        of_cluster = self._config.runtime_kind == CLUSTER_RUNTIMES.kind
        kind, namespace = (CLUSTER_RUNTIMES, "") if of_cluster else (RUNTIMES, self._config.namespace)
        try:
            found = cluster.get(kind, namespace, name)
            known = [] if found else cluster.select(kind, namespace).get("items") or []
        except ApiError as error:
            if error.status != 403:
                raise
            raise ConfigError(
                f"this account may not get {kind.plural}, so {name!r} cannot be read: {error}", _RUNTIME
            ) from error
        if found is None:
            names = ", ".join(sorted(each["metadata"]["name"] for each in known)) or "none"
            where = "the cluster" if of_cluster else f"the namespace {namespace}"
            raise ConfigError(f"there is no {kind.kind} {name!r}; {where} has: {names}", _RUNTIME)
        return found

    def roles(self, job: Job) -> Sequence[Role]:
        worker = self._config.present["worker"]
        if worker.docker_image == DEFAULT_IMAGE and self._named is not None:
            image = _name_container(self._named).get("image") or DEFAULT_IMAGE
            worker = replace(worker, docker_image=image)
        gpus = worker.gpu_number if worker.gpu_number is not None else job.gpus
        role = Role("worker", _NODE, worker, self._number, worker.command, gpus, rank=_INDEX)
        if not self.nodes:
            return [role]
        name = make_object_name(job.name)
        return [on_nodes(role, job, _INDEX, f"{name}-{self._name_job()}-0-0.{self._find_subdomain() or name}")]

    def _name_job(self) -> str:
        """Return the name of the replicated Job that trains."""
        return str(_nodes(self._named)["name"]) if self._named else _NODE

    def _find_subdomain(self) -> str:
        """Return the subdomain that the named runtime sets for its pods, "" for that of the JobSet's name."""
        network = (self._named or {}).get("template", {}).get("spec", {}).get("network") or {}
        return str(network.get("subdomain") or "")

    def companions(self, metadata: Json, pods: Mapping[str, Json]) -> list[tuple[Resource, Json]]:
        runtime = {
            "apiVersion": RUNTIMES.api_version,
            "kind": RUNTIMES.kind,
            "metadata": metadata,
            "spec": self._make_runtime(pods["worker"]),
        }
        return [(RUNTIMES, runtime)]

    def _make_runtime(self, pod: Json) -> Json:
        """Return the spec of a trial's runtime. Nothing restarts there: trials are tried again by the manager."""
        spec = deepcopy(self._named) if self._named is not None else _plain()
        job_set = spec["template"]["spec"]
        job_set.pop("failurePolicy", None)
        job_set["ttlSecondsAfterFinished"] = self._config.keep_finished
        nodes = _nodes(spec)
        nodes["replicas"] = 1
        jobs = nodes["template"].setdefault("spec", {})
        jobs["backoffLimit"] = self._config.backoff_limit
        jobs["template"] = _with_pod(jobs.get("template") or {}, pod)
        spec["mlPolicy"] = {**(spec.get("mlPolicy") or {}), "numNodes": self._number}
        return spec

    def manifest(self, metadata: Json, pods: Mapping[str, Json], job: Job) -> Json:
        spec = {
            "runtimeRef": {"apiGroup": _GROUP, "kind": RUNTIMES.kind, "name": metadata["name"]},
            "trainer": {"numNodes": self._number},
        }
        return {
            "apiVersion": _TRAINJOBS.api_version,
            "kind": _TRAINJOBS.kind,
            "metadata": metadata,
            "spec": merged(spec, self._config.train_job or {}),
        }

    def makers(self, content: Json) -> list[str]:
        """Return the names of the JobSet and of the Job that makes the pods."""
        name = content["metadata"]["name"]
        return [name, f"{name}-{self._name_job()}-0"]

    def outcome(self, content: Json) -> ObjectOutcome:
        return judge_by_conditions(content, "Complete")


def _plain() -> Json:
    """Return a runtime of equal nodes, which know each other by the variables of torchrun (PET_...)."""
    nodes = {"name": _NODE, "template": {"metadata": {"labels": {_STEP: "trainer"}}}}
    return {"mlPolicy": {"torch": {}}, "template": {"spec": {"replicatedJobs": [nodes]}}}


def _nodes(spec: Json) -> Json:
    """Return the replicated Job of a runtime that trains. Raises: KeyError, TypeError, StopIteration."""
    jobs = spec["template"]["spec"]["replicatedJobs"]
    steps = [(job, ((job["template"].get("metadata") or {}).get("labels") or {}).get(_STEP)) for job in jobs]
    return next(job for job, step in steps if step == "trainer")


def _name_container(spec: Json) -> Json:
    """Return the container of a runtime that trains. Raises: as `_nodes`."""
    containers = _nodes(spec)["template"]["spec"]["template"]["spec"]["containers"]
    return next(container for container in containers if container["name"] == _NODE)


def _check_usable(name: str, runtime: Json) -> Json:
    """Return the spec of a runtime if trials can use it. Raises: ConfigError."""
    spec = runtime.get("spec") or {}
    if (spec.get("mlPolicy") or {}).get("mpi"):
        raise ConfigError(
            f"{name!r} starts its nodes by MPI, which trials cannot use; use operator: mpi-operator, or a runtime of "
            "another kind",
            _RUNTIME,
        )
    try:
        _name_container(spec)
    except (KeyError, TypeError, AttributeError, StopIteration) as error:
        raise ConfigError(
            f"{name!r} has no job for training with a container {_NODE!r}, which trials need", _RUNTIME
        ) from error
    return spec


def _with_pod(template: Json, pod: Json) -> Json:
    """Return the pod template of a runtime with a trial's pod merged into it. What the trial says counts."""
    base = deepcopy(template)
    for container in (base.get("spec") or {}).get("containers") or []:
        if container["name"] == _NODE:
            container.pop("command", None)
            container.pop("args", None)
    found = merged(base, pod)
    labels = (base.get("metadata") or {}).get("labels") or {}
    return {**found, "metadata": {**found["metadata"], "labels": {**labels, **pod["metadata"]["labels"]}}}
