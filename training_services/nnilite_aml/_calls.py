"""Call Azure's library, which blocks: in threads, with time limits, retries where they help, and nnilite's errors.

The library's own retries are switched off: they sleep for as long as Azure's `Retry-After` says, and hold a thread
meanwhile. All calls that are made here may be made twice: jobs, environments and snapshots have names of their own, and
canceling twice is harmless.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from nnilite.errors import NniliteError
from nnilite.platform_http import (
    AccessRefused,
    CallRefused,
    Outage,
    Problem,
    Throttled,
    Untrusted,
    in_thread,
    kind_and_cure,
    redact,
    retry_after_s,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

_PASSING = (408, 429, 500, 502, 503, 504)
_PAUSE_S = (0.5, 10.0)
_CALLS_AT_ONCE = 8
_SAID_CHARS = 600
# The URL opens a blob for all who have it.
_SIGNED = re.compile(r"\?[^\s'\")]*\bsig=[^\s'\")]*")


class AzureCalls:
    """For one event loop. `cure` is what helps if the login is refused."""

    def __init__(self, timeout_s: float, cure: str) -> None:
        self._timeout_s = timeout_s
        self._cure = cure
        self._not_before = 0.0
        self._turns = asyncio.Semaphore(_CALLS_AT_ONCE)

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
        deadline = time.monotonic() + patience_s
        pause_s, longest_s = _PAUSE_S
        while True:
            await self._await_turn(deadline)
            try:
                return await self._try(what, work, timeout_s or self._timeout_s)
            except Problem as problem:
                if problem.status == 401 and renew is not None:
                    renew()
                    renew = None
                    continue
                wait_s = max(pause_s * random.uniform(0.5, 1.5), self._not_before - time.monotonic())
                passing = problem.status in _PASSING or (isinstance(problem, Outage) and problem.status == 0)
                if not passing or time.monotonic() + wait_s > deadline:
                    raise
                log.debug("%s; tried again in %.1f s", problem, wait_s)
            await asyncio.sleep(wait_s)
            pause_s = min(longest_s, 2 * pause_s)

    async def _await_turn(self, deadline: float) -> None:
        """Wait while Azure asks for patience. Raises: Throttled if that takes too long."""
        wait_s = self._not_before - time.monotonic()
        if wait_s <= 0:
            return
        if self._not_before > deadline:
            problem = Throttled(f"Azure accepts no calls for another {wait_s:.0f} s")
            problem.status, problem.retry_after_s = 429, wait_s
            raise problem
        await asyncio.sleep(wait_s)

    async def _try(self, what: str, work: Callable[[], T], timeout_s: float) -> T:
        """Raises: Problem."""
        async with self._turns:
            try:
                return await asyncio.wait_for(in_thread(work), timeout_s)
            except asyncio.TimeoutError:
                raise Outage(f"Azure has not answered within {timeout_s:g} s ({what})") from None
            except NniliteError:
                raise
            except Exception as error:  # noqa: BLE001 - Azure's library raises whatever an odd answer leads to
                problem = self._problem(what, error)
                log.debug("%s: %r", what, error)
        if isinstance(problem, Throttled) and problem.retry_after_s:
            self._not_before = time.monotonic() + problem.retry_after_s
        raise problem

    def _problem(self, what: str, error: Exception) -> Problem:
        """Translate an error of Azure's library."""
        status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
        if _is_a(error, "ClientAuthenticationError") and status in (None, 400, 401):
            return _made(AccessRefused, f"the login to Azure is refused ({what}): {_said(error)}; {self._cure}", 401)
        if isinstance(status, int):
            return self._of_status(what, status, error)
        if any("CERTIFICATE" in str(each).upper() for each in _chain(error)):
            return _made(
                Untrusted,
                f"the certificate of Azure is not trusted ({what}): if a proxy replaces it, set the environment "
                "variable REQUESTS_CA_BUNDLE to the file of the proxy's authority",
            )
        if _is_a(error, "AzureError", "OSError", "RequestException"):
            return _made(Outage, f"Azure cannot be reached ({what}): {_said(error)}")
        if _is_a(error, "MlException", "ValidationError"):
            return _made(CallRefused, f"Azure's library refuses {what}: {_said(error)}")
        return _made(Outage, f"Azure's answer makes no sense ({what}): {type(error).__name__}: {_said(error)}")

    def _of_status(self, what: str, status: int, error: Exception) -> Problem:
        kind, _ = kind_and_cure(status)
        cures = {
            401: self._cure,
            403: "the user who is logged in needs the role AzureML Data Scientist on the workspace",
        }
        told = "; ".join(part for part in (_said(error), cures.get(status, "")) if part)
        problem = _made(kind, f"Azure answers {status} ({what}): {told}", status)
        problem.reply = _said(error)
        if isinstance(problem, Throttled):
            headers: Any = getattr(getattr(error, "response", None), "headers", None) or {}
            problem.retry_after_s = retry_after_s(str(headers.get("Retry-After", "")))
        return problem


def _made(kind: type[Problem], text: str, status: int = 0) -> Problem:
    problem = kind(redact(text))
    problem.status = status
    return problem


def _is_a(error: Exception, *names: str) -> bool:
    """Return whether an error is of a class of this name: the modules of the classes take seconds to import."""
    return any(each.__name__ in names for each in type(error).__mro__)


def _chain(error: BaseException) -> Iterator[BaseException]:
    known: list[BaseException] = [error]
    for each in known:
        yield each
        more = [each.__cause__, each.__context__, getattr(each, "inner_exception", None), *each.args]
        known.extend(item for item in more if isinstance(item, BaseException) and item not in known)


def _said(error: Exception) -> str:
    """Return the text of the error, on one line."""
    told = getattr(getattr(error, "error", None), "message", None) or getattr(error, "message", None) or str(error)
    return redact(_SIGNED.sub("?...", " ".join(str(told).split())))[:_SAID_CHARS]
