"""Keeper and code in an S3 bucket: boto3 writes them, and pods fetch them by URLs that open one object each.

boto3 finds the credentials (environment, profiles, roles of machines); pods do not need it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nnilite.errors import ConfigError, Place, ServiceError
from nnilite_kubernetes._config import StorageConfig

_LIFE_S = 7 * 86400  # lifetime of a URL; the most that S3 allows
_DIGEST = "sha256"  # metadata of our objects
_PLACE = Place(field="storage")


class Bucket:
    """The bucket of a config. All methods block, and raise ConfigError or ServiceError."""

    def __init__(self, storage: StorageConfig) -> None:
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError, ClientError
        except ImportError as error:
            raise ConfigError("storageType s3 needs boto3: pip install 'nnilite[s3]'", _PLACE) from error
        self._errors = (BotoCoreError, ClientError)
        self._name = str(storage.bucket)
        self._prefix = f"{storage.prefix.strip('/')}/" if storage.prefix.strip("/") else ""
        style = "path" if storage.endpoint else "auto"  # other servers than AWS's seldom have a name for each bucket
        try:
            self._client: Any = boto3.client(
                "s3",
                endpoint_url=storage.endpoint,
                region_name=storage.region,
                aws_access_key_id=storage.access_key,
                aws_secret_access_key=str(storage.secret_key) if storage.secret_key else None,
                config=Config(
                    signature_version="s3v4",
                    connect_timeout=10,
                    read_timeout=60,
                    retries={"max_attempts": 3},
                    s3={"addressing_style": style},
                ),
            )
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(f"{error}", _PLACE) from error

    def check(self) -> None:
        """Check that the bucket exists and this account may use it."""
        self._do("head_bucket")

    def put(self, name: str, path: Path, digest: str) -> None:
        """Put a file there, unless it exists."""
        if self._digest(name) == digest:
            return
        metadata = {"Metadata": {_DIGEST: digest}}
        self._do("upload_file", Filename=str(path), Key=self._prefix + name, ExtraArgs=metadata)

    def url(self, name: str) -> str:
        """Return a URL that opens one object for a week, or for as long as temporary credentials last."""
        parameters = {"Bucket": self._name, "Key": self._prefix + name}
        try:
            return str(self._client.generate_presigned_url("get_object", parameters, ExpiresIn=_LIFE_S))
        except self._errors as error:
            raise ServiceError(f"no URL can be made for the bucket {self._name}: {error}") from error

    def _digest(self, name: str) -> str:
        try:
            found = self._client.head_object(Bucket=self._name, Key=self._prefix + name)
        except self._errors as error:
            if _status(error) == 404:
                return ""
            raise self._refusal(error) from error
        return str(found.get("Metadata", {}).get(_DIGEST))

    def _do(self, call: str, **arguments: Any) -> None:
        from boto3.exceptions import Boto3Error

        try:
            getattr(self._client, call)(Bucket=self._name, **arguments)
        except (*self._errors, Boto3Error) as error:
            raise self._refusal(error) from error

    def _refusal(self, error: Exception) -> Exception:
        status = _status(error)
        if status == 404:
            return ConfigError(f"there is no bucket {self._name}", _PLACE)
        if status in (301, 400, 401, 403) or type(error).__name__ == "NoCredentialsError":
            return ConfigError(f"the bucket {self._name} cannot be used: {error}", _PLACE)
        return ServiceError(f"the bucket {self._name} cannot be reached: {error}")


def _status(error: Exception) -> int:
    answer: Any = getattr(error, "response", None) or {}
    return int((answer.get("ResponseMetadata") or {}).get("HTTPStatusCode") or 0)
