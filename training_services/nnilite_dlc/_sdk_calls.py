"""Call Alibaba's library, which blocks: in threads, with time limits, retries where they help, and nnilite's errors.

The library's own retries are switched off: they sleep in their thread, and would make a job twice. Calls that may be
made twice are retried here. The call that makes a job is not: its caller knows what to do.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from nnilite.errors import NniliteError
from nnilite.platform_http import (
    AccessRefused,
    CallRefused,
    Missing,
    Outage,
    Problem,
    Throttled,
    Untrusted,
    in_thread,
    kind_and_cure,
    redact,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

_PASSING = (408, 429, 500, 502, 503, 504)
_PAUSE_S = (0.5, 10.0)
_CALLS_AT_ONCE = 8
_SAID_CHARS = 600
_KEY_CURE = "check that accessKeyId and accessKeySecret belong together and are not disabled"
_RIGHTS_CURE = "the owner of this key needs the developer role in the workspace (AliyunPAIDLCFullAccess)"
# How the codes of Alibaba's gateway begin, whatever status they come with.
_THROTTLED = ("Throttling", "FlowControl", "ServiceUnavailable.FlowControl", "TooManyRequests")
_WRONG_KEY = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidSecurityToken", "SecurityTokenExpired")
_UNSENT = ("NewConnectionError", "ConnectTimeoutError", "NameResolutionError")
"""Words of the library, which keeps nothing else of an error, for a connection that was not made."""
_WRONG_CLOCK = ("InvalidTimeStamp", "SignatureNonceUsed")


@dataclass(frozen=True)
class DlcCall:
    """The purpose of a call, in words, and how it may be made."""

    what: str
    patience_s: float = math.inf  # for all tries, but never more than the service has. 0: there is one try only


class DlcCalls:
    """For one event loop. Each try has `timeout_s`, all tries of a call have `patience_s`."""

    def __init__(self, timeout_s: float, patience_s: float) -> None:
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._not_before = 0.0
        self._turns = asyncio.Semaphore(_CALLS_AT_ONCE)

    async def run(self, call: DlcCall, work: Callable[[], T]) -> T:
        """Return the result of a call. Raises: Problem."""
        deadline = time.monotonic() + min(call.patience_s, self._patience_s)
        pause_s, longest_s = _PAUSE_S
        while True:
            await self._await_turn(deadline)
            try:
                return await self._try(call.what, work)
            except Problem as problem:
                wait_s = max(pause_s * random.uniform(0.5, 1.5), self._not_before - time.monotonic())
                passing = problem.status in _PASSING or (isinstance(problem, Outage) and problem.status == 0)
                if not passing or time.monotonic() + wait_s > deadline:
                    raise
                log.debug("%s; tried again in %.1f s", problem, wait_s)
            await asyncio.sleep(wait_s)
            pause_s = min(longest_s, 2 * pause_s)

    async def _await_turn(self, deadline: float) -> None:
        """Wait while DLC asks for patience. Raises: Throttled if that takes too long."""
        wait_s = self._not_before - time.monotonic()
        if wait_s <= 0:
            return
        if self._not_before > deadline:
            problem = Throttled(f"DLC accepts no calls for another {wait_s:.0f} s")
            problem.status, problem.retry_after_s = 429, wait_s
            raise problem
        await asyncio.sleep(wait_s)

    async def _try(self, what: str, work: Callable[[], T]) -> T:
        """Raises: Problem."""
        async with self._turns:
            try:
                return await asyncio.wait_for(in_thread(work), self._timeout_s)
            except asyncio.TimeoutError:
                raise Outage(f"DLC has not answered within {self._timeout_s:g} s ({what})") from None
            except NniliteError:
                raise
            except Exception as error:  # noqa: BLE001 - Alibaba's library raises whatever an odd answer leads to
                problem = problem_of(what, error)
                log.debug("%s: %s", what, redact(repr(error)))
        if isinstance(problem, Throttled) and problem.retry_after_s:
            self._not_before = time.monotonic() + problem.retry_after_s
        raise problem


def problem_of(what: str, error: Exception) -> Problem:
    """Translate an error of Alibaba's library."""
    status = getattr(error, "status_code", None)
    said = _said(error)
    if isinstance(status, int):
        return _of_status(what, status, str(getattr(error, "code", None) or ""), error)
    if "CERTIFICATE" in said.upper():
        return _made(
            Untrusted,
            f"the certificate of DLC is not trusted ({what}): set caCert to the PEM file of the authority that signed "
            "it, such as that of a proxy",
        )
    if "parse the value as json" in said:
        return _made(Outage, f"DLC's answer makes no sense ({what}): {said}")
    return _made(Outage, f"DLC cannot be reached ({what}): {said}; check region and endpoint")


def unsent(problem: Problem) -> bool:
    """Return whether a call has certainly not reached DLC."""
    return problem.status == 0 and any(word in str(problem) for word in _UNSENT)


def _of_status(what: str, status: int, code: str, error: Exception) -> Problem:
    kind, cure = kind_and_cure(status)
    if code.startswith(_THROTTLED):
        kind, status = Throttled, 429
    elif code.startswith(_WRONG_KEY):
        kind, cure = AccessRefused, _KEY_CURE
    elif code.startswith(_WRONG_CLOCK):
        kind, cure = AccessRefused, "check the clock of this machine"
    elif status == 403:
        cure = _RIGHTS_CURE
    elif code.endswith("NotFound") and status < 500:
        kind = Missing
    elif status < 500 and kind not in (AccessRefused, Missing, Throttled):
        kind = CallRefused if kind is Outage else kind
    told = "; ".join(part for part in (f"{code}: {_said(error)}" if code else _said(error), cure) if part)
    problem = _made(kind, f"DLC answers {status} ({what}): {told}")
    problem.status, problem.reply = status, f"{code} {_said(error)}"
    if isinstance(problem, Throttled):
        wait_ms = getattr(error, "retry_after", None)  # as the library itself takes it
        problem.retry_after_s = wait_ms / 1000 if isinstance(wait_ms, int) else 0.0
    return problem


def _made(kind: type[Problem], text: str) -> Problem:
    return kind(redact(text))


def _said(error: Exception) -> str:
    """Return the text of the error, on one line."""
    data = getattr(error, "data", None)
    told = data.get("Message") or data.get("message") if isinstance(data, dict) else None
    return redact(" ".join(str(told or error).split()))[:_SAID_CHARS]
