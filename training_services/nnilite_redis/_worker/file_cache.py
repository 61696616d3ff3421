"""Cache code and keepers, which the attempts of one worker share."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from nnilite.records import Json
from nnilite.services.worker_side import fetch_command
from nnilite_redis._file_store import Files

log = logging.getLogger(__name__)

_NOT_AGAIN_S = 300.0
_MOST_MESSAGE_CHARS = 1000


class FileCache:
    """A folder of files by their names, which say their content: one that is there is right.

    However many attempts need a file at the same time, one fetches it, and the others wait for that: they would write
    into each other's draft.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks: dict[str, asyncio.Lock] = {}
        self._storage_from_s = 0.0  # not to ask the shared storage before this time

    def place(self, name: str) -> Path:
        return self._folder / name

    async def fetch(self, name: str, file: str, files: Files) -> bool:
        """Whether the file is there now; False if `files` has none of that name.

        Raises: ServiceError, ConfigError, OSError.
        """
        place = self.place(file)
        async with self._lock(file):
            if place.exists():
                os.utime(place)
                return True
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return await files.get(name, place)

    async def take_stored(self, file: str, keeper: Path, storage: Mapping[str, Json]) -> None:
        """Bring a code package from the shared storage, if that has it.

        It may hold up all that wait, so it is done seldom.
        """
        place = self.place(file)
        async with self._lock(file):
            if place.exists() or time.monotonic() < self._storage_from_s:
                return
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                trouble = await _fetch(keeper, place, storage)
            except OSError as error:
                trouble = f"no process can be started: {error}"
            if trouble:
                self._storage_from_s = time.monotonic() + _NOT_AGAIN_S
                log.warning("the code comes through Redis: %s", trouble)

    def _lock(self, file: str) -> asyncio.Lock:
        return self._locks.setdefault(file, asyncio.Lock())


async def _fetch(keeper: Path, place: Path, storage: Mapping[str, Json]) -> str:
    """Fetch from the storage; return why that failed, "" on success. In its own process, as a storage may hang."""
    process = await asyncio.create_subprocess_exec(
        *fetch_command(sys.executable, str(keeper), str(place)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate(json.dumps(dict(storage)).encode())
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    if process.returncode == 0:
        return ""
    return output.decode("utf-8", "replace").strip()[-_MOST_MESSAGE_CHARS:] or f"exit status {process.returncode}"
