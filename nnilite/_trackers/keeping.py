"""The manager's side of trackers: starts one process for each, and starts it again if it fails.

Nothing here waits for a tracker but the end of the manager, and that only for some seconds: what is not sent by then is
sent after a resume.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

LAST_S = 10.0
_FIRST_DELAY_S = 5.0
_LONGEST_DELAY_S = 300.0


async def keep_fed(directory: Path, names: Sequence[str], over: asyncio.Event) -> None:
    """Feed the trackers of the experiment in `directory` until `over`, and then with the rest, for some seconds."""
    await asyncio.gather(*(_keep(directory, number, name, over) for number, name in enumerate(names)))


async def _keep(directory: Path, number: int, name: str, over: asyncio.Event) -> None:
    delay_s = _FIRST_DELAY_S
    while True:
        try:
            process = await _started(directory, number, name)
        # The disk may be full, or the manager out of files.
        except OSError as error:
            log.error("%s (tracker) cannot be fed now: %s", name, error)
        else:
            if await _within(over, process.wait()):
                await _finish(process, name)
                return
            log.error("%s (tracker) ended with exit code %s; see log/tracker-%s.log", name, process.returncode, name)
        if await _within(over, asyncio.sleep(delay_s)):
            return
        delay_s = min(delay_s * 2, _LONGEST_DELAY_S)


async def _within(over: asyncio.Event, work: Coroutine[Any, Any, object]) -> bool:
    """Wait for the work, or until `over`, which is told."""
    tasks = [asyncio.ensure_future(over.wait()), asyncio.ensure_future(work)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    return over.is_set()


async def _started(directory: Path, number: int, name: str) -> asyncio.subprocess.Process:
    with (directory / "log" / f"tracker-{name}.log").open("ab") as out:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nnilite._trackers", str(directory), str(number)),
            stdin=asyncio.subprocess.PIPE,
            stdout=out,
            stderr=out,
        )


async def _finish(process: asyncio.subprocess.Process, name: str) -> None:
    """Let the process hand over what is stored, for some seconds, and end it."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), LAST_S)
    except asyncio.TimeoutError:
        log.warning("%s (tracker) has not taken everything; the rest is sent after a resume", name)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
