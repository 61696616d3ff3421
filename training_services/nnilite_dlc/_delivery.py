"""Where jobs get keeper and code: from the job itself, from a storage that is mounted on both sides, or the manager."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nnilite.errors import ConfigError, NotFound, Place, ServiceError
from nnilite.foreign_files import TrialFile, put_file, size_below
from nnilite.records import Json
from nnilite.service import ServiceContext
from nnilite.services.bootstrap import Supply, pack
from nnilite.services.keeper_folder import copy_attempt, copy_attempt_file, list_attempt
from nnilite_dlc._config import DlcConfig

START_VARIABLE = "NNILITE_START"
_KEEPER_VARIABLE = "NNILITE_KEEPER"
_CODE_VARIABLE = "NNILITE_CODE"
_LARGEST_CODE_BYTES = 200_000
_LEFT_OUT = (".boot-*",)


@dataclass(frozen=True)
class DlcDelivery:
    """Keeper, code and the manager's address for the jobs of one experiment."""

    keeper: Supply
    keeper_sha256: str
    code: Supply | None
    code_hash: str
    callback: str = ""
    variables: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """What travels within the job, by the variables that hold it."""

    @property
    def code_for_keeper(self) -> dict[str, Json]:
        """What the specification says of the code; nothing if the bootstrap brings it."""
        return {"code": {"download": self.code_hash}} if self.code is None else {}


def code_source(config: DlcConfig, report: Json) -> str:
    """manager, storage or job."""
    if config.code_from is not None:
        return config.code_from
    if config.local_storage_mount_point is not None:
        return "storage"
    return "job" if report == "stdout" else "manager"


def variable_names(config: DlcConfig, report: Json) -> list[str]:
    """The variables that a job gets, for a look at it before anything is sent."""
    found = [START_VARIABLE]
    if code_source(config, report) != "storage":
        found.append(_KEEPER_VARIABLE)
    return [*found, _CODE_VARIABLE] if code_source(config, report) == "job" else found


def deliver(config: DlcConfig, context: ServiceContext, report: Json, callback: str) -> DlcDelivery:
    """Put keeper and code where jobs will look for them. Blocks. Raises: ConfigError, ServiceError, CodeDirError."""
    source = code_source(config, report)
    if source == "manager" and report == "stdout":
        raise ConfigError("must not be manager where callback is log: jobs cannot reach it", Place(field="codeFrom"))
    package = context.package()
    keeper_sha256 = hashlib.sha256(context.keeper.read_bytes()).hexdigest()
    if source == "storage":
        files = _MountedFiles(config, context.experiment)
        keeper = Supply(file=files.put(f"keeper-{keeper_sha256}.pyz", context.keeper))
        code = Supply(file=files.put(f"{package.hash}.tar.gz", package.archive))
        return DlcDelivery(keeper, keeper_sha256, code, package.hash, callback)
    keeper, variables = Supply(variable=_KEEPER_VARIABLE, packed=True), {_KEEPER_VARIABLE: pack(context.keeper)}
    if source == "manager":
        return DlcDelivery(keeper, keeper_sha256, None, package.hash, callback, variables)
    size = package.archive.stat().st_size
    if size > _LARGEST_CODE_BYTES:
        raise ConfigError(
            f"the code is {size} bytes when packed, and a job takes {_LARGEST_CODE_BYTES} along: leave files out by "
            ".nniignore, or give a storage by localStorageMountPoint",
            Place(field="codeFrom"),
        )
    variables[_CODE_VARIABLE] = package.archive.read_bytes()
    return DlcDelivery(keeper, keeper_sha256, Supply(variable=_CODE_VARIABLE), package.hash, callback, variables)


def fetch(config: DlcConfig, experiment: str, job: str, target: Path) -> None:
    """Copy the folder of an attempt from the storage. Blocks. Raises: NotFound, ServiceError."""
    copy_attempt(_attempt_folder(config, experiment, job), target, *_LEFT_OUT)


def listed(config: DlcConfig, experiment: str, job: str) -> Sequence[TrialFile]:
    """List the folder of an attempt in the storage. Blocks. Raises: NotFound, ServiceError."""
    return list_attempt(_attempt_folder(config, experiment, job), *_LEFT_OUT)


def fetch_file(config: DlcConfig, experiment: str, job: str, path: str, target: Path, most_bytes: int) -> None:
    """Copy one file of an attempt from the storage. Blocks. Raises: NotFound, ServiceError."""
    copy_attempt_file(_attempt_folder(config, experiment, job), path, target, most_bytes)


def _attempt_folder(config: DlcConfig, experiment: str, job: str) -> Path:
    if config.local_storage_mount_point is None:
        raise NotFound("a trial's files go with its pod: nasDataSourceId and localStorageMountPoint keep them")
    trial, _, attempt = job.removeprefix(f"nni-{experiment}-").rpartition("-")
    return Path(config.local_storage_mount_point) / "nni" / experiment / trial / attempt


class _MountedFiles:
    """The files of an experiment that jobs find in the storage. Raises: ServiceError if they cannot be written."""

    def __init__(self, config: DlcConfig, experiment: str) -> None:
        self._root = Path(str(config.local_storage_mount_point))
        self._folder = f"nni/{experiment}/code"
        self._there = f"{config.container_mount}/{self._folder}"

    def put(self, name: str, source: Path) -> str:
        """Copy a file whose name tells its content; its path in pods."""
        path = f"{self._folder}/{name}"
        try:
            if size_below(self._root, path) != source.stat().st_size:
                put_file(self._root, path, source)
        except OSError as error:
            here = self._root / self._folder
            raise ServiceError(f"the storage cannot be written at {here}: {error.strerror}") from error
        return f"{self._there}/{name}"
