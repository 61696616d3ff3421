"""The digests of the code and the keeper, each made once for all requests that need a proof of it.

A trial may request its code as often as it likes, and many times at once. To make a digest of it each time would take
all processors.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, BinaryIO

_MOST = 16


class FileDigests:
    """Knows the digests of some files that are replaced, and never changed in place."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], asyncio.Task[str]] = {}  # the oldest first

    async def find(self, file: BinaryIO, make: Callable[[], Coroutine[Any, Any, str]]) -> str:
        """Return the digest of a file, which `make` makes if it is not known. Raises: what `make` raises."""
        status = os.fstat(file.fileno())
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if key not in self._known:
            self._known = dict([*self._known.items()][1 - _MOST :])
            self._known[key] = asyncio.get_running_loop().create_task(make())
        try:
            return await asyncio.shield(self._known[key])
        except Exception:
            self._known.pop(key, None)  # it is tried again
            raise
