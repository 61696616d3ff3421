"""Know which reports of an attempt its manager has: their keeper's requests, and the answers, pass through this worker.

The next attempt does not report again what was reported before its checkpoint. So a checkpoint is stored once the
manager has these reports, or after it has confirmed none for long: hours of work weigh more than values on the way.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

from nnilite.services.keeper_folder import LEAST_UNCONFIRMED_S, UNCONFIRMED_S, ReportCount
from nnilite_redis._mailbox import PoolMessage

_LOOK_S = 0.1
_WITH_COUNT = (200, 409)


class Confirmations:
    """What the manager has of the attempt in this folder."""

    def __init__(self, directory: Path) -> None:
        self._reports = ReportCount(directory)
        self._confirmed = 0
        self._left_s = UNCONFIRMED_S

    def note(self, answer: PoolMessage) -> None:
        """Take the manager's answer to a batch of the keeper."""
        if answer.head.get("status") in _WITH_COUNT:
            try:
                known = json.loads(answer.data)["metrics"]
            except (ValueError, KeyError, TypeError, RecursionError):
                return
            if isinstance(known, int):
                self._confirmed = known

    async def come(self, over: Callable[[], bool]) -> bool:
        """Wait until the manager has what was reported by now, or long enough.

        Return False if the trial ends before. Raises: OSError.
        """
        wanted = await asyncio.to_thread(self._reports.read)
        until = time.monotonic() + max(self._left_s, LEAST_UNCONFIRMED_S)
        while self._confirmed < wanted:
            if over():
                return False
            if time.monotonic() > until:
                self._left_s = 0.0
                return True
            await asyncio.sleep(_LOOK_S)
        self._left_s = UNCONFIRMED_S
        return True
