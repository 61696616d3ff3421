"""The end of tasks that may swallow a cancellation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

log = logging.getLogger(__name__)

_LIMIT_S = 5.0


async def end_tasks(tasks: Iterable[asyncio.Task[Any]], again_s: float = 0.1) -> None:
    """Cancel tasks until they have ended, but not without end.

    `asyncio.wait_for` before Python 3.12 swallows a cancellation that comes while its call ends, and plugins and
    libraries may swallow one, too. So each task is canceled again after `again_s`, which is the time that it has to
    clean up.
    """
    pending = {task for task in tasks if not task.done()}
    for _ in range(round(_LIMIT_S / again_s)):
        if not pending:
            return
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=again_s)
    if pending:
        log.warning("%d tasks do not end: %s", len(pending), ", ".join(task.get_name() for task in pending))
