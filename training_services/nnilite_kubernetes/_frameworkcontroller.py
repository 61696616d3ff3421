"""Frameworks of FrameworkController: task roles, with a policy for when a framework has ended.

The controller deletes the pods of a framework as soon as it has ended, and with them their logs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite.service import IgnoredOption, Job, JobState
from nnilite.services.section_fields import gpus_are_unused
from nnilite.units import FilePath, NonNegativeInt, PositiveInt
from nnilite.yaml_files import load_yaml
from nnilite_kubernetes._api import Cluster, Resource
from nnilite_kubernetes._config import ClusterConfig, ContainerConfig
from nnilite_kubernetes._kind import ObjectOutcome, OperatorKind
from nnilite_kubernetes._manifest import Role
from nnilite_kubernetes._node_pods import check_replicas, on_nodes

FRAMEWORKS = Resource("frameworkcontroller.microsoft.com", "v1", "frameworks", "Framework")
_NAME = re.compile(r"[a-z0-9]{1,20}")
_BARRIER = "/mnt/frameworkbarrier"
_FIRST_PORT = 4000


@dataclass(frozen=True, kw_only=True)
class CompletionPolicy:
    """When the tasks of a role end the framework. -1: never."""

    min_failed_task_count: Annotated[int, "this many failed tasks fail the trial; -1: never"] = 1
    min_succeed_task_count: Annotated[int, "this many succeeded tasks end it; -1: all tasks"] = -1


@dataclass(frozen=True, kw_only=True)
class TaskRoleConfig(ContainerConfig):
    """One task role."""

    name: Annotated[str, "lower-case letters and digits; FrameworkController allows no dash"]
    task_number: Annotated[PositiveInt, "how many pods"] = 1
    command: Annotated[str, "command in these pods; default: trialCommand"] = ""
    gpu_number: Annotated[NonNegativeInt | None, "GPUs of each pod"] = None
    framework_attempt_completion_policy: Annotated[CompletionPolicy | None, "when tasks of this role end the trial"] = (
        None
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"{self.name!r}: use at most 20 lower-case letters and digits", Place(field="name"))


@dataclass(frozen=True, kw_only=True)
class FrameworkControllerConfig(ClusterConfig):
    """The section of `platform: frameworkcontroller`."""

    trial_command: Annotated[str, "command of task roles that have none of their own"] = ""
    task_roles: Annotated[list[TaskRoleConfig], "the roles of a trial; the first one reports"] = field(
        default_factory=list
    )
    config_path: Annotated[FilePath | None, "instead of taskRoles: a Framework in YAML, from which trials are made"] = (
        None
    )
    reporting_role: Annotated[str | None, "the role whose first task reports for the trial"] = None
    barrier: Annotated[bool | None, "let tasks wait for each other and know their addresses; if there are several"] = (
        None
    )
    barrier_image: Annotated[str, "image for the barrier"] = "frameworkcontroller/frameworkbarrier"

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.task_roles) == bool(self.config_path):
            raise ConfigError("either this or configPath is needed", Place(field="taskRoles"))
        names = [role.name for role in self.given]
        if len(set(names)) < len(names):
            raise ConfigError("two of them have the same name", Place(field="taskRoles"))
        if self.reporting_role and self.reporting_role not in names:
            raise ConfigError(f"there is no task role {self.reporting_role!r}", Place(field="reportingRole"))

    @property
    def given(self) -> list[TaskRoleConfig]:
        """Return the task roles of the section, or of the template."""
        return read_roles_of_template(self.config_path) if self.config_path else self.task_roles

    @property
    def waits(self) -> bool:
        """Whether tasks wait for each other."""
        return self.barrier if self.barrier is not None else sum(role.task_number for role in self.given) > 1


def _make_all_roles_check(name: str) -> Callable[[FrameworkControllerConfig, Mapping[str, Json]], bool]:
    """Return the test whether each task role says something itself."""
    return lambda config, settings: all(getattr(role, name) not in (None, "") for role in config.given)


IGNORED = (
    IgnoredOption(
        "trialCommand",
        "each task role has a command of its own",
        "where each role has a `command`",
        _make_all_roles_check("command"),
    ),
    gpus_are_unused(
        "each task role has a gpuNumber of its own",
        "where each role has a `gpuNumber`",
        _make_all_roles_check("gpu_number"),
    ),
    IgnoredOption(
        "barrierImage",
        "no task waits for another; set barrier",
        "where tasks do not wait for each other",
        lambda config, settings: not config.waits,
    ),
)
"""What has no effect on FrameworkController, in addition to what has none on any cluster."""


def read_roles_of_template(path: Path) -> list[TaskRoleConfig]:
    """Return the task roles of a Framework in YAML, each with the command of its one container. Raises: ConfigError."""
    place = Place(file=str(path))
    content = load_yaml(path)
    try:
        return [_read_role(entry) for entry in content["spec"]["taskRoles"]]
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise ConfigError(f"is not a Framework with spec.taskRoles[].task.pod: {error!r}", place) from error


def _read_role(entry: Mapping[str, Any]) -> TaskRoleConfig:
    pod = dict(entry["task"]["pod"])
    spec = {name: value for name, value in pod["spec"].items() if name != "restartPolicy"}
    (container,) = spec["containers"]
    words = [*(container.get("command") or []), *(container.get("args") or [])]
    kept = {name: value for name, value in container.items() if name not in ("command", "args", "image")}
    policy = entry.get("frameworkAttemptCompletionPolicy") or {}
    return TaskRoleConfig(
        name=entry["name"],
        task_number=int(entry.get("taskNumber", 1)),
        command=words[2] if words[:2] in (["sh", "-c"], ["bash", "-c"]) and len(words) == 3 else shlex.join(words),
        docker_image=container["image"],
        framework_attempt_completion_policy=CompletionPolicy(
            min_failed_task_count=int(policy.get("minFailedTaskCount", 1)),
            min_succeed_task_count=int(policy.get("minSucceededTaskCount", -1)),
        ),
        pod_template={**pod, "spec": {**spec, "containers": [{**kept, "name": "framework"}]}},
    )


class Framework(OperatorKind):
    """A Framework for each trial, tried once."""

    resource = FRAMEWORKS
    dashes = False
    logs_stay = False
    ends_with_pod = False  # the controller makes no pod twice, and deletes all of them before it tells the end

    def __init__(self, config: FrameworkControllerConfig) -> None:
        self._config = config
        self._given = config.given
        self._waits = config.waits

    def distribute(self, nodes: int) -> None:
        if len(self._given) != 1:
            why = f"are {len(self._given)}, and distributed needs one, whose tasks are the nodes; remove the others"
            raise ConfigError(why, Place(field="taskRoles"))
        if self._config.barrier is False and nodes > 1:
            why = "is needed for distributed: by it tasks know the address of the first one; remove it"
            raise ConfigError(why, Place(field="barrier"))
        [role] = self._given
        check_replicas(role.task_number, nodes, "taskRoles[0].taskNumber")
        self.nodes, self._given, self._waits = nodes, [replace(role, task_number=nodes)], nodes > 1

    def check(self, cluster: Cluster) -> None:
        if FRAMEWORKS.plural not in cluster.served(FRAMEWORKS.group, FRAMEWORKS.version):
            raise ConfigError("the cluster has no Frameworks: is FrameworkController installed?")

    def roles(self, job: Job) -> Sequence[Role]:
        speaker = self._config.reporting_role or self._given[0].name
        found = [
            Role(
                given.name,
                "framework",
                given,
                given.task_number,
                self._command(given, job),
                given.gpu_number if given.gpu_number is not None else job.gpus,
                given.name == speaker,
                rank="FC_TASK_INDEX",
                extra=self._make_barrier() if self._waits else {},
            )
            for given in self._given
        ]
        return [on_nodes(role, job, role.rank, "") for role in found] if self.nodes else found

    def _command(self, given: TaskRoleConfig, job: Job) -> str:
        """Return the command of a role. If tasks wait for each other, a script of the barrier sets their addresses."""
        command = given.command or str(job.spec.get("command") or "")
        if not self._waits:
            return command
        ports = [f"FB_{role.name.upper()}_PORT={_FIRST_PORT + n}" for n, role in enumerate(self._given)]
        return f'export {" ".join(ports)}; . "$NNILITE_BARRIER/injector.sh" && {{\n{command}\n}}'

    def _make_barrier(self) -> dict[str, Json]:
        mount = {"name": "frameworkbarrier", "mountPath": _BARRIER}
        place = {"name": "NNILITE_BARRIER", "value": _BARRIER}
        small = {"cpu": "100m", "memory": "64Mi"}  # a quota may require them of each container
        waiting: dict[str, Json] = {"name": "frameworkbarrier", "image": self._config.barrier_image}
        waiting.update(volumeMounts=[mount], resources={"requests": small, "limits": small})
        return {
            "volumes": [{"name": "frameworkbarrier", "emptyDir": {}}],
            "initContainers": [waiting],
            "containers": [{"name": "framework", "volumeMounts": [mount], "env": [place]}],
        }

    def manifest(self, metadata: Json, pods: Mapping[str, Json], job: Job) -> Json:
        once = {"fancyRetryPolicy": False, "maxRetryCount": 0}
        return {
            "apiVersion": FRAMEWORKS.api_version,
            "kind": FRAMEWORKS.kind,
            "metadata": metadata,
            "spec": {
                "executionType": "Start",
                "retryPolicy": once,
                "taskRoles": [
                    {
                        "name": role.name,
                        "taskNumber": role.replicas,
                        "frameworkAttemptCompletionPolicy": self._policy(role, given),
                        "task": {"retryPolicy": once, "pod": pods[role.name]},
                    }
                    for role, given in zip(self.roles(job), self._given, strict=True)
                ],
            },
        }

    @staticmethod
    def _policy(role: Role, given: TaskRoleConfig) -> Json:
        """Return the policy that ends the trial with its reporting task. To the controller, a missing count is 0."""
        policy = given.framework_attempt_completion_policy
        if policy is None:
            return {"minFailedTaskCount": 1, "minSucceededTaskCount": role.replicas if role.reports else -1}
        return {
            "minFailedTaskCount": policy.min_failed_task_count,
            "minSucceededTaskCount": policy.min_succeed_task_count,
        }

    def outcome(self, content: Json) -> ObjectOutcome:
        status = content.get("status") or {}
        if status.get("state") != "Completed":
            return ObjectOutcome(None, "")
        done = (status.get("attemptStatus") or {}).get("completionStatus") or {}
        kind = (done.get("type") or {}).get("name")
        code = done.get("code")
        message = ": ".join(str(part) for part in (done.get("phrase"), done.get("diagnostics")) if part)
        state = JobState.SUCCEEDED if kind == "Succeeded" else JobState.FAILED
        if state is JobState.FAILED and "Transient" in ((done.get("type") or {}).get("attributes") or []):
            state = JobState.LOST
        return ObjectOutcome(state, message[:2000], code if isinstance(code, int) and code >= 0 else None)
