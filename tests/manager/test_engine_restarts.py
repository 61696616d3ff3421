"""What a manager leaves undone when it dies, or its platform is away, is made up for: by itself or by the next one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, impatient, play

from nnilite._engine import messages as s
from nnilite._store.writer import Store
from nnilite.errors import ServiceError
from nnilite.records import Started
from nnilite.testing import fakes

__all__ = ["impatient"]


def of(platform: dict[str, fakes.FakeJob]) -> Callable[..., fakes.FakeService]:
    """Makes services of one platform, whose jobs outlive a manager."""

    def service(*arguments: Any) -> fakes.FakeService:
        made = fakes.FakeService(*arguments)
        made.jobs = platform
        return made

    return service


def test_a_cancellation_that_a_manager_died_over_is_asked_for_by_the_next(tmp_path: Path) -> None:
    platform: dict[str, fakes.FakeJob] = {}

    async def begun(running: Bench) -> None:
        await running.until(lambda: len(running.engine.submitted()) == 2)
        await running.engine.do(s.Tick(running.engine.now(), 0.0))
        running.engine.caller.put = lambda action: None  # type: ignore[method-assign]  # it dies before it gets to it
        await running.engine.do(s.CancelTrial("t0", running.engine.now()))

    async def resumed(running: Bench) -> None:
        await running.until(lambda: platform["nni-e-t0-0"].cancels)
        assert not platform["nni-e-t1-0"].cancels

    play(tmp_path, begun, service=of(platform))
    play(tmp_path, resumed, service=of(platform))


def test_a_removal_that_a_manager_died_over_is_asked_for_by_the_next(tmp_path: Path) -> None:
    platform: dict[str, fakes.FakeJob] = {}

    async def begun(running: Bench) -> None:
        await running.until(lambda: "nni-e-t0-0" in platform)
        running.engine.caller.put = lambda action: None  # type: ignore[method-assign]  # it dies before it gets to it
        await running.run_job("nni-e-t0-0")

    async def resumed(running: Bench) -> None:
        await running.until(lambda: platform["nni-e-t0-0"].removed)

    play(tmp_path, begun, service=of(platform))
    assert not platform["nni-e-t0-0"].removed
    play(tmp_path, resumed, service=of(platform))


def test_a_removal_that_fails_is_asked_for_again_and_once_more_at_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnilite._engine.live_trial._REMOVE_AGAIN_S", 0.05)

    async def scenario(running: Bench) -> None:
        running.fake.remove_with = ServiceError("the platform is away")
        await running.run_all(4)
        await running.until(lambda: running.fake.calls.count("remove nni-e-t0-0") > 2)
        monkeypatch.setattr("nnilite._engine.live_trial._REMOVE_AGAIN_S", 3600.0)
        asked = {name: running.fake.calls.count(f"remove {name}") for name in running.fake.jobs}
        late = time.monotonic() + 2.0  # a job whose removal was just being asked for is not asked for again
        await running.until(
            lambda: (
                time.monotonic() > late
                or all(running.fake.calls.count(f"remove {name}") > n for name, n in asked.items())
            )
        )
        running.fake.remove_with = None
        await running.engine.do(s.Stop(running.engine.now()))
        await running.ended
        assert all(job.removed for job in running.fake.jobs.values())

    play(tmp_path, scenario)
    with contextlib.closing(Store(tmp_path / "nnilite.sqlite")) as store:
        store.open()
        assert not store.snapshot(maximize=True).removals


def test_a_job_that_is_still_being_ended_at_the_stop_is_removed_a_moment_later(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        running.fake.remove_with = ServiceError("it is still being ended")
        await running.run_all(4)
        await running.engine.do(s.Stop(running.engine.now()))
        await running.until(lambda: running.fake.calls.count("remove nni-e-t0-0") > 2)
        running.fake.remove_with = None
        await running.ended
        assert all(job.removed for job in running.fake.jobs.values())

    play(tmp_path, scenario)


def test_a_platform_that_removes_nothing_holds_the_end_up_for_a_while_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnilite._engine.state._LAST_REMOVALS_S", 2.0)

    async def scenario(running: Bench) -> None:
        running.fake.remove_with = ServiceError("the platform is away")
        await running.run_all(4)
        await running.engine.do(s.Stop(running.engine.now()))
        await running.ended

    play(tmp_path, scenario)
    with contextlib.closing(Store(tmp_path / "nnilite.sqlite")) as store:
        store.open()
        assert len(store.snapshot(maximize=True).removals) == 4


def test_a_job_whose_platform_did_not_confirm_its_end_is_ended_through_its_keeper(tmp_path: Path) -> None:
    async def stopped(running: Bench) -> None:
        await running.until(lambda: "nni-e-t0-0" in running.fake.jobs)
        await running.engine.take("t0", 0, [Started(1.0)])
        for job in running.fake.jobs.values():
            job.obeys = False
        await running.engine.do(s.Stop(running.engine.now()))
        await running.engine.do(s.Abandon(running.engine.now()))
        await running.ended

    async def resumed(running: Bench) -> None:
        assert (await running.engine.take("t0", 0, [])).cancel

    play(tmp_path, stopped)
    play(tmp_path, resumed)
