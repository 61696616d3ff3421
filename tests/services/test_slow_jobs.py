"""One job whose log or folder does not answer holds up no other job: on each platform that asks about single jobs."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nnilite.errors import ServiceError
from nnilite.service import JobState, JobStatus
from nnilite.services.job_turns import JobTurns
from nnilite.services.worker_side import FolderLooks
from nnilite_aml._service import AmlService
from nnilite_determined._service import DeterminedService
from nnilite_dlc._service import DlcService
from nnilite_dlts._service import DltsService
from nnilite_kubernetes._service import ClusterService
from nnilite_openpai._service import OpenPaiService
from nnilite_ray._service import RayService
from waiting import others_turn

RUNNING = JobStatus(JobState.RUNNING)
HANDLES = [{"job": f"nni-e-{name}-0", "id": str(number), "report": "stdout"} for number, name in enumerate(("a", "b"))]


async def _answer(value: Any, *_: object) -> Any:
    return value


async def _status(handle: dict[str, Any], *_: object) -> JobStatus:
    """The first job does not answer."""
    if handle["id"] == "0":
        await asyncio.Event().wait()
    return RUNNING


def _watch(handle: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(name=handle["job"], over=False, handle=handle, status=partial(_status, handle))


_stop = threading.Event()  # until then a job of Kubernetes does not answer


def _kubernetes() -> dict[str, Any]:
    known = SimpleNamespace(check_fresh=lambda _: None)

    async def in_thread(call: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.to_thread(call, *arguments)

    def status(opened: object, handle: dict[str, Any]) -> JobStatus:
        if handle["id"] == "0":
            _stop.wait(60)
        return RUNNING

    return {"_now": lambda: SimpleNamespace(known=known), "_in_thread": in_thread, "_status": status}


MIDDLE = {"jobs": partial(_answer, {}), "listed": partial(_answer, None), "watched": _watch, "_jobs": {}}
PLATFORMS: dict[type, dict[str, Any]] = {
    AmlService: MIDDLE,
    DeterminedService: MIDDLE,
    DlcService: MIDDLE,
    DltsService: MIDDLE,
    OpenPaiService: MIDDLE,
    RayService: MIDDLE,
    ClusterService: _kubernetes(),
}


def test_a_job_that_does_not_answer_is_unknown_and_holds_up_no_other() -> None:
    """All platforms at once: each look takes its limit."""
    services = [platform.__new__(platform) for platform in PLATFORMS]
    for service in services:
        vars(service).update(PLATFORMS[type(service)], _turns=JobTurns(limit_s=1.0))
    _stop.clear()

    async def poll_all() -> list[list[JobStatus]]:
        try:
            return await asyncio.wait_for(asyncio.gather(*(one.poll(HANDLES) for one in services)), 30)
        finally:
            _stop.set()
            await asyncio.gather(*(one._turns.close() for one in services))

    found = dict(zip(PLATFORMS, asyncio.run(poll_all()), strict=True))
    states = {platform: [one.state for one in both] for platform, both in found.items()}
    assert states == {platform: [JobState.UNKNOWN, JobState.RUNNING] for platform in PLATFORMS}
    assert [one for one, both in found.items() if "has not reported on it" not in both[0].reason] == []


async def _poll_both(turns: JobTurns, first: Callable[[], Awaitable[JobStatus]]) -> list[JobState]:
    found = await turns.statuses([("a", first), ("b", partial(_answer, RUNNING))])
    return [one.state for one in found]


def test_what_a_slow_job_tells_counts_at_the_next_look_and_it_is_asked_once() -> None:
    asked = []

    async def slow(answer: asyncio.Event) -> JobStatus:
        asked.append(1)
        await answer.wait()
        return JobStatus(JobState.SUCCEEDED)

    async def look() -> list[list[JobState]]:
        turns, answer = JobTurns(limit_s=0.05), asyncio.Event()
        call = partial(slow, answer)
        first = await _poll_both(turns, call), await _poll_both(turns, call)
        answer.set()
        await others_turn()
        return [*first, await _poll_both(turns, call)]

    late, later, last = asyncio.run(look())
    assert late == later == [JobState.UNKNOWN, JobState.RUNNING]
    assert last == [JobState.SUCCEEDED, JobState.RUNNING]
    assert len(asked) == 1


def test_a_job_whose_reports_are_being_read_is_not_asked_beside_that() -> None:
    async def look() -> list[JobState]:
        turns = JobTurns(limit_s=0.05)
        async with turns.turn("a"):
            found = await _poll_both(turns, partial(_answer, RUNNING))
        return [*found, *await _poll_both(turns, partial(_answer, RUNNING))]

    assert asyncio.run(look()) == [JobState.UNKNOWN, JobState.RUNNING, JobState.RUNNING, JobState.RUNNING]


def test_a_job_that_is_over_leaves_nothing() -> None:
    async def look() -> int:
        turns = JobTurns()
        await _poll_both(turns, partial(_answer, RUNNING))
        async with turns.turn("c"):
            pass
        gc.collect()
        return len(turns._locks)

    assert asyncio.run(look()) == 0


def test_what_a_platform_refuses_is_raised_and_forgotten() -> None:
    async def refuse() -> JobStatus:
        raise ValueError("no")

    async def look() -> list[JobState]:
        turns = JobTurns()
        with pytest.raises(ValueError, match="no"):
            await _poll_both(turns, refuse)
        return await _poll_both(turns, partial(_answer, RUNNING))

    assert asyncio.run(look()) == [JobState.RUNNING, JobState.RUNNING]


@pytest.mark.parametrize("platform", [DlcService, OpenPaiService], ids=lambda one: one.__name__)
def test_a_folder_that_hangs_is_looked_at_by_one_thread(
    platform: type, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looked, answer = [], threading.Event()

    def hang(*words: object) -> None:
        looked.append(words)
        answer.wait(20)

    monkeypatch.setattr("nnilite.services.delivery.list_attempt", hang)
    service = platform.__new__(platform)
    config = SimpleNamespace(local_storage_mount_point=tmp_path, container_mount="/mnt")
    vars(service).update(_folders=FolderLooks(limit_s=0.1), config=config, context=SimpleNamespace(experiment="e"))
    for _ in range(3):
        with pytest.raises(ServiceError, match="no answer within"):
            asyncio.run(service.files(HANDLES[0]))
    answer.set()
    assert len(looked) == 1
