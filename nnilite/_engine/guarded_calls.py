"""Calls of a plugin: each has an end, and raises nothing but errors of nnilite."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TypeVar

from nnilite._keeper.command_start import find_cure
from nnilite._loop_waits import limited
from nnilite.errors import NniliteError, ServiceError

log = logging.getLogger(__name__)

T = TypeVar("T")

CALL_TIMEOUT_S = 60.0


class PluginFault(ServiceError):
    """Raised if a plugin breaks its contract: a mistake in it, which hardly passes by itself."""


async def guarded(
    service: str,
    make: Callable[[], Awaitable[T]],
    timeout_s: float | None = None,
    fault: type[ServiceError] = PluginFault,
) -> T:
    """Make a call of the plugin of this name, and return its answer.

    Whatever goes wrong in it is raised as an NniliteError: as a `fault`, unless it is an NniliteError already.
    """
    limit_s = CALL_TIMEOUT_S if timeout_s is None else timeout_s
    try:
        # A method without `async def` raises here, not when its answer is awaited.
        call = make()
        if not isawaitable(call):
            raise fault(f"a method of {service} returned {call!r:.200} at once: declare it with `async def`")
        return await limited(limit_s, call)
    except NniliteError:
        raise
    except asyncio.TimeoutError:
        raise ServiceError(f"{service} did not answer within {limit_s:.0f} s") from None
    # A plugin may raise anything, and a failed call must not end the task.
    except Exception as error:
        if isinstance(error, RuntimeError) and (cure := find_cure(error)):  # no mistake of the plugin
            raise ServiceError(f"{service} cannot start a thread on this machine{cure}") from error
        log.exception("the training service %s failed", service)
        raise fault(f"{service} failed with {type(error).__name__}: {error}") from error
