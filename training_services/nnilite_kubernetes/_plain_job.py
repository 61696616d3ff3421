"""Plain Jobs of Kubernetes: one pod, or a numbered one for each node of a distributed trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite.service import Job
from nnilite_kubernetes._api import JOBS, Cluster, Resource
from nnilite_kubernetes._config import KubernetesConfig
from nnilite_kubernetes._kind import ObjectOutcome, OperatorKind, judge_by_conditions
from nnilite_kubernetes._manifest import Role, make_object_name
from nnilite_kubernetes._node_pods import (
    POD_GROUPS,
    SERVICES,
    find_queue,
    grouped,
    is_for_volcano,
    make_headless_service,
    make_pod_group,
    on_nodes,
)

_INDEX = "JOB_COMPLETION_INDEX"
_OLDEST_MINOR = 24  # from Kubernetes 1.24 on, pods of a Job are numbered, and named by their number


class PlainJob(OperatorKind):
    """A batch/v1 Job whose pods are never started again.

    With several nodes it is an indexed one: its pods are numbered, and a headless service gives them names.
    """

    resource = JOBS

    def __init__(self, config: KubernetesConfig) -> None:
        self._config = config

    def distribute(self, nodes: int) -> None:
        self.nodes, self.failure_ends_all = nodes, True
        groups = is_for_volcano(self._config.pod_template)
        self.owned = (SERVICES, POD_GROUPS) if groups else (SERVICES,)

    def check(self, cluster: Cluster) -> None:
        if not self.nodes:
            return
        minor = str(cluster.call("GET", "/version").get("minor") or "").rstrip("+")
        if minor.isdigit() and int(minor) < _OLDEST_MINOR:
            raise ConfigError(
                f"needs Kubernetes 1.{_OLDEST_MINOR} or later, which numbers the pods of a Job, and this is 1.{minor}; "
                "use platform kubeflow",
                Place(field="distributed"),
            )
        wanted = (POD_GROUPS.group, POD_GROUPS.version)
        if POD_GROUPS in self.owned and POD_GROUPS.plural not in cluster.served(*wanted):
            raise ConfigError(
                "is volcano, but the cluster has no PodGroup of Volcano; install Volcano, or remove schedulerName",
                Place(field="podTemplate.spec.schedulerName"),
            )

    def roles(self, job: Job) -> Sequence[Role]:
        role = Role("trial", "trial", self._config, gpus=job.gpus)
        if not self.nodes:
            return [role]
        name = make_object_name(job.name)
        apart = {"subdomain": name}
        role = Role("trial", "trial", self._config, self.nodes, gpus=job.gpus, rank=_INDEX, extra=apart)
        return [on_nodes(role, job, _INDEX, f"{name}-0.{name}")]

    def companions(self, metadata: Json, pods: Mapping[str, Json]) -> list[tuple[Resource, Json]]:
        if not self.nodes:
            return []
        found = [(SERVICES, make_headless_service(metadata))]
        if POD_GROUPS in self.owned:
            queue = find_queue(self._config.object_annotations)
            found.append((POD_GROUPS, make_pod_group(metadata, self.nodes, queue)))
        return found

    def manifest(self, metadata: Json, pods: Mapping[str, Json], job: Job) -> Json:
        pod = pods["trial"]
        if POD_GROUPS in self.owned:
            pod = grouped(pod, metadata["name"])
        return {
            "apiVersion": JOBS.api_version,
            "kind": JOBS.kind,
            "metadata": metadata,
            "spec": {
                "backoffLimit": 0,
                "completions": self.nodes or 1,
                "parallelism": self.nodes or 1,
                **({"completionMode": "Indexed"} if self.nodes else {}),
                "ttlSecondsAfterFinished": self._config.keep_finished,
                "template": pod,
            },
        }

    def outcome(self, content: Json) -> ObjectOutcome:
        return judge_by_conditions(content, "Complete")
