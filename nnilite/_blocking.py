"""Waits on the event loop for blocking calls."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Return the result of a blocking call. Its thread does not delay a cancellation or the end of the program."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        problem: BaseException | None = None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
            problem = error
        try:
            loop.call_soon_threadsafe(settle, result, problem)
        except RuntimeError:  # the loop has been closed meanwhile
            log.debug("the caller no longer waits for an answer")

    threading.Thread(target=run, name="blocking", daemon=True).start()
    return await done
