"""The differences between the platforms: the object that represents a job, the roles of its pods, its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nnilite.errors import ConfigError, Conflict, Place
from nnilite.records import Json
from nnilite.service import Job, JobState
from nnilite_kubernetes._api import Cluster, Resource
from nnilite_kubernetes._config import StorageConfig
from nnilite_kubernetes._manifest import Role


@dataclass(frozen=True)
class ObjectOutcome:
    """What the object of a job says. `state` is None where it says nothing of use."""

    state: JobState | None = None
    message: str = ""
    exit_code: int | None = None


class OperatorKind(ABC):
    """One kind of object. Pure, but for `check`."""

    resource: Resource
    owned: tuple[Resource, ...] = ()  # kinds of its companion objects
    needs: tuple[tuple[Resource, str], ...] = ()  # further permissions: a resource and a verb
    dashes = True  # whether names may have dashes
    pod_end_counts = True  # the trial has ended when its reporting pod has; else its object alone tells
    logs_stay = True  # the logs of ended pods can be read; else keepers stay until they have delivered all
    ends_with_pod = True  # a trial whose reporting pod is gone is lost; else its object alone tells what that means
    failure_ends_all = False  # the operator deletes all pods of a job when one has failed, and tells its end after that
    has_shm = False  # the operator mounts /dev/shm itself
    deletion = "Foreground"  # the object stays until its pods are gone: the end of a canceled job can be seen

    nodes: int = 0  # nodes of a distributed trial; 0 for others

    def distribute(self, nodes: int) -> None:
        """Have each trial run on `nodes` nodes. Raises: ConfigError where these objects, or their roles, cannot."""
        raise ConfigError(
            f"does not work with a {self.resource.kind}; remove it, or use another platform",
            Place(field="distributed"),
        )

    @abstractmethod
    def roles(self, job: Job) -> Sequence[Role]:
        """Return the roles of a trial's pods. Exactly one reports."""

    @abstractmethod
    def manifest(self, metadata: Json, pods: Mapping[str, Json], job: Job) -> Json:
        """Return the object; `pods` are the templates by the names of the roles."""

    @abstractmethod
    def outcome(self, content: Json) -> ObjectOutcome:
        """Return what the object says of the job."""

    def storage(self, name: str) -> StorageConfig | None:
        """Return where the trial's own folder is, if not where the config says."""
        return None

    def companions(self, metadata: Json, pods: Mapping[str, Json]) -> list[tuple[Resource, Json]]:
        """Return further objects of a job, to be created before it and owned by it; `pods` as for its manifest."""
        return []

    def check(self, cluster: Cluster) -> None:
        """Check that the cluster has the operator, and what else trials need. Raises: ConfigError, ApiError."""
        return

    def makers(self, content: Json) -> list[str]:
        """Return the names of further objects that make pods of this job, and whose warnings say why they cannot."""
        return []

    def replaces(self, role: Role) -> bool:
        """Return whether a pod of this role that was lost is to be deleted, so that the operator makes another."""
        return False

    def scaling(self, content: Json, workers: int) -> Json:
        """Return the merge patch that changes the number of workers. Raises: Conflict."""
        raise Conflict(f"a {self.resource.kind} has a fixed number of pods")


def condition(content: Json, kind: str) -> Json | None:
    """Return a condition that is true, wherever it is in the list."""
    for entry in (content.get("status") or {}).get("conditions") or []:
        if entry.get("type") == kind and entry.get("status") == "True":
            return entry
    return None


def suspension(content: Json) -> str:
    """Return what to say of a job that is suspended, "" if it is not."""
    spec, found = content.get("spec") or {}, condition(content, "Suspended")
    if found is None and not spec.get("suspend") and not (spec.get("runPolicy") or {}).get("suspend"):
        return ""
    message = (found or {}).get("message")
    return "it is suspended until its queue admits it" + (f" ({message})" if message else "")


def resumed(content: Json) -> str:
    """Return since when a job is no longer suspended, "" if it never was."""
    for entry in (content.get("status") or {}).get("conditions") or []:
        if entry.get("type") == "Suspended" and entry.get("status") == "False":
            return str(entry.get("lastTransitionTime") or "")
    return ""


def judge_by_conditions(content: Json, done: str) -> ObjectOutcome:
    """Return the outcome of an object that reports it by the condition `done` or "Failed"."""
    for kind, state in ((done, JobState.SUCCEEDED), ("Failed", JobState.FAILED)):
        found = condition(content, kind)
        if found is not None:
            parts = (str(found.get("reason") or ""), str(found.get("message") or ""))
            return ObjectOutcome(state, ": ".join(filter(None, parts)))
    return ObjectOutcome()
