"""Keeps the logs of an experiment below a limit, whichever program writes to them.

A tuner's output, a tracker's library or a warning that is repeated for months would fill the disk otherwise. A log over
the limit is cut like a trial's output: it keeps its beginning and its end. Its writers append, so they need not know.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

from nnilite._keeper.output import OutputFile

log = logging.getLogger(__name__)

MOST_LOG_BYTES = 32 << 20
"""A log over this size is cut: half of it is the beginning, a quarter the end."""

_LOOK_S, _SOON_S = 0.25, 0.02
_FAST_BYTES = 1 << 20  # logs that have grown by more are looked at again soon


class LogLimits:
    """The logs that a manager and its side processes write. `paths`: those that not every experiment has."""

    def __init__(self, directory: Path, paths: Iterable[Path] = ()) -> None:
        own = (directory / "log" / "manager.log", directory / "log" / "tuner.log", directory / "fork-server.log")
        why = f"a log has at most {MOST_LOG_BYTES >> 20} MB".encode()
        self._files = [OutputFile(str(path), MOST_LOG_BYTES, why) for path in dict.fromkeys((*own, *paths))]

    def look(self) -> bool:
        """Cut what is too large. Return whether anything grows fast. Raises: OSError."""
        is_fast = False
        for file in self._files:
            before = file.size
            file.grown()
            is_fast |= file.size > before + _FAST_BYTES
            file.cut()
        return is_fast


async def keep_logs_small(limits: LogLimits) -> None:
    """Look at the logs now and then, until this is canceled."""
    last_error, is_fast = "", False
    while True:
        await asyncio.sleep(_SOON_S if is_fast else _LOOK_S)
        try:
            is_fast = await asyncio.to_thread(limits.look)
        except OSError as error:
            is_fast = False
            if str(error) != last_error:
                log.error("a log cannot be cut: %s", error)
            last_error = str(error)
