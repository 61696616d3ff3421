"""Keeper and code on an Azure file share, written through its REST interface with the account's key."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from nnilite.errors import ConfigError, Place, ServiceError
from nnilite_kubernetes._config import StorageConfig

_DIGEST = "sha256"  # metadata of our files, set when all of a file is there
_PLACE = Place(field="storage")
_LIMIT_S = 60


class AzureFileShare:
    """The share of a config. All methods block, and raise ConfigError or ServiceError."""

    def __init__(self, storage: StorageConfig) -> None:
        try:
            from azure.core.credentials import AzureNamedKeyCredential
            from azure.core.exceptions import AzureError, ResourceExistsError, ResourceNotFoundError
            from azure.storage.fileshare import ShareClient
        except ImportError as error:
            needs = "codeFrom: storage with azureStorage needs its client: pip install 'nnilite[azure-files]'"
            raise ConfigError(needs, _PLACE) from error
        self._error, self._exists, self._missing = AzureError, ResourceExistsError, ResourceNotFoundError
        self._name = storage.azure_share
        try:
            self._share: Any = ShareClient(
                storage.azure_endpoint or f"https://{storage.azure_account}.file.core.windows.net",
                str(storage.azure_share),
                credential=AzureNamedKeyCredential(str(storage.azure_account), str(storage.azure_key)),
                connection_timeout=10,
                read_timeout=_LIMIT_S,
                retry_total=3,
            )
        except ValueError as error:
            raise ConfigError(f"{error}", _PLACE) from error

    def check(self) -> None:
        """Check that this account may use the share, and make it if it does not exist."""
        try:
            self._share.create_share()
        except self._exists:
            return
        except self._error as error:
            raise self._refusal(error) from error

    def put(self, name: str, path: Path, digest: str) -> None:
        """Put a file there, unless it exists; `name` may have folders."""
        file = self._share.get_file_client(name)
        try:
            if self._digest(file) == digest:
                return
            self._make_folders(PurePosixPath(name).parent)
            with path.open("rb") as data:
                file.upload_file(data, length=path.stat().st_size, timeout=None)
            file.set_file_metadata({_DIGEST: digest})
        except self._error as error:
            raise self._refusal(error) from error

    def _digest(self, file: Any) -> str:
        try:
            return str(file.get_file_properties().metadata.get(_DIGEST) or "")
        except self._missing:
            return ""

    def _make_folders(self, folder: PurePosixPath) -> None:
        for place in [*reversed(folder.parents), folder]:
            if place.name:
                try:
                    self._share.create_directory(str(place))
                except self._exists:
                    continue

    def _refusal(self, error: Exception) -> Exception:
        status = getattr(error, "status_code", None)
        first = str(error).partition("\n")[0]
        if status in (400, 401, 403, 404):
            return ConfigError(f"the file share {self._name} cannot be used: {first}", _PLACE)
        return ServiceError(f"the file share {self._name} cannot be reached: {first}")
