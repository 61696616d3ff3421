"""TFJob, PyTorchJob and MPIJob, of the training-operator (kubeflow.org/v1) and of the MPI operator (v2beta1).

The section of the platform, too, which TrainJobs share: see `_trainer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal

from nnilite.errors import ConfigError, Conflict, Place
from nnilite.records import Json
from nnilite.service import IgnoredOption, Job, JobState
from nnilite.services.section_fields import gpus_are_unused
from nnilite.units import NonNegativeInt, PositiveInt
from nnilite_kubernetes._api import PODS, Cluster, Resource
from nnilite_kubernetes._config import RoleConfig, TtlConfig, camel
from nnilite_kubernetes._kind import ObjectOutcome, OperatorKind, condition, judge_by_conditions
from nnilite_kubernetes._manifest import Role, make_object_name, merged
from nnilite_kubernetes._node_pods import check_replicas, on_nodes

GROUP = "kubeflow.org"
_TRAINER = ("trainer.kubeflow.org", "v1alpha1")  # group and version of Trainer (version 2)
_GIVEN = "its pods; see the documentation for which roles an operator has"


@dataclass(frozen=True)
class Flavor:
    """The differences between the kinds of kubeflow."""

    resource: Resource
    specs: str  # the field of the spec that has the replicas
    container: str
    roles: Mapping[str, str]  # ours, by which they are configured, and theirs
    speakers: tuple[str, ...]  # the first one that is there reports


FLAVORS = {
    "tf-operator": Flavor(
        Resource(GROUP, "v1", "tfjobs", "TFJob"),
        "tfReplicaSpecs",
        "tensorflow",
        {"chief": "Chief", "master": "Master", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"},
        ("chief", "master", "worker"),
    ),
    "pytorch-operator": Flavor(
        Resource(GROUP, "v1", "pytorchjobs", "PyTorchJob"),
        "pytorchReplicaSpecs",
        "pytorch",
        {"master": "Master", "worker": "Worker"},
        ("master", "worker"),
    ),
    "mpi-operator": Flavor(
        Resource(GROUP, "v2beta1", "mpijobs", "MPIJob"),
        "mpiReplicaSpecs",
        "mpi",
        {"launcher": "Launcher", "worker": "Worker"},
        ("launcher",),
    ),
    "trainer": Flavor(Resource(*_TRAINER, "trainjobs", "TrainJob"), "", "node", {"worker": "node"}, ("worker",)),
}
_VERSIONS = {"mpi-operator": ("v1", "v2beta1"), "trainer": (_TRAINER[1],)}  # default: v1
_NOT_OF_TRAINJOBS = ("min_replicas", "max_replicas", "elastic_policy", "run_policy")
_OF_TRAINJOBS = ("runtime", "runtime_kind", "train_job")


_OLD_VERSIONS = ("v1alpha1", "v1alpha2", "v1alpha3", "v1beta1", "v1beta2")
"""Versions that NNI's examples and schema name."""


@dataclass(frozen=True, kw_only=True)
class KubeflowConfig(TtlConfig):
    """The section of `platform: kubeflow`. Raises: ConfigError where roles and operator do not fit."""

    operator: Annotated[
        Literal["tf-operator", "pytorch-operator", "mpi-operator", "trainer"],
        "what runs the jobs; trainer: TrainJobs of Kubeflow Trainer (version 2)",
    ]
    api_version: Annotated[
        str | None,
        "API version of the jobs: v1, v2beta1 for MPIJobs, v1alpha1 for TrainJobs; default: the one that is served",
    ] = None
    runtime: Annotated[
        str | None, "of TrainJobs: the runtime from which those of trials are made; if not set, a plain one"
    ] = None
    runtime_kind: Annotated[
        Literal["ClusterTrainingRuntime", "TrainingRuntime"],
        "whether `runtime` belongs to the whole cluster or to the namespace",
    ] = "ClusterTrainingRuntime"
    train_job: Annotated[Any, "merged into the spec of TrainJobs: {trainer: {numProcPerNode: 4}}, ..."] = None
    trial_command: Annotated[str, "command of roles that have none of their own"] = ""
    worker: Annotated[RoleConfig | None, _GIVEN] = None
    ps: Annotated[RoleConfig | None, _GIVEN] = None
    master: Annotated[RoleConfig | None, _GIVEN] = None
    chief: Annotated[RoleConfig | None, _GIVEN] = None
    evaluator: Annotated[RoleConfig | None, _GIVEN] = None
    launcher: Annotated[RoleConfig | None, f"{_GIVEN}; with the worker's image if not set"] = None
    reporting_role: Annotated[
        str | None, "the role whose first pod reports for the trial: chief, master, launcher or worker"
    ] = None
    min_replicas: Annotated[PositiveInt | None, "elastic: the fewest workers"] = None
    max_replicas: Annotated[PositiveInt | None, "elastic: the most workers"] = None
    slots_per_worker: Annotated[PositiveInt, "of MPIJobs: processes on each worker"] = 1
    backoff_limit: Annotated[NonNegativeInt, "how often pods may be started again in a trial"] = 0
    clean_pod_policy: Annotated[
        Literal["None", "Running", "All"], "which pods are deleted when a trial ends; logs go with their pods"
    ] = "Running"
    run_policy: Annotated[Any, "merged into the job's runPolicy: schedulingPolicy, ..."] = None
    elastic_policy: Annotated[Any, "merged into a PyTorchJob's elasticPolicy"] = None
    warnings: tuple[str, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        flavor = FLAVORS[self.operator]
        given = [name for name in ("worker", "ps", "master", "chief", "evaluator", "launcher") if getattr(self, name)]
        for name in given:
            if name not in flavor.roles:
                known = ", ".join(flavor.roles)
                raise ConfigError(f"is not a role of {self.operator}; the roles are {known}", Place(field=name))
        versions = _VERSIONS.get(self.operator, ("v1",))
        if self.api_version in _OLD_VERSIONS and self.api_version not in versions:
            why = "of kubeflow.org is no longer served by any cluster"
            warning = f"apiVersion {self.api_version} {why}; {versions[-1]} is used"
            object.__setattr__(self, "warnings", (warning,))
            object.__setattr__(self, "api_version", versions[-1])
        if self.api_version not in (None, *versions):
            raise ConfigError(f"{self.api_version!r} is not served; use {versions[-1]}", Place(field="apiVersion"))
        self._check_trainer()
        self._check_policies()
        self._check_roles()
        self._check_elastic()
        if self.reporting_role and self.reporting_role not in self.present:
            raise ConfigError(f"there is no role {self.reporting_role!r}", Place(field="reportingRole"))

    def _check_trainer(self) -> None:
        """Check that the fields of TrainJobs are used for these, and those of other jobs are not."""
        strange = _NOT_OF_TRAINJOBS if self.operator == "trainer" else _OF_TRAINJOBS
        defaults = {each.name: each.default for each in fields(self)}
        for name in strange:
            if getattr(self, name) != defaults[name]:
                whose = "is not for TrainJobs: their nodes are fixed, and trainJob has the rest of their spec"
                raise ConfigError(
                    whose if self.operator == "trainer" else "is for operator: trainer", Place(field=camel(name))
                )
        if self.runtime is None and self.runtime_kind != defaults["runtime_kind"]:
            raise ConfigError("is the kind of runtime, which is not set", Place(field="runtimeKind"))
        if not isinstance(self.train_job, Mapping | None):
            raise ConfigError("must be an object, a part of the spec of a TrainJob", Place(field="trainJob"))
        given = self.train_job or {}
        trainer = given.get("trainer") if isinstance(given.get("trainer"), Mapping) else {}
        for name in ("command", "args", "image", "numNodes", "resourcesPerNode"):
            if name in (trainer or {}):
                raise ConfigError("is what the role worker says", Place(field=f"trainJob.trainer.{name}"))
        for name in ("runtimeRef", "managedBy"):
            if name in given:
                raise ConfigError("cannot be set: each trial has a runtime of its own", Place(field=f"trainJob.{name}"))

    def _check_policies(self) -> None:
        for name, policy in (("runPolicy", self.run_policy), ("elasticPolicy", self.elastic_policy)):
            if not isinstance(policy, Mapping | None):
                raise ConfigError("must be an object", Place(field=name))
        for name in ("minReplicas", "maxReplicas"):
            given = (self.elastic_policy or {}).get(name, 1)
            if type(given) is not int or given < 1:
                raise ConfigError("must be a whole number of at least 1", Place(field=f"elasticPolicy.{name}"))
        if self.elastic_policy and self.operator != "pytorch-operator":
            raise ConfigError(
                "is for PyTorchJobs; others have minReplicas and maxReplicas", Place(field="elasticPolicy")
            )

    def _check_roles(self) -> None:
        if self.operator == "trainer" and self.worker is not None and self.worker.replicas < 1:
            raise ConfigError("must be at least 1", Place(field="worker.replicas"))
        if self.operator == "pytorch-operator" and not self.elastic:
            if self.master is None:
                raise ConfigError("is needed, with one replica, unless minReplicas is set", Place(field="master"))
            if self.master.replicas != 1:
                raise ConfigError("must be 1: a PyTorchJob has one master", Place(field="master.replicas"))
            return
        speaks = (self.chief or self.master) if self.operator == "tf-operator" else None
        if self.worker is None and speaks is None:
            raise ConfigError("is needed", Place(field="worker"))

    def _check_elastic(self) -> None:
        if not self.elastic:
            return
        if self.operator == "tf-operator":
            raise ConfigError("TFJobs are not elastic", Place(field="minReplicas"))
        if self.operator == "pytorch-operator" and self.master is not None:
            raise ConfigError(
                "cannot be there in an elastic PyTorchJob: its workers are all alike", Place(field="master")
            )
        low, high = self.bounds
        replicas = self.worker.replicas if self.worker else 0
        if not low <= replicas <= high:
            raise ConfigError(f"must be between {low} and {high}", Place(field="worker.replicas"))

    @property
    def elastic(self) -> bool:
        """Whether the number of workers may change while a trial runs."""
        return bool(self.min_replicas or self.max_replicas or self.elastic_policy)

    @property
    def bounds(self) -> tuple[int, int]:
        """Return the fewest and the most workers."""
        replicas, own = self.worker.replicas if self.worker else 1, self.elastic_policy or {}
        least = own.get("minReplicas") or self.min_replicas or 1
        return least, own.get("maxReplicas") or self.max_replicas or max(replicas, least)

    @property
    def present(self) -> dict[str, RoleConfig]:
        """The roles that a trial has."""
        roles = {name: getattr(self, name) for name in FLAVORS[self.operator].roles if getattr(self, name)}
        if self.operator == "mpi-operator" and "launcher" not in roles and self.worker is not None:
            launcher = replace(self.worker, replicas=1, command="", gpu_number=0, cpu_number=None, memory_size=None)
            roles = {"launcher": launcher, **roles}
        return roles


_COMPUTING = ("worker", "master", "chief")
_ROLES = (*_COMPUTING, "ps", "evaluator", "launcher")


def _make_all_roles_check(name: str, roles: Sequence[str]) -> Callable[[KubeflowConfig, Mapping[str, Json]], bool]:
    """Return the test whether each of these roles that a trial has says something itself."""

    def holds(config: KubeflowConfig, settings: Mapping[str, Json]) -> bool:
        return all(getattr(role, name) not in (None, "") for key, role in config.present.items() if key in roles)

    return holds


IGNORED = (
    IgnoredOption(
        "trialCommand",
        "each role has a command of its own",
        "where each role has a `command`",
        _make_all_roles_check("command", _ROLES),
    ),
    gpus_are_unused(
        "each role has a gpuNumber of its own",
        "where each role has a `gpuNumber`",
        _make_all_roles_check("gpu_number", _COMPUTING),
    ),
    *(IgnoredOption(f"{role}.codeDirectory", "trialCodeDirectory counts") for role in _ROLES),
    IgnoredOption(
        "cleanPodPolicy",
        "the pods of a TrainJob stay as long as it does",
        "for `trainer`",
        lambda config, settings: config.operator == "trainer",
    ),
    IgnoredOption(
        "slotsPerWorker",
        "it is for MPIJobs",
        "except for `mpi-operator`",
        lambda config, settings: config.operator != "mpi-operator",
    ),
)
"""What has no effect on Kubeflow, in addition to what has none on any cluster."""


class KubeflowJob(OperatorKind):
    """One of kubeflow's kinds. `check` finds out which version of MPIJob is served."""

    def __init__(self, config: KubeflowConfig) -> None:
        self._config = config
        self._flavor = FLAVORS[config.operator]
        self._present = config.present
        self.resource = self._flavor.resource
        if config.api_version:
            self.resource = replace(self.resource, version=config.api_version)
        self.failure_ends_all = not config.elastic
        if config.elastic and config.operator == "mpi-operator":
            self.needs = ((PODS, "delete"),)

    def distribute(self, nodes: int) -> None:
        """Make the master the first node, and workers the others; the workers of a TFJob are all nodes."""
        config = self._config
        if config.operator == "mpi-operator":
            why = "does not work with mpi-operator, which starts the processes itself; use pytorch-operator or trainer"
            raise ConfigError(why, Place(field="distributed"))
        if config.elastic:
            why = "cannot be set with distributed, whose nodes are fixed; remove it"
            field = "elasticPolicy" if config.elastic_policy else "minReplicas"
            raise ConfigError(why, Place(field=field))
        first = "master" if config.operator == "pytorch-operator" else "worker"
        for name in config.present:
            if name not in (first, "worker"):
                raise ConfigError("is not a node of a distributed trial; remove it", Place(field=name))
        if config.reporting_role not in (None, first):
            why = f"must be {first}, which is the first node of a distributed trial; remove it"
            raise ConfigError(why, Place(field="reportingRole"))
        self.nodes = nodes
        given = config.worker or config.master
        if given is None or (first == "worker" and config.worker is None):
            raise ConfigError("is needed: it says what the nodes are like", Place(field="worker"))
        if config.worker is not None:
            check_replicas(given.replicas, nodes - (first == "master"), "worker.replicas")
        if config.master is not None and first == "master":
            others = {"worker": replace(given, replicas=nodes - 1)} if nodes > 1 else {}
            self._present = {"master": config.master, **others}
        else:
            self._present = {"worker": replace(given, replicas=nodes)}

    def check(self, cluster: Cluster) -> None:
        """Check that the cluster has the operator. Both define MPIJob, in different versions, so only one can exist."""
        wanted = [self.resource.version]
        if self._config.operator == "mpi-operator" and not self._config.api_version:
            wanted = ["v2beta1", "v1"]
        for version in wanted:
            if self.resource.plural in cluster.served(GROUP, version):
                self.resource = replace(self.resource, version=version)
                return
        missing = f"the cluster has no {self.resource.kind} of {GROUP}/{' or '.join(wanted)}"
        if "trainjobs" in cluster.served(*_TRAINER):
            cure = (
                "it has Kubeflow Trainer (version 2): use operator: trainer with the role worker, or install the "
                "training-operator (version 1) as well"
            )
            raise ConfigError(f"{missing}: {cure}", Place(field="operator"))
        raise ConfigError(f"{missing}: is the operator installed?", Place(field="operator"))

    def roles(self, job: Job) -> Sequence[Role]:
        present = self._present
        speaker = self._config.reporting_role or next(name for name in self._flavor.speakers if name in present)
        roles = [self._role(name, settings, job, name == speaker) for name, settings in present.items()]
        if not self.nodes:
            return roles
        first = f"{make_object_name(job.name)}-{roles[0].name}-0"
        return [on_nodes(role, job, role.rank, first, offset=number) for number, role in enumerate(roles)]

    def _role(self, name: str, settings: RoleConfig, job: Job, reports: bool) -> Role:
        computes = name not in ("ps", "launcher", "evaluator")
        gpus = settings.gpu_number if settings.gpu_number is not None else (job.gpus if computes else None)
        return Role(
            name,
            self._flavor.container,
            settings,
            settings.replicas,
            settings.command,
            gpus,
            reports,
            own_command=self._config.operator == "mpi-operator" and name == "worker",
        )

    def manifest(self, metadata: Json, pods: Mapping[str, Json], job: Job) -> Json:
        replicas = {
            self._flavor.roles[role.name]: self._make_replicas(role, pods[role.name]) for role in self.roles(job)
        }
        policy = {
            "cleanPodPolicy": self._config.clean_pod_policy,
            "ttlSecondsAfterFinished": self._config.keep_finished,
            **self._make_backoff_limit(),
        }
        spec: dict[str, Json] = {
            "runPolicy": merged(policy, self._config.run_policy or {}),
            self._flavor.specs: replicas,
        }
        if self._config.operator == "mpi-operator":
            spec["slotsPerWorker"] = self._config.slots_per_worker
        if self._config.operator == "pytorch-operator" and self._config.elastic:
            low, high = self._config.bounds
            elastic = {"minReplicas": low, "maxReplicas": high, "rdzvBackend": "c10d"}
            spec["elasticPolicy"] = merged(elastic, self._config.elastic_policy or {})
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": metadata,
            "spec": spec,
        }

    def _make_backoff_limit(self) -> dict[str, Json]:
        """Return the limit where it has an effect on restarts.

        Of a job that exceeds it, the training-operator deletes even the pods that have failed, with their exit codes.
        Pods are never restarted here, so jobs without a limit fail just as soon, and keep these pods. The
        MPI operator hands the limit to the Job of the launcher, which has one of 6 otherwise.
        """
        limit = self._config.backoff_limit
        restarts = self._config.elastic and self._config.operator == "pytorch-operator"
        needed = limit > 0 or restarts or self.resource.version == "v2beta1"
        return {"backoffLimit": limit} if needed else {}

    def _make_replicas(self, role: Role, pod: Json) -> Json:
        """Return the replicas of a role. Operators copy its restart policy to the pods, and reject any other there."""
        spec = {name: value for name, value in pod["spec"].items() if name != "restartPolicy"}
        return {
            "replicas": role.replicas,
            "restartPolicy": self._restart_policy(role),
            "template": {**pod, "spec": spec},
        }

    def _restart_policy(self, role: Role) -> str:
        """Return the restart policy: a killed worker of an elastic job comes back, a failed one does not."""
        if not self._config.elastic or role.name != "worker":
            return "Never"
        return "Never" if self._config.operator == "mpi-operator" else "ExitCode"

    def makers(self, content: Json) -> list[str]:
        """Return the names of the PodGroup that a gang waits for, and of the Job that makes MPI's launcher."""
        name = content["metadata"]["name"]
        return [name, f"{name}-launcher"] if self._config.operator == "mpi-operator" else [name]

    def replaces(self, role: Role) -> bool:
        """Return whether to delete a lost pod: the operators replace MPI workers that are gone, but not failed ones."""
        return self._config.elastic and self._config.operator == "mpi-operator" and role.name == "worker"

    def outcome(self, content: Json) -> ObjectOutcome:
        found = judge_by_conditions(content, "Succeeded")
        if found.state is not None:
            return found
        restarting = condition(content, "Restarting")
        return ObjectOutcome(None, str(restarting.get("message") or "restarting") if restarting else "")

    def scaling(self, content: Json, workers: int) -> Json:
        if not self._config.elastic:
            raise Conflict("the job is not elastic; set minReplicas and maxReplicas for that")
        low, high = self._config.bounds
        if not low <= workers <= high:
            raise Conflict(f"{workers} workers are not between minReplicas {low} and maxReplicas {high}")
        if self.outcome(content).state in (JobState.SUCCEEDED, JobState.FAILED):
            raise Conflict("the job has ended")
        return {"spec": {self._flavor.specs: {"Worker": {"replicas": workers}}}}
