"""How tests wait: for something to become true, with a deadline (`eventually` of nnilite.testing where nothing is
awaited), or, where nothing can be asked, for a time that has a reason. Nothing else in tests may sleep.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from nnilite.testing.bench import LIMIT_S

T = TypeVar("T")

_TURN_S = 0.005


async def eventually_async(ask: Callable[[], T], limit_s: float = LIMIT_S) -> T:
    """Ask until the answer is true, and return it; the event loop goes on meanwhile. Raises: TimeoutError."""
    deadline = time.monotonic() + limit_s
    while not (answer := ask()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"this did not come true within {limit_s:g} s; the last answer was {answer!r}")
        await asyncio.sleep(_TURN_S)
    return answer


def pause(seconds: float, why: str) -> None:
    """Let time pass: for a stand-in that takes its time, or a moment of which only chance is asked."""
    assert why
    time.sleep(seconds)


async def pause_async(seconds: float, why: str) -> None:
    """The same for what runs on an event loop."""
    assert why
    await asyncio.sleep(seconds)


async def others_turn() -> None:
    """Let the other tasks of the event loop go on once."""
    await asyncio.sleep(0)
