"""Reads files for an answer, but none outside of the requested folder.

A trial owns its folder and can put anything there: links to elsewhere, pipes, pages with scripts. Therefore paths are
opened one component at a time without following links, so that a trial cannot swap one in between. Only ordinary files
are read. A browser shows only kinds of files that run nothing; all others are offered for download.

A folder may also hang, like a network file system whose server is unreachable. So all this is done in threads of its
own. Only some of them may hang, and callers get an error after some seconds.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import quote

from nnilite._keeper.folder_looks import FolderHangs, FolderLooks
from nnilite._loop_waits import in_thread
from nnilite._rest.handler import BaseHandler, prove
from nnilite._rest.server_connections import hang_up
from nnilite._sdk.artifact_values import find_image_ending
from nnilite.errors import NotFound, ServiceError
from nnilite.foreign_files import open_below

T = TypeVar("T")

CHUNK_BYTES = 256 * 1024
_HASHED_AT_ONCE_BYTES = 8 << 20
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
_MAGIC_BYTES = 16
_DOWNLOADED = "application/octet-stream"
_LOOKS = FolderLooks(limit_s=10.0)
_FILE_POLICY = "sandbox; default-src 'none'; frame-ancestors 'none'"


def split_path(relative: str) -> list[str]:
    """Return the components of a relative path. Raises: NotFound if one could lead out of the folder."""
    parts = relative.split("/")
    if any(part in ("", ".", "..") or "\0" in part or "\\" in part for part in parts) or is_private(parts):
        raise NotFound(f"there is no file {relative!r} here")
    return parts


def is_private(parts: Sequence[str]) -> bool:
    """Return whether a path is the keeper's. Its files lie in the trial's folder or, by attempt, one level deeper."""
    return any(part in PRIVATE for part in parts[:2])


async def run_in_folder(root: Path, work: Callable[[], T]) -> T:
    """Return what `work` finds in a trial's folder. Raises: ServiceError if that hangs, and what `work` raises."""
    try:
        return await in_thread(lambda: cast(T, _LOOKS.look(str(root), "", work)))
    except FolderHangs as error:
        raise ServiceError(f"The folder {root} cannot be read now: {error.strerror}.") from error


def open_inside(root: Path, relative: str) -> BinaryIO:
    """Open an ordinary file below `root` without following links. Raises: NotFound."""
    split_path(relative)
    try:
        return open_below(root, relative)
    except OSError as error:
        raise NotFound(f"there is no file {relative!r} here") from error


async def send_inside(handler: BaseHandler, root: Path, relative: str) -> None:
    """Answer with a file that a trial made."""
    file = await run_in_folder(root, lambda: open_inside(root, relative))
    media = _SHOWN.get(Path(relative).suffix.lower(), _DOWNLOADED)
    if media.startswith("image/"):
        media = await run_in_folder(root, partial(_find_image_media, file))
    handler.set_header("Content-Security-Policy", _FILE_POLICY)
    handler.set_header("Content-Disposition", _make_disposition(Path(relative).name, media == _DOWNLOADED))
    await _send(handler, file, media, root, partial(_digest, file, root))


def _find_image_media(file: BinaryIO) -> str:
    """Return the type of an image by its first bytes, whatever its name says; what is none is only downloaded."""
    ending = find_image_ending(file.read(_MAGIC_BYTES))
    file.seek(0)
    return _SHOWN.get(ending, _DOWNLOADED)


async def send_file(handler: BaseHandler, path: Path, media: str) -> None:
    """Answer with a file of nnilite's own."""
    file = await asyncio.to_thread(open_inside, path.parent, path.name)

    async def make(size: int) -> str:
        # Opened once more, as the file of this answer is closed when its reader goes.
        with await asyncio.to_thread(open_inside, path.parent, path.name) as own:
            return await _digest(own, path.parent, size)

    await _send(handler, file, media, path.parent, lambda size: handler.context.digests.find(file, partial(make, size)))


async def _send(
    handler: BaseHandler, file: BinaryIO, media: str, root: Path, digest: Callable[[int], Coroutine[Any, Any, str]]
) -> None:
    """Send the present content of a file, and not what it grows by meanwhile. `digest`: that of so many bytes of it."""
    try:
        left = os.fstat(file.fileno()).st_size
        handler.set_header("Content-Type", media)
        handler.set_header("Content-Length", left)
        if handler.signed is not None:
            prove(handler, handler.signed, await digest(left))
        while left > 0:
            chunk = await run_in_folder(root, partial(file.read, min(CHUNK_BYTES, left)))
            if not chunk:  # the file was cut short, and the answer must be recognizable as incomplete
                hang_up(handler.request)
                return
            left -= len(chunk)
            await handler.send_piece(chunk)
    finally:
        # Closing waits for a read that hangs.
        threading.Thread(target=file.close, name="close", daemon=True).start()


async def _digest(file: BinaryIO, root: Path, size: int) -> str:
    """Return the SHA-256 of the first `size` bytes, in hex. Afterwards the file is at its beginning again."""
    found = hashlib.sha256()
    while size > 0 and (taken := await run_in_folder(root, partial(_hash_piece, file, found.update, size))):
        size -= taken
    file.seek(0)
    return found.hexdigest()


def _hash_piece(file: BinaryIO, update: Callable[[bytes], None], most: int) -> int:
    """Hash a piece of a file, small enough to be faster than a slow look. Return its number of bytes."""
    taken, most = 0, min(most, _HASHED_AT_ONCE_BYTES)
    while taken < most and (chunk := file.read(min(CHUNK_BYTES, most - taken))):
        update(chunk)
        taken += len(chunk)
    return taken


def _make_disposition(name: str, download: bool) -> str:
    """Return the Content-Disposition header. It can have any name, percent-encoded in UTF-8 (RFC 6266)."""
    kind = "attachment" if download else "inline"
    return f"{kind}; filename*=UTF-8''{quote(name.encode('utf-8', 'surrogateescape'), safe='')}"
