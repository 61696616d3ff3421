"""Disk space with which the end of an experiment can be recorded on a full disk.

The manager keeps a file of zeros while it runs. A stop on a full disk removes it, and what is free then is enough for
the records of the stop. Without it, only killing the manager would stop anything.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from nnilite._experiments.documents import write_content

NAME = "stop-reserve"
_BYTES = 1 << 20
# It is made only where there is room for it several times.
_ROOM = 2


class DiskReserve:
    """The file. All methods block shortly, raise nothing, and may be called in any thread."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self._is_released = False

    def keep(self) -> None:
        """Make the file if it is missing and the disk has room for it."""
        if self._is_released or self._path.exists():
            return
        with contextlib.suppress(OSError):
            facts = os.statvfs(self._path.parent)
            if facts.f_bavail * facts.f_frsize < _ROOM * _BYTES:
                return
            write_content(self._path, bytes(_BYTES))

    def release(self) -> None:
        """Remove the file finally: the experiment is to stop."""
        self._is_released = True
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
