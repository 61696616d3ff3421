"""Reads the archives of code packages, `.tar.gz`.

Most are small, and have nothing but plain entries. These are read here: to import `tarfile` takes longer than to unpack
them, and the trial waits for it. All others are read by `tarfile`. A mistake here could not go unnoticed, since the
hash of a package covers all of its content.
"""

from __future__ import annotations

import io
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Iterator, List, Optional

FILE, FOLDER, LINK = "file", "folder", "link"

_KINDS = {b"0": FILE, b"5": FOLDER, b"2": LINK}
_BLOCK_BYTES = 512
_MOST_PACKED_BYTES = 1 << 20
_MOST_BYTES = 16 << 20
_GZIP = 31  # `wbits` of zlib


class ArchiveEntry:
    """A file, a folder or a link of an archive; `kind` is "" for anything else. `data` is that of a file."""

    def __init__(self, name: str, kind: str, mode: int, size: int, linkname: str, data: Optional[IO[bytes]]) -> None:
        self.name = name
        self.kind = kind
        self.mode = mode
        self.size = size
        self.linkname = linkname
        self.data = data


class _NotPlain(Exception):
    """The archive is one for `tarfile`."""


def entries(path: str) -> Iterator[ArchiveEntry]:
    """Yield the entries; the data of each must be read before the next is asked for.

    Raises: OSError, one of `damage`.
    """
    try:
        return iter(_plain(path))
    except (_NotPlain, ValueError, zlib.error):  # `tarfile` finds out, and says, what is wrong
        return _read_by_tarfile(path)


def damage() -> "tuple[type[BaseException], ...]":
    """Return the errors of an archive that is damaged."""
    import tarfile

    return (tarfile.TarError, EOFError, zlib.error, UnicodeError)


def _read_by_tarfile(path: str) -> Iterator[ArchiveEntry]:
    import tarfile

    with tarfile.open(path, "r:gz") as tar:
        for member in tar:
            kind = LINK if member.issym() else FOLDER if member.isdir() else FILE if member.isreg() else ""
            data = tar.extractfile(member) if kind == FILE else None
            yield ArchiveEntry(member.name, kind, member.mode, member.size, member.linkname, data)


def _plain(path: str) -> List[ArchiveEntry]:
    """Return all entries of a small archive. Raises: OSError, and other errors if this is for `tarfile`."""
    with open(path, "rb") as file:
        packed = file.read(_MOST_PACKED_BYTES + 1)
    unzip = zlib.decompressobj(_GZIP)
    content = unzip.decompress(packed, _MOST_BYTES)
    if len(packed) > _MOST_PACKED_BYTES or not unzip.eof or unzip.unused_data:
        raise _NotPlain
    found: List[ArchiveEntry] = []
    at = 0
    while True:
        head = content[at : at + _BLOCK_BYTES]
        if head == bytes(_BLOCK_BYTES):
            return found
        size = _number(head[124:136])
        if _is_odd(head) or size > len(content):
            raise _NotPlain
        at += _BLOCK_BYTES
        found.append(_entry(head, size, content[at : at + size]))
        at += -(-size // _BLOCK_BYTES) * _BLOCK_BYTES


def _is_odd(head: bytes) -> bool:
    """Return whether this is not the head of an entry that this reader supports."""
    checksum, found = _number(head[148:156]), sum(head[:148]) + 8 * ord(" ") + sum(head[156:])
    return len(head) < _BLOCK_BYTES or head[257:263] != b"ustar\0" or head[156:157] not in _KINDS or checksum != found


def _entry(head: bytes, size: int, data: bytes) -> ArchiveEntry:
    kind = _KINDS[head[156:157]]
    folder, name = _text(head[345:500]), _text(head[:100])
    name = folder + "/" + name if folder else name
    name = name.rstrip("/") if kind == FOLDER else name
    stream = io.BytesIO(data) if kind == FILE else None
    return ArchiveEntry(name, kind, _number(head[100:108]), size, _text(head[157:257]), stream)


def _number(field: bytes) -> int:
    return int(field.strip(b"\0 ") or b"0", 8)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("ascii")
