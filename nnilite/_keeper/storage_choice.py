"""The shared storage that a specification describes."""

from __future__ import annotations

import os
from typing import Any, Dict, Mapping

from .storage import FolderStorage, Storage, StorageError


def open_storage(entry: Mapping[str, Any]) -> Storage:
    """Open the storage that a specification describes. Raises: StorageError."""
    kind = entry.get("kind")
    if kind == "folder":
        return FolderStorage([str(path) for path in entry.get("paths") or ()], bool(entry.get("marked")))
    if kind == "program":  # the storage is a plugin's
        program: Dict[str, Any] = {"Storage": Storage, "StorageError": StorageError}
        exec(entry["program"], program)
        return program["open_storage"](entry)  # type: ignore[no-any-return]
    from .storage_http import AzureStorage, S3Storage

    if kind == "s3":
        return S3Storage(entry, os.environ)
    if kind == "azure":
        return AzureStorage(entry)
    raise StorageError("this keeper knows no storage of the kind {!r}".format(kind))
