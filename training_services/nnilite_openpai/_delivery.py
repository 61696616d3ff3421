"""Where jobs get keeper and code: from the job itself, from a storage that both sides mount, or from the manager."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nnilite.errors import ConfigError, NotFound, Place
from nnilite.foreign_files import TrialFile
from nnilite.records import Json
from nnilite.service import ServiceContext
from nnilite.services.bootstrap import Supply, pack
from nnilite.services.delivery import CODE_VARIABLE, KEEPER_VARIABLE, MountedStorage
from nnilite_openpai._config import OpenPaiConfig


@dataclass(frozen=True)
class PaiDelivery:
    """Keeper, code and the manager's address for the jobs of one experiment."""

    keeper: Supply
    keeper_sha256: str
    code: Supply | None
    code_hash: str
    callback: str = ""
    callback_file: str | None = None
    variables: Mapping[str, bytes] = field(default_factory=dict)
    """What travels within the job, by the variables that hold it."""

    @property
    def code_for_keeper(self) -> Json:
        """What the specification says of the code; nothing if the bootstrap brings it."""
        return {"code": {"download": self.code_hash}} if self.code is None else {}


def code_source(config: OpenPaiConfig, report: Json) -> str:
    """manager, storage or job."""
    if config.code_from is not None:
        return config.code_from
    if config.local_storage_mount_point is not None:
        return "storage"
    return "job" if report == "stdout" else "manager"


def storage_folder(experiment: str) -> str:
    """What belongs to an experiment, within a storage: the same folder as on all other platforms."""
    return f"nni/{experiment}"


def planned(config: OpenPaiConfig, experiment: str, report: Json) -> PaiDelivery:
    """What `deliver` would give, but for the contents: for a look at a job before anything is sent."""
    source, nothing = code_source(config, report), "0" * 64
    keeper, code = Supply(variable=KEEPER_VARIABLE, packed=True), None
    variables = {KEEPER_VARIABLE: b""}
    if source == "storage":
        folder = f"{config.container_mount}/{storage_folder(experiment)}/code"
        keeper, code, variables = Supply(file=f"{folder}/keeper.pyz"), Supply(file=f"{folder}/code.tar.gz"), {}
    elif source == "job":
        variables[CODE_VARIABLE], code = b"", Supply(variable=CODE_VARIABLE)
    return PaiDelivery(keeper, nothing, code, nothing, variables=variables)


def deliver(config: OpenPaiConfig, context: ServiceContext, report: Json, callback: str) -> PaiDelivery:
    """Put keeper and code where jobs will look for them. Blocks. Raises: ConfigError, ServiceError, CodeDirError."""
    source = code_source(config, report)
    if source == "manager" and report == "stdout":
        raise ConfigError("must not be manager where callback is log: jobs cannot reach it", Place(field="codeFrom"))
    package = context.package()
    keeper_sha256 = hashlib.sha256(context.keeper.read_bytes()).hexdigest()
    keeper, code = Supply(variable=KEEPER_VARIABLE, packed=True), None
    variables = {KEEPER_VARIABLE: pack(context.keeper)}
    callback_file = None
    if source == "storage":
        files = _storage(config, context.experiment)
        variables = {}
        keeper = Supply(file=files.put(f"keeper-{keeper_sha256}.pyz", context.keeper))
        code = Supply(file=files.put(f"{package.hash}.tar.gz", package.archive))
        callback_file = files.write("callback", callback)
    elif source == "job":
        variables[CODE_VARIABLE] = package.archive.read_bytes()
        code = Supply(variable=CODE_VARIABLE)
    return PaiDelivery(keeper, keeper_sha256, code, package.hash, callback, callback_file, variables)


def announce(config: OpenPaiConfig, context: ServiceContext, callback: str) -> None:
    """Tell the keepers of an earlier manager's jobs where this one is, if there is a storage to tell them by."""
    if config.local_storage_mount_point is None:
        return
    files = _storage(config, context.experiment)
    if files.has("callback"):
        files.write("callback", callback)


def fetch(config: OpenPaiConfig, experiment: str, job: str, target: Path) -> None:
    """Copy the folder of an attempt from the storage. Blocks. Raises: NotFound, ServiceError."""
    _storage(config, experiment).fetch(job, target)


def listed(config: OpenPaiConfig, experiment: str, job: str) -> Sequence[TrialFile]:
    """List the folder of an attempt in the storage. Blocks. Raises: NotFound, ServiceError."""
    return _storage(config, experiment).files(job)


def fetch_file(config: OpenPaiConfig, experiment: str, job: str, path: str, target: Path, most_bytes: int) -> None:
    """Copy one file of an attempt from the storage. Blocks. Raises: NotFound, ServiceError."""
    _storage(config, experiment).fetch_file(job, path, target, most_bytes)


def _storage(config: OpenPaiConfig, experiment: str) -> MountedStorage:
    if config.local_storage_mount_point is None:
        raise NotFound("a task's files go with its container: storageConfigName and localStorageMountPoint keep them")
    return MountedStorage(Path(config.local_storage_mount_point), config.container_mount, experiment)
