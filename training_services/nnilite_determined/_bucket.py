"""Run in the container: Determined's S3 bucket, as a storage for the keeper's checkpoints.

Its text is a file of the job. It needs Python 3.8 and the standard library alone, and boto3, which Determined installs
in each container, where checkpoints are stored in S3, and which finds the credentials of the machine. The program of
the start runs it, and so does the keeper, which gives it `StorageError`.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any, Callable, Mapping, Tuple


def open_storage(entry: Mapping[str, Any]) -> CheckpointBucket:
    """Open the bucket for the keeper. Raises: ImportError without boto3."""
    trouble = partial(StorageError, away=True)  # type: ignore[name-defined]  # noqa: F821
    return CheckpointBucket(entry["bucket"], entry["place"], trouble)


class CheckpointBucket:
    """The files below `place` in a bucket. What is wrong is raised as `trouble`.

    Raises: ImportError without boto3.
    """

    def __init__(self, storage: Mapping[str, Any], place: str, trouble: Callable[[str], Exception] = OSError) -> None:
        self._name = str(storage["bucket"])
        self._prefix = str(storage.get("prefix") or "").strip("/")
        self._place = place
        self._trouble = trouble
        self.title = "the bucket {}".format(self._name)
        boto3, self._errors, self._missing = _import_boto3()
        try:
            self._client = boto3.client(
                "s3",
                endpoint_url=storage.get("endpoint_url"),
                aws_access_key_id=storage.get("access_key"),
                aws_secret_access_key=storage.get("secret_key"),
            )
        except self._errors as error:
            raise trouble("cannot open it: {}".format(error)) from error

    def put(self, name: str, path: str, progress: Callable[[int], None]) -> None:
        """Copy a file to the bucket."""
        try:
            self._client.upload_file(path, self._name, self._key(self._place, name), Callback=progress)
        except self._errors as error:
            raise self._trouble("cannot write to it: {}".format(error)) from error

    def get(self, name: str, path: str, progress: Callable[[int], None]) -> bool:
        """Copy a file from the bucket. Return False if it has no such file."""
        try:
            self._client.download_file(self._name, self._key(self._place, name), path, Callback=progress)
        except self._missing as error:
            if error.response.get("Error", {}).get("Code") in ("404", "NoSuchKey"):
                return False
            raise self._trouble("cannot read it: {}".format(error)) from error
        except self._errors as error:
            raise self._trouble("cannot read it: {}".format(error)) from error
        return True

    def delete(self, name: str) -> None:
        """Remove a file from the bucket."""
        try:
            self._client.delete_object(Bucket=self._name, Key=self._key(self._place, name))
        except self._errors as error:
            raise self._trouble("cannot write to it: {}".format(error)) from error

    def load_former(self, trial: str, folder: str) -> None:
        """Fetch what an earlier version of nnilite has left of a trial: its files, in a folder of its name."""
        if not self._names(self._key(self._place, "checkpoints/{}/".format(trial)), 1):
            self._fetch(self._key(self._place, trial + "/"), folder)

    def load_own(self, checkpoint: str, folder: str) -> None:
        """Fetch a checkpoint that Determined's own library has saved."""
        self._fetch(self._key(checkpoint, ""), folder)

    def _names(self, start: str, most: int = 0) -> Tuple[str, ...]:
        limit = {"PaginationConfig": {"MaxItems": most}} if most else {}
        try:
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._name, Prefix=start, **limit)
            return tuple(item["Key"] for page in pages for item in page.get("Contents") or [])
        except self._errors as error:
            raise self._trouble("cannot read it: {}".format(error)) from error

    def _fetch(self, start: str, folder: str) -> None:
        for key in self._names(start):
            path = os.path.normpath(os.path.join(folder, key[len(start) :]))
            if not path.startswith(folder + os.sep) or key.endswith("/"):
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            try:
                self._client.download_file(self._name, key, path)
            except self._errors as error:
                raise self._trouble("cannot read it: {}".format(error)) from error

    def _key(self, place: str, name: str) -> str:
        return "/".join(part for part in (self._prefix, place) if part) + "/" + name


def _import_boto3() -> Tuple[Any, Tuple[Any, ...], Any]:
    """Return boto3, which lies where this Python does not look, as it was started without `site`; and its errors.

    Raises: ImportError.
    """
    import site

    site.main()
    sys.path.append(site.getusersitepackages())
    import boto3
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    return boto3, (Boto3Error, BotoCoreError, ClientError), ClientError
