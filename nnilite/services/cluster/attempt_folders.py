"""The folders of attempts where the scheduler is: listed there, and copied here, one file or all."""

from __future__ import annotations

import asyncio
import io
import re
import secrets
import tempfile
from pathlib import Path

from nnilite.errors import NotFound, ServiceError
from nnilite.foreign_files import TrialFile, listed, save_below
from nnilite.records import Json
from nnilite.services.cluster import shell_scripts as shell
from nnilite.services.cluster.hanging_folders import describe_hanging, was_killed
from nnilite.services.cluster.login import TRANSFER_S
from nnilite.services.cluster.shared_folder import SharedFolder
from nnilite.ssh.download import unpack_stream

_TIME = re.compile(r"\d{1,12}(\.\d{1,12})?")
_KINDS = {"f": "file", "l": "link"}
_STAYS = ("spec.json", "code", "script", "job", "array", "claim", "owner", "submitting", "removed", ".nni")


class AttemptFolders:
    """All methods raise NotFound if the folder or the file is gone, and ServiceError."""

    def __init__(self, files: SharedFolder) -> None:
        self._hanging = files.hanging
        self._host = files.host
        self._root = files.root

    async def fetch(self, folder: str, target: Path) -> None:
        """Copy an attempt's folder. Raises: NotFound, ServiceError."""
        self._hanging.check(f"{folder}/")
        target.parent.mkdir(parents=True, exist_ok=True)
        archive = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tar")
        try:
            answer = await self._host.run(shell.FETCH, self._root, folder, limit_s=TRANSFER_S, save=archive)
            if answer.status and archive.stat().st_size == 0:
                raise NotFound(f"the trial's folder {self._root}/{folder} on {self._host.title} is gone")
            with archive.open("rb") as source:
                await asyncio.to_thread(unpack_stream, _Stream(source), target)
        finally:
            archive.unlink(missing_ok=True)

    async def files(self, folder: str) -> list[TrialFile]:
        """List an attempt's folder. Raises: NotFound, ServiceError."""
        self._hanging.check(f"{folder}/")
        answer = await self._host.run(shell.FILES, self._root, folder)
        if was_killed(answer):
            raise ServiceError(describe_hanging(folder, self._host.title))
        if answer.status:
            raise NotFound(f"the trial's folder {self._root}/{folder} on {self._host.title} is gone")
        return listed(_entries(answer.output))

    async def fetch_file(self, folder: str, path: str, target: Path, most_bytes: int) -> None:
        """Copy one file of an attempt's folder. Raises: NotFound, ServiceError."""
        if path.split("/")[0] in _STAYS:
            raise NotFound(f"there is no file {path!r}")
        self._hanging.check(f"{folder}/")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".copy-", dir=target.parent) as scratch:
            copy = Path(scratch, "file")
            words = (self._root, folder, path, str(most_bytes + 1))
            answer = await self._host.run(shell.FILE, *words, limit_s=TRANSFER_S, save=copy)
            if answer.status:
                raise NotFound(f"there is no file {path!r} in {self._root}/{folder} on {self._host.title}")
            with copy.open("rb") as source:
                await asyncio.to_thread(save_below, source.read, target, path, most_bytes)


class _Stream:
    """A file as `unpack_stream` wants it."""

    def __init__(self, source: io.BufferedReader) -> None:
        self._source = source

    def rest(self) -> bytes:
        return b""

    def read(self) -> bytes:
        return self._source.read(1 << 20)


def _entries(text: bytes) -> list[Json]:
    """Return what `find` has printed of each entry. The last one may be cut, and is left out."""
    words = text.decode("utf-8", "surrogateescape").split("\0")
    found: list[Json] = []
    for facts, target in zip(words[0:-1:2], words[1:-1:2], strict=False):
        kind, size, modified, path = ([*facts.split(" ", 3), "", "", ""])[:4]
        if size.isdigit() and _TIME.fullmatch(modified):
            found.append([path, int(size), float(modified), _KINDS.get(kind, "special"), target])
    return found
