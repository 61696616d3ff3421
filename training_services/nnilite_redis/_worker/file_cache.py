"""Code and keepers, which the attempts of one worker share."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from nnilite_redis._file_store import Files


class FileCache:
    """A folder of files by their names, which say their content: one that is there is right."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks: dict[str, asyncio.Lock] = {}

    def place(self, name: str) -> Path:
        return self._folder / name

    async def fetch(self, name: str, file: str, files: Files) -> bool:
        """Whether the file is there now; False if `files` has none of that name.

        However many attempts need it at the same time, one fetches it, and the others wait for that: they would write
        into each other's draft. Raises: ServiceError, ConfigError, OSError.
        """
        place = self.place(file)
        async with self._locks.setdefault(file, asyncio.Lock()):
            if place.exists():
                os.utime(place)
                return True
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return await files.get(name, place)
