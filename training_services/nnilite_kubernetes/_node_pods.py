"""The nodes of a distributed trial as pods: how each finds its number and the first one. Pure.

All pods run the same keeper. The platform numbers them, and gives the first one a name that does not change, which the
others get in a variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite.service import Job
from nnilite_kubernetes._api import Resource
from nnilite_kubernetes._manifest import JOB, Role, merged

FIRST_NODE = "NNILITE_FIRST_NODE"
SERVICES = Resource("", "v1", "services", "Service")
POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
_VOLCANO = "volcano"
_GROUP = "scheduling.k8s.io/group-name"  # an annotation: the group of a pod
_QUEUE = "scheduling.volcano.sh/queue-name"


def on_nodes(role: Role, job: Job, variable: str, first: str, offset: int = 0) -> Role:
    """Return a role whose pods are nodes of a trial.

    `variable`: the environment variable with the number of a pod within the role; `first`: the host name of the first
    node, "" if the barrier of FrameworkController provides it; `offset`: how many nodes are in the roles before.
    """
    distributed: dict[str, Json] = job.spec.get("distributed") or {}
    places: dict[str, Json] = {**distributed, "node_variable": variable, "node_offset": offset}
    places |= {"first_variables": [FIRST_NODE]} if first else {"first_command": _ask_barrier(role.name)}
    entry = {"name": FIRST_NODE, "value": first}
    extra = {"containers": [{"name": role.container, "env": [entry]}]} if first else {}
    return replace(role, spec={**role.spec, "distributed": places}, extra=merged(dict(role.extra), extra))


def _ask_barrier(role: str) -> str:
    """Return the command that prints the address of the first task of a role, where tasks wait for each other."""
    addresses = f"FB_{role.upper()}_IPS"
    return f'. "${{NNILITE_BARRIER:-/none}}/injector.sh" && printf %s "${{{addresses}%%,*}}"'


def check_replicas(replicas: int, nodes: int, place: str) -> None:
    """Check that a role does not ask for another number of pods than the trial has nodes. Raises: ConfigError."""
    if replicas not in (1, nodes):
        raise ConfigError(f"is {replicas}, but distributed.nodes is {nodes}; remove it", Place(field=place))


def make_headless_service(metadata: Json) -> Json:
    """Return the service that gives the pods of a trial names, also before they are ready."""
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": metadata,
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {JOB: metadata["name"]},
        },
    }


def is_for_volcano(template: Json) -> bool:
    """Return whether a podTemplate or a pod names Volcano as its scheduler."""
    return ((template or {}).get("spec") or {}).get("schedulerName") == _VOLCANO


def make_pod_group(metadata: Json, nodes: int, queue: Json) -> Json:
    """Return the group that makes Volcano start all pods of a trial or none."""
    spec: dict[str, Json] = {"minMember": nodes, **({"queue": queue} if queue else {})}
    return {"apiVersion": POD_GROUPS.api_version, "kind": POD_GROUPS.kind, "metadata": metadata, "spec": spec}


def find_queue(annotations: Mapping[str, str]) -> str:
    """Return the queue of Volcano that the annotations of a trial's object name, "" if none."""
    return annotations.get(_QUEUE, "")


def grouped(pod: Json, group: str) -> Json:
    """Return the template of a pod that belongs to a pod group."""
    return merged(pod, {"metadata": {"annotations": {_GROUP: group}}})
