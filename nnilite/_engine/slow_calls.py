"""Calls of the training service that take long, which the others do not wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

PATIENCE_S = 2.0
"""How long the other calls wait for one that is under way."""
_CANCELED_S = 5.0


class SlowCalls:
    """The calls of one kind that are under way. `ended` is called when one of them ends."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return sum(not task.done() for task in self._tasks)

    async def make(self, calls: Sequence[Coroutine[Any, Any, None]]) -> None:
        """Make calls, and return when all have ended. Those that take too long continue during what comes next.

        Raises: what one of them, or an earlier call, has raised.
        """
        tasks = [asyncio.create_task(call) for call in calls]
        self._tasks.update(tasks)
        _, slow = await asyncio.wait(tasks, timeout=PATIENCE_S)
        for task in slow:
            task.add_done_callback(lambda _: self._ended())
        self.check()

    async def idle(self) -> None:
        """Return when none is under way."""
        if left := [task for task in self._tasks if not task.done()]:
            await asyncio.wait(left)

    def check(self) -> None:
        """Forget the calls that have ended. Raises: what one of them has raised."""
        done = {task for task in self._tasks if task.done()}
        self._tasks -= done
        for task in done:
            task.result()

    async def stop(self) -> None:
        """End all calls."""
        left, self._tasks = self._tasks, set()
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_CANCELED_S)
