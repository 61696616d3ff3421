"""The time for which calls to platforms are tried, and the pause that a platform asks for."""

from __future__ import annotations

import asyncio
import time

from nnilite._network.interactive_calls import shorten_patience
from nnilite.platform_http._problems import Throttled

PAUSE_S = (0.5, 10.0)
"""The first pause between two tries, and the longest one."""
CALLS_AT_ONCE = 8


def compute_deadline(patience_s: float) -> float:
    """Return the time, by `time.monotonic`, after which a call that begins now is not tried again."""
    return time.monotonic() + shorten_patience(patience_s)


class RequestedPause:
    """The time for which a platform wants no calls, as it said by `Retry-After`. It holds for all calls."""

    def __init__(self, platform: str) -> None:
        self._platform = platform
        self._until_s = 0.0

    @property
    def left_s(self) -> float:
        """Return the seconds until its end, which may have passed."""
        return self._until_s - time.monotonic()

    def begin(self, pause_s: float) -> None:
        self._until_s = time.monotonic() + pause_s

    async def wait(self, deadline: float) -> None:
        """Wait for its end. Raises: Throttled if that comes after the deadline, by `time.monotonic`."""
        wait_s = self.left_s
        if wait_s <= 0:
            return
        if self._until_s > deadline:
            problem = Throttled(f"{self._platform} accepts no calls for another {wait_s:.0f} s")
            problem.status, problem.retry_after_s = 429, wait_s
            raise problem
        await asyncio.sleep(wait_s)
