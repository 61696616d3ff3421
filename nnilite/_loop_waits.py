"""Waits on the event loop: for blocking calls, and with a limit."""

from __future__ import annotations

import asyncio
import errno
import logging
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


async def limited(limit_s: float, call: Awaitable[T]) -> T:
    """Return the result of an awaitable. Raises: asyncio.TimeoutError after the limit."""
    # Before Python 3.12 `wait_for` makes a task of each coroutine, which costs two more rounds of the event loop.
    if sys.version_info >= (3, 11):
        async with asyncio.timeout(limit_s):
            return await call
    return await asyncio.wait_for(call, limit_s)


async def in_thread(work: Callable[[], T]) -> T:
    """Return the result of a blocking call. Its thread does not delay a cancellation or the end of the program.

    Raises: OSError if no thread can be started, and what the call raises.
    """
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

    try:
        threading.Thread(target=run, name="blocking", daemon=True).start()
    except RuntimeError as error:  # the process has reached its limit of threads
        raise OSError(errno.EAGAIN, str(error)) from error
    return await done
