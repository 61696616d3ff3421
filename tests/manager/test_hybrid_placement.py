"""A hybrid service that is killed at any moment, whose members may not answer: no attempt runs on two of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from engine_bench import open_bench
from gate_world import play
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import EMPTY

from nnilite._engine import messages
from nnilite._engine.hybrid import HybridService, Member
from nnilite._engine.rules import Rules
from nnilite.errors import NoCapacity, ServiceError
from nnilite.records import TrialState
from nnilite.service import Handle, Job, TrainingService
from nnilite.testing.fakes import FakeService, NeverService, fake_context
from waiting import pause_async

JOB = Job("nni-e-t-0", "e", "t", 0, 0, {}, None)
NAMES = ("near", "far", "farther")


class Killed(BaseException):
    """kill -9 of the manager."""


@dataclass
class Fate:
    """What happens at each await, in order. When the list is at its end, everything works."""

    turns: Iterator[str]

    def next(self) -> str:
        return next(self.turns, "works")


@dataclass
class Notes:
    """The store: what was committed outlives a manager."""

    fate: Fate
    stored: str = ""

    def asked(self, job: Job) -> str:
        return self.stored

    def held(self, job: Job) -> dict[str, int]:
        return {}

    def tried(self, job: Job) -> tuple[str, ...]:
        return ()

    async def record(self, job: Job, member: str) -> None:
        turn = self.fate.next()
        if turn == "killed before":
            raise Killed
        self.stored = member
        if turn == "killed after":
            raise Killed


@dataclass
class Platform:
    """One of the platforms. It takes a job once, however often it is asked."""

    fate: Fate
    has_job: bool = False
    late: list[asyncio.Task[None]] = field(default_factory=list)

    async def submit(self) -> None:
        turn = self.fate.next()
        if turn == "killed before":
            raise Killed
        if turn == "lost before":
            raise ServiceError("connection reset")
        if turn == "no room" and not self.has_job:
            raise NoCapacity("no room")
        if turn == "hangs":
            await asyncio.Event().wait()
        self.has_job = True
        if turn == "hangs after":
            await asyncio.Event().wait()
        if turn == "killed after":
            raise Killed
        if turn == "lost after":
            raise ServiceError("connection reset")


class OnPlatform(FakeService):
    """A manager's view of a platform. What fails in it may also be a mistake of the plugin."""

    platform: Platform

    async def open(self) -> None:
        turn = self.platform.fate.next()
        if turn == "killed before":
            raise Killed
        if turn.startswith("lost"):
            raise ServiceError("connection refused")

    async def submit(self, job: Job) -> Handle:
        await self.platform.submit()
        return {"job": job.name}


async def live(platforms: dict[str, Platform], notes: Notes) -> None:
    """One manager after the other, until one of them has a handle."""
    context = fake_context(Path())
    for _ in range(1000):
        members = [OnPlatform(name, None, context) for name in platforms]
        for member in members:
            member.platform = platforms[member.name]
        hybrid = HybridService("hybrid", [Member(member, "true", None) for member in members], context)
        hybrid.notes = notes
        try:
            await submit_patiently(hybrid, platforms)
        except Killed:
            continue
        finally:
            check(platforms)
        return
    raise AssertionError("it was never submitted")


async def submit_patiently(hybrid: HybridService, platforms: dict[str, Platform]) -> None:
    is_open = False
    while True:
        try:
            if not is_open:
                await hybrid.open()
                is_open = True
            handle = await hybrid.submit(JOB)
        except ServiceError:
            check(platforms)
            await pause_async(60.0, "virtual, until the next try")
        else:
            assert platforms[handle["service"]].has_job
            return


def check(platforms: dict[str, Platform]) -> None:
    having = [name for name, platform in platforms.items() if platform.has_job]
    assert len(having) <= 1, f"{having} run the same attempt"


TURNS = st.sampled_from(
    ["works", "no room", "lost before", "lost after", "hangs", "hangs after", "killed before", "killed after"]
)


@settings(max_examples=500)
@given(st.lists(TURNS, max_size=25))
def test_no_two_members_get_one_attempt_whatever_fails_and_whoever_is_killed(turns: list[str]) -> None:
    fate = Fate(iter(turns))
    platforms = {name: Platform(fate) for name in NAMES}
    play(live(platforms, Notes(fate)))
    assert [platform.has_job for platform in platforms.values()].count(True) == 1


class Silent(NeverService):
    """Takes jobs without an answer."""

    async def submit(self, job: Job) -> Handle:
        await FakeService.submit(self, job)
        return await super().submit(job)


async def test_a_manager_that_comes_back_asks_the_member_that_the_last_one_asked(tmp_path: Path) -> None:
    platforms: dict[str, Any] = {}

    def service(name: str, config: Any, context: Any) -> TrainingService:
        kinds = (Silent, FakeService) if not platforms else (FakeService, FakeService)
        made = [kind(name, None, context) for kind, name in zip(kinds, ("near", "far"), strict=True)]
        for one in made:
            one.jobs = platforms.setdefault(one.name, {})
        order = made if len(platforms["near"]) == 0 else made[::-1]
        return HybridService("hybrid", [Member(one, "true", None) for one in order], context)

    async with open_bench(tmp_path, service, max_trials=1) as first:
        await first.until(lambda: platforms["near"])
    async with open_bench(tmp_path, service, max_trials=1) as second:
        await second.until(second.engine.submitted)
        assert second.engine.submitted()[0].service == "near"
    assert list(platforms["near"]) == ["nni-e-t0-0"]
    assert not platforms["far"]


def test_a_member_that_never_tells_whether_it_has_the_trial_is_given_up_with_the_attempt() -> None:
    rules = Rules(messages.Settings(1, silence_s=100.0, retries_lost=1), EMPTY, 0.0)
    rules.step(messages.Customized("t", {}, 0.0))
    rules.step(messages.Asked("t", 0, "near", 0.0))
    rules.step(messages.SubmitRefused("t", 0, "near: no answer", False, 1.0))
    rules.step(messages.Tick(90.0, 90.0))
    rules.step(messages.SubmitRefused("t", 0, "near: no answer", False, 90.0))
    assert rules.live["t"].trial.attempt == 0
    rules.step(messages.Tick(110.0, 101.0))
    trial = rules.live["t"].trial
    assert (trial.attempt, trial.state) == (1, TrialState.WAITING)
    assert "near did not confirm for 101 s whether it has the trial" in trial.reason


def test_a_service_that_is_the_only_one_is_asked_without_end() -> None:
    rules = Rules(messages.Settings(1, silence_s=100.0, retries_lost=1), EMPTY, 0.0)
    rules.step(messages.Customized("t", {}, 0.0))
    rules.step(messages.SubmitRefused("t", 0, "no answer", False, 1.0))
    rules.step(messages.Tick(5000.0, 5000.0))
    assert rules.live["t"].trial.attempt == 0


@pytest.mark.parametrize("refusal", [NoCapacity("no room"), ServiceError("connection refused")])
def test_a_job_goes_to_another_member_only_after_a_clear_refusal(refusal: ServiceError) -> None:
    context = fake_context(Path())
    near, far = FakeService("near", None, context), FakeService("far", None, context)
    near.refuse_with = refusal
    hybrid = HybridService("hybrid", [Member(near, "true", None), Member(far, "true", None)], context)
    hybrid.notes = Notes(Fate(iter(())))
    clear = isinstance(refusal, NoCapacity)
    if clear:
        asyncio.run(hybrid.submit(JOB))
    else:
        with pytest.raises(ServiceError, match="near: connection refused"):
            asyncio.run(hybrid.submit(JOB))
    assert bool(far.jobs) is clear
