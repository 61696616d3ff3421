"""An experiment over several services, one of which dies and another of which is full: all results come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from engine_bench import Bench, StartBench

from nnilite._engine import hybrid_members, slow_calls
from nnilite._engine.hybrid import HybridService, Member
from nnilite._engine.placement import Placement, Share
from nnilite.errors import ConfigError, NoCapacity, ServiceError
from nnilite.records import TrialState
from nnilite.service import Handle, JobStatus
from nnilite.testing.fakes import FakeService
from waiting import eventually_async

pytestmark = pytest.mark.usefixtures("impatient")


class Mortal(FakeService):
    """A platform that can go away with all its jobs, and come back."""

    is_dead = is_stuck = False

    async def submit(self, job: Any) -> Handle:
        self.check_pulse()
        await eventually_async(lambda: not self.is_stuck, 30.0)
        return await super().submit(job)

    async def poll(self, handles: Any) -> list[JobStatus]:
        self.check_pulse()
        return await super().poll(handles)

    def check_pulse(self) -> None:
        if self.is_dead:
            raise ServiceError("no route to host")


def services(placement: Placement = Placement.FILL, **shares: Share) -> Callable[..., HybridService]:
    def make(name: str, config: Any, context: Any) -> HybridService:
        members = [Member(Mortal(one, None, context), "true", None, share) for one, share in shares.items()]
        return HybridService(name, members, context, placement)

    return make


def member(bench: Bench, name: str) -> Mortal:
    assert isinstance(bench.service, HybridService)
    found = bench.service._members[name]
    assert isinstance(found, Mortal)
    return found


def homes(bench: Bench) -> Counter[str]:
    return Counter(attempt.service for attempt in bench.engine.submitted())


def stored(bench: Bench, state: TrialState) -> int:
    """How many trials are in this state, as far as it is committed."""
    return bench.manager.progress().counts[state]


async def finish_all(bench: Bench, names: list[str], trials: int) -> None:
    """Be the keepers of all jobs at these members until so many trials have succeeded."""
    done: set[str] = set()

    def fresh() -> list[str]:
        return [job for name in names for job in member(bench, name).jobs if job not in done]

    while stored(bench, TrialState.SUCCEEDED) < trials:
        for job in fresh():
            done.add(job)
            await bench.run_job(job)
        await bench.until(lambda: fresh() or stored(bench, TrialState.SUCCEEDED) >= trials, 60.0)


async def test_one_that_dies_half_way_and_one_that_is_full_cost_no_result(
    start_bench: StartBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = services(full=Share(3), own=Share(2), cluster=Share(2))
    bench = await start_bench(service=made, concurrency=4, max_trials=8, silence_s=1.0, retries_lost=1)
    member(bench, "full").refuse_with = NoCapacity("the queue is full")
    await bench.until(lambda: homes(bench) == {"own": 2, "cluster": 2}, 60.0)
    for job in member(bench, "cluster").jobs.values():
        job.start()
    member(bench, "cluster").is_dead = True
    await bench.until(lambda: "cluster" in bench.service.aside(), 60.0)  # type: ignore[attr-defined]
    await finish_all(bench, ["own"], 8)
    lost = [attempt for number in range(8) for attempt in (await bench.manager.results.trial(f"t{number}"))[1][:-1]]
    assert [attempt.service for attempt in lost] == ["cluster", "cluster"]
    finals = [one for k in range(8) for one in [(await bench.manager.results.trial(f"t{k}"))[0].value]]
    assert finals == [1.0] * 8


async def test_a_member_whose_submission_hangs_delays_neither_starts_nor_ends_elsewhere(
    start_bench: StartBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_calls, "PATIENCE_S", 0.05)
    monkeypatch.setattr(hybrid_members, "_TURN_S", 0.05)
    bench = await start_bench(service=services(stuck=Share(), own=Share()), concurrency=3, max_trials=5)
    member(bench, "stuck").is_stuck = True
    await bench.until(lambda: len(member(bench, "own").jobs) == 2)
    for job in member(bench, "own").jobs.values():
        job.finish()
    await bench.until(lambda: stored(bench, TrialState.SUCCEEDED) == 2 and len(member(bench, "own").jobs) == 4)
    assert member(bench, "stuck").jobs == {}
    member(bench, "stuck").is_stuck = False
    await bench.until(lambda: len(member(bench, "stuck").jobs) == 1)


async def test_one_that_was_set_aside_comes_back_by_itself(
    start_bench: StartBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnilite._engine.hybrid_members._ASIDE_S", 0.05)
    bench = await start_bench(service=services(near=Share(), far=Share()), max_trials=1)
    near = member(bench, "near")
    near.is_dead = True
    await bench.until(lambda: bench.service.aside(), 60.0)  # type: ignore[attr-defined]
    assert bench.service.aside() == {"near": "no route to host"}  # type: ignore[attr-defined]
    near.is_dead = False
    await bench.until(lambda: near.jobs and not bench.service.aside(), 60.0)  # type: ignore[attr-defined]


async def test_a_trial_leaves_a_queue_for_a_service_with_room(start_bench: StartBench) -> None:
    made = services(busy=Share(), idle=Share())
    bench = await start_bench(service=made, max_trials=1, move_after_s=0.1, retries_lost=0)
    await bench.until(lambda: homes(bench) == {"idle": 1}, 60.0)
    await bench.until(lambda: member(bench, "busy").jobs["nni-e-t0-0"].removed, 60.0)
    await finish_all(bench, ["idle"], 1)
    trial, attempts = await bench.manager.results.trial("t0")
    assert (trial.attempt, trial.service, len(attempts)) == (1, "idle", 2)
    assert "waited long in the queue of busy and idle has room" in attempts[0].message


async def test_a_trial_stays_in_its_queue_where_no_other_has_room(start_bench: StartBench) -> None:
    made = services(busy=Share(1), other=Share(1))
    bench = await start_bench(service=made, max_trials=2, move_after_s=0.05)
    await bench.until(lambda: homes(bench) == {"busy": 1, "other": 1}, 60.0)
    await bench.until(lambda: len(bench.engine.stuck()) == 2, 60.0)
    polls = member(bench, "other").calls.count("poll")
    await bench.until(lambda: member(bench, "other").calls.count("poll") > polls + 2, 60.0)
    assert homes(bench) == {"busy": 1, "other": 1}


async def test_a_retry_goes_elsewhere_first(start_bench: StartBench) -> None:
    bench = await start_bench(service=services(spot=Share(), own=Share()), max_trials=1)
    await bench.until(lambda: homes(bench) == {"spot": 1}, 60.0)
    member(bench, "spot").jobs["nni-e-t0-0"].lose()
    await bench.until(lambda: homes(bench) == {"own": 1}, 60.0)


async def test_a_trial_that_no_service_can_run_fails_with_the_reasons(start_bench: StartBench) -> None:
    made = services(near=Share(), far=Share())
    bench = await start_bench(service=made, max_trials=1, concurrency=1)
    for name in ("near", "far"):
        member(bench, name).refuse_with = ConfigError("a trial asks for 8 GPUs, and there are 2")
    await bench.until(lambda: stored(bench, TrialState.FAILED) >= 1, 60.0)
    trial, _ = await bench.manager.results.trial("t0")
    assert trial.reason.startswith("no service can run this trial: near: a trial asks for 8 GPUs")
