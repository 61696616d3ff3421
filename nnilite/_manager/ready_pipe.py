"""Reports the start to the process that started this manager, by JSON lines on a pipe that `launch` reads.

{"packed": [1048576, 31457280]}     bytes of the code that were read, and how many there are to read; any number
{"ready": "yes", "url": "http://..."} or {"error": "...", "kind": "..."}      the last one; "field" names a wrong field
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
import time
from collections.abc import Mapping

from nnilite.records import Json

_SHOWN_EVERY_S = 0.2


class ReadyPipe:
    """The process that waits for this one to be ready. Without a pipe there is none."""

    def __init__(self, pipe: int | None) -> None:
        self._pipe = pipe
        # The code is packed in a thread, which may still run when a start has failed and the pipe is closed.
        self._lock = threading.Lock()
        self._shown_s = 0.0

    def packed(self, done: int, total: int) -> None:
        """Report the progress of the packing, a few times a second. A starter that does not listen holds nothing up."""
        if done < total and time.monotonic() - self._shown_s < _SHOWN_EVERY_S:
            return
        self._shown_s = time.monotonic()
        with self._lock:
            # So short a line is written as a whole or not at all, once there is room for it.
            if self._pipe is not None and select.select([], [self._pipe], [], 0)[1]:
                _write(self._pipe, {"packed": [done, total]})

    def answer(self, answer: Mapping[str, Json]) -> None:
        """Report the start, or why it failed. Only the first call counts."""
        with self._lock:
            if self._pipe is not None:
                _write(self._pipe, answer)
                os.close(self._pipe)
            self._pipe = None


def _write(pipe: int, words: Mapping[str, Json]) -> None:
    # A process that does not wait any more does not need the message.
    with contextlib.suppress(BrokenPipeError), open(pipe, "wb", closefd=False) as out:
        out.write(json.dumps(words).encode() + b"\n")
