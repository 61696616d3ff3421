"""The fields that the sections of all Kubernetes platforms share: NNI's, and those that its users asked for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from nnilite.errors import ConfigError, Place
from nnilite.service import CHECKPOINTS_STAY, IgnoredOption, callback_is_unused
from nnilite.services.section_fields import ReuseMode
from nnilite.units import AnyPath, Duration, MemoryMb, NonNegativeInt, Secret

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_OURS = ("command", "args", "terminationMessagePath", "terminationMessagePolicy")
_CODE_FROM = Place(field="codeFrom")
DEFAULT_IMAGE = "msranni/nni:latest"


@dataclass(frozen=True, kw_only=True)
class StorageConfig:
    """Where trials keep their files when their pods end, and where pods can get the code; `s3` is only for the code."""

    storage_type: Annotated[Literal["nfs", "azureStorage", "pvc", "s3"], "kind of storage"]
    server: Annotated[str | None, "of nfs: the server"] = None
    path: Annotated[str | None, "of nfs: the exported folder"] = None
    claim: Annotated[str | None, "of pvc: the name of the PersistentVolumeClaim"] = None
    azure_account: Annotated[str | None, "of azureStorage: the storage account"] = None
    azure_share: Annotated[str | None, "of azureStorage: the file share"] = None
    azure_key: Annotated[Secret | None, 'the account\'s key; better "${env:AZURE_KEY}"'] = None
    azure_secret: Annotated[str | None, "instead of azureKey: a Secret of the namespace that holds account and key"] = (
        None
    )
    azure_endpoint: Annotated[
        str | None, "address of the account's file service, if it is not at file.core.windows.net"
    ] = None
    key_vault_name: Annotated[str | None, "as in NNI; not read: azureKey is needed"] = None
    key_vault_key: Annotated[str | None, "as in NNI; not read: azureKey is needed"] = None
    bucket: Annotated[str | None, "of s3: the bucket"] = None
    prefix: Annotated[str, "of s3: prefix of the names of nnilite's objects"] = ""
    endpoint: Annotated[str | None, "of s3: its URL, if it is not that of AWS"] = None
    region: Annotated[str | None, "of s3: the region"] = None
    access_key: Annotated[
        str | None, "of s3, with secretKey; if not set, what boto3 finds: environment, profile, role"
    ] = None
    secret_key: Annotated[Secret | None, 'of s3; better "${env:S3_SECRET}"'] = None

    def __post_init__(self) -> None:
        needed = {
            "nfs": ("server", "path"),
            "pvc": ("claim",),
            "azureStorage": ("azure_share",),
            "s3": ("bucket",),
        }
        for name in needed[self.storage_type]:
            if not getattr(self, name):
                raise ConfigError(f"is needed for storageType {self.storage_type}", Place(field=camel(name)))
        if self.storage_type == "azureStorage" and not (self.azure_secret or (self.azure_key and self.azure_account)):
            raise ConfigError(f"is needed, with azureAccount{self._explain_no_vault()}", Place(field="azureKey"))
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("and accessKey belong together: give both, or neither", Place(field="secretKey"))

    def _explain_no_vault(self) -> str:
        if not self.key_vault_name:
            return ", or azureSecret"
        name, key = (shlex.quote(one) for one in (self.key_vault_name, self.key_vault_key or "NAME"))
        return (
            ', as nothing is read from a key vault here: write azureKey: "${env:AZURE_KEY}", and set the variable by '
            f"export AZURE_KEY=$(az keyvault secret show --vault-name {name} --name {key} --query value -o tsv). Or "
            "set azureSecret to the name of a Secret of the namespace that holds account and key"
        )

    @property
    def can_be_mounted(self) -> bool:
        """Whether pods can mount it as a volume."""
        return self.storage_type != "s3"

    def volume(self, job_secret: str) -> dict[str, Any]:
        """Return the source of a pod's volume; `job_secret` is the Secret that holds the account's key."""
        if self.storage_type == "nfs":
            return {"nfs": {"server": self.server, "path": self.path}}
        if self.storage_type == "pvc":
            return {"persistentVolumeClaim": {"claimName": self.claim}}
        return {"azureFile": {"secretName": self.azure_secret or job_secret, "shareName": self.azure_share}}


@dataclass(frozen=True, kw_only=True)
class ContainerConfig:
    """The image and resources of a container."""

    docker_image: Annotated[str, "an image with Python 3.8 or later; nothing else is needed in it"] = DEFAULT_IMAGE
    cpu_number: Annotated[float | None, "CPU cores, requested and allowed at most"] = None
    memory_size: Annotated[MemoryMb | None, "requested and allowed at most"] = None
    pod_template: Annotated[Any, "metadata and spec of a pod, merged into the pods of trials"] = None

    def __post_init__(self) -> None:
        if self.cpu_number is not None and self.cpu_number <= 0:
            raise ConfigError("must be above 0", Place(field="cpuNumber"))
        check_template(self.pod_template)


@dataclass(frozen=True, kw_only=True)
class RoleConfig(ContainerConfig):
    """One role of a trial that runs in several pods."""

    replicas: Annotated[NonNegativeInt, "how many pods"] = 1
    command: Annotated[str, "command in these pods; default: trialCommand"] = ""
    gpu_number: Annotated[NonNegativeInt | None, "GPUs of each pod"] = None
    code_directory: Annotated[str | None, "accepted, as in NNI: trialCodeDirectory counts"] = None


_OUR_KEYS = ("nnilite/", "app.kubernetes.io/managed-by")


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """Where trials run and how long they may wait."""

    namespace: Annotated[str, "namespace of all objects that nnilite creates"] = "default"
    kubeconfig: Annotated[AnyPath | None, "instead of KUBECONFIG, ~/.kube/config, or a pod's service account"] = None
    kube_context: Annotated[str | None, "context of the kubeconfig; default: its current one"] = None
    storage: Annotated[
        StorageConfig | None, "mounted into pods, for what trials write; pods can get the code there, too"
    ] = None
    code_from: Annotated[
        Literal["manager", "storage"] | None,
        "where pods get the code; if not set: storage with callback: log and with s3; else the Secret of the "
        "trial, up to 64 kB, and then the manager",
    ] = None
    service_account_name: Annotated[str | None, "the service account of the pods"] = None
    image_pull_secrets: Annotated[list[dict[str, str]], "Secrets for pulling images: [{name: my-registry}]"] = field(
        default_factory=list
    )
    shm_size: Annotated[MemoryMb | None, "of /dev/shm, 64 MB if not set"] = None
    gpu_resource: Annotated[str, "the cluster's name for GPUs as a resource"] = "nvidia.com/gpu"
    schedule_limit: Annotated[Duration, "how long a trial may wait for a node before it fails"] = 86400
    image_pull_limit: Annotated[Duration, "how long an image may fail to be pulled before the trial is given up"] = 600
    object_labels: Annotated[
        dict[str, str], "labels of the object of a trial, such as that of a queue: {kueue.x-k8s.io/queue-name: team}"
    ] = field(default_factory=dict)
    object_annotations: Annotated[
        dict[str, str], "annotations of the object of a trial; podTemplate has those of its pods"
    ] = field(default_factory=dict)
    nni_manager_ip: Annotated[str | None, "where pods reach the manager: a name or an address; detected if not set"] = (
        None
    )
    reuse_mode: ReuseMode = False

    def __post_init__(self) -> None:
        if not _DNS_LABEL.fullmatch(self.namespace):
            raise ConfigError(f"{self.namespace!r} cannot be the name of a namespace", Place(field="namespace"))
        for entry in self.image_pull_secrets:
            if set(entry) != {"name"}:
                raise ConfigError("must be a list such as [{name: my-registry}]", Place(field="imagePullSecrets"))
        for field_name, given in (("objectLabels", self.object_labels), ("objectAnnotations", self.object_annotations)):
            for key, value in given.items():
                if key.startswith(_OUR_KEYS) or not isinstance(value, str):
                    problem = "is nnilite's own" if key.startswith(_OUR_KEYS) else f"must be a text, not {value!r}"
                    raise ConfigError(problem, Place(field=f"{field_name}.{key}"))
        if self.code_from == "storage" and self.storage is None:
            raise ConfigError("there is no storage: add that section, or get the code from the manager", _CODE_FROM)
        if self.code_from == "manager" and self.storage is not None and not self.storage.can_be_mounted:
            raise ConfigError(f"storageType {self.storage.storage_type} is for the code alone", _CODE_FROM)


@dataclass(frozen=True, kw_only=True)
class TtlConfig(ClusterConfig):
    """The field of platforms whose ended jobs the cluster deletes by itself."""

    keep_finished: Annotated[Duration, "how long the cluster keeps ended jobs before it deletes them"] = 7 * 86400


@dataclass(frozen=True, kw_only=True)
class KubernetesConfig(TtlConfig, ContainerConfig):
    """The section of `platform: kubernetes`: a plain Job for each trial."""

    def __post_init__(self) -> None:
        ClusterConfig.__post_init__(self)
        ContainerConfig.__post_init__(self)


def camel(name: str) -> str:
    """Return a field's name as YAML spells it."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def check_template(template: Any) -> None:
    """Check the content of a podTemplate. Raises: ConfigError."""
    place = Place(field="podTemplate")
    if template is None:
        return
    if not isinstance(template, Mapping) or not set(template) <= {"metadata", "spec"}:
        raise ConfigError("must have metadata or spec of a pod, and nothing else", place)
    spec = template.get("spec") or {}
    if not isinstance(spec, Mapping):
        raise ConfigError("must have an object as its spec", place)
    if "restartPolicy" in spec:
        raise ConfigError("cannot have a restartPolicy: trials are started again by maxTrialRetries", place)
    for container in spec.get("containers") or []:
        taken = [name for name in _OURS if name in container]
        if taken and is_main(container):
            raise ConfigError(f"cannot have {taken[0]} for the trial's container: trialCommand is the command", place)


def is_main(container: Mapping[str, Any], name: str = "trial") -> bool:
    """Return whether a container of a podTemplate is the trial's."""
    return container.get("name") in (None, "trial", "tensorflow", "pytorch", "mpi", "framework", "main", name)


IGNORED = (
    callback_is_unused(),
    *CHECKPOINTS_STAY,
    IgnoredOption("reuseMode", "each trial has pods of its own"),
    IgnoredOption("storage.keyVaultName", "no key vault is read; azureKey counts"),
    IgnoredOption("storage.keyVaultKey", "no key vault is read; azureKey counts"),
)
"""What has no effect on any of the platforms."""
