"""Taking what a machine sends: a tar stream of a trial's folder, or one file. The trial may have written anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from nnilite import foreign_files
from nnilite.disk_room import NoRoom
from nnilite.foreign_files import BrokenStream, ForeignRefusal, save_stream, take_tar
from nnilite.ssh.errors import LinkLost, LocalDiskFull, MachineError

# Programs that write archives fill them up with zeros, at most to this size.
_MOST_BEHIND_BYTES = 1 << 20


class _RemoteFile(Protocol):
    def rest(self) -> bytes: ...

    def read(self) -> bytes: ...


class _Pieces:
    """A stream by the number of bytes that are wanted, from one that gives what has come."""

    def __init__(self, source: _RemoteFile) -> None:
        self._source = source
        self._data = memoryview(source.rest())

    def read(self, size: int) -> bytes:
        if not self._data:
            self._data = memoryview(self._source.read())
        piece, self._data = self._data[:size], self._data[size:]
        return bytes(piece)

    def drain(self) -> None:
        """Read what follows the end of an archive, so that the sender comes to its own end."""
        left = _MOST_BEHIND_BYTES
        while left > 0 and (piece := self.read(left)):
            left -= len(piece)


def save(source: _RemoteFile, archive: Path, most_bytes: int | None = None) -> None:
    """Write the stream to a file as it is, whole or not at all. Raises: LinkLost, MachineError."""
    with _translate_errors():
        save_stream(_Pieces(source).read, archive, most_bytes)


def save_stream_below(source: _RemoteFile, root: Path, path: str, most_bytes: int) -> None:
    """Write the stream to a file below a folder: see `nnilite.foreign_files.save_below`. Raises: as `save`."""
    with _translate_errors():
        foreign_files.save_below(_Pieces(source).read, root, path, most_bytes)


def unpack_stream(source: _RemoteFile, target: Path) -> None:
    """Take the files of the stream into the folder `target`, and nothing else: see `nnilite.foreign_files`.

    Raises: LinkLost if the stream breaks off, MachineError.
    """
    pieces = _Pieces(source)
    with _translate_errors():
        take_tar(pieces.read, target)
        pieces.drain()


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except BrokenStream as error:
        raise LinkLost(f"the connection broke off ({error})") from error
    except NoRoom as error:
        raise LocalDiskFull(str(error)) from error
    except ForeignRefusal as error:
        raise MachineError(str(error)) from error
    except OSError as error:
        raise MachineError(f"what it sends cannot be written here: {error}") from error
