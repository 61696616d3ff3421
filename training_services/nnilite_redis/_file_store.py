"""Store files that travel between the manager and the workers: the code, the keeper, checkpoints and outputs.

They go through an S3-compatible store where the config names one, and otherwise through Redis itself: then each is held
in the server's memory, so that its size is limited.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from nnilite.disk_room import DiskRoom
from nnilite.errors import ConfigError, Place, ServiceError
from nnilite.records import Json
from nnilite.services.bootstrap import file_digest
from nnilite.units import format_size
from nnilite_redis._api import Pool
from nnilite_redis._keys import KEPT_S
from nnilite_redis._scripts import DIGEST

log = logging.getLogger(__name__)

_PLACE = Place(field="storage")
_S3_TRIES = 3
_PIECE_BYTES = 4 << 20
_MOST_FETCHES = 10  # attempts to fetch a file that keeps being replaced, such as an abandoned attempt's checkpoint


class TooLarge(ConfigError):
    """A file is over the limit of what may go through Redis."""


class Files(Protocol):
    """A place for files, by names without meaning."""

    async def check(self) -> None:
        """Check that it can be used. Raises: ConfigError, ServiceError."""

    async def has(self, name: str) -> bool:
        """Return whether there is such a file. Raises: ServiceError, ConfigError."""

    async def put(self, name: str, path: Path, what: str) -> None:
        """Store a file; `what` names it in complaints. Raises: TooLarge, ServiceError, ConfigError."""

    async def get(self, name: str, path: Path) -> bool:
        """Fetch a file, whole or not at all; return False if there is none.

        Raises: ServiceError, ConfigError, OSError.
        """

    async def delete(self, name: str) -> None:
        """Delete a file. Raises: ServiceError, ConfigError."""


def files_of(pool: Pool, settings: Mapping[str, Json]) -> Files:
    """Return the place for files that these settings name (see `make_settings`). Raises: ConfigError."""
    bucket = settings.get("bucket")
    if isinstance(bucket, dict):
        return BucketFiles(bucket)
    return RedisFiles(pool, int(settings.get("limit_bytes") or 0))


class RedisFiles:
    """Files in Redis itself, where they stay for a week after their last use."""

    def __init__(self, pool: Pool, limit_bytes: int) -> None:
        self._pool = pool
        self._limit_bytes = limit_bytes

    async def check(self) -> None:
        """Check nothing; the server was reached before this was called."""

    async def has(self, name: str) -> bool:
        with self._pool.asking():
            return bool(await self._pool.client.expire(self._pool.keys.file(name), KEPT_S))

    async def put(self, name: str, path: Path, what: str) -> None:
        size = path.stat().st_size
        if size > self._limit_bytes:
            raise TooLarge(
                f"{what} has {format_size(size)}, but redisSizeLimit is {format_size(self._limit_bytes)}: set storage, "
                "or make it smaller",
                Place(field="redisSizeLimit"),
            )
        data = await asyncio.to_thread(path.read_bytes)
        with self._pool.asking():
            await self._pool.client.set(self._pool.keys.file(name), data, ex=KEPT_S)

    async def get(self, name: str, path: Path) -> bool:
        draft = path.with_name(f".{path.name}.new")
        try:
            for _ in range(_MOST_FETCHES):
                size, is_whole = await self._fetch(self._pool.keys.file(name), draft)
                if not size and not await self.has(name):
                    return False
                if is_whole:
                    draft.chmod(0o600)
                    draft.replace(path)
                    return True
        finally:
            draft.unlink(missing_ok=True)
        raise ServiceError(f"the file {name} in Redis is replaced each time that it is fetched")

    async def _fetch(self, key: str, draft: Path) -> tuple[int, bool]:
        """Fetch a file; return its size, and whether it has not been replaced meanwhile."""
        # Piece by piece, as anyone who may write to Redis decides how much there is.
        room, digests = DiskRoom(draft.parent), dict[int, str]()
        with draft.open("wb") as file:
            while piece := await self._piece(key, file.tell()):
                room.count(len(piece))
                digests[file.tell()] = _digest(piece)
                await asyncio.to_thread(file.write, piece)
            size = file.tell()
        return size, size < _PIECE_BYTES or await self._is_still(key, {**digests, size: _digest(b"")})

    async def _is_still(self, key: str, digests: Mapping[int, str]) -> bool:
        """Return whether a file is what was read. `digests`: of each piece, by its offset.

        If it was replaced while it was read, a piece from before that differs. Redis does nothing else while it makes
        a digest, which of a large file would take seconds.
        """
        for offset, known in digests.items():
            found = await self._pool.reads.run(DIGEST, [key], offset, offset + _PIECE_BYTES - 1)
            if found != known.encode("ascii"):
                return False
        return True

    async def _piece(self, key: str, offset: int) -> bytes:
        with self._pool.asking():
            return bytes(await self._pool.client.getrange(key, offset, offset + _PIECE_BYTES - 1))

    async def delete(self, name: str) -> None:
        with self._pool.asking():
            await self._pool.client.delete(self._pool.keys.file(name))


class BucketFiles:
    """Files in a bucket of an S3-compatible store. boto3 finds the keys: in the environment, a profile, or a role."""

    def __init__(self, settings: Mapping[str, Json]) -> None:
        try:
            import boto3
            from boto3.exceptions import Boto3Error
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError, ClientError
        except ImportError as error:
            raise ConfigError(
                "storage needs boto3 on the manager's machine and on each worker: pip install boto3", _PLACE
            ) from error
        self._errors: tuple[type[Exception], ...] = (BotoCoreError, ClientError, Boto3Error)
        self._bucket = str(settings.get("bucket"))
        prefix = str(settings.get("prefix") or "").strip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        endpoint = settings.get("endpoint")
        # Other servers than AWS's seldom have a name for each bucket, and may not know newer kinds of checksums.
        style = {"addressing_style": "path" if endpoint else "auto"}
        config = Config(
            signature_version="s3v4", connect_timeout=10, read_timeout=60, retries={"max_attempts": _S3_TRIES}, s3=style
        )
        try:
            self._client: Any = boto3.client(
                "s3", endpoint_url=endpoint, region_name=settings.get("region") or _region(endpoint), config=config
            )
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(f"{error}", _PLACE) from error

    async def check(self) -> None:
        await self._do("head_bucket")

    async def has(self, name: str) -> bool:
        try:
            await self._do("head_object", Key=self._prefix + name)
        except _NoSuchObject:
            return False
        return True

    async def put(self, name: str, path: Path, what: str) -> None:
        await self._do("upload_file", Filename=str(path), Key=self._prefix + name)

    async def get(self, name: str, path: Path) -> bool:
        draft = path.with_name(f".{path.name}.new")
        try:
            facts = await self._do("head_object", Key=self._prefix + name)
            DiskRoom(path.parent).need(int(facts.get("ContentLength") or 0))
            await self._do("download_file", Key=self._prefix + name, Filename=str(draft))
            draft.replace(path)
        except _NoSuchObject:
            return False
        finally:
            draft.unlink(missing_ok=True)
        return True

    async def delete(self, name: str) -> None:
        await self._do("delete_object", Key=self._prefix + name)

    async def _do(self, call: str, **arguments: Any) -> Any:
        try:
            return await asyncio.to_thread(getattr(self._client, call), Bucket=self._bucket, **arguments)
        except self._errors as error:
            raise self._refusal(error, call) from error

    def _refusal(self, error: Exception, call: str) -> Exception:
        answer: Any = getattr(error, "response", None) or {}
        status = int((answer.get("ResponseMetadata") or {}).get("HTTPStatusCode") or 0)
        if status == 404 and call != "head_bucket" and (answer.get("Error") or {}).get("Code") != "NoSuchBucket":
            return _NoSuchObject(f"the bucket {self._bucket} has no such object")
        if status == 404:
            return ConfigError(f"there is no bucket {self._bucket}", _PLACE)
        if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError"):
            keys = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            return ConfigError(f"there are no keys for the bucket {self._bucket}: set {keys} here, too", _PLACE)
        if status in (301, 400, 401, 403):
            return ConfigError(f"the bucket {self._bucket} cannot be used: {error}", _PLACE)
        return ServiceError(f"the bucket {self._bucket} cannot be reached: {error}")


class _NoSuchObject(ServiceError):
    """There is no such object."""


def _region(endpoint: Json) -> str | None:
    """Return a region: servers other than AWS ignore it, but the signature needs one."""
    return "us-east-1" if endpoint else None


def _digest(piece: bytes) -> str:
    return hashlib.sha1(piece, usedforsecurity=False).hexdigest()


def name_of(path: Path, kind: str) -> str:
    """Return a name by the file's content: equal files have equal names."""
    return f"{kind}-{file_digest(path)}"
