"""Room on the disk: a part of each disk that nnilite never fills.

Code that writes much, such as files of trials, archives and packages of code, asks here before it writes and meanwhile.
So what a trial leaves on its worker can never take the space that the experiment's database needs.

    room = DiskRoom(folder)
    room.need(size)
    while chunk := source.read(1 << 20):
        room.count(len(chunk))
        target.write(chunk)
"""

from __future__ import annotations

import os
from pathlib import Path

from nnilite.errors import ServiceError
from nnilite.units import format_size

RESERVE_BYTES = 1 << 30
RESERVED_SHARE = 0.05
_ASK_EVERY_BYTES = 1 << 20


class NoRoom(ServiceError):
    """What is to be written would take disk space that nnilite leaves free."""


class DiskRoom:
    """The room on the disk of a folder, which need not be there yet. All methods block shortly."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # The first piece asks.
        self._written = _ASK_EVERY_BYTES

    def need(self, size_bytes: int) -> None:
        """Check that `size_bytes` fit in addition to the reserve. Raises: NoRoom, OSError."""
        facts = os.statvfs(_find_existing(self._folder))
        free = facts.f_bavail * facts.f_frsize
        reserve = reserve_bytes(facts.f_blocks * facts.f_frsize)
        if free - size_bytes < reserve:
            raise NoRoom(
                f"the disk of {self._folder} has {format_size(free)} free and {format_size(size_bytes)} more are to be "
                f"written, but nnilite leaves {format_size(reserve)} free there; free some disk space and try again"
            )

    def count(self, size_bytes: int) -> None:
        """Note that `size_bytes` are written next; the disk is asked from time to time. Raises: NoRoom, OSError."""
        self._written += size_bytes
        if self._written >= _ASK_EVERY_BYTES:
            self._written = 0
            self.need(size_bytes)


def reserve_bytes(disk_bytes: int) -> int:
    """Return how much of a disk of this size is left free."""
    return min(RESERVE_BYTES, int(disk_bytes * RESERVED_SHARE))


def _find_existing(folder: Path) -> Path:
    return next((path for path in (folder, *folder.absolute().parents) if path.exists()), folder)
