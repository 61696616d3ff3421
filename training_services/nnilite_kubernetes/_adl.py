"""AdaptDLJobs: equal replicas, whose number the scheduler changes while the trial runs (`adaptive`).

The scheduler ends all pods and starts others. The trial's checkpoints and its reports are on a volume of its own, so
the first of the new pods continues where the previous one ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from nnilite.errors import ConfigError, Conflict, Place
from nnilite.records import Json
from nnilite.service import IgnoredOption, Job, JobState
from nnilite.services.section_fields import gpus_are_unused
from nnilite.units import NonNegativeInt, PositiveInt, parse_memory_mb
from nnilite_kubernetes._api import CLAIMS, Cluster, Resource
from nnilite_kubernetes._config import ClusterConfig, ContainerConfig, StorageConfig
from nnilite_kubernetes._kind import ObjectOutcome, OperatorKind
from nnilite_kubernetes._manifest import Role

ADAPTDLJOBS = Resource("adaptdl.petuum.com", "v1", "adaptdljobs", "AdaptDLJob")
_PHASES = {"Succeeded": JobState.SUCCEEDED, "Failed": JobState.FAILED}


@dataclass(frozen=True, kw_only=True)
class AdlNfsConfig:
    """A folder of an NFS server, in the pods."""

    server: Annotated[str, "its name or address"]
    path: Annotated[str, "the exported folder"]
    container_mount_path: Annotated[str, "where it is mounted in the pods"]


@dataclass(frozen=True, kw_only=True)
class AdlCheckpointConfig:
    """The volume of a trial."""

    storage_class: Annotated[str | None, "a class whose volumes many pods can write; default: that of the cluster"] = (
        None
    )
    storage_size: Annotated[str, "as Kubernetes spells sizes: 10Gi"] = "1Gi"


@dataclass(frozen=True, kw_only=True)
class AdlConfig(ClusterConfig, ContainerConfig):
    """The section of `platform: adl`."""

    memory_size: Annotated[Any, "of each replica: 2gb, 2Gi, or MB as a number"] = None
    gpu_number: Annotated[NonNegativeInt | None, "GPUs of each replica"] = None
    adaptive: Annotated[bool, "let the scheduler change the number of replicas"] = False
    min_replicas: Annotated[NonNegativeInt | None, "the fewest replicas"] = None
    max_replicas: Annotated[PositiveInt | None, "the most replicas"] = None
    checkpoint: Annotated[AdlCheckpointConfig | None, "a volume for each trial"] = None
    nfs: Annotated[AdlNfsConfig | None, "mounted into the pods"] = None

    def __post_init__(self) -> None:
        ClusterConfig.__post_init__(self)
        ContainerConfig.__post_init__(self)
        if self.memory_size is not None:
            try:
                text = self.memory_size
                size = parse_memory_mb(text[:-1] + "b" if isinstance(text, str) and text.endswith("i") else text)
            except ValueError as error:
                raise ConfigError(str(error), Place(field="memorySize")) from error
            object.__setattr__(self, "memory_size", size)
        if self.min_replicas and self.max_replicas and self.max_replicas < self.min_replicas:
            raise ConfigError(f"must be at least minReplicas, {self.min_replicas}", Place(field="maxReplicas"))
        if "/dev/shm" in _list_mounted(self.pod_template):
            raise ConfigError(
                "cannot mount anything at /dev/shm: AdaptDL does, in each pod", Place(field="podTemplate")
            )
        if self.storage is not None and self.storage.can_be_mounted:
            raise ConfigError("may only be s3 here, for the code: use checkpoint, or nfs", Place(field="storage"))

    @property
    def volume(self) -> AdlCheckpointConfig | None:
        """The volume of a trial. Without one, nothing would survive a change of replicas."""
        return self.checkpoint or (AdlCheckpointConfig() if self.adaptive else None)


def _list_mounted(template: Any) -> set[str]:
    """Return where the containers of a podTemplate mount volumes."""
    containers = ((template or {}).get("spec") or {}).get("containers") or []
    return {str(mount.get("mountPath")) for each in containers for mount in each.get("volumeMounts") or []}


IGNORED = (
    IgnoredOption("shmSize", "AdaptDL gives each pod memory of its node as /dev/shm"),
    gpus_are_unused("gpuNumber counts", "with `gpuNumber`", lambda config, settings: config.gpu_number is not None),
)
"""What has no effect on AdaptDL, in addition to what has none on any cluster."""


class AdaptDLJob(OperatorKind):
    """An AdaptDLJob for each trial, with a volume claim of the same name for its checkpoints."""

    resource = ADAPTDLJOBS
    pod_end_counts = False
    logs_stay = False
    has_shm = True

    def __init__(self, config: AdlConfig) -> None:
        self._config = config
        self.ends_with_pod = not config.adaptive
        self.owned = (CLAIMS,) if config.volume is not None else ()

    def check(self, cluster: Cluster) -> None:
        if ADAPTDLJOBS.plural not in cluster.served(ADAPTDLJOBS.group, ADAPTDLJOBS.version):
            raise ConfigError("the cluster has no AdaptDLJobs: is AdaptDL's scheduler installed?")

    def storage(self, name: str) -> StorageConfig | None:
        if self._config.volume is None:
            return None
        return StorageConfig(storage_type="pvc", claim=name)

    def roles(self, job: Job) -> Sequence[Role]:
        gpus = self._config.gpu_number if self._config.gpu_number is not None else job.gpus
        role = Role("main", "main", self._config, gpus=gpus, rank="ADAPTDL_REPLICA_RANK", extra=self._make_extra())
        return [replace(role, task="resume") if self._config.adaptive else role]

    def _make_extra(self) -> dict[str, Json]:
        """Return what AdaptDL's own command line would set."""
        places = {"CHECKPOINT_PATH": "checkpoint", "SHARE_PATH": "share", "TENSORBOARD_LOGDIR": "tensorboard"}
        container: dict[str, Json] = {"name": "main", "volumeMounts": []}
        volumes = []
        if self._config.volume is not None:
            container["env"] = [{"name": f"ADAPTDL_{name}", "value": f"/adaptdl/{p}"} for name, p in places.items()]
            mounts = [
                {"name": "nnilite-work", "mountPath": f"/adaptdl/{p}", "subPath": f"adaptdl/{p}"}
                for p in places.values()
            ]
            container["volumeMounts"] = mounts
        if self._config.nfs is not None:
            nfs = self._config.nfs
            volumes.append({"name": "nnilite-nfs", "nfs": {"server": nfs.server, "path": nfs.path}})
            container["volumeMounts"].append({"name": "nnilite-nfs", "mountPath": nfs.container_mount_path})
        return {"containers": [container], "volumes": volumes}

    def companions(self, metadata: Json, pods: Mapping[str, Json]) -> list[tuple[Resource, Json]]:
        volume = self._config.volume
        if volume is None:
            return []
        spec: dict[str, Json] = {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": volume.storage_size}},
        }
        if volume.storage_class:
            spec["storageClassName"] = volume.storage_class
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
        return [(CLAIMS, claim)]

    def manifest(self, metadata: Json, pods: Mapping[str, Json], job: Job) -> Json:
        spec: dict[str, Json] = {"preemptible": self._config.adaptive, "template": pods["main"]}
        for name, value in (("minReplicas", self._config.min_replicas), ("maxReplicas", self._config.max_replicas)):
            if value is not None:
                spec[name] = value
        return {
            "apiVersion": ADAPTDLJOBS.api_version,
            "kind": ADAPTDLJOBS.kind,
            "metadata": metadata,
            "spec": spec,
        }

    def scaling(self, content: Json, workers: int) -> Json:
        least, most = self._config.min_replicas or 1, self._config.max_replicas or "as many as fit"
        raise Conflict(
            "AdaptDL's scheduler alone changes the number of replicas, and does not allow changes to a job; "
            f"with adaptive: true it chooses between minReplicas ({least}) and maxReplicas ({most})"
        )

    def outcome(self, content: Json) -> ObjectOutcome:
        status = content.get("status") or {}
        message = ": ".join(str(status[name]) for name in ("reason", "message") if status.get(name))
        phase = status.get("phase")
        if phase in ("Stopping", "Starting") and status.get("group"):
            message = f"its number of replicas is being changed ({status['group']} times so far)"
        return ObjectOutcome(_PHASES.get(str(phase)), message[:2000])
