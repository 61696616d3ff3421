"""A task that swallows a cancellation, as libraries and older Pythons do, does not hang the end of a service."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from nnilite.services.job_turns import JobTurns
from nnilite_local._endings import Endings
from nnilite_local._second_keepers import SecondKeepers
from nnilite_remote import _tunnel
from nnilite_remote._host_checkpoints import HostCheckpoints
from nnilite_slurm._arrays import JobArrays
from nnilite_slurm._joining_jobs import JoiningJobs
from waiting import others_turn

ANY: Any = None


async def _swallow() -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("owner", "tasks"),
    [
        (HostCheckpoints(Path()), "_moves"),
        (JoiningJobs(ANY, ANY, ANY), "_tasks"),
        (JobArrays(ANY, "e", ANY, 1, ANY), "_tasks"),
        (SecondKeepers(ANY, ANY), "_tasks"),
        (Endings(ANY, ANY, "host"), "_tasks"),
        (JobTurns(), "_looks"),
    ],
    ids=lambda one: type(one).__name__,
)
async def test_it_is_cancelled_again(owner: Any, tasks: str) -> None:
    task = asyncio.ensure_future(_swallow())
    await others_turn()
    known = getattr(owner, tasks)
    known.add(task) if isinstance(known, set) else known.update(job=task)
    await asyncio.wait_for(owner.close(), 30)
    assert task.cancelled()


async def test_a_tunnel_ends_all_that_runs_in_its_loop() -> None:
    def run() -> bool:
        async def leave_it() -> asyncio.Task[None]:
            task = asyncio.ensure_future(_swallow())
            await others_turn()
            return task

        loop = asyncio.new_event_loop()
        task = loop.run_until_complete(leave_it())
        loop.call_soon(loop.stop)
        _tunnel.TunnelGate._run(loop)
        return task.cancelled()

    assert await asyncio.wait_for(asyncio.to_thread(run), 30)
