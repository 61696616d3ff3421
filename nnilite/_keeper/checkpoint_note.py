"""Notes which attempt wrote the folder for checkpoints on this machine, as its clock may be ahead of all others.

`<folder>.attempt` has a line of JSON:

    attempt  the attempt that writes to the folder now
    before   the attempt that wrote what the folder had at its start; null if that is unknown
    found    the mark of the files that it had then

An attempt that has changed nothing leaves what the one before it wrote: the mark shows which is the case.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import Dict, Optional, Tuple

from . import plain_file
from .folder import WRITER_SUFFIX

_MOST_BYTES = 1000

States = Dict[str, Tuple[int, int]]
"""Size and time of each file, by its path."""


class CheckpointNote:
    """The note on one folder. Without one, or with a damaged one, nothing is known of who wrote it."""

    def __init__(self, folder: str) -> None:
        self._path = folder + WRITER_SUFFIX

    def read(self, states: States) -> Optional[int]:
        """Return the attempt that wrote these files; None if that is unknown."""
        if not states:
            return None
        try:
            note = json.loads(plain_file.read(self._path, _MOST_BYTES).decode("ascii"))
            writer = note["before"] if note["found"] == _mark(states) else note["attempt"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return writer if isinstance(writer, int) else None

    def write(self, attempt: int, before: Optional[int], states: States) -> None:
        """Note that this attempt begins with these files, which the one `before` wrote. Raises: OSError."""
        note = {"attempt": attempt, "before": before, "found": _mark(states)}
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        draft = "{}.{}.new".format(self._path, os.getpid())
        try:
            plain_file.write(draft, json.dumps(note).encode("ascii"))
            os.replace(draft, self._path)
        except OSError:
            # The files are about to change, so what an earlier attempt has noted will be wrong.
            for path in (self._path, draft):
                with contextlib.suppress(OSError):
                    os.unlink(path)
            raise


def _mark(states: States) -> str:
    return hashlib.sha256(repr(sorted(states.items())).encode("utf-8", "surrogateescape")).hexdigest()
