"""Makes the trial's working copy of the code from an archive that is here or that the manager sends.

The archive is named `<hash>.tar.gz`. The hash covers names, modes and bytes of its files (`nnilite.codedir` has the
rule), so unpacking detects a damaged or exchanged archive. Nothing is written outside the copy: names are checked,
files are written before links, and a link that leads outside is refused.
"""

from __future__ import annotations

import os
import stat
import time

from nnilite._cpython import sha256

from .code_archive import FILE, FOLDER, LINK, damage, entries

TYPE_CHECKING = False
if TYPE_CHECKING:
    import hashlib
    from typing import IO, Callable, List, Optional, Tuple

    from .code_archive import ArchiveEntry
    from .link import RestLink

_CHUNK_BYTES = 1 << 20
_DOWNLOAD_LIMIT_S = 900.0
_PAUSE_S = (0.2, 5.0)
_HASH_CHARS = 64
_HASH_START = b"nnilite code 1\0"


class CodeError(Exception):
    """There is no usable code package. The text is one sentence."""


def unpack(archive: str, target: str) -> None:
    """Unpack `<hash>.tar.gz` to `target`, whole or not at all. Raises: CodeError, OSError."""
    name = os.path.basename(archive).split(".", 1)[0]
    if not _is_hash(name):
        raise CodeError("the code package {} is not named by its hash".format(archive))
    draft = "{}.{}.new".format(target, os.getpid())
    os.makedirs(draft, mode=0o700)
    try:
        if _extract(archive, draft) != name:
            raise CodeError("the code package {} is damaged: its content does not match its name".format(archive))
        os.rename(draft, target)
    except BaseException as error:
        import shutil

        shutil.rmtree(draft, ignore_errors=True)
        if isinstance(error, damage()):
            raise CodeError("the code package {} is damaged: {}".format(archive, error)) from error
        raise


def check(archive: str, name: str) -> None:
    """Read a package without unpacking it. Raises: CodeError if it is not the one of this hash, OSError."""
    if not _is_hash(name):
        raise CodeError("{!r} is not the hash of a code package".format(name))
    digest = sha256(_HASH_START)
    try:
        for entry in entries(archive):
            digest.update(_make_header(entry))
            if entry.data is not None:
                _copy(entry.data, None, digest)
    except damage() as error:
        raise CodeError("the code package is damaged: {}".format(error)) from error
    if digest.hexdigest() != name:
        raise CodeError("the code package is damaged: its content does not match its name")


def _is_hash(name: str) -> bool:
    return len(name) == _HASH_CHARS and set(name) <= set("0123456789abcdef")


def download(link: RestLink, name: str, target: str, canceled: Callable[[], bool]) -> str:
    """Fetch `<hash>.tar.gz` from the manager into `target`. Return its path. Raises: CodeError, OSError."""
    from .link import LinkDown

    if not _is_hash(name):
        raise CodeError("{!r} is not the hash of a code package".format(name))
    path = os.path.join(target, name + ".tar.gz")
    deadline = time.monotonic() + _DOWNLOAD_LIMIT_S
    pause, longest = _PAUSE_S
    while True:
        try:
            with open(path, "wb") as file:
                link.download(name, file)
            return path
        except LinkDown as error:
            if time.monotonic() > deadline or canceled():
                raise CodeError("the code package cannot be fetched from the manager: {}".format(error)) from error
        time.sleep(pause)
        pause = min(longest, 2 * pause)


def _extract(archive: str, target: str) -> str:
    """Unpack to an empty folder. Return the hash of the archive's content."""
    digest = sha256(_HASH_START)
    links: List[Tuple[str, str]] = []
    for entry in entries(archive):
        path = _place(target, entry.name)
        digest.update(_make_header(entry))
        if entry.kind == LINK:
            links.append((entry.linkname, path))
        elif entry.kind == FOLDER:
            os.makedirs(path, mode=0o755, exist_ok=True)
        elif entry.kind == FILE:
            _write(entry, path, digest)
        else:
            raise CodeError("the code package has {!r}, neither a file nor a folder nor a link".format(entry.name))
    for linkname, path in links:
        _link(linkname, path, target)
    return digest.hexdigest()


def _place(target: str, name: str) -> str:
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or "\0" in name or not name:
        raise CodeError("the code package has {!r}, which would lie outside of it".format(name))
    return os.path.join(target, *parts)


def _make_header(entry: ArchiveEntry) -> bytes:
    kind = stat.S_IFLNK if entry.kind == LINK else stat.S_IFDIR if entry.kind == FOLDER else stat.S_IFREG
    return b"\0".join(
        (
            os.fsencode(entry.name),
            b"%o" % (kind | entry.mode),
            b"%d" % entry.size,
            os.fsencode(entry.linkname if entry.kind == LINK else ""),
            b"",
        )
    )


def _write(entry: ArchiveEntry, path: str, digest: hashlib._Hash) -> None:
    if entry.data is None:
        raise CodeError("the code package has {!r} without its bytes".format(entry.name))
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    mode = 0o755 if entry.mode & stat.S_IXUSR else 0o644
    with entry.data, open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        _copy(entry.data, file, digest)


def _copy(source: IO[bytes], target: Optional[IO[bytes]], digest: hashlib._Hash) -> None:
    while True:
        chunk = source.read(_CHUNK_BYTES)
        if not chunk:
            return
        digest.update(chunk)
        if target is not None:
            target.write(chunk)


def _link(linkname: str, path: str, target: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    os.symlink(linkname, path)
    inside = os.path.realpath(target)
    real = os.path.realpath(path)
    if os.path.isabs(linkname) or (real != inside and not real.startswith(inside + os.sep)):
        raise CodeError("the code package has a link to {!r}, outside of it".format(linkname))
