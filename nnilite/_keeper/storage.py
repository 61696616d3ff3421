"""The shared storage of an experiment, as files by their names: a mounted folder, an S3 bucket or an Azure container.

The experiment's part of the storage is `nni/<experiment>/`, in which names are paths with slashes:

    code/<hash>.tar.gz                          the code package
    trials/<trial>/<attempt>/...                what an attempt has left in its folder
    checkpoints/<trial>/<attempt>.json          the newest checkpoint of an attempt (see `saver`)
    checkpoints/<trial>/<attempt>/...           its files

`storage_choice.open_storage` makes one from a specification's `storage`:

    kind        "folder", "s3", "azure" or "program"
    parts       which of "code", "checkpoints" and "outputs" go there
    save_every_s 60: the time between two looks for changed checkpoints
    apart       []: names in the folder for checkpoints that are none, and stay as they are
    others      null: another storage, for all parts but checkpoints
    read_only   false; true for processes of a job that load checkpoints but save none
    folder:     paths (where the experiment's part may be on a worker), marked (whether it has the file MARKER)
    s3:         url (of the bucket), prefix, region, access_key, secret, session_token (from AWS's environment
                variables of the worker if empty)
    azure:      url (of the container), prefix, sas_token
    program:    program (a plugin's Python text, with a function `open_storage(entry)` that returns a `Storage`; it
                finds `Storage` and `StorageError` as its globals), and what the plugin adds

The manager uses the same code, so that both sides agree on it.
"""

from __future__ import annotations

import errno
import os
from typing import IO, Any, Callable, List, Optional, Union

from .enclosed import EnclosedFolder, FileDraft, UnsafeName

MARKER = ".nnilite-storage"
_CHUNK_BYTES = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)


class StorageError(Exception):
    """The storage has not done what was asked. The text is a clause on what is wrong, with the cure."""

    def __init__(self, text: str, away: bool = False) -> None:
        super().__init__(text)
        # Whether a further try may succeed, as with a storage that does not answer.
        self.away = away


def nothing(count: int) -> None:
    """Do nothing: the default for callers that do not watch the progress."""


class LocalFile:
    """A file on this machine, written over what was there. A context manager: nothing is left unless all of it came.

    What is wrong here is not blamed on the storage. Raises: StorageError.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: Optional[IO[bytes]] = None

    def __enter__(self) -> LocalFile:
        try:
            self._file = open(self._path, "wb", buffering=0)
        except OSError as error:
            raise self._error(error) from error
        return self

    def write(self, data: bytes) -> None:
        """Append bytes."""
        left = memoryview(data)
        try:
            while left and self._file is not None:
                left = left[self._file.write(left) or 0 :]
        except OSError as error:
            raise self._error(error) from error

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self._file is not None:
            self._file.close()
        if kind is not None:
            _remove(self._path)

    def _error(self, error: OSError) -> StorageError:
        text = "{} on this machine cannot be written: {}{}".format(self._path, error.strerror, cure_of(error))
        return StorageError(text, away=True)


def cure_of(error: Exception) -> str:
    """Return what to do about a full disk, as a clause; "" for any other error."""
    return "; make space on that disk" if getattr(error, "errno", None) in _FULL else ""


class Storage:
    """The experiment's part of a storage. All methods block, and raise StorageError."""

    title = "the shared storage"

    def put(self, name: str, path: str, progress: Callable[[int], None] = nothing) -> None:
        """Copy a file to the storage, whole or not at all. `progress` gets the number of bytes of each piece."""
        raise NotImplementedError

    def get(self, name: str, path: str, progress: Callable[[int], None] = nothing) -> bool:
        """Copy a file from the storage to `path`. Return False if the storage has no such file."""
        raise NotImplementedError

    def delete(self, name: str) -> None:
        """Remove a file from the storage. Harmless if there is none."""
        raise NotImplementedError


def make_code_name(package: str) -> str:
    """Return the name of a code package in the storage, by its hash."""
    return "code/{}.tar.gz".format(package)


class FolderStorage(Storage):
    """A folder that is mounted on this machine, by NFS or in another way."""

    def __init__(self, paths: List[str], marked: bool) -> None:
        self._paths = paths
        self._marked = marked
        self._found: Optional[str] = None
        self.title = "the shared storage at {}".format(" or ".join(paths))

    def put(self, name: str, path: str, progress: Callable[[int], None] = nothing) -> None:
        target = self._path(name)
        try:
            with open(path, "rb") as source, self._open() as folder:
                with folder.draft(name, mode=None) as draft:
                    _copy(source, draft, progress)
                    draft.finish(sync=True)
        except (UnsafeName, OSError) as error:
            raise self._error(error, target) from error

    def get(self, name: str, path: str, progress: Callable[[int], None] = nothing) -> bool:
        source = self._path(name)
        try:
            with self._open() as folder, folder.open(name) as file, LocalFile(path) as target:
                _copy(file, target, progress)
        except FileNotFoundError:
            return False
        except (UnsafeName, OSError) as error:
            raise self._error(error, source) from error
        return True

    def delete(self, name: str) -> None:
        path = self._path(name)
        try:
            with self._open() as folder:
                # Folders of trials go with their last file; those above are needed again.
                folder.unlink(name, len(name.split("/")) - 2)
        except (UnsafeName, OSError) as error:
            raise self._error(error, path) from error

    def _open(self) -> EnclosedFolder:
        """Open the experiment's part. Trials may write there, and may have put links in the place of folders."""
        return EnclosedFolder(self._path("").rstrip("/"), folder_mode=0o777, linked=False)

    def _path(self, name: str) -> str:
        """Return the path of a file, for complaints.

        A folder that is not the storage is refused, as its files would stay on this machine.
        """
        if self._found is None:
            known = [path for path in self._paths if os.path.isdir(path)]
            if self._marked:
                known = [path for path in known if os.path.exists(os.path.join(path, MARKER))]
            if not known:
                raise StorageError(
                    "there is no folder of this experiment at {} on this machine; mount the storage there, so that "
                    "this user can write to it".format(" or ".join(self._paths)),
                    away=True,
                )
            self._found = known[0]
        return os.path.join(self._found, *name.split("/"))

    def _error(self, error: Exception, path: str) -> StorageError:
        self._found = None  # it may be mounted again, at another place
        cure = "give this user the right to write there" if isinstance(error, PermissionError) else "look at its server"
        cure = cure_of(error)[2:] or cure
        what = getattr(error, "strerror", None) or str(error)
        return StorageError("{}: {}; {}".format(path, what, cure), away=not isinstance(error, PermissionError))


def check_object_name(trial: str, name: Any) -> str:
    """Return the name of a checkpoint file of a trial, as a list has it. Raises: ValueError for any other name."""
    parts = name.split("/") if isinstance(name, str) else []
    own = len(parts) > 3 and parts[:2] == ["checkpoints", trial] and parts[2].isdigit()
    if not own or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise ValueError("it names {!r:.200}, which is not a checkpoint file of trial {}".format(name, trial))
    return str(name)


def _copy(source: IO[bytes], target: Union[LocalFile, FileDraft], progress: Callable[[int], None]) -> None:
    while True:
        chunk = source.read(_CHUNK_BYTES)
        if not chunk:
            return
        target.write(chunk)
        progress(len(chunk))


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:  # it was not made
        return


def check_storage(storage: Storage, name: str, path: str) -> None:
    """Copy a file there and back, and delete it, to check that the storage can be used.

    Raises: StorageError, OSError.
    """
    back = path + ".back"
    storage.put(name, path)
    try:
        if not storage.get(name, back):
            raise StorageError("{} does not have what was just written to it".format(storage.title))
        with open(path, "rb") as sent, open(back, "rb") as got:
            if sent.read() != got.read():
                raise StorageError("{} returns other bytes than were written".format(storage.title))
    finally:
        _remove(back)
    storage.delete(name)
