"""The config's `sharedStorage`, with NNI's fields, and S3 besides."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Annotated, Literal

from nnilite._plugins import lookup
from nnilite.config._strict_attributes import Fields
from nnilite.errors import ConfigError, Place, PluginError
from nnilite.records.shapes import camel
from nnilite.units import AnyPath, GivenDuration, Secret

_NEEDED = {
    "NFS": ("local_mount_point", "remote_mount_point"),
    "AzureBlob": ("storage_account_name", "container_name"),
    "S3": ("bucket",),
}
_OF_KINDS = {
    ("NFS",): ("local_mount_point", "remote_mount_point", "local_mounted", "nfs_server", "exported_directory"),
    ("AzureBlob",): ("storage_account_name", "storage_account_key", "container_name"),
    ("S3",): ("bucket", "region", "access_key", "secret_key"),
    ("S3", "AzureBlob"): ("prefix", "endpoint"),
}
"""Which fields mean something to which kinds of storage."""


@dataclass
class SharedStorageConfig(Fields):
    """Storage that all workers reach: an NFS folder, an S3 bucket, an Azure container, or the storage of a plugin."""

    storage_type: Annotated[str, "NFS (any folder that is mounted), AzureBlob, S3, or the name of a plugin's storage"]
    local_mount_point: Annotated[AnyPath | None, "NFS: where this machine has it mounted"] = None
    remote_mount_point: Annotated[str | None, "NFS: where workers have it mounted"] = None
    local_mounted: Annotated[
        Literal["usermount", "nnimount", "nomount"],
        "NFS, on this machine: usermount: you have mounted it; nnimount: the same; nomount: it is not mounted",
    ] = "usermount"
    nfs_server: Annotated[str | None, "NFS: the server, for messages that say what to mount"] = None
    exported_directory: Annotated[str | None, "NFS: folder that the host exports"] = None
    storage_account_name: Annotated[str | None, "AzureBlob: account"] = None
    storage_account_key: Annotated[Secret | None, "AzureBlob: key; default: that of AZURE_STORAGE_KEY"] = None
    container_name: Annotated[str | None, "AzureBlob: container"] = None
    bucket: Annotated[str | None, "S3: bucket"] = None
    prefix: Annotated[str, "S3, AzureBlob: prefix of all names"] = ""
    endpoint: Annotated[str | None, "S3, AzureBlob: URL of the service, if it is not that of AWS or Azure"] = None
    region: Annotated[str, "S3: region"] = "us-east-1"
    access_key: Annotated[Secret | None, "S3, with secretKey; default: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"] = (
        None
    )
    secret_key: Annotated[Secret | None, 'S3; better "${env:S3_SECRET}"'] = None
    options: Annotated[dict[str, str], "of a plugin's storage; it finds secrets in the environment of the manager"] = (
        field(default_factory=dict)
    )
    contents: Annotated[list[Literal["code", "checkpoints", "outputs"]], "what goes there"] = field(
        default_factory=lambda: ["code", "checkpoints", "outputs"]
    )
    save_every: Annotated[GivenDuration, "time between two copies of changed checkpoints"] = 60

    def __post_init__(self) -> None:
        named = self.storage_type.lower()
        self.storage_type = next((kind for kind in _NEEDED if kind.lower() == named), self.storage_type)
        if self.storage_type not in _NEEDED:
            _check_plugin(self.storage_type)
        for name in _NEEDED.get(self.storage_type, ()):
            if not getattr(self, name):
                raise ConfigError(f"{camel(name)} is not set; storageType {self.storage_type} needs it")
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("accessKey and secretKey go together; give both, or none and AWS's variables")
        if self.storage_type == "NFS" and not str(self.remote_mount_point).startswith("/"):
            raise ConfigError("must be an absolute path, such as /mnt/nni", Place(field="remoteMountPoint"))
        if self.endpoint is not None and not self.endpoint.startswith(("http://", "https://")):
            raise ConfigError("must be a URL, such as https://minio.lab:9000", Place(field="endpoint"))

    def hints(self) -> list[str]:
        """Return sentences on what has another effect than in NNI."""
        kinds = [(name, kind) for kind, names in _OF_KINDS.items() for name in names if self.storage_type not in kind]
        unused = [
            f"sharedStorage.{camel(name)} has no effect: it is for {' and '.join(kind)}, and storageType is "
            f"{self.storage_type}"
            for name, kind in kinds
            if getattr(self, name) != getattr(type(self), name)
        ]
        if self.options and self.storage_type in _NEEDED:
            unused.append(
                f"sharedStorage.options has no effect: it is for plugins, and storageType is {self.storage_type}"
            )
        if self.storage_type == "NFS" and self.local_mounted == "nnimount":
            return [
                *unused,
                f"sharedStorage.localMounted: nnilite mounts nothing; run `{self.mount_command()}` yourself",
            ]
        return unused

    def mount_command(self) -> str:
        """Return the command that mounts an NFS folder on this machine."""
        server, folder = self.nfs_server or "SERVER", self.exported_directory or "/EXPORTED"
        return f"sudo mount -t nfs {server}:{folder} {self.local_mount_point}"


def _check_plugin(name: str) -> None:
    """Check that a plugin has a storage of this name. Raises: ConfigError."""
    try:
        lookup.storage(name)
    except PluginError as error:
        raise ConfigError(f"{error} nnilite has {', '.join(sorted(_NEEDED))}", Place(field="storageType")) from error


def account_key(text: str) -> bytes:
    """Return the bytes of an Azure account's key. Raises: ConfigError."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(
            "is not the key of a storage account, which is Base64; copy it again",
            Place(field="sharedStorage.storageAccountKey"),
        ) from None
