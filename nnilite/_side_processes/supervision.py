"""The manager's side of trackers and webhooks: starts one process for each, and starts it again if it fails.

Nothing here waits for a process but the end of the manager, and that only for some seconds: what is not sent by then is
sent after a resume.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnilite._logging.log_file import open_log
from nnilite.services.module_command import module_command

log = logging.getLogger(__name__)

LAST_S = 10.0
_FIRST_DELAY_S = 5.0
_LONGEST_DELAY_S = 300.0


@dataclass(frozen=True)
class SupervisedProcess:
    """A process to keep running. Without `output` it writes to the manager's log. `command`: module and arguments."""

    title: str
    command: tuple[str, ...]
    output: Path | None = None


async def supervise(specs: Sequence[SupervisedProcess], over: asyncio.Event) -> None:
    """Keep the processes running until `over`, and then with the rest, for some seconds."""
    await asyncio.gather(*(_keep_running(spec, over) for spec in specs))


async def _keep_running(spec: SupervisedProcess, over: asyncio.Event) -> None:
    delay_s = _FIRST_DELAY_S
    while True:
        try:
            process = await _started(spec)
        # The disk may be full, or the manager out of files.
        except OSError as error:
            log.error("%s cannot be started now: %s", spec.title, error)
        else:
            if await _within(over, process.wait()):
                await _finish(process, spec)
                return
            where = f"; see log/{spec.output.name}" if spec.output else ""
            log.error("%s ended with exit code %s%s", spec.title, process.returncode, where)
        if await _within(over, asyncio.sleep(delay_s)):
            return
        delay_s = min(delay_s * 2, _LONGEST_DELAY_S)


async def _within(over: asyncio.Event, work: Coroutine[Any, Any, object]) -> bool:
    """Wait for the work, or until `over`. Return whether the wait ended because of `over`."""
    tasks = [asyncio.ensure_future(over.wait()), asyncio.ensure_future(work)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    return over.is_set()


async def _started(spec: SupervisedProcess) -> asyncio.subprocess.Process:
    with contextlib.ExitStack() as opened:
        out = opened.enter_context(os.fdopen(open_log(spec.output), "ab")) if spec.output else None
        return await asyncio.create_subprocess_exec(
            *module_command(*spec.command), stdin=asyncio.subprocess.PIPE, stdout=out, stderr=out
        )


async def _finish(process: asyncio.subprocess.Process, spec: SupervisedProcess) -> None:
    """Let the process hand over what is stored, for some seconds, and end it."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), LAST_S)
    except asyncio.TimeoutError:
        log.warning("%s has not received everything; a resume sends the rest", spec.title)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
