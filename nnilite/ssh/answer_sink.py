"""What a command on another machine prints: held in memory up to a limit, or written to a file while there is room."""

from __future__ import annotations

from pathlib import Path

from nnilite.disk_room import DiskRoom
from nnilite.errors import ServiceError
from nnilite.units import format_size

MOST_ANSWER_BYTES = 64 << 20
"""What a command may print. The queue of a cluster with a hundred thousand jobs has a part of it."""

MOST_COMPLAINT_BYTES = 1 << 20
"""How much of what it prints to its standard error is kept."""


class AnswerSink:
    """Receives the output of one command."""

    def __init__(self, save: Path | None) -> None:
        """Begin; with `save` the output goes to a file with that name, chosen by us. Raises: OSError."""
        self._room = None if save is None else DiskRoom(save.parent)
        self._file = None if save is None else save.open("wb")
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        """Take more output. Raises: ServiceError if it is too much, OSError."""
        self._size += len(piece)
        if self._file is not None and self._room is not None:
            self._room.count(len(piece))
            self._file.write(piece)
            return
        if self._size > MOST_ANSWER_BYTES:
            raise ServiceError(f"a command has printed more than {format_size(MOST_ANSWER_BYTES)}, which is not read")
        self._pieces.append(piece)

    @property
    def output(self) -> bytes:
        """What was held in memory."""
        return b"".join(self._pieces)

    def close(self) -> None:
        """Close the file, which is whole then. Raises: OSError."""
        if self._file is not None:
            self._file.close()
