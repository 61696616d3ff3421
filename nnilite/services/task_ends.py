"""The end of tasks that may swallow a cancellation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

log = logging.getLogger(__name__)

_TURNS = 50
_TURN_S = 0.1


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks until they have ended.

    `asyncio.wait_for` before Python 3.12 swallows a cancellation that comes while its call ends, and libraries
    swallow one while they connect.
    """
    pending = {task for task in tasks if not task.done()}
    for _ in range(_TURNS):
        if not pending:
            return
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_TURN_S)
    if pending:
        log.warning("%d tasks do not end: %s", len(pending), ", ".join(task.get_name() for task in pending))
