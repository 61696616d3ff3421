"""Calls of a platform's own library, which blocks: in threads, with time limits, retries where they help, our errors.

Switch off the library's own retries: they sleep for as long as the platform's `Retry-After` says, and hold a thread
meanwhile. What is called here may be called twice; a call that must not be made again has a patience of 0. Where the
library lets its connections be made by `make_abortable`, they end with the time of a try.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import TypeVar

from nnilite._logging.redaction import redact
from nnilite._loop_waits import in_thread
from nnilite.errors import NniliteError
from nnilite.platform_http import _patience
from nnilite.platform_http._abortable import Try
from nnilite.platform_http._problems import Outage, Problem, Throttled

log = logging.getLogger(__name__)

T = TypeVar("T")

MOST_HELD = 32
"""The most threads that calls may hold whose answers never end, where their connections cannot be ended."""
_PASSING = (408, 429, 500, 502, 503, 504)


def need_module(name: str) -> None:
    """Look whether a library is there that is imported only later, since that takes long.

    Raises: ModuleNotFoundError, from which the user learns what to install.
    """
    with suppress(ModuleNotFoundError):  # its parent package is missing
        if find_spec(name) is not None:
            return
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


class LibraryCalls(ABC):
    """The calls of one event loop. A subclass translates the errors of its library."""

    def __init__(self, platform: str, timeout_s: float) -> None:
        self._platform = platform
        self._timeout_s = timeout_s
        self._requested_pause = _patience.RequestedPause(platform)
        self._turns = asyncio.Semaphore(_patience.CALLS_AT_ONCE)
        self._counting = threading.Lock()
        self._held = 0  # threads of tries, those included that nobody waits for any more

    @abstractmethod
    def translate(self, what: str, error: Exception) -> Problem:
        """Translate an error of the library."""

    async def run(
        self,
        what: str,
        work: Callable[[], T],
        *,
        timeout_s: float | None = None,
        patience_s: float,
        renew: Callable[[], None] | None = None,
    ) -> T:
        """Return the result of a call. `what` it asks for appears in messages; `renew` is called once after a 401.

        Each try has `timeout_s`, all together have `patience_s`. Raises: Problem.
        """
        deadline = _patience.compute_deadline(patience_s)
        pause_s, longest_s = _patience.PAUSE_S
        while True:
            await self._requested_pause.wait(deadline)
            try:
                return await self._try(what, work, timeout_s or self._timeout_s)
            except Problem as problem:
                if problem.status == 401 and renew is not None:
                    renew()
                    renew = None
                    continue
                wait_s = max(pause_s * random.uniform(0.5, 1.5), self._requested_pause.left_s)
                passing = problem.status in _PASSING or (isinstance(problem, Outage) and problem.status == 0)
                if not passing or time.monotonic() + wait_s > deadline:
                    raise
                log.debug("%s; tried again in %.1f s", problem, wait_s)
            await asyncio.sleep(wait_s)
            pause_s = min(longest_s, 2 * pause_s)

    async def _try(self, what: str, work: Callable[[], T], timeout_s: float) -> T:
        """Make one try. Raises: Problem."""
        if self._held >= MOST_HELD:
            raise Outage(f"{self._platform} has not finished its answers to {self._held} earlier calls ({what})")
        tried = Try()

        def work_in_try() -> T:
            with self._counting:
                self._held += 1
            try:
                with tried.in_this_thread():
                    return work()
            finally:
                with self._counting:
                    self._held -= 1

        async with self._turns:
            try:
                return await asyncio.wait_for(in_thread(work_in_try), timeout_s)
            except asyncio.TimeoutError:
                raise Outage(f"{self._platform} has not answered within {timeout_s:g} s ({what})") from None
            except NniliteError:
                raise
            except Exception as error:  # noqa: BLE001 - a library raises whatever an odd answer leads to
                problem = self.translate(what, error)
                log.debug("%s: %s", what, redact(repr(error)))
            finally:
                tried.end()
        if isinstance(problem, Throttled) and problem.retry_after_s:
            self._requested_pause.begin(problem.retry_after_s)
        raise problem
