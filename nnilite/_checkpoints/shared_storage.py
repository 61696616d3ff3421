"""The manager's side of the shared storage: its description for keepers, the check of its use, and the code in it."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import logging
import os
import tempfile
import threading
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from nnilite._checkpoints.stored_checkpoints import StoredCheckpoints
from nnilite._experiments.new_folders import make_own_folder
from nnilite._keeper.enclosed import EnclosedFolder
from nnilite._keeper.storage import MARKER, StorageError, check_storage, make_code_name
from nnilite._keeper.storage_choice import open_storage
from nnilite._plugins import lookup
from nnilite.codedir import CodePackage
from nnilite.config import CheckedConfig
from nnilite.config.shared_storage_config import account_key
from nnilite.errors import ConfigError, Place, ServiceError
from nnilite.records import Json

if TYPE_CHECKING:
    from nnilite.config import CheckedStorage

log = logging.getLogger(__name__)

_PLACE = Place(field="sharedStorage")
_CHECK_S = 60.0
_SIGNATURE_DAYS = 30
_AZURE_VERSION = "2020-12-06"


class SharedStorage:
    """An experiment's part of the storage of its config. Raises: ConfigError if there are no credentials for it."""

    def __init__(self, config: CheckedStorage, experiment: str, keep: str, environment: Mapping[str, str]) -> None:
        self._config = config
        self._folder = f"nni/{experiment}"
        self._keep = keep
        self._environment = environment
        self._sent: set[str] = set()
        self._where = f"{config.storage_type} {self.entry.get('url') or config.local_mount_point or ''}".rstrip()

    @property
    def entry(self) -> dict[str, Json]:
        """What a keeper gets that is started now, with credentials. Those of Azure end some time later."""
        return {
            "parts": list(self._config.contents),
            "save_every_s": self._config.save_every,
            # Where the manager cannot reach it, keepers delete what is not to be kept, as far as they can tell.
            "keep": "all" if self._reached else self._keep,
            **self._describe(),
        }

    def _describe(self) -> Mapping[str, Json]:
        """Return what a keeper needs to open the storage. Raises: ConfigError."""
        own = _ENTRIES.get(self._config.storage_type)
        if own is not None:
            return own(self._config, self._folder, self._environment)
        return lookup.storage(self._config.storage_type)(self._config.options, self._folder, self._environment)

    @property
    def _reached(self) -> bool:
        """Whether the manager itself can use the storage."""
        return self._config.storage_type != "NFS" or self._config.local_mounted != "nomount"

    def checkpoints(self, scratch: Path) -> StoredCheckpoints | None:
        """Return the checkpoints in it; None if there are none, or the manager cannot reach them."""
        if "checkpoints" not in self._config.contents or not self._reached:
            return None
        return StoredCheckpoints(self._where, lambda: open_storage(self.entry), scratch)

    def prepare(self, scratch: Path) -> None:
        """Make the experiment's part, and check that files can be written there and read back.

        Blocks for a minute at most. Raises: ConfigError if it can never work, ServiceError if it cannot work now.
        """
        if self._reached:
            self._run_bounded(lambda: self._try(scratch))

    def look(self, scratch: Path) -> None:
        """Check the storage as `prepare` does, but write nothing."""
        self._run_bounded(lambda: self._look(scratch))

    def with_code(self, pack: Callable[[], CodePackage]) -> Callable[[], CodePackage]:
        """Return a function that packs the code and puts it into the storage, once.

        Without the storage, workers ask the manager.
        """
        if "code" not in self._config.contents:
            return pack

        def packed() -> CodePackage:
            package = pack()
            if package.hash not in self._sent:
                try:
                    open_storage(self.entry).put(make_code_name(package.hash), str(package.archive))
                    self._sent.add(package.hash)
                except StorageError as error:
                    log.warning("the code is not in the shared storage, so workers get it from here: %s", error)
            return package

        return packed

    def stored_code(self, package: str) -> dict[str, Json] | None:
        """Return what a worker needs to fetch the code package with this hash; None if the storage does not have it."""
        return self.entry if package in self._sent else None

    def _try(self, scratch: Path) -> None:
        if self._config.storage_type == "NFS":
            self._make_folder()
        with tempfile.TemporaryDirectory(dir=scratch) as place:
            path = Path(place, "probe")
            path.write_bytes(os.urandom(64))
            check_storage(open_storage(self.entry), f"probe-{os.getpid()}", str(path))

    def _look(self, scratch: Path) -> None:
        if self._config.storage_type == "NFS":
            if self._reached:
                self._check_mounted()
            return
        with tempfile.TemporaryDirectory(dir=scratch) as place:
            open_storage(self.entry).get("probe", str(Path(place, "probe")))

    def _check_mounted(self) -> None:
        point = Path(str(self._config.local_mount_point))
        if not point.is_dir():
            raise StorageError(f"there is no folder {point} on this machine; mount it: {self._config.mount_command()}")
        if not os.access(point, os.R_OK | os.W_OK | os.X_OK):
            raise StorageError(f"this user may not write to {point}; change its rights")

    def _make_folder(self) -> None:
        """Make the experiment's folder, with a file that shows workers that the right storage is mounted."""
        self._check_mounted()
        folder = Path(str(self._config.local_mount_point), self._folder)
        try:
            folder.parent.mkdir(mode=0o1777, exist_ok=True)  # where others may write, the sticky bit protects it
            make_own_folder(folder)
            # Trials may write there, and may have put a link in its place.
            with EnclosedFolder(str(folder), linked=False) as opened, opened.update(MARKER):
                pass
        except OSError as error:
            raise StorageError(f"{folder} cannot be made: {error.strerror}; give this user the right to") from error

    def _run_bounded(self, work: Callable[[], None]) -> None:
        """Run the work in a thread of its own.

        A mounted folder whose server is unreachable may block it without end.
        """
        faults: list[Exception] = []

        def run() -> None:
            try:
                work()
            except (StorageError, OSError) as error:
                faults.append(error)

        thread = threading.Thread(target=run, name="storage", daemon=True)
        thread.start()
        thread.join(_CHECK_S)
        if thread.is_alive():
            raise ServiceError(f"sharedStorage: it has not answered for {_CHECK_S:.0f} s; look at its server")
        for fault in faults:
            if getattr(fault, "away", isinstance(fault, OSError)):
                raise ServiceError(f"sharedStorage: {self._where}: {fault}") from fault
            raise ConfigError(f"{self._where}: {fault}", _PLACE) from fault


def shared_storage(config: CheckedConfig, experiment: str) -> SharedStorage | None:
    """Return the shared storage of an experiment, with credentials of the config or the environment.

    Raises: ConfigError.
    """
    if config.shared_storage is None:
        return None
    return SharedStorage(config.shared_storage, experiment, config.checkpoint.keep, os.environ)


def _folder(config: CheckedStorage, folder: str, environment: Mapping[str, str]) -> dict[str, Json]:
    points = [str(config.remote_mount_point)]
    if config.local_mount_point is not None and config.local_mounted != "nomount":
        points.append(str(config.local_mount_point))
    paths: list[Json] = list(dict.fromkeys(f"{point.rstrip('/')}/{folder}" for point in points))
    return {"kind": "folder", "paths": paths, "marked": config.local_mounted != "nomount"}


def _s3(config: CheckedStorage, folder: str, environment: Mapping[str, str]) -> dict[str, Json]:
    bucket, region = str(config.bucket), config.region
    if config.endpoint:
        url = f"{config.endpoint.rstrip('/')}/{bucket}"
    elif "." in bucket:  # AWS's certificates are for names without further dots
        url = f"https://s3.{region}.amazonaws.com/{bucket}"
    else:
        url = f"https://{bucket}.s3.{region}.amazonaws.com"
    key, secret, session = config.access_key, config.secret_key, ""
    if not key:
        key, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
        session = environment.get("AWS_SESSION_TOKEN", "")
    credentials = {"access_key": str(key or ""), "secret": str(secret or ""), "session_token": session}
    return {"kind": "s3", "url": url, "prefix": _join_prefix(config, folder), "region": region, **credentials}


def _describe_azure(config: CheckedStorage, folder: str, environment: Mapping[str, str]) -> dict[str, Json]:
    account, container = str(config.storage_account_name), str(config.container_name)
    base = (config.endpoint or f"https://{account}.blob.core.windows.net").rstrip("/")
    key = config.storage_account_key or environment.get("AZURE_STORAGE_KEY")
    token = environment.get("AZURE_STORAGE_SAS_TOKEN", "")
    if key:
        token = _make_signature(account, container, account_key(str(key)))
    if not token:
        cure = "is not set; give it, or set AZURE_STORAGE_KEY where the experiment is created or resumed"
        raise ConfigError(cure, Place(field="sharedStorage.storageAccountKey"))
    return {"kind": "azure", "url": f"{base}/{container}", "prefix": _join_prefix(config, folder), "sas_token": token}


def _join_prefix(config: CheckedStorage, folder: str) -> str:
    return "/".join(part for part in (config.prefix.strip("/"), folder) if part)


def _make_signature(account: str, container: str, key: bytes) -> str:
    """Return a shared access signature: it opens one container for some time, so that the account's key stays here."""
    until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=_SIGNATURE_DAYS)
    expiry, rights = until.strftime("%Y-%m-%dT%H:%M:%SZ"), "rcwd"
    # The empty lines are what else may be signed: a start, addresses, a protocol, a snapshot, headers of the answer.
    lines = [rights, "", expiry, f"/blob/{account}/{container}", "", "", "", _AZURE_VERSION, "c", *[""] * 7]
    signed = b64encode(hmac.new(key, "\n".join(lines).encode(), hashlib.sha256).digest()).decode()
    return urlencode({"sv": _AZURE_VERSION, "sr": "c", "sp": rights, "se": expiry, "sig": signed})


_ENTRIES = {"NFS": _folder, "S3": _s3, "AzureBlob": _describe_azure}
