"""What a manager leaves undone when it dies, or its platform is away, is made up for: by itself or by the next one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, open_bench

from nnilite._engine import messages
from nnilite._store.writer import Store
from nnilite.errors import ServiceError
from nnilite.records import ExperimentState, Started
from nnilite.testing import fakes

pytestmark = pytest.mark.usefixtures("impatient")


def of(platform: dict[str, fakes.FakeJob]) -> Callable[..., fakes.FakeService]:
    """Makes services of one platform, whose jobs outlive a manager."""

    def service(*arguments: Any) -> fakes.FakeService:
        made = fakes.FakeService(*arguments)
        made.jobs = platform
        return made

    return service


async def test_a_cancellation_that_a_manager_died_over_is_asked_for_by_the_next(tmp_path: Path) -> None:
    platform: dict[str, fakes.FakeJob] = {}
    async with open_bench(tmp_path, service=of(platform)) as first:
        await first.until(lambda: len(first.engine.submitted()) == 2)
        await first.engine.do(messages.Tick(first.engine.now(), 0.0))
        first.engine.caller.put = lambda action: None  # type: ignore[method-assign]  # it dies before it gets to it
        await first.engine.do(messages.CancelTrial("t0", first.engine.now()))
    async with open_bench(tmp_path, service=of(platform)) as second:
        await second.until(lambda: platform["nni-e-t0-0"].cancels)
        assert not platform["nni-e-t1-0"].cancels


def removals(folder: Path) -> int:
    """Return how many removals are left to the next manager."""
    with contextlib.closing(Store.open(folder / "nnilite.sqlite")) as store:
        return len(store.resume_reader.snapshot(maximize=True).removals)


async def test_a_removal_that_a_manager_died_over_is_asked_for_by_the_next(tmp_path: Path) -> None:
    platform: dict[str, fakes.FakeJob] = {}
    async with open_bench(tmp_path, service=of(platform)) as first:
        await first.until(lambda: "nni-e-t0-0" in platform)
        first.engine.caller.put = lambda action: None  # type: ignore[method-assign]  # it dies before it gets to it
        await first.run_job("nni-e-t0-0")
    assert not platform["nni-e-t0-0"].removed
    async with open_bench(tmp_path, service=of(platform)) as second:
        await second.until(lambda: platform["nni-e-t0-0"].removed)


async def test_a_removal_that_fails_is_asked_for_again_and_once_more_at_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnilite._engine.live_trial._REMOVE_AGAIN_S", 0.05)

    async with open_bench(tmp_path) as bench:
        bench.fake.remove_with = ServiceError("the platform is away")
        await bench.run_all(4)
        await bench.until(lambda: bench.fake.calls.count("remove nni-e-t0-0") > 2)
        monkeypatch.setattr("nnilite._engine.live_trial._REMOVE_AGAIN_S", 3600.0)
        asked = {name: bench.fake.calls.count(f"remove {name}") for name in bench.fake.jobs}
        late = time.monotonic() + 2.0  # a job whose removal was just being asked for is not asked for again
        await bench.until(
            lambda: (
                time.monotonic() > late
                or all(bench.fake.calls.count(f"remove {name}") > n for name, n in asked.items())
            )
        )
        bench.fake.remove_with = None
        await bench.engine.do(messages.Stop(bench.engine.now()))
        await bench.ended
        assert all(job.removed for job in bench.fake.jobs.values())
    assert removals(tmp_path) == 0


async def test_a_job_that_is_still_being_ended_at_the_stop_is_removed_a_moment_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnilite._engine.live_trial._LAST_REMOVE_AGAIN_S", 0.05)
    bench.fake.remove_with = ServiceError("it is still being ended")
    await bench.run_all(4)
    await bench.engine.do(messages.Stop(bench.engine.now()))
    await bench.until(lambda: bench.fake.calls.count("remove nni-e-t0-0") > 2)
    bench.fake.remove_with = None
    await bench.ended
    assert all(job.removed for job in bench.fake.jobs.values())


async def test_a_platform_that_removes_nothing_holds_the_end_up_for_a_while_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnilite._engine.state._LAST_REMOVALS_S", 2.0)

    async with open_bench(tmp_path) as bench:
        bench.fake.remove_with = ServiceError("the platform is away")
        await bench.run_all(4)
        await bench.engine.do(messages.Stop(bench.engine.now()))
        await bench.ended
    assert removals(tmp_path) == 4


async def test_a_job_whose_platform_did_not_confirm_its_end_is_ended_through_its_keeper(tmp_path: Path) -> None:
    async with open_bench(tmp_path) as stopped:
        await stopped.until(lambda: "nni-e-t0-0" in stopped.fake.jobs)
        await stopped.engine.commit_events("t0", 0, [Started(1.0)])
        for job in stopped.fake.jobs.values():
            job.obeys = False
        await stopped.engine.do(messages.Stop(stopped.engine.now()))
        await stopped.engine.do(messages.Abandon(stopped.engine.now()))
        await stopped.ended
    async with open_bench(tmp_path) as resumed:
        assert (await resumed.engine.commit_events("t0", 0, [])).cancel


async def test_a_stop_of_what_is_done_leaves_the_time_of_its_end(tmp_path: Path) -> None:
    async with open_bench(tmp_path, max_trials=1) as bench:
        await bench.run_all(1)
        await bench.until(lambda: bench.engine.rules.state is ExperimentState.DONE)
        ended = (await bench.manager.profile()).ended
        assert ended is not None
        await bench.manager.control.stop()
        await bench.ended
        profile = await bench.manager.profile()
        assert (profile.state, profile.ended) == (ExperimentState.STOPPED, ended)
