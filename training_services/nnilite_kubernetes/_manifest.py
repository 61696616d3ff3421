"""Makes Kubernetes objects from jobs: names, labels, the Secret of a job, its pods. Pure.

A job has one Secret, mounted into its pods:

    spec        the instructions of `nnilite.services.bootstrap`
    callback    the manager's address, changed when the manager has moved; mounted files follow
    keeper      compressed; unless pods get it from storage
    code        only where pods get it neither from the manager nor from storage
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from enum import Enum

from nnilite.errors import ConfigError
from nnilite.records import Json
from nnilite.service import Job
from nnilite.services.bootstrap import Instructions, JobProcess, Supply, command
from nnilite.units import HIDDEN
from nnilite_kubernetes._config import ClusterConfig, ContainerConfig, StorageConfig, is_main

SECRET_PLACE = "/var/run/nnilite"
WORK_PLACE = "/nnilite"
CHECKPOINT_PLACE = "/nnilite-checkpoints"
CODE_PLACE = "/nnilite-code"
CODE_CONTAINER = "nnilite-code"
MESSAGE_PLACE = "/dev/termination-log"

MANAGED = "app.kubernetes.io/managed-by"
EXPERIMENT, SERVICE = "nnilite/experiment", "nnilite/service"
TRIAL, ATTEMPT = "nnilite/trial", "nnilite/attempt"
JOB, ROLE = "nnilite/job", "nnilite/role"
JOB_NAME = "nnilite/job-name"  # an annotation: the job's name as the manager knows it

_LARGEST_SECRET = 1_000_000  # the API server's limit is 1 MiB for all values of a Secret together
_DELIVERY_S = 30  # after the grace, for what the keeper still has to deliver
_BY = {"containers": "name", "initContainers": "name", "volumes": "name", "env": "name", "volumeMounts": "mountPath"}


@dataclass(frozen=True)
class Role:
    """The pods of one kind in a trial."""

    name: str  # lower case
    container: str  # the name that the operator wants for it
    settings: ContainerConfig
    replicas: int = 1
    command: str = ""  # "": the trial's
    gpus: int | None = None
    reports: bool = True  # its first pod speaks for the trial
    own_command: bool = False  # the operator's command runs there; the code is put in place before
    task: str = "run"  # task of the bootstrap; or "resume"
    rank: str = "NNILITE_RANK"  # environment variable with the number of a pod within the role
    extra: Mapping[str, Json] = field(default_factory=dict)  # merged into the pod's spec, by the platform
    spec: Mapping[str, Json] = field(default_factory=dict)  # what differs in the keeper's specification


@dataclass(frozen=True)
class PodDelivery:
    """How keeper and code get into pods, and how to reach the manager from there."""

    callback: str
    code_hash: str
    keeper_hash: str = ""
    logs_stay: bool = True  # what keepers cannot deliver may be left in the log
    keeper: bytes | None = None  # packed; given where it does not come from storage
    code: bytes | None = None  # given where pods cannot fetch it
    urls: Mapping[str, str] = field(default_factory=dict)  # URLs of both, if they are in an object store


class CodeSource(str, Enum):
    """Where pods get the code; the keeper comes with it from storage, and else from the Secret of the trial."""

    MANAGER = "manager"  # its REST interface
    SECRET = "secret"  # in the trial's Secret, if it is small
    VOLUME = "volume"  # the storage that is mounted into pods
    OBJECTS = "objects"  # an object store, by URLs that open one object for a while


def choose_source(config: ClusterConfig, report: Json) -> CodeSource:
    """Return the source of the config. `report` is how keepers report; those that print cannot reach the manager."""
    storage, prints = config.storage, report == "stdout"
    if storage is not None and (config.code_from == "storage" or not storage.can_be_mounted):
        return CodeSource.VOLUME if storage.can_be_mounted else CodeSource.OBJECTS
    if storage is not None and config.code_from is None and prints:
        return CodeSource.VOLUME
    return CodeSource.SECRET if prints else CodeSource.MANAGER


@dataclass(frozen=True)
class PodSetup:
    """How the pods of one job are set up."""

    service: str
    config: ClusterConfig
    storage: StorageConfig | None  # mounted into them
    source: CodeSource
    shm_mb: int | None = None  # size of /dev/shm, if we mount it


def name_files(delivery: PodDelivery) -> tuple[str, str]:
    """Return the names of keeper and code in storage."""
    return f"keeper-{delivery.keeper_hash}.pyz", f"{delivery.code_hash}.tar.gz"


def code_folder(experiment: str) -> str:
    """Return the folder of both in storage."""
    return f"nni/{label(experiment)}/code"


def make_object_name(job: str, dashes: bool = True) -> str:
    """Return a name for Kubernetes that is unique for each job. It leaves room for suffixes.

    >>> make_object_name("nni-ab-Xy12z-0")
    'nni-ab-xy12z-0-316036'
    """
    digest = hashlib.sha256(job.encode()).hexdigest()[:6]
    plain = re.sub(r"[^a-z0-9]+", "-", job.lower()).strip("-")[:32].strip("-")
    plain = plain if plain[:1].isalpha() else f"nni-{plain}"
    return f"{plain}-{digest}" if dashes else f"{plain}{digest}".replace("-", "")


def label(text: str) -> str:
    """Return a value for a label, unchanged where Kubernetes allows it."""
    if re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", text):
        return text
    return "x" + hashlib.sha256(text.encode()).hexdigest()[:32]


def labels(job: Job, name: str, service: str) -> dict[str, str]:
    """Return the labels of all objects of a job."""
    return {
        **_make_common_labels(job.experiment, service),
        TRIAL: label(job.trial),
        ATTEMPT: str(job.attempt),
        JOB: name,
    }


def _make_common_labels(experiment: str, service: str) -> dict[str, str]:
    """Return the labels by service: several services of an experiment may share a namespace."""
    return {MANAGED: "nnilite", EXPERIMENT: label(experiment), SERVICE: label(service)}


def selector(experiment: str, service: str) -> str:
    """Return the selector of everything that a service has made for an experiment."""
    return ",".join(f"{key}={value}" for key, value in _make_common_labels(experiment, service).items())


def metadata(job: Job, name: str, setup: PodSetup) -> dict[str, Json]:
    """Return the metadata of a job's objects."""
    return {
        "name": name,
        "namespace": setup.config.namespace,
        "labels": labels(job, name, setup.service),
        "annotations": {JOB_NAME: job.name},
    }


def make_object_metadata(job: Job, name: str, setup: PodSetup) -> dict[str, Json]:
    """Return the metadata of a job's own object, to which the config may add."""
    more, own = setup.config, metadata(job, name, setup)
    labels, annotations = {**more.object_labels, **own["labels"]}, {**more.object_annotations, **own["annotations"]}
    return {**own, "labels": labels, "annotations": annotations}


def secret(job: Job, name: str, setup: PodSetup, roles: Sequence[Role], delivery: PodDelivery) -> Json:
    """Make the Secret of a job. Raises: ConfigError if it is too large for one."""
    values = {"spec": _packed(job, setup, roles, delivery), "callback": delivery.callback.encode()}
    if delivery.keeper is not None:
        values["keeper"] = delivery.keeper
    if delivery.code is not None:
        values["code"] = delivery.code
    storage = setup.storage
    if storage is not None and storage.azure_key and storage.azure_account:
        values["azurestorageaccountname"] = storage.azure_account.encode()
        values["azurestorageaccountkey"] = str(storage.azure_key).encode()
    size = sum(map(len, values.values()))
    if size > _LARGEST_SECRET:
        raise ConfigError(
            f"parameters and code of {job.name} take {size} bytes, and a Secret holds {_LARGEST_SECRET}; "
            + ("with callback: rest, or storage, pods get the code from there" if delivery.code else "")
        )
    data = {key: base64.b64encode(value).decode() for key, value in values.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(job, name, setup),
        "type": "Opaque",
        "data": data,
    }


def _packed(job: Job, setup: PodSetup, roles: Sequence[Role], delivery: PodDelivery) -> bytes:
    more: dict[str, Json] = {
        "callback": delivery.callback,
        "callback_file": "callback",
        "send_output": True,
        "platform": job.spec.get("platform"),
    }
    if setup.source is CodeSource.MANAGER:
        more["code"] = {"download": delivery.code_hash}
    if job.gpus == 0 and not any(role.gpus for role in roles):
        more["env"] = {"CUDA_VISIBLE_DEVICES": ""}
    keeper, code = _choose_supplies(setup.source, delivery)
    instructions = Instructions(
        job.spec_for(WORK_PLACE, **more),
        keeper,
        delivery.keeper_hash,
        code,
        delivery.code_hash,
        {
            role.name: {
                "reports": role.reports,
                "spec": {**({"command": role.command} if role.command else {}), **role.spec},
            }
            for role in roles
        },
        log_stays=delivery.logs_stay,
        shared=setup.storage is not None,
    )
    return instructions.packed()


def _choose_supplies(source: CodeSource, delivery: PodDelivery) -> tuple[Supply, Supply | None]:
    """Return where pods get keeper and code."""
    if source is CodeSource.OBJECTS:
        return Supply(url=delivery.urls.get("keeper", "")), Supply(url=delivery.urls.get("code", ""))
    if source is CodeSource.VOLUME:
        keeper, code = name_files(delivery)
        return Supply(file=keeper), Supply(file=code)
    in_secret = Supply(file="keeper", packed=True)
    return in_secret, Supply(file="code") if source is CodeSource.SECRET else None


def hidden(manifest: Json) -> Json:
    """Return a Secret without its secrets."""
    return {**manifest, "data": dict.fromkeys(manifest["data"], HIDDEN)}


def pod_template(job: Job, name: str, setup: PodSetup, role: Role) -> Json:
    """Return the template of a role's pods, with the user's own template merged into it."""
    spec: dict[str, Json] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _compute_grace_s(job, role),
        "enableServiceLinks": False,
        "containers": [_container(job, setup, role)],
        "volumes": _volumes(name, setup),
        **_account(setup.config),
    }
    if role.own_command:
        spec.setdefault("initContainers", []).append(_make_preparation(job, setup, role))
    template = {
        "metadata": {
            "labels": {**labels(job, name, setup.service), ROLE: role.name},
            "annotations": {JOB_NAME: job.name},
        },
        "spec": spec,
    }
    template["spec"] = merged(spec, deepcopy(dict(role.extra)))
    own = role.settings.pod_template
    return merged(template, _named(own, role.container)) if own else template


def _compute_grace_s(job: Job, role: Role) -> int:
    """Return the grace period of a pod: that of the trial, and time for its keeper to deliver afterwards."""
    return int(float(job.spec.get("grace_s") or 0)) + (0 if role.own_command else _DELIVERY_S)


def name_code_pod(experiment: str, service: str) -> str:
    """Return the name of the code pod: one for each service of an experiment."""
    return make_object_name(f"nni-{experiment}-code-{service}")


def make_code_pod(setup: PodSetup, role: Role, experiment: str, command: Sequence[str]) -> Json:
    """Return the pod that puts keeper and code on the volume: as small as possible, where pods of this role may run."""
    config, storage = setup.config, setup.storage
    small = {"cpu": "100m", "memory": "128Mi"}
    mount = {"name": "nnilite-work", "mountPath": CODE_PLACE, "subPath": code_folder(experiment)}
    container = {
        "name": CODE_CONTAINER,
        "image": role.settings.docker_image,
        "command": list(command),
        "volumeMounts": [mount],
    }
    spec: dict[str, Json] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": [{"name": "nnilite-work", **(storage.volume("") if storage else {})}],
        **_account(config),
    }
    whole = merged(
        {"metadata": {"labels": _make_common_labels(experiment, setup.service)}, "spec": spec},
        _named(role.settings.pod_template or {}, CODE_CONTAINER),
    )
    (own,) = [entry for entry in whole["spec"]["containers"] if entry["name"] == CODE_CONTAINER]
    whole["spec"]["containers"] = [{**own, "resources": {"requests": small, "limits": small}}]
    whole["spec"].pop("initContainers", None)
    whole["metadata"].update(name=name_code_pod(experiment, setup.service), namespace=config.namespace)
    return {"apiVersion": "v1", "kind": "Pod", **whole}


def _account(config: ClusterConfig) -> dict[str, Json]:
    found: dict[str, Json] = {}
    if config.service_account_name:
        found["serviceAccountName"] = config.service_account_name
    if config.image_pull_secrets:
        found["imagePullSecrets"] = [dict(entry) for entry in config.image_pull_secrets]
    return found


def _container(job: Job, setup: PodSetup, role: Role) -> dict[str, Json]:
    container: dict[str, Json] = {
        "name": role.container,
        "image": role.settings.docker_image,
        "terminationMessagePath": MESSAGE_PLACE,
        "terminationMessagePolicy": "File",
        "volumeMounts": _list_mounts(job, setup),
    }
    if not role.own_command:
        container["command"] = _command(setup, role, role.task)
        container["env"] = [_NODE, *([_rank_variable()] if role.rank == "NNILITE_RANK" else [])]
    resources = _resources(setup.config, role)
    if resources:
        container["resources"] = {"requests": resources, "limits": dict(resources)}
    return {key: value for key, value in container.items() if value != []}


# By it the keeper says where it runs: what it sees as the name of its machine is the pod's.
_NODE = {"name": "NNILITE_HOST", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}


def _rank_variable() -> dict[str, Json]:
    """Return the variable with a pod's number, from the label of the operators; empty without the label."""
    path = "metadata.labels['training.kubeflow.org/replica-index']"
    return {"name": "NNILITE_RANK", "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _make_preparation(job: Job, setup: PodSetup, role: Role) -> dict[str, Json]:
    """Return the init container that puts the code in its place, for a container that runs the operator's command."""
    container: dict[str, Json] = {
        "name": CODE_CONTAINER,
        "image": role.settings.docker_image,
        "command": _command(setup, role, "prepare"),
        "volumeMounts": _list_mounts(job, setup),
    }
    resources = _resources(setup.config, replace(role, gpus=None))
    if resources:  # a quota may want that each container says them
        container["resources"] = {"requests": resources, "limits": dict(resources)}
    return container


def _command(setup: PodSetup, role: Role, task: str) -> list[str]:
    return command(
        SECRET_PLACE,
        WORK_PLACE,
        JobProcess(role.name, role.rank, task),
        message_file=MESSAGE_PLACE,
        files=CODE_PLACE if setup.source is CodeSource.VOLUME else "",
        checkpoints=CHECKPOINT_PLACE if setup.storage is not None else "",
    )


def _resources(config: ClusterConfig, role: Role) -> dict[str, str]:
    found: dict[str, str] = {}
    if role.settings.cpu_number:
        found["cpu"] = f"{role.settings.cpu_number:g}"
    if role.settings.memory_size:
        found["memory"] = f"{role.settings.memory_size}Mi"
    if role.gpus:
        found[config.gpu_resource] = str(role.gpus)
    return found


def _volumes(name: str, setup: PodSetup) -> list[dict[str, Json]]:
    storage = setup.storage
    items = [{"key": key, "path": key} for key in ("spec", "callback", "keeper", "code")]
    job_files: dict[str, Json] = {"secretName": name}
    if storage is not None and storage.azure_key:
        job_files.update(items=items, optional=True)  # without the account's key; some of these may be missing
    work = storage.volume(name) if storage is not None else {"emptyDir": {}}
    found: list[dict[str, Json]] = [{"name": "nnilite-job", "secret": job_files}, {"name": "nnilite-work", **work}]
    if setup.shm_mb:
        found.append({"name": "nnilite-shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{setup.shm_mb}Mi"}})
    return found


def _list_mounts(job: Job, setup: PodSetup) -> list[dict[str, Json]]:
    found: list[dict[str, Json]] = [
        {"name": "nnilite-job", "mountPath": SECRET_PLACE, "readOnly": True},
        {"name": "nnilite-work", "mountPath": WORK_PLACE},
    ]
    if setup.storage is not None:
        root = f"nni/{label(job.experiment)}"
        found[1]["subPath"] = f"{root}/{label(job.trial)}/{job.attempt}"
        place = {"name": "nnilite-work", "mountPath": CHECKPOINT_PLACE}
        found.append({**place, "subPath": f"{root}/checkpoints/{label(job.trial)}"})
    if setup.source is CodeSource.VOLUME:
        code = {"name": "nnilite-work", "mountPath": CODE_PLACE, "subPath": code_folder(job.experiment)}
        found.append({**code, "readOnly": True})
    if setup.shm_mb:
        found.append({"name": "nnilite-shm", "mountPath": "/dev/shm"})
    return found


def _named(template: Mapping[str, Json], container: str) -> Json:
    """Return the user's template, its trial container renamed as the operator requires."""
    own = json.loads(json.dumps(template))
    for entry in (own.get("spec") or {}).get("containers") or []:
        if is_main(entry, container):
            entry["name"] = container
    return own


def merged(base: Json, more: Json, key: str = "") -> Json:
    """Merge `more` into `base`: objects by key, lists of named things by name, other lists one after the other."""
    if isinstance(base, Mapping) and isinstance(more, Mapping):
        ours = {name: value for name, value in more.items() if not (key == "labels" and name.startswith("nnilite/"))}
        both = {name: merged(base[name], ours[name], name) for name in base if name in ours}
        return {**base, **ours, **both}
    if isinstance(base, list) and isinstance(more, list):
        return _merge_lists(base, more, _BY.get(key, ""))
    return more


def _merge_lists(base: Sequence[Json], more: Sequence[Json], by: str) -> list[Json]:
    found = list(base)
    places = {entry.get(by): number for number, entry in enumerate(found) if by}
    for entry in more:
        number = places.get(entry.get(by)) if by else None
        if number is None:
            found.append(entry)
        else:
            found[number] = merged(found[number], entry)
    return found


def encoded(text: str) -> str:
    """Encode as the data of a Secret."""
    return base64.b64encode(text.encode()).decode()
