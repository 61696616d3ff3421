"""The fields that the sections of all Kubernetes platforms share: NNI's, and those that its users asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from nnilite.errors import ConfigError, Place
from nnilite.service import CHECKPOINTS_STAY, IgnoredOption, callback_is_unused
from nnilite.units import AnyPath, Duration, MemoryMb, NonNegativeInt, Secret

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_OURS = ("command", "args", "terminationMessagePath", "terminationMessagePolicy")
_CODE_FROM = Place(field="codeFrom")
DEFAULT_IMAGE = "msranni/nni:latest"


def about(description: str) -> dict[str, str]:
    """Return a field's metadata."""
    return {"description": description}


@dataclass(frozen=True, kw_only=True)
class StorageConfig:
    """Where trials keep their files when their pods end, and where pods can get the code; `s3` is only for the code."""

    storage_type: Literal["nfs", "azureStorage", "pvc", "s3"] = field(metadata=about("kind of storage"))
    server: str | None = field(default=None, metadata=about("of nfs: the server"))
    path: str | None = field(default=None, metadata=about("of nfs: the exported folder"))
    claim: str | None = field(default=None, metadata=about("of pvc: the name of the PersistentVolumeClaim"))
    azure_account: str | None = field(default=None, metadata=about("of azureStorage: the storage account"))
    azure_share: str | None = field(default=None, metadata=about("of azureStorage: the file share"))
    azure_key: Secret | None = field(default=None, metadata=about('the account\'s key; better "${env:AZURE_KEY}"'))
    azure_secret: str | None = field(
        default=None, metadata=about("instead of azureKey: a Secret of the namespace that holds account and key")
    )
    azure_endpoint: str | None = field(
        default=None, metadata=about("of the account's file service, if it is not at file.core.windows.net")
    )
    key_vault_name: str | None = field(default=None, metadata=about("as in NNI; not read: azureKey is needed"))
    key_vault_key: str | None = field(default=None, metadata=about("as in NNI; not read: azureKey is needed"))
    bucket: str | None = field(default=None, metadata=about("of s3: the bucket"))
    prefix: str = field(default="", metadata=about("of s3: prefix of the names of nnilite's objects"))
    endpoint: str | None = field(default=None, metadata=about("of s3: its URL, if it is not that of AWS"))
    region: str | None = field(default=None, metadata=about("of s3: the region"))
    access_key: str | None = field(
        default=None, metadata=about("of s3, with secretKey; if not set, what boto3 finds: environment, profile, role")
    )
    secret_key: Secret | None = field(default=None, metadata=about('of s3; better "${env:S3_SECRET}"'))

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
        vault = f"--vault-name {self.key_vault_name} --name {self.key_vault_key or 'NAME'}"
        return (
            ': nothing is read from a key vault here. Write azureKey: "${env:AZURE_KEY}" and set that variable, for '
            f"example by AZURE_KEY=$(az keyvault secret show {vault} --query value -o tsv); or name by azureSecret a "
            "Secret of the namespace that has the key"
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

    docker_image: str = field(
        default=DEFAULT_IMAGE, metadata=about("an image with Python 3.8 or later; nothing else is needed in it")
    )
    cpu_number: float | None = field(default=None, metadata=about("CPU cores, requested and allowed at most"))
    memory_size: MemoryMb | None = field(default=None, metadata=about("requested and allowed at most"))
    pod_template: Any = field(
        default=None, metadata=about("metadata and spec of a pod, merged into the pods of trials")
    )

    def __post_init__(self) -> None:
        if self.cpu_number is not None and self.cpu_number <= 0:
            raise ConfigError("must be above 0", Place(field="cpuNumber"))
        check_template(self.pod_template)


@dataclass(frozen=True, kw_only=True)
class RoleConfig(ContainerConfig):
    """One role of a trial that runs in several pods."""

    replicas: NonNegativeInt = field(default=1, metadata=about("how many pods"))
    command: str = field(default="", metadata=about("run in these pods; trialCommand if not set"))
    gpu_number: NonNegativeInt | None = field(default=None, metadata=about("GPUs of each pod"))
    code_directory: str | None = field(default=None, metadata=about("accepted, as in NNI: trialCodeDirectory counts"))


_OUR_KEYS = ("nnilite/", "app.kubernetes.io/managed-by")


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """Where trials run and how long they may wait."""

    namespace: str = field(default="default", metadata=about("for all objects of nnilite"))
    kubeconfig: AnyPath | None = field(
        default=None, metadata=about("instead of KUBECONFIG, ~/.kube/config, or a pod's service account")
    )
    kube_context: str | None = field(default=None, metadata=about("of the kubeconfig, instead of its current one"))
    storage: StorageConfig | None = field(
        default=None, metadata=about("mounted into pods, for what trials write; pods can get the code there, too")
    )
    code_from: Literal["manager", "storage"] | None = field(
        default=None,
        metadata=about(
            "where pods get the code; if not set: storage with callback: log and with s3; else the Secret of the "
            "trial, up to 64 kB, and then the manager"
        ),
    )
    service_account_name: str | None = field(default=None, metadata=about("the service account of the pods"))
    image_pull_secrets: list[dict[str, str]] = field(
        default_factory=list, metadata=about("Secrets for pulling images: [{name: my-registry}]")
    )
    shm_size: MemoryMb | None = field(default=None, metadata=about("of /dev/shm, 64 MB if not set"))
    gpu_resource: str = field(default="nvidia.com/gpu", metadata=about("the cluster's name for GPUs as a resource"))
    schedule_limit: Duration = field(
        default=86400, metadata=about("how long a trial may wait for a node before it fails")
    )
    image_pull_limit: Duration = field(
        default=600, metadata=about("how long an image may fail to be pulled before the trial is given up")
    )
    object_labels: dict[str, str] = field(
        default_factory=dict,
        metadata=about("labels of the object of a trial, such as that of a queue: {kueue.x-k8s.io/queue-name: team}"),
    )
    object_annotations: dict[str, str] = field(
        default_factory=dict, metadata=about("annotations of the object of a trial; podTemplate has those of its pods")
    )
    nni_manager_ip: str | None = field(
        default=None, metadata=about("where pods reach the manager: a name or an address; detected if not set")
    )
    reuse_mode: bool = field(default=False, metadata=about("accepted, as in NNI; has no effect here"))

    def __post_init__(self) -> None:
        if not _DNS_LABEL.fullmatch(self.namespace):
            raise ConfigError(f"{self.namespace!r} cannot be the name of a namespace", Place(field="namespace"))
        for entry in self.image_pull_secrets:
            if set(entry) != {"name"}:
                raise ConfigError("must be a list such as [{name: my-registry}]", Place(field="imagePullSecrets"))
        for field_name, given in (("objectLabels", self.object_labels), ("objectAnnotations", self.object_annotations)):
            for key, value in given.items():
                if key.startswith(_OUR_KEYS) or not isinstance(value, str):
                    said = "is nnilite's own" if key.startswith(_OUR_KEYS) else f"must be a text, not {value!r}"
                    raise ConfigError(said, Place(field=f"{field_name}.{key}"))
        if self.code_from == "storage" and self.storage is None:
            raise ConfigError("there is no storage: add that section, or get the code from the manager", _CODE_FROM)
        if self.code_from == "manager" and self.storage is not None and not self.storage.can_be_mounted:
            raise ConfigError(f"storageType {self.storage.storage_type} is for the code alone", _CODE_FROM)


@dataclass(frozen=True, kw_only=True)
class TtlConfig(ClusterConfig):
    """The field of platforms whose ended jobs the cluster deletes by itself."""

    keep_finished: Duration = field(
        default=7 * 86400, metadata=about("how long the cluster keeps ended jobs before it deletes them")
    )


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
