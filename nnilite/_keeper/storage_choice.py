"""The shared storage that a specification describes."""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, Mapping, TypeVar

from .storage import FolderStorage, Storage, StorageError, nothing

T = TypeVar("T")


def read_entry(path: str, others: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the storage that a file describes, with another one for what it does not take. Remove the file.

    Raises: OSError.
    """
    with open(path, encoding="utf-8") as file:
        entry: Dict[str, Any] = json.loads(file.read())
    os.unlink(path)
    if others:
        entry.update(parts=[*entry["parts"], *others.get("parts", ())], others=others)
    return entry


def open_storage(entry: Mapping[str, Any]) -> Storage:
    """Open the storage that a specification describes. Raises: StorageError."""
    others = entry.get("others")
    if others:
        return _DividedStorage(open_storage(dict(entry, others=None)), open_storage(others))
    kind = entry.get("kind")
    if kind == "folder":
        return FolderStorage([str(path) for path in entry.get("paths") or ()], bool(entry.get("marked")))
    if kind == "program":  # the storage is a plugin's
        return _PluginStorage(entry)
    from .storage_http import AzureStorage, S3Storage

    if kind == "s3":
        return S3Storage(entry, os.environ)
    if kind == "azure":
        return AzureStorage(entry)
    raise StorageError("this keeper knows no storage of the kind {!r}".format(kind))


class _DividedStorage(Storage):
    """A storage for checkpoints, and another one for all else."""

    def __init__(self, checkpoints: Storage, others: Storage) -> None:
        self._checkpoints, self._others = checkpoints, others
        self.title = "{} or {}".format(checkpoints.title, others.title)

    def put(self, name: str, path: str, progress: Callable[[int], None] = nothing) -> None:
        self._of(name).put(name, path, progress)

    def get(self, name: str, path: str, progress: Callable[[int], None] = nothing) -> bool:
        return self._of(name).get(name, path, progress)

    def delete(self, name: str) -> None:
        self._of(name).delete(name)

    def _of(self, name: str) -> Storage:
        return self._checkpoints if name.startswith("checkpoints/") else self._others


class _PluginStorage(Storage):
    """The storage of a plugin's program. Whatever that raises becomes a StorageError.

    Otherwise a thread that copies could end without an answer, which would pass for success.
    """

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self._storage = _ask_plugin(lambda: _run_program(entry))
        self.title = str(getattr(self._storage, "title", self.title))

    def put(self, name: str, path: str, progress: Callable[[int], None] = nothing) -> None:
        _ask_plugin(lambda: self._storage.put(name, path, progress))

    def get(self, name: str, path: str, progress: Callable[[int], None] = nothing) -> bool:
        return bool(_ask_plugin(lambda: self._storage.get(name, path, progress)))

    def delete(self, name: str) -> None:
        _ask_plugin(lambda: self._storage.delete(name))


def _run_program(entry: Mapping[str, Any]) -> Storage:
    program: Dict[str, Any] = {"Storage": Storage, "StorageError": StorageError}
    exec(entry["program"], program)
    return program["open_storage"](entry)  # type: ignore[no-any-return]


def _ask_plugin(call: Callable[[], T]) -> T:
    """Return what a plugin's code returns. Raises: StorageError."""
    try:
        return call()
    except StorageError:
        raise
    except Exception as error:  # foreign code may raise anything
        raise StorageError("{}: {}".format(type(error).__name__, error)) from error
