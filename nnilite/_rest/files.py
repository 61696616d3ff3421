"""Reads files for an answer, but none outside of the requested folder.

A trial owns its folder and can put anything there: links to elsewhere, pipes, pages with scripts. Therefore paths are
opened one component at a time without following links, so that a trial cannot swap one in between. Only ordinary files
are read. A browser shows only kinds of files that run nothing; all others are offered for download.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from nnilite._answers.backend import FileEntry
from nnilite._rest.handler import Answering
from nnilite.errors import NotFound

CHUNK_BYTES = 256 * 1024
LISTED_MAX = 10_000
PRIVATE = (".nni", "spec.json")  # the keeper's own files; its specification has the trial's token

_SHOWN = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    **dict.fromkeys(
        (".txt", ".log", ".csv", ".tsv", ".md", ".py", ".sh", ".yaml", ".yml", ".json", ".jsonl", ".cfg", ".ini"),
        "text/plain; charset=utf-8",
    ),
    **dict.fromkeys((".stdout", ".stderr", ".toml", ".r", ".jl", ".err", ".out"), "text/plain; charset=utf-8"),
}
_DOWNLOADED = "application/octet-stream"
_FILE_POLICY = "sandbox; default-src 'none'; frame-ancestors 'none'"


def parts_of(relative: str) -> list[str]:
    """The components of a relative path. Raises: NotFound if one could lead out of the folder."""
    parts = relative.split("/")
    if any(part in ("", ".", "..") or "\0" in part or "\\" in part for part in parts) or _private(parts):
        raise NotFound(f"there is no file {relative!r} here")
    return parts


def _private(parts: Sequence[str]) -> bool:
    """Whether a path is the keeper's. Its files lie in the trial's folder or, by attempt, one level deeper."""
    return any(part in PRIVATE for part in parts[:2])


def open_inside(root: Path, relative: str) -> BinaryIO:
    """Open an ordinary file below `root` without following links. Raises: NotFound."""
    parts = parts_of(relative)
    folder = -1
    try:
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        return _ordinary(os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder))
    except (OSError, UnicodeEncodeError) as error:
        raise NotFound(f"there is no file {relative!r} here") from error
    finally:
        if folder >= 0:
            os.close(folder)


def _ordinary(descriptor: int) -> BinaryIO:
    """A file object for a descriptor, which is closed if it is not an ordinary file."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotFound("this is not an ordinary file")
    return os.fdopen(descriptor, "rb")


def list_inside(root: Path) -> list[FileEntry]:
    """The ordinary files below `root`, by path, at most 10,000; links are left out. Raises: NotFound."""
    if not root.is_dir():
        raise NotFound("the trial's folder is not on this machine (yet)")
    entries: list[FileEntry] = []
    for entry in _walk(root):
        entries.append(entry)
        if len(entries) >= LISTED_MAX:
            break
    return sorted(entries, key=lambda entry: entry.path)


def _walk(root: Path) -> Iterator[FileEntry]:
    for folder, folders, names, descriptor in os.fwalk(root, follow_symlinks=False):
        inner = os.path.relpath(folder, root)
        above = [] if inner == "." else inner.split("/")
        base = "".join(part + "/" for part in above)
        folders[:] = [name for name in folders if not _private([*above, name])]
        for name in (name for name in names if not _private([*above, name])):
            with suppress(OSError):  # the file has gone since it was listed
                found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if stat.S_ISREG(found.st_mode):
                    yield FileEntry(base + name, found.st_size, found.st_mtime)


async def send_inside(handler: Answering, root: Path, relative: str) -> None:
    """Answer with a file that a trial made."""
    file = await asyncio.to_thread(open_inside, root, relative)
    media = _SHOWN.get(Path(relative).suffix.lower(), _DOWNLOADED)
    handler.set_header("Content-Security-Policy", _FILE_POLICY)
    handler.set_header("Content-Disposition", _disposition(Path(relative).name, media == _DOWNLOADED))
    await _send(handler, file, media)


async def send_file(handler: Answering, path: Path, media: str) -> None:
    """Answer with a file of nnilite's own."""
    file = await asyncio.to_thread(open_inside, path.parent, path.name)
    await _send(handler, file, media)


async def _send(handler: Answering, file: BinaryIO, media: str) -> None:
    """Send the present content of a file, and not what it grows by meanwhile."""
    with file:
        left = os.fstat(file.fileno()).st_size
        handler.set_header("Content-Type", media)
        handler.set_header("Content-Length", left)
        if handler.signed is not None:
            handler.prove(handler.signed, await asyncio.to_thread(_digest, file, left))
        while left > 0:
            chunk = await asyncio.to_thread(file.read, min(CHUNK_BYTES, left))
            if not chunk:  # the file was cut short, and the answer must be recognizable as incomplete
                handler.hang_up()
                return
            left -= len(chunk)
            await handler.send_piece(chunk)


def _digest(file: BinaryIO, size: int) -> str:
    """SHA-256 of the first `size` bytes, in hex. Afterwards the file is at its beginning again."""
    found = hashlib.sha256()
    while size > 0 and (chunk := file.read(min(CHUNK_BYTES, size))):
        found.update(chunk)
        size -= len(chunk)
    file.seek(0)
    return found.hexdigest()


def _disposition(name: str, download: bool) -> str:
    """The Content-Disposition header. It can have any name, percent-encoded in UTF-8 (RFC 6266)."""
    kind = "attachment" if download else "inline"
    return f"{kind}; filename*=UTF-8''{quote(name.encode('utf-8', 'surrogateescape'), safe='')}"
